//! `waggle context`: gateways with the keys that commands send to them.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};

use super::contexts::{self, Context as Stored, Contexts};
use super::format::{Cell, Kind, OutputArgs};
use super::input;
use super::invocation::Invocation;
use super::output::Failure;
use super::secret_source::SecretSource;
use super::target::is_key;
use crate::config::{Environment, PublicUrl};
use crate::model::ids::Slug;

const KIND: Kind = Kind {
    name: "context",
    key: "name",
    columns: &[
        ("NAME", "name", Cell::Text),
        ("IN USE", "inUse", Cell::Text),
        ("URL", "url", Cell::Text),
        ("KEY", "key", Cell::Text),
        ("CACERT", "cacert", Cell::Text),
    ],
};

/// The maximum number of contexts.
const MAX_CONTEXTS: usize = 1_000;
/// How many characters of a key are shown, as in answers of the administration API.
const SHOWN: usize = 12;

/// Gateways by name.
#[derive(Args)]
pub(super) struct Context {
    #[command(flatten)]
    output: OutputArgs,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Store a gateway and the key to send to it; the first one is in use from then on. `--cacert` is stored with it.
    Add {
        /// The name of the context.
        #[arg(value_parser = Slug::parse)]
        name: Slug,
        /// The URL of the gateway.
        #[arg(long, value_parser = PublicUrl::parse)]
        url: PublicUrl,
        /// Where the key is: an environment variable (`env:VARIABLE`), a file (`file:PATH`), or standard input (-).
        #[arg(long, value_name = "SOURCE", default_value = "env:WAGGLE_KEY")]
        key_from: String,
    },
    /// Use a context for commands that name none.
    Use {
        /// The name of the context.
        name: String,
    },
    /// List the contexts, with the beginnings of their keys.
    List,
    /// Remove a context with its key.
    #[command(visible_alias = "delete")]
    Remove {
        /// The name of the context.
        name: String,
    },
}

impl Context {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let (environment, output) = (invocation.environment, self.output);
        let mut stored = contexts::read(environment)?;
        let (name, verb) = match self.command {
            Command::List => return output.list(&KIND, &shown(&stored)?),
            Command::Add { name, url, key_from } => {
                let name = name.to_string();
                check_new(&stored, &name)?;
                let cacert = invocation.cacert.as_deref().map(absolute).transpose()?;
                let key = key(&key_from, environment)?;
                stored.contexts.insert(name.clone(), Stored { url: url.to_string(), key, cacert });
                stored.current.get_or_insert_with(|| name.clone());
                (name, "added")
            }
            Command::Use { name } => {
                stored.check(&name)?;
                stored.current = Some(name.clone());
                (name, "using")
            }
            Command::Remove { name } => {
                stored.take(&name)?;
                stored.current = stored.current.take().filter(|current| *current != name);
                (name, "removed")
            }
        };
        contexts::write(environment, &stored)?;
        output.done(&KIND, &name, verb, None)
    }
}

fn check_new(stored: &Contexts, name: &str) -> Result<(), Failure> {
    if stored.contexts.contains_key(name) {
        return Err(Failure::Usage(format!("context {name} exists already; remove it first")));
    }
    if stored.contexts.len() >= MAX_CONTEXTS {
        return Err(Failure::Usage(format!("there are {MAX_CONTEXTS} contexts, the maximum; remove one")));
    }
    Ok(())
}

/// A path that means the same file everywhere.
fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| Failure::Input(path.display().to_string(), error))
}

/// The key of a source.
fn key(source: &str, environment: &Environment) -> Result<String, Failure> {
    let source = match source {
        "-" => SecretSource::File("-"),
        source => {
            let flag = ("--key-from", "env:VARIABLE, file:PATH or -, never the key");
            SecretSource::parse(source, environment, flag)?
        }
    };
    match source {
        SecretSource::Variable(value) => checked(value),
        SecretSource::File(file) => checked(&String::from_utf8_lossy(&input::read(file)?)),
    }
}

fn checked(text: &str) -> Result<String, Failure> {
    let key = text.trim();
    if is_key(key) { Ok(key.to_owned()) } else { Err(Failure::Usage("--key-from: not a key".to_owned())) }
}

/// The contexts as a list, with the beginnings of their keys.
fn shown(stored: &Contexts) -> Result<Vec<Box<RawValue>>, Failure> {
    let item = |(name, Stored { url, key, cacert }): (&String, &Stored)| {
        let in_use = (stored.current.as_ref() == Some(name)).then_some("*");
        let beginning: String = key.chars().take(SHOWN).collect();
        Ok(to_raw_value(
            &json!({"name": name, "inUse": in_use, "url": url, "key": beginning, "cacert": cacert}),
        )?)
    };
    stored.contexts.iter().map(item).collect()
}
