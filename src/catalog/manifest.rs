//! Manifests: all definitions of an agent, applied and read at once.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::Catalog;
use super::difference::Registered;
pub use super::plan::{Applied, Names, NewManifest};
use super::plan::{Plan, Stored};
use super::target::{NO_AGENT, Target};
use crate::model::agent::Agent;
use crate::model::audit::chain::Digest;
use crate::model::audit::event::ChangeHashes;
use crate::model::audit::fingerprint::{Fingerprint, of_all};
use crate::model::audit::write::AuditedWrite;
use crate::model::fault::{Fault, shortened};
use crate::model::ids::{AgentId, TenantId};
use crate::model::precondition::Precondition;
use crate::model::prompt::{NewPrompt, Prompt};
use crate::model::resource::{ContentHash, Resource};
use crate::model::scope::{Revision, Scope};
use crate::model::sources::Sources;
use crate::model::template::{NewTemplate, ResourceTemplate};
use crate::store::StoreError;
use crate::store::snapshot::Snapshot;
use crate::store::write::{Write, WriteSummary};

/// Bytes of contents read by one statement, but for a single content that has more.
const READ_BYTES: usize = 8 << 20;

/// All that an agent has registered, at one revision, with the bytes of its contents.
#[derive(Debug)]
pub struct FullManifest {
    /// The revision of the agent's scope.
    pub revision: Revision,
    /// Its resources, in byte order of their URIs.
    pub resources: Vec<Resource>,
    /// Its resource templates, in byte order.
    pub templates: Vec<ResourceTemplate>,
    /// Its prompts, in byte order of their names.
    pub prompts: Vec<Prompt>,
    /// What all of them name.
    pub bytes: BTreeMap<ContentHash, Bytes>,
}

/// The position of a definition in a manifest.
#[derive(Debug, Clone, Copy)]
pub struct ManifestEntry<'a> {
    /// The list.
    pub list: &'static str,
    /// Its number in the list, from 0.
    pub index: usize,
    /// Its key; may be empty.
    pub name: &'a str,
}

impl fmt::Display for ManifestEntry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.list, self.index)?;
        if self.name.is_empty() { Ok(()) } else { write!(f, " ({})", shortened(self.name)) }
    }
}

impl Catalog {
    /// Replaces all definitions of an agent by those of a manifest, in one transaction. Definitions that are the same stay as
    /// they are; where all are, so does the revision. The precondition applies to the revision of the agent's scope.
    ///
    /// # Errors
    /// As of each resource, template and prompt, [`Fault::InvalidParams`] saying of which; [`Fault::RevisionMismatch`];
    /// [`Fault::NotFound`] where the agent is gone.
    pub async fn apply_manifest(
        self: &Arc<Self>,
        agent: &Agent,
        wanted: NewManifest,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Applied, Fault> {
        self.check_manifest(agent, &wanted).await?;
        let (catalog, tenant, agent) = (Arc::clone(self), agent.tenant, agent.uid);
        self.writer
            .detached(async move {
                catalog
                    .writer
                    .transact(Scope::from(agent), &audited, async |write| {
                        let target = Target::lock(write, tenant, agent).await?;
                        condition.check(Some(target.present()))?;
                        let stored = Stored::read_in(write, tenant, agent).await?;
                        let plan = Plan::new(&stored, &wanted);
                        catalog.carry_out(write, &target, &plan).await?;
                        let changed = plan.changes().next().is_some();
                        if changed && audited.call().is_some() {
                            write.set_summary(summary_of_all(&target, &stored, &wanted));
                        }
                        Ok(plan.into_applied(if changed { target.revision } else { target.present() }))
                    })
                    .await
            })
            .await
    }

    /// What [`apply_manifest`](Self::apply_manifest) would do at this moment.
    ///
    /// # Errors
    /// Those of [`apply_manifest`](Self::apply_manifest).
    pub async fn plan_manifest(
        &self,
        agent: &Agent,
        wanted: &NewManifest,
        condition: &Precondition,
    ) -> Result<Applied, Fault> {
        self.check_manifest(agent, wanted).await?;
        let mut view = self.store.snapshot().await?;
        let revision = present(&mut view, agent).await?;
        let stored = Stored::read(&self.sources, &mut view, agent.tenant, agent.uid).await?;
        view.end().await?;
        condition.check(Some(revision))?;
        Ok(Plan::new(&stored, wanted).into_applied(revision))
    }

    async fn carry_out(&self, write: &mut Write, target: &Target, plan: &Plan<'_>) -> Result<(), Fault> {
        let &Target { tenant, agent, scope, revision } = target;
        let Plan { resources, templates, prompts } = plan;
        let now = self.sources.clock.now();
        // Removals first: what they leave behind may be named again.
        write.delete_resources(tenant, agent, &resources.removals, now).await?;
        write.delete_templates(tenant, agent, &templates.removals, now).await?;
        write.delete_prompts(tenant, agent, &prompts.removals, now).await?;
        write.put_resources(tenant, agent, &resources.puts, revision, now).await?;
        write.put_templates(tenant, agent, &templates.puts, revision, now).await?;
        write.put_prompts(tenant, agent, &prompts.puts, revision, now).await?;
        let count = |names: &[String]| i32::try_from(names.len()).unwrap_or(i32::MAX);
        let more = count(&resources.created) - count(&resources.deleted);
        if more != 0 {
            write.count_resources(tenant, agent, more).await?.ok_or(NO_AGENT)?;
        }
        for (kind, subject) in plan.changes() {
            write.change(scope, *kind, subject);
        }
        Ok(())
    }

    /// Checks what can be checked without holding up other writers.
    async fn check_manifest(&self, agent: &Agent, wanted: &NewManifest) -> Result<(), Fault> {
        let limits = &self.limits;
        check_list::<Resource>("resources", &wanted.resources, limits.resources_per_agent)?;
        check_list::<ResourceTemplate>("templates", &wanted.templates, limits.templates_per_agent)?;
        check_list::<Prompt>("prompts", &wanted.prompts, limits.prompts_per_agent)?;
        if wanted.templates.is_empty() && wanted.prompts.is_empty() {
            return Ok(());
        }
        let mut view = self.store.snapshot().await?;
        let templates = view.templates(agent.tenant, agent.uid, None).await?;
        let prompts = view.prompts(agent.tenant, agent.uid, None).await?;
        view.end().await?;
        self.check_templates(agent.tenant, &templates, &wanted.templates).await?;
        self.check_prompts(agent.tenant, &prompts, &wanted.prompts).await
    }

    /// Compiles what was not compiled when it was registered, and compares what was not compared.
    async fn check_templates(
        &self,
        tenant: TenantId,
        stored: &[ResourceTemplate],
        wanted: &[NewTemplate],
    ) -> Result<(), Fault> {
        let stored: BTreeMap<_, _> = stored.iter().map(|old| (&old.uri_template, old)).collect();
        let place = |index: usize, new: &NewTemplate| {
            ManifestEntry { list: "templates", index, name: new.uri_template.as_str() }.to_string()
        };
        for (index, new) in wanted.iter().enumerate() {
            if stored.get(&new.uri_template).is_none_or(|old| old.body != new.body.hash) {
                self.check_body(tenant, new).await.map_err(|fault| fault.within(place(index, new)))?;
            }
        }
        let (known, unknown): (Vec<_>, Vec<_>) =
            wanted.iter().enumerate().partition(|(_, new)| stored.contains_key(&new.uri_template));
        let texts = |of: &[(usize, &NewTemplate)]| {
            of.iter().map(|(_, new)| new.uri_template.clone()).collect::<Vec<_>>()
        };
        match self.find_conflict(tenant, texts(&known), texts(&unknown).into()).await? {
            Some((at, conflict)) => {
                let wrong = Fault::invalid_params(format!("uriTemplate {conflict}"));
                Err(unknown.get(at).map_or(wrong.clone(), |(index, new)| wrong.within(place(*index, new))))
            }
            None => Ok(()),
        }
    }

    async fn check_prompts(
        &self,
        tenant: TenantId,
        stored: &[Prompt],
        wanted: &[NewPrompt],
    ) -> Result<(), Fault> {
        let stored: BTreeMap<_, _> = stored.iter().map(|old| (&old.name, old)).collect();
        for (index, new) in wanted.iter().enumerate() {
            let is_checked = stored.get(&new.name).is_some_and(|old| {
                let declared = old.arguments.iter().map(|argument| &argument.name);
                old.messages == new.messages.hash
                    && declared.eq(new.arguments.iter().map(|argument| &argument.name))
            });
            if !is_checked {
                let place = ManifestEntry { list: "prompts", index, name: new.name.as_str() };
                self.check_messages(tenant, new).await.map_err(|fault| fault.within(place))?;
            }
        }
        Ok(())
    }

    /// All that an agent has registered, at one revision.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] where the contents have more than `most_bytes`; [`Fault::NotFound`] where the agent is
    /// gone.
    pub async fn manifest(&self, agent: &Agent, most_bytes: usize) -> Result<FullManifest, Fault> {
        let mut view = self.store.snapshot().await?;
        let revision = present(&mut view, agent).await?;
        let stored = Stored::read(&self.sources, &mut view, agent.tenant, agent.uid).await?;
        let sizes = stored.sizes(&mut view, agent).await?;
        if stored.total(&sizes) > most_bytes {
            view.end().await?;
            return Err(too_large(most_bytes));
        }
        let bytes = contents(&mut view, agent, &sizes).await?;
        view.end().await?;
        let Stored { resources, templates, prompts } = stored;
        Ok(FullManifest { revision, resources, templates, prompts, bytes })
    }
}

/// The summary of a write that applies a manifest, for the audit log.
fn summary_of_all(target: &Target, stored: &Stored, wanted: &NewManifest) -> WriteSummary {
    let before = of_all([prints(&stored.resources), prints(&stored.templates), prints(&stored.prompts)]);
    let after = of_all([
        new_prints::<Resource>(&wanted.resources),
        new_prints::<ResourceTemplate>(&wanted.templates),
        new_prints::<Prompt>(&wanted.prompts),
    ]);
    WriteSummary {
        subject: "manifest".to_owned(),
        revision: target.revision,
        created: false,
        tenant: Some(target.tenant),
        agent: Some(target.agent),
        difference: ChangeHashes { before: Some(before), after: Some(after) },
    }
}

fn prints<R: Registered + Fingerprint>(stored: &[R]) -> Vec<(&str, Digest)> {
    stored.iter().map(|old| (old.key(), old.fingerprint())).collect()
}

fn new_prints<R: Registered<New: Fingerprint>>(wanted: &[R::New]) -> Vec<(&str, Digest)> {
    wanted.iter().map(|new| (R::key_of(new), new.fingerprint())).collect()
}

/// The refusal of a manifest that is too large to be read at once.
pub fn too_large(most_bytes: usize) -> Fault {
    Fault::invalid_params(format!(
        "the manifest is larger than {most_bytes} bytes; read the definitions one by one"
    ))
}

async fn present(view: &mut Snapshot, agent: &Agent) -> Result<Revision, Fault> {
    let head = view.head(Scope::from(agent.uid)).await?;
    let lives = view.agent_description(agent.tenant, agent.uid).await?.is_some();
    head.filter(|_| lives).map(|head| head.revision).ok_or(NO_AGENT)
}

/// The bytes behind addresses whose sizes are known, read in bounded steps.
async fn contents(
    view: &mut Snapshot,
    agent: &Agent,
    sizes: &BTreeMap<ContentHash, usize>,
) -> Result<BTreeMap<ContentHash, Bytes>, Fault> {
    let mut read = BTreeMap::new();
    let mut step = Vec::new();
    let mut bytes = 0;
    for (hash, size) in sizes {
        if bytes + size > READ_BYTES && !step.is_empty() {
            read.append(&mut view.contents(agent.tenant, agent.uid, &step).await?);
            step.clear();
            bytes = 0;
        }
        step.push(*hash);
        bytes += size;
    }
    read.append(&mut view.contents(agent.tenant, agent.uid, &step).await?);
    if read.len() == sizes.len() { Ok(read) } else { Err(StoreError::Unreadable("content").into()) }
}

/// Checks how many there are, and that none is a duplicate.
fn check_list<R: Registered>(list: &'static str, wanted: &[R::New], most: usize) -> Result<(), Fault> {
    if wanted.len() > most {
        return Err(Fault::invalid_params(format!("{list}: the agent may have at most {most}")));
    }
    let mut seen = BTreeSet::new();
    let twice = wanted.iter().map(R::key_of).find(|key| !seen.insert(*key));
    twice.map_or(Ok(()), |key| Err(Fault::invalid_params(format!("{list}: duplicate {}", shortened(key)))))
}

impl Stored {
    /// Reads the definitions that a write is about to change.
    async fn read_in(write: &mut Write, tenant: TenantId, agent: AgentId) -> Result<Self, StoreError> {
        Ok(Self {
            resources: write.resources(tenant, agent).await?,
            templates: write.templates(tenant, agent, None).await?,
            prompts: write.prompts(tenant, agent, None).await?,
        })
    }

    async fn read(
        sources: &Sources,
        view: &mut Snapshot,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            resources: view.resources(tenant, agent, None, sources).await?,
            templates: view.templates(tenant, agent, None).await?,
            prompts: view.prompts(tenant, agent, None).await?,
        })
    }

    /// The size of each content.
    async fn sizes(
        &self,
        view: &mut Snapshot,
        agent: &Agent,
    ) -> Result<BTreeMap<ContentHash, usize>, StoreError> {
        let rendered: Vec<_> = self.rendered().collect();
        let mut sizes = view.content_sizes(agent.tenant, agent.uid, &rendered).await?;
        let parts = self.resources.iter().flat_map(|resource| &resource.parts);
        sizes.extend(parts.map(|part| (part.hash, usize::try_from(part.size).unwrap_or(usize::MAX))));
        Ok(sizes)
    }

    /// The total size of the contents, each as often as it is referred to.
    fn total(&self, sizes: &BTreeMap<ContentHash, usize>) -> usize {
        let parts = self.resources.iter().flat_map(|resource| &resource.parts).map(|part| part.hash);
        let sizes = parts.chain(self.rendered()).map(|hash| sizes.get(&hash).copied().unwrap_or_default());
        sizes.fold(0, usize::saturating_add)
    }

    /// The contents that are rendered.
    fn rendered(&self) -> impl Iterator<Item = ContentHash> {
        let bodies = self.templates.iter().map(|template| template.body);
        bodies.chain(self.prompts.iter().map(|prompt| prompt.messages))
    }
}
