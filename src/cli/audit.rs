//! `waggle audit`: verifies the log in the database; tails and exports it through the administration API.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use clap::{Args, Subcommand, ValueEnum};
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use url::form_urlencoded::Serializer;
use uuid::Uuid;

use super::admin::{Admin, Request};
use super::format::{cell, shortened};
use super::invocation::Invocation;
use super::output::{Failure, print, print_piece};
use super::progress::Verbosity;
use super::runtime;
use crate::app;
use crate::config::Purpose;
use crate::model::audit::checkpoint::Checkpoint;
use crate::model::audit::signature::{PublicKey, PublicKeyError};

/// The polling interval of `tail -f`.
const POLL: Duration = Duration::from_secs(1);
/// Rows that `tail` requests at once.
const PAGE: u32 = 500;
/// Rows that `tail` remembers as printed: more than one page, since rows may arrive late.
const REMEMBERED: usize = 10_000;
/// The column of the table of `tail` with the key, of whose id only the beginning is shown.
const KEY: &str = "keyId";
/// The characters of a key's id in the table: those of the time of its creation in milliseconds, by which keys differ.
const KEY_CHARACTERS: usize = 13;
/// The columns of the table of `tail`: heading, member of the row, and width, which a longer value exceeds, since later rows
/// are not known when the first is printed.
const COLUMNS: [(&str, &str, usize); 9] = [
    ("AT", "at", 27),
    ("STATUS", "status", 6),
    ("OUTCOME", "outcome", 18),
    ("METHOD", "method", 34),
    ("AGENT", "agent", 12),
    ("SUBJECT", "subject", 26),
    ("KEY", KEY, KEY_CHARACTERS),
    ("CLIENT", "client", 15),
    ("REQUEST", "requestId", 32),
];

#[derive(Subcommand)]
pub(super) enum Audit {
    /// Verify every chain of the log in the database, and name the first row of each that was changed or is missing: exit
    /// code 0 intact, 1 tampered with, 2 could not be checked.
    Verify(Verify),
    /// Print the newest rows; `WAGGLE_URL` and `WAGGLE_KEY` name the gateway and the key.
    Tail(Tail),
    /// Print all rows, newest first; `WAGGLE_URL` and `WAGGLE_KEY` name the gateway and the key.
    Export(Export),
    /// Print a checkpoint of all chains, to be stored elsewhere; `WAGGLE_URL` and `WAGGLE_KEY` name the gateway and the
    /// key.
    Checkpoint,
    /// Print the public key that signs the log, for `verify --trust`.
    Key(Key),
}

#[derive(Args)]
pub(super) struct Verify {
    /// An earlier checkpoint, or a directory of them: the rows they record must be present and equal.
    #[arg(long, value_name = "PATH")]
    against: Option<PathBuf>,
    /// Trusted public keys, one per line as printed by `waggle audit key`; signatures by other keys are reported.
    #[arg(long, value_name = "FILE")]
    trust: Option<PathBuf>,
}

#[derive(Args)]
pub(super) struct Key {
    /// Generate a new key first, which is used from the next start on.
    #[arg(long)]
    new: bool,
}

#[derive(Args)]
pub(super) struct Tail {
    /// Print new rows as they arrive.
    #[arg(short, long)]
    follow: bool,
    /// The number of rows to begin with.
    #[arg(short, long, value_name = "ROWS", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=500))]
    lines: u32,
    /// The format of the output.
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value = "table")]
    output: TailFormat,
    #[command(flatten)]
    filter: Filter,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TailFormat {
    /// Columns for people.
    Table,
    /// The whole rows, each as a line of JSON.
    Json,
}

impl TailFormat {
    /// What is printed before the first row.
    fn head(self) -> String {
        match self {
            Self::Table => columns(|(heading, ..)| heading.to_owned()),
            Self::Json => String::new(),
        }
    }

    /// A row as a line.
    fn line(self, row: &Value) -> String {
        match self {
            Self::Table => columns(|(_, member, _)| match (member, cell(&row[member])) {
                (KEY, id) => id.chars().take(KEY_CHARACTERS).collect(),
                (_, text) => shortened(&text),
            }),
            Self::Json => format!("{row}\n"),
        }
    }
}

/// A line of the table, each cell padded to its width.
fn columns(cell: impl Fn((&'static str, &'static str, usize)) -> String) -> String {
    let cells = COLUMNS.map(|column| format!("{:<width$}", cell(column), width = column.2));
    format!("{}\n", cells.join("  ").trim_end())
}

#[derive(Args)]
pub(super) struct Export {
    /// The format.
    #[arg(long, value_enum, default_value = "ndjson")]
    format: Format,
    #[command(flatten)]
    filter: Filter,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Ndjson,
    Csv,
}

/// Filters of the log.
#[derive(Args)]
struct Filter {
    /// One agent, as named in requests.
    #[arg(long)]
    agent: Option<String>,
    /// One tenant.
    #[arg(long)]
    tenant: Option<String>,
    /// One key, by its id.
    #[arg(long)]
    key: Option<String>,
    /// One method.
    #[arg(long)]
    method: Option<String>,
    /// One outcome.
    #[arg(long)]
    outcome: Option<String>,
    /// One request, by the `X-Request-Id` of its answer.
    #[arg(long, value_name = "ID")]
    request: Option<String>,
    /// Not before this time, or this date in UTC.
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Before this time, or this date in UTC.
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Value>,
}

impl Audit {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        match self {
            Self::Verify(verify) => match verify.run(invocation) {
                Ok(true) => Ok(()),
                Ok(false) => Err(Failure::Unsound),
                Err(failure) => Err(Failure::Unverified(Box::new(failure))),
            },
            Self::Key(Key { new }) => {
                let settings = invocation.load(Purpose::Assist)?.settings;
                print(&format!("{}\n", app::audit_key(&settings, new)?))
            }
            Self::Tail(tail) => {
                let id = format!("audit-tail-{}", Uuid::new_v4());
                tail.run(&Admin::of(invocation)?.with_request_id(id.clone()), &id)
            }
            Self::Export(export) => export.run(&Admin::of(invocation)?),
            Self::Checkpoint => {
                let call = Request::new(Method::POST, "/audit/checkpoint");
                let answer = Admin::of(invocation)?.call(&call)?;
                print(&text(answer)?).and_then(|()| print("\n"))
            }
        }
    }
}

impl Verify {
    /// Whether the log is intact.
    fn run(self, invocation: &Invocation<'_>) -> Result<bool, Failure> {
        let checkpoints = self.against.as_deref().map(checkpoints).transpose()?.unwrap_or_default();
        let trusted = self.trust.as_deref().map(keys).transpose()?.unwrap_or_default();
        let settings = invocation.load(Purpose::Assist)?.settings;
        let progress = Verbosity::default().task("verifying the audit log");
        let verified = app::verify_audit(&settings, checkpoints, trusted);
        let verdict = runtime::run_multi_threaded(verified)??;
        progress.print(&verdict.text)?;
        Ok(verdict.sound)
    }
}

/// The checkpoint of a file, or those of a directory.
fn checkpoints(path: &Path) -> Result<Vec<Checkpoint>, Failure> {
    let failed = |error| Failure::Input(path.display().to_string(), error);
    if !fs::metadata(path).map_err(failed)?.is_dir() {
        return Ok(vec![checkpoint(path)?]);
    }
    let entries = fs::read_dir(path).map_err(failed)?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>().map_err(failed)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "json"));
    if files.is_empty() {
        let empty = format!("{}: expected checkpoints (*.json), found none", path.display());
        return Err(Failure::Usage(empty));
    }
    files.iter().map(|file| checkpoint(file)).collect()
}

fn checkpoint(file: &Path) -> Result<Checkpoint, Failure> {
    let name = || file.display().to_string();
    let json = fs::read(file).map_err(|error| Failure::Input(name(), error))?;
    serde_json::from_slice(&json).map_err(|error| Failure::InvalidInput(name(), error.to_string()))
}

/// The public keys of a file, one per line; blank lines and those that begin with # are left out.
fn keys(file: &Path) -> Result<Vec<PublicKey>, Failure> {
    let name = file.display();
    let text = fs::read_to_string(file).map_err(|error| Failure::Input(name.to_string(), error))?;
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let wrong =
        |nth: usize, error: PublicKeyError| Failure::Usage(format!("{name} line {}: {error}", nth + 1));
    let keys: Vec<_> =
        lines.map(|(nth, line)| line.parse().map_err(|error| wrong(nth, error))).collect::<Result<_, _>>()?;
    if keys.is_empty() {
        return Err(Failure::Usage(format!("{name}: expected public keys, one per line, found none")));
    }
    Ok(keys)
}

impl Tail {
    /// Prints all rows except its own, those of the request `id`.
    fn run(&self, admin: &Admin, id: &str) -> Result<(), Failure> {
        let mut known = BTreeSet::new();
        // With --follow, older rows of the first page are remembered and not printed.
        let limit = if self.follow { PAGE } else { self.lines };
        let mut printed = self.lines as usize;
        if print_piece(self.output.head().as_bytes())?.is_break() {
            return Ok(());
        }
        loop {
            let mut rows = self.page(admin, limit)?;
            rows.retain(|row| row["requestId"] != id);
            rows.reverse();
            let skipped = rows.len().saturating_sub(printed);
            for (nth, row) in rows.into_iter().enumerate() {
                let new =
                    known.insert((row["at"].to_string(), row["chain"].to_string(), row["seq"].as_i64()));
                if new && nth >= skipped && print_piece(self.output.line(&row).as_bytes())?.is_break() {
                    return Ok(());
                }
                while known.len() > REMEMBERED {
                    known.pop_first();
                }
            }
            if !self.follow {
                return Ok(());
            }
            printed = PAGE as usize;
            std::thread::sleep(POLL);
        }
    }

    fn page(&self, admin: &Admin, limit: u32) -> Result<Vec<Value>, Failure> {
        let path = format!("/audit?limit={limit}{}", self.filter.query());
        let answer = admin.call(&Request::get(path))?;
        let page: Page = serde_json::from_slice(&answer)?;
        Ok(page.items)
    }
}

impl Export {
    fn run(&self, admin: &Admin) -> Result<(), Failure> {
        let media_type = match self.format {
            Format::Ndjson => "application/x-ndjson",
            Format::Csv => "text/csv",
        };
        let query = self.filter.query();
        let query = query.strip_prefix('&').map(|query| format!("?{query}")).unwrap_or_default();
        admin.stream(&format!("/audit{query}"), media_type, print_piece)
    }
}

impl Filter {
    /// The query, beginning with `&`.
    fn query(&self) -> String {
        let Self { agent, tenant, key, method, outcome, request, from, to } = self;
        let names = ["agent", "tenant", "key", "method", "outcome", "request", "from", "to"];
        let values = [agent, tenant, key, method, outcome, request, from, to];
        let mut query = Serializer::new(String::new());
        for (name, value) in names.iter().zip(values) {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        let query = query.finish();
        if query.is_empty() { query } else { format!("&{query}") }
    }
}

fn text(bytes: Vec<u8>) -> Result<String, Failure> {
    String::from_utf8(bytes).map_err(|_| Failure::Gateway("unexpected answer: not UTF-8".to_owned()))
}
