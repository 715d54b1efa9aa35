//! `waggle import`: creates what exported documents describe, where nothing of it exists.

use clap::Args;

use super::admin::Admin;
use super::apply::execute;
use super::documents::{Documents, ObjectKind};
use super::gateway::{self, Options};
use super::invocation::Invocation;
use super::output::Failure;
use super::progress::Verbosity;

#[derive(Args)]
pub(super) struct Import {
    /// A file or a folder as `waggle export --dir` writes it; `-` is standard input.
    #[arg(value_name = "FILE|DIR")]
    file: String,
    #[command(flatten)]
    verbosity: Verbosity,
}

impl Import {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let admin = Admin::of(invocation)?;
        let documents = Documents::read(&self.file)?;
        let progress = self.verbosity.steps("importing");
        let plan = gateway::plan(&admin, &documents, Options::default(), &progress)?;
        for object in &documents.objects {
            if !plan.creates(object.kind, object.id.as_str()) {
                let exists = format!("{} {} exists already", object.kind.name(), object.id);
                return Err(Failure::Gateway(format!("{exists}; waggle apply changes what exists")));
            }
        }
        for manifest in &documents.manifests {
            if !plan.creates(ObjectKind::Agent, manifest.agent.as_str()) {
                let missing = format!("no document describes the agent of the manifest, {}", manifest.agent);
                return Err(Failure::Gateway(format!("{missing}; waggle apply changes agents that exist")));
            }
        }
        execute(&admin, &documents, &plan, (invocation, &progress))
    }
}
