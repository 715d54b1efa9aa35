//! `waggle key`: generates operator keys, and creates keys of agents.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use reqwest::Method;
use serde::{Deserialize, Serialize};

use super::admin::{Admin, Request};
use super::output::{Failure, print};
use super::sources::Sources;
use crate::model::ids::Slug;
use crate::model::key::{KeyKind, SecretKey};

#[derive(Subcommand)]
pub(super) enum Key {
    /// Generate a key and print it, or write it to a file; it is stored nowhere else.
    Generate {
        /// An operator key, for `admin.operator_key` or `admin.operator_keys_file`.
        #[arg(long, required = true)]
        operator: bool,
        /// Write the key to this new file, readable by its owner only, instead of printing it.
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
    },
    /// Create a key of an agent and print it; `WAGGLE_URL` and `WAGGLE_KEY` name the gateway and the key.
    Create {
        /// The agent.
        #[arg(long, value_parser = Slug::parse_agent)]
        agent: Slug,
        #[command(flatten)]
        key: NewKey,
    },
}

/// A key to be created.
#[derive(Args, Serialize)]
pub(super) struct NewKey {
    /// Its name.
    #[arg(long)]
    name: String,
    /// A scope, `mcp` by default; can be repeated.
    #[arg(long = "scope", value_name = "SCOPE")]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<String>,
    /// A label: the key sees definitions with one of its labels, and those without labels; can be repeated.
    #[arg(long = "label", value_name = "LABEL")]
    labels: Vec<String>,
}

/// What is read of a created key.
#[derive(Deserialize)]
struct Created {
    key: String,
}

impl Key {
    pub(super) fn run(self, sources: &Sources<'_>) -> Result<(), Failure> {
        match self {
            Self::Generate { operator: _, out } => generate(out),
            Self::Create { agent, key } => create(&agent, &key, sources),
        }
    }
}

fn generate(out: Option<PathBuf>) -> Result<(), Failure> {
    let key = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
    let Some(file) = out else { return print(&format!("{}\n", key.reveal())) };
    let mut options = OpenOptions::new();
    // An existing file may contain a key in use.
    let created = options.write(true).create_new(true).mode(0o600).open(&file);
    let written = created.and_then(|mut file| {
        writeln!(file, "{}", key.reveal())?;
        file.sync_all()
    });
    written.map_err(|error| Failure::File(file.display().to_string(), error))?;
    print(&format!("wrote the operator key {}… to {}\n", key.display(), file.display()))
}

fn create(agent: &Slug, key: &NewKey, sources: &Sources<'_>) -> Result<(), Failure> {
    let body = serde_json::to_vec(key)?;
    let request = Request {
        method: Method::POST,
        path: format!("/agents/{agent}/keys"),
        body: Some(body),
        condition: None,
    };
    let answer = Admin::of(sources)?.call(&request)?;
    let Created { key } = serde_json::from_slice(&answer)?;
    print(&format!("{key}\n"))
}
