//! `waggle apply`: makes an agent's catalog equal to a manifest.

use std::fmt::Write;

use clap::Args;
use reqwest::Method;
use serde::Deserialize;

use super::admin::{Admin, Request};
use super::input;
use super::output::{Failure, print};
use super::sources::Sources;
use crate::model::ids::Slug;

/// How many created, updated and deleted definitions are named, each.
const MOST_NAMED: usize = 20;

#[derive(Args)]
pub(super) struct Apply {
    /// The manifest, a JSON or YAML file that names its agent; `-` is standard input.
    #[arg(short, long, value_name = "FILE")]
    file: String,
    /// Print what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
}

/// The member of a manifest that names its agent.
#[derive(Deserialize)]
struct Addressed {
    agent: Option<String>,
}

/// What the gateway changed, or would change.
#[derive(Deserialize)]
pub(super) struct Applied {
    revision: i64,
    pub(super) created: Changed,
    pub(super) updated: Changed,
    pub(super) deleted: Changed,
    unchanged: usize,
}

#[derive(Deserialize)]
pub(super) struct Changed {
    pub(super) count: usize,
    resources: Vec<String>,
    templates: Vec<String>,
    prompts: Vec<String>,
    #[serde(default)]
    skills: Vec<String>,
}

impl Changed {
    /// The kind and the key of each definition that the gateway names.
    pub(super) fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let kinds = [
            ("resource", &self.resources),
            ("template", &self.templates),
            ("prompt", &self.prompts),
            ("skill", &self.skills),
        ];
        kinds.into_iter().flat_map(|(kind, names)| names.iter().map(move |name| (kind, name.as_str())))
    }
}

impl Apply {
    pub(super) fn run(self, sources: &Sources<'_>) -> Result<(), Failure> {
        let admin = Admin::of(sources)?;
        let manifest = manifest(&self.file)?.into_bytes();
        let agent = addressee(&manifest).map_err(|wrong| Failure::Manifest(self.file, wrong))?;
        let query = if self.dry_run { "?dryRun=true" } else { "" };
        let path = format!("/agents/{agent}/manifest{query}");
        let answer =
            admin.call(&Request { method: Method::PUT, path, body: Some(manifest), condition: None })?;
        let applied: Applied = serde_json::from_slice(&answer)?;
        print(&summary(&agent, &applied, self.dry_run))
    }
}

/// The manifest of a file, as JSON.
pub(super) fn manifest(file: &str) -> Result<String, Failure> {
    let bytes = input::read(file).map_err(|error| Failure::Input(file.to_owned(), error))?;
    input::as_json(&bytes).map_err(|wrong| Failure::Manifest(file.to_owned(), wrong))
}

/// The agent of a manifest.
pub(super) fn addressee(manifest: &[u8]) -> Result<Slug, String> {
    let Addressed { agent } = serde_json::from_slice(manifest).map_err(|error| error.to_string())?;
    let agent = agent.ok_or("agent is missing; expected the id of the agent")?;
    Slug::parse_agent(&agent).map_err(|error| format!("agent {error}"))
}

fn summary(agent: &Slug, applied: &Applied, dry_run: bool) -> String {
    let Applied { revision, created, updated, deleted, unchanged } = applied;
    let mut text = String::new();
    for (verb, names) in [("create", created), ("update", updated), ("delete", deleted)] {
        name(&mut text, verb, names);
    }
    let (when, done) = if dry_run { ("still at", "would be ") } else { ("at", "") };
    // Writing to a string does not fail.
    let _ = writeln!(
        text,
        "{agent} is {when} revision {revision}: {done}{} created, {} updated, {} deleted, {unchanged} unchanged",
        created.count, updated.count, deleted.count,
    );
    text
}

fn name(text: &mut String, verb: &str, names: &Changed) {
    for (kind, name) in names.named().take(MOST_NAMED) {
        let _ = writeln!(text, "{verb} {kind} {name}");
    }
    if let Some(more @ 1..) = names.count.checked_sub(MOST_NAMED) {
        let _ = writeln!(text, "{verb} {more} more");
    }
}
