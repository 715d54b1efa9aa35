//! The same statements without a gateway: `pgbench` on the gateway's own database.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::closed_loop::End;
use crate::error::{Error, excerpt};

/// How long it may take to connect and to exit, in addition to its duration.
const GRACE: Duration = Duration::from_secs(30);
/// How long a number of transactions may take.
const TRANSACTIONS: Duration = Duration::from_mins(10);
/// The settings of the gateway's connections that plans depend on (src/store/mod.rs), so that both execute the same ones.
const OPTIONS: &str = "-c plan_cache_mode=force_generic_plan -c enable_seqscan=off -c jit=off";

/// `pgbench`, prepared for a database.
pub(crate) struct Pgbench {
    script: PathBuf,
    /// The arguments that name the database, also for `psql`.
    database: Vec<String>,
}

impl Pgbench {
    /// Prepares a script for a database, with files in `dir`; `None` if `pgbench` is not installed.
    pub(crate) async fn new(
        script: &str,
        database: impl IntoIterator<Item = String>,
        dir: &Path,
    ) -> Result<Option<Self>, Error> {
        let version = Command::new("pgbench").arg("--version").stdout(Stdio::null()).status().await;
        if !version.is_ok_and(|status| status.success()) {
            return Ok(None);
        }
        let file = dir.join("pgbench.sql");
        fs::write(&file, script).map_err(Error::io("write the script of pgbench"))?;
        Ok(Some(Self { script: file, database: database.into_iter().collect() }))
    }

    /// Disables or enables inserts into the audit outbox.
    pub(crate) async fn set_outbox_disabled(&self, disabled: bool) -> Result<(), Error> {
        let statement = if disabled {
            "create or replace function bench_nothing() returns trigger language plpgsql as 'begin return null; end'; \
             create trigger bench_nothing before insert on audit_outbox for each row execute function bench_nothing()"
        } else {
            "drop trigger if exists bench_nothing on audit_outbox"
        };
        let mut command = Command::new("psql");
        command.args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--command", statement]);
        command.args(&self.database);
        let output = timeout(GRACE, command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
        let output = output.map_err(|_| Error::Pgbench("psql did not exit".to_owned()))?;
        let output = output.map_err(Error::io("run psql"))?;
        if output.status.success() { Ok(()) } else { Err(Error::Pgbench(excerpt(&output.stderr))) }
    }

    /// Runs `clients`, each for a time or for a number of transactions; returns the transactions per second.
    pub(crate) async fn run(&self, clients: usize, end: End) -> Result<f64, Error> {
        let (end, most) = match end {
            End::Times(number) => (format!("--transactions={number}"), TRANSACTIONS),
            End::After(duration) => (format!("--time={}", duration.as_secs()), duration + GRACE),
        };
        let mut command = Command::new("pgbench");
        // A script may count a client's transactions in `nth`.
        command.args(["--no-vacuum", "--protocol=prepared", "--jobs=2", "--define=nth=0", &end]);
        command.arg(format!("--client={clients}")).arg("--file").arg(&self.script).args(&self.database);
        command.env("PGOPTIONS", OPTIONS).stdin(Stdio::null()).kill_on_drop(true);
        let late = |_| Error::Pgbench(format!("it did not exit within {} s", most.as_secs()));
        let output = timeout(most, command.output()).await.map_err(late)?;
        let output = output.map_err(Error::io("run pgbench"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        match tps(&text) {
            Some(tps) if output.status.success() => Ok(tps),
            _ => Err(Error::Pgbench(excerpt(&output.stderr))),
        }
    }
}

/// Reads the line `tps = 1234.5 (without initial connection time)`.
fn tps(output: &str) -> Option<f64> {
    output.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::Value;

    use super::tps;
    use crate::{cold_reads, writes};

    /// The queries of the gateway, from the metadata of its build.
    fn queries() -> Vec<String> {
        let described = fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.sqlx")).unwrap();
        let query = |file: fs::DirEntry| {
            let file: Value = serde_json::from_slice(&fs::read(file.path()).unwrap()).unwrap();
            plain(file["query"].as_str().unwrap())
        };
        described.map(|file| query(file.unwrap())).collect()
    }

    /// A statement without white space and without the marks and types in column names that only the build reads.
    fn plain(statement: &str) -> String {
        let mut quoted = false;
        let mut typed = false;
        let read = |c: &char| {
            quoted ^= *c == '"';
            typed = quoted && (typed || *c == ':');
            !typed && !c.is_whitespace() && !matches!(c, '"' | '!')
        };
        statement.chars().filter(read).collect()
    }

    /// Whether a statement is a query with a value in the place of each parameter.
    fn is(statement: &str, query: &str) -> bool {
        let pieces = query.split('$').map(|piece| piece.trim_start_matches(|c: char| c.is_ascii_digit()));
        let mut pieces: Vec<_> = pieces.collect();
        let last = pieces.pop().unwrap();
        let mut rest = Some(statement);
        for (at, piece) in pieces.into_iter().enumerate() {
            let split = rest.and_then(|rest| rest.split_once(piece));
            rest = split.filter(|(before, _)| at > 0 || before.is_empty()).map(|(_, after)| after);
        }
        rest.is_some_and(|rest| rest.ends_with(last))
    }

    #[test]
    fn every_statement_of_the_scripts_is_a_query_of_the_gateway() {
        let queries = queries();
        let check = |script: &'static str| {
            // One statement per line; `\gset` or `\aset` after it stores its result.
            let lines = script.lines().filter(|line| !line.starts_with(['-', '\\']));
            let statements = lines
                .map(|line| plain(line.split_once('\\').map_or(line, |(it, _)| it).trim_end_matches(';')));
            let own = |it: &String| matches!(it.as_str(), "begin" | "commit") || it.contains("bench_agents");
            let (own, statements): (Vec<_>, Vec<_>) = statements.partition(own);
            for statement in &statements {
                assert!(queries.iter().any(|query| is(statement, query)), "{statement}");
            }
            (own, statements.len())
        };
        assert_eq!(check(writes::SCRIPT), (vec!["begin".to_owned(), "commit".to_owned()], 3));
        let choice = plain("select hash, slug, tenant, uid, uri from bench_agents where n = :n");
        assert_eq!(check(cold_reads::SCRIPT), (vec![choice], 2));
    }

    #[test]
    fn the_rate_is_read_from_the_summary() {
        let summary = "latency average = 3.2 ms\ninitial connection time = 8.0 ms\n\
                       tps = 9876.543210 (without initial connection time)\n";
        assert_eq!(tps(summary), Some(9876.54321));
        assert_eq!(tps("pgbench: error"), None);
    }
}
