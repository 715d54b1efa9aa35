//! `waggle diff`: what applying documents would change.

use clap::Args;

use super::admin::Admin;
use super::apply::planned;
use super::documents::Documents;
use super::gateway::{self, Options};
use super::invocation::Invocation;
use super::output::Failure;
use super::progress::Verbosity;

#[derive(Args)]
pub(super) struct Diff {
    /// A JSON or YAML file with manifests, tenants, connections and agents, or a folder of such files; `-` is standard
    /// input.
    #[arg(short, long, value_name = "FILE|DIR")]
    file: String,
    /// As `apply --prune`: with what it would delete.
    #[arg(long)]
    prune: bool,
    #[command(flatten)]
    verbosity: Verbosity,
}

impl Diff {
    /// Prints the changes; returns whether there are any.
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<bool, Failure> {
        let admin = Admin::of(invocation)?;
        let documents = Documents::read(&self.file)?;
        let progress = self.verbosity.steps("comparing");
        let options = Options { prune: self.prune, secrets: false };
        let plan = gateway::plan(&admin, &documents, options, &progress)?;
        progress.print(&plan.difference())?;
        let (created, updated, deleted) = plan.counts();
        let mut differs = created + updated + deleted > 0;
        progress.expect(documents.manifests.len());
        for manifest in &documents.manifests {
            let applied = planned(&admin, manifest, &plan)?;
            differs |= applied.is_a_change();
            progress.print(&applied.difference(&admin, manifest)?)?;
            progress.advance();
        }
        if !documents.objects.is_empty() {
            progress.print(&format!(
                "gateway: {created} to create, {updated} to update, {deleted} to delete\n"
            ))?;
        }
        Ok(differs)
    }
}
