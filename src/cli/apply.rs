//! `waggle apply`: makes a gateway as documents describe it, and agents' catalogs equal to manifests.

use std::io::{self, BufRead, IsTerminal, Write};

use clap::Args;

use super::admin::{Admin, Request};
use super::documents::{Documents, Manifest, ObjectKind};
use super::gateway::{self, Options, Plan};
use super::invocation::Invocation;
use super::manifest::{self, Applied};
use super::object::encoded;
use super::output::Failure;
use super::progress::{Progress, Verbosity};

/// How many deletions are named in a refusal.
const MAX_NAMED: usize = 20;

#[derive(Args)]
pub(super) struct Apply {
    /// A JSON or YAML file with manifests, tenants, connections and agents, or a folder of such files; `-` is standard
    /// input.
    #[arg(short, long, value_name = "FILE|DIR")]
    file: String,
    /// Print what would be done, and change nothing.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    deletion: Deletion,
    /// Set all secrets again; without it, those that are set stay as they are.
    #[arg(long)]
    secrets: bool,
    #[command(flatten)]
    verbosity: Verbosity,
}

/// What is deleted besides.
#[derive(Args)]
struct Deletion {
    /// Delete tenants, connections and agents that are not described, of the kinds that are described.
    #[arg(long)]
    prune: bool,
    /// Delete without asking.
    #[arg(long, requires = "prune")]
    yes: bool,
}

impl Apply {
    pub(super) fn run(self, invocation: &Invocation<'_>) -> Result<(), Failure> {
        let admin = Admin::of(invocation)?;
        let documents = Documents::read(&self.file)?;
        let options = Options { prune: self.deletion.prune, secrets: self.secrets };
        let progress = self.verbosity.steps("applying");
        let plan = gateway::plan(&admin, &documents, options, &progress)?;
        if self.dry_run {
            return show(&admin, &documents, &plan, &progress);
        }
        if !self.deletion.yes {
            confirm(&plan, &progress)?;
        }
        execute(&admin, &documents, &plan, (invocation, &progress))
    }
}

/// What applying a manifest would change.
pub(super) fn planned(admin: &Admin, manifest: &Manifest, plan: &Plan) -> Result<Applied, Failure> {
    let agent_exists = !plan.creates(ObjectKind::Agent, manifest.agent.as_str());
    let names = |id: &str| manifest.json.contains(&format!("\"{id}\""));
    let created =
        plan.changes.iter().filter(|change| change.creates && change.kind == ObjectKind::Connection);
    if agent_exists && !created.map(|change| change.id.as_str()).any(names) {
        return manifest::plan(admin, manifest).map_err(|failure| match (failure, &manifest.file) {
            (Failure::Gateway(wrong), Some(file)) => Failure::Gateway(format!("{file}: {wrong}")),
            (other, _) => other,
        });
    }
    manifest::plan_here(admin, manifest, agent_exists)
}

fn show(admin: &Admin, documents: &Documents, plan: &Plan, progress: &Progress) -> Result<(), Failure> {
    for change in &plan.changes {
        progress.print(&format!("{} {} {}\n", verb(change.creates), change.kind.name(), change.id))?;
    }
    for manifest in &documents.manifests {
        progress.print(&planned(admin, manifest, plan)?.summary(&manifest.agent, true))?;
    }
    for (kind, id) in &plan.deletions {
        progress.print(&format!("delete {} {id}\n", kind.name()))?;
    }
    finish(documents, plan, "would be ", progress)
}

/// Makes the changes in an order in which none refers to what does not exist. Stops at the first that fails.
pub(super) fn execute(
    admin: &Admin,
    documents: &Documents,
    plan: &Plan,
    (invocation, progress): (&Invocation<'_>, &Progress),
) -> Result<(), Failure> {
    // Missing secrets are reported before anything is changed.
    let requests = plan.changes.iter().map(|change| change.request(invocation.environment));
    let requests = requests.collect::<Result<Vec<_>, _>>()?;
    let mut done = 0;
    progress.expect(plan.changes.len() + documents.manifests.len() + plan.deletions.len());
    // Alone, a manifest needs no more than its own message.
    let alone = documents.count() == 1;
    let failed = |what: &str, done: usize, error: Failure| match error {
        Failure::Gateway(wrong) if !alone => {
            let before = if done == 1 { "1 change was".to_owned() } else { format!("{done} changes were") };
            Failure::Gateway(format!("{what}: {wrong}; {before} made before it; correct it and apply again"))
        }
        other => other,
    };
    for (change, request) in plan.changes.iter().zip(&requests) {
        let what = format!("{} {}", change.kind.name(), change.id);
        admin.call(request).map_err(|error| failed(&what, done, error))?;
        done += 1;
        progress.advance();
        progress.print(&format!("{} {what}\n", verb(change.creates)))?;
    }
    for manifest in &documents.manifests {
        let what = format!("manifest of {}", manifest.agent);
        let applied = manifest::apply(admin, manifest).map_err(|error| failed(&what, done, error))?;
        done += usize::from(applied.is_a_change());
        progress.advance();
        progress.print(&applied.summary(&manifest.agent, false))?;
    }
    for (kind, id) in &plan.deletions {
        let what = format!("{} {id}", kind.name());
        let path = format!("{}/{}", kind.list(), encoded(id));
        admin.call(&Request::delete(path)).map_err(|error| failed(&what, done, error))?;
        done += 1;
        progress.advance();
        progress.print(&format!("delete {what}\n"))?;
    }
    finish(documents, plan, "", progress)
}

fn verb(creates: bool) -> &'static str {
    if creates { "create" } else { "update" }
}

/// Prints how many objects were changed, unless there are only manifests.
fn finish(documents: &Documents, plan: &Plan, would_be: &str, progress: &Progress) -> Result<(), Failure> {
    if documents.objects.is_empty() {
        return Ok(());
    }
    let (created, updated, deleted) = plan.counts();
    let unchanged = plan.unchanged;
    progress.print(&format!(
        "gateway: {would_be}{created} created, {updated} updated, {deleted} deleted, {unchanged} unchanged\n"
    ))
}

/// Asks before anything is deleted; refuses where there is no terminal to ask at.
fn confirm(plan: &Plan, progress: &Progress) -> Result<(), Failure> {
    if plan.deletions.is_empty() {
        return Ok(());
    }
    let named = plan.deletions.iter().take(MAX_NAMED).map(|(kind, id)| format!("{} {id}", kind.name()));
    let mut shown: Vec<_> = named.collect();
    if let Some(more @ 1..) = plan.deletions.len().checked_sub(MAX_NAMED) {
        shown.push(format!("{more} more"));
    }
    let shown = shown.join(", ");
    let (input, mut output) = (io::stdin(), io::stderr());
    if !(input.is_terminal() && output.is_terminal()) {
        return Err(Failure::Usage(format!(
            "--prune would delete {shown}; use --yes, since there is no terminal to ask at"
        )));
    }
    let mut answer = String::new();
    let asked = progress.paused(|| {
        write!(output, "delete {shown}, with all that belongs to them? [y/N] ")?;
        output.flush()?;
        input.lock().read_line(&mut answer)
    });
    asked.map_err(|error| Failure::Input("standard input".to_owned(), error))?;
    if matches!(answer.trim(), "y" | "Y" | "yes") {
        Ok(())
    } else {
        Err(Failure::Gateway("nothing was changed".to_owned()))
    }
}
