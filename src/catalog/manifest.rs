//! Manifests: reads and replaces all definitions of an agent in one transaction.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use super::Catalog;
use super::definitions::{Registered, check_count};
use super::mounts::check_uris;
use super::plan::Plan;
pub use super::plan::{Applied, Keys, NewDefinitions};
use super::skill_placement::{check_no_overlap, check_written};
use super::target::Target;
use crate::model::agent::Agent;
use crate::model::audit::digest::Digest;
use crate::model::audit::event::ChangeHashes;
use crate::model::audit::fingerprint::{Fingerprint, combine_fingerprints};
use crate::model::audit::write::AuditedWrite;
use crate::model::content::ContentHash;
use crate::model::definition::DefinitionKind;
use crate::model::fault::{Fault, shortened};
use crate::model::ids::{AgentRef, TenantId};
use crate::model::kinds::{ByKind, Member, by_kind, each_kind};
use crate::model::mount::Mount;
use crate::model::precondition::Precondition;
use crate::model::resource::Resource;
use crate::model::scope::{Revision, Scope};
use crate::model::skill::Skill;
use crate::store::StoreError;
use crate::store::agent_rows::Stored;
use crate::store::snapshot::Snapshot;
use crate::store::write::{Write, WriteSummary};

/// The maximum bytes of contents that one statement reads, except for a single larger content.
const READ_BYTES: usize = 8 << 20;

/// The definitions of a manifest.
pub type NewManifest = ByKind<NewDefinitions>;

/// All definitions of an agent at one revision, with the bytes of their contents.
#[derive(Debug)]
pub struct FullManifest {
    /// The revision of the agent's scope.
    pub revision: Revision,
    /// Its definitions.
    pub definitions: ByKind<Stored>,
    /// The contents of all definitions.
    pub bytes: BTreeMap<ContentHash, Bytes>,
}

/// The position of a definition in a manifest.
#[derive(Debug, Clone, Copy)]
pub struct ManifestEntry<'a> {
    /// The name of the list in the manifest.
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
    /// Replaces all definitions of an agent by those of a manifest, in one transaction. Definitions that are the same
    /// stay as they are; if all are the same, the revision stays as well. The precondition applies to the revision of
    /// the agent's scope.
    ///
    /// # Errors
    /// As of each definition, [`Fault::InvalidParams`] saying of which; [`Fault::RevisionMismatch`]; [`Fault::NotFound`]
    /// if the agent is gone.
    pub async fn apply_manifest(
        self: &Arc<Self>,
        agent: &Agent,
        wanted: NewManifest,
        condition: Precondition,
        audited: AuditedWrite,
    ) -> Result<Applied, Fault> {
        self.check_manifest(agent, &wanted, &condition).await?;
        let (catalog, agent) = (Arc::clone(self), AgentRef::from(agent));
        self.writer
            .detached(async move {
                catalog
                    .writer
                    .transact(Scope::from(agent.uid), &audited, async |write| {
                        let (target, stored) = Target::lock_all(write, agent).await?;
                        condition.check(Some(target.present()))?;
                        let plan = catalog.checked_plan(&stored, &wanted)?;
                        catalog.carry_out(write, &target, &plan).await?;
                        let changed = write.has_changes();
                        if changed && audited.call().is_some() {
                            write.set_summary(summary_of_all(&target, &stored, &wanted));
                        }
                        Ok(plan.applied(if changed { target.revision } else { target.present() }))
                    })
                    .await
            })
            .await
    }

    /// A dry run of [`apply_manifest`](Self::apply_manifest) of a manifest that passed
    /// [`check_manifest`](Self::check_manifest): returns its effect without making it.
    ///
    /// # Errors
    /// Those of [`apply_manifest`](Self::apply_manifest).
    pub async fn plan_manifest(
        &self,
        agent: &Agent,
        wanted: &NewManifest,
        condition: &Precondition,
    ) -> Result<Applied, Fault> {
        let mut view = self.store.snapshot().await?;
        let revision = present(&mut view, agent).await?;
        let stored = self.stored(&mut view, agent).await?;
        view.end().await?;
        condition.check(Some(revision))?;
        Ok(self.checked_plan(&stored, wanted)?.applied(revision))
    }

    /// The writes that replace the stored definitions, once the definitions that there are afterwards are checked together:
    /// what is refused here is refused in a dry run too.
    fn checked_plan<'s>(
        &self,
        stored: &'s ByKind<Stored>,
        wanted: &'s NewManifest,
    ) -> Result<Plan<'s>, Fault> {
        check_placed(stored, wanted)?;
        let plan = Plan::new(stored, wanted);
        // The files of skills count as resources. Fewer of both may still be more than a limit that was lowered.
        let growth = [plan.steps::<Resource>().growth, plan.steps::<Skill>().growth];
        if growth.iter().any(|growth| *growth > 0) {
            let present = stored.resources.len() + stored.skills.iter().map(Skill::places).sum::<usize>();
            let count = i64::try_from(present).unwrap_or(i64::MAX);
            let count = growth.iter().fold(count, |sum, growth| sum.saturating_add((*growth).into()));
            check_count::<Resource>(usize::try_from(count).unwrap_or(0), &self.limits)?;
        }
        Ok(plan)
    }

    async fn carry_out(&self, write: &mut Write, target: &Target, plan: &Plan<'_>) -> Result<(), Fault> {
        let &Target { agent, scope, revision } = target;
        let now = self.system.clock.now();
        // Removals first: a removed key may be added again as another kind, and freed contents may be referenced again.
        each_kind!(K => write.delete::<K>(agent, &plan.steps::<K>().removals, now).await?);
        each_kind!(K => write.put(agent, &plan.steps::<K>().puts, revision, now).await?);
        // What is removed makes room for what is added of another kind.
        for grows in [false, true] {
            each_kind!(K => match plan.steps::<K>().growth {
                growth if growth != 0 && (growth > 0) == grows => K::count(self, write, target, growth).await?,
                _ => {}
            });
        }
        for (audience, kind, subject) in plan.changes() {
            write.change_for(audience.clone(), scope, kind, subject);
        }
        Ok(())
    }

    /// Makes the checks that need no lock on the agent. Statements of content sources are prepared at their databases, each of
    /// which may take the time of its connection: not in vain, if the agent's revision is not what the request requires. The
    /// write compares it again.
    ///
    /// # Errors
    /// Those of [`apply_manifest`](Self::apply_manifest).
    pub async fn check_manifest(
        &self,
        agent: &Agent,
        wanted: &NewManifest,
        condition: &Precondition,
    ) -> Result<(), Fault> {
        each_kind!(K => check_list::<K>(listed::<K>(wanted), K::most(&self.limits))?);
        let mut checked = false;
        each_kind!(K => checked |= is_checked::<K>(wanted));
        if !checked {
            return Ok(());
        }
        let mut view = self.store.snapshot().await?;
        if *condition != Precondition::default() {
            condition.check(Some(present(&mut view, agent).await?))?;
        }
        let stored = by_kind!(Stored, K => {
            let registered = is_checked::<K>(wanted);
            if registered { view.definitions::<K>(agent.into(), None, &self.system).await? } else { Vec::new() }
        });
        view.end().await?;
        each_kind!(K => self.check_kind::<K>(agent.tenant, K::of(&stored), listed::<K>(wanted)).await?);
        Ok(())
    }

    /// Checks each definition that was not checked when it was registered, and those that are new beside the others.
    async fn check_kind<K: Registered>(
        &self,
        tenant: TenantId,
        stored: &[K],
        wanted: &[K::New],
    ) -> Result<(), Fault> {
        if !wanted.iter().any(K::needs_check) {
            return Ok(());
        }
        let stored: BTreeMap<_, _> = stored.iter().map(|old| (old.key(), old)).collect();
        let entry = |index, new| ManifestEntry { list: K::LIST, index, name: K::key_of(new).borrow() };
        for (index, new) in wanted.iter().enumerate() {
            if K::needs_check(new) && stored.get(K::key_of(new)).is_none_or(|old| !old.is_checked_as(new)) {
                K::check(self, tenant, new).await.map_err(|fault| fault.within(entry(index, new)))?;
            }
        }
        let (known, added): (Vec<_>, Vec<_>) =
            wanted.iter().enumerate().partition(|(_, new)| stored.contains_key(K::key_of(new)));
        let keys = |of: &[(usize, &K::New)]| of.iter().map(|(_, new)| K::key_of(new).clone()).collect();
        match K::find_conflict(self, tenant, keys(&known), keys(&added)).await? {
            Some((at, conflict)) => match added.get(at) {
                Some((index, new)) => Err(conflict.within(entry(*index, new))),
                None => Err(conflict),
            },
            None => Ok(()),
        }
    }

    /// Reads all definitions of an agent at one revision.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] if the contents have more than `most_bytes`; [`Fault::NotFound`] if the agent is
    /// gone.
    pub async fn manifest(&self, agent: &Agent, most_bytes: usize) -> Result<FullManifest, Fault> {
        let mut view = self.store.snapshot().await?;
        let revision = present(&mut view, agent).await?;
        let definitions = self.stored(&mut view, agent).await?;
        let mut contents = Vec::new();
        each_kind!(K => contents.extend(K::of(&definitions).iter().flat_map(K::contents)));
        let sizes = sizes(&mut view, agent, &contents).await?;
        let each = contents.iter().map(|(hash, _)| sizes.get(hash).copied().unwrap_or_default());
        if each.fold(0, usize::saturating_add) > most_bytes {
            view.end().await?;
            return Err(too_large(most_bytes));
        }
        let bytes = read_contents(&mut view, agent, &sizes).await?;
        view.end().await?;
        Ok(FullManifest { revision, definitions, bytes })
    }

    async fn stored(&self, view: &mut Snapshot, agent: &Agent) -> Result<ByKind<Stored>, StoreError> {
        let agent = AgentRef::from(agent);
        Ok(by_kind!(Stored, K => view.definitions::<K>(agent, None, &self.system).await?))
    }
}

/// Whether a manifest has definitions of a kind that need a check.
fn is_checked<K: Registered>(wanted: &NewManifest) -> bool {
    listed::<K>(wanted).iter().any(K::needs_check)
}

/// The definitions of a kind in a manifest; none if these are left as they are.
fn listed<K: Member>(wanted: &NewManifest) -> &[K::New] {
    K::of(wanted).as_deref().unwrap_or_default()
}

/// Checks that skills and resources are apart once a manifest is applied, and that mounts have different URIs.
fn check_placed(stored: &ByKind<Stored>, wanted: &NewManifest) -> Result<(), Fault> {
    check_uris(listed::<Mount>(wanted))?;
    let resources = || listed::<Resource>(wanted).iter().map(|new| new.uri.as_str());
    match &wanted.skills {
        Some(skills) => check_no_overlap(skills.iter().map(|new| &new.root), resources())?,
        None => check_no_overlap(stored.skills.iter().map(|old| &old.root), resources())?,
    }
    // Those that were registered before this was checked remain.
    let known: BTreeSet<_> = stored.resources.iter().map(|old| old.uri.as_str()).collect();
    resources().filter(|uri| !known.contains(uri)).try_for_each(check_written)
}

/// The summary of a write that applies a manifest, for the audit log.
fn summary_of_all(target: &Target, stored: &ByKind<Stored>, wanted: &NewManifest) -> WriteSummary {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    each_kind!(K => if !is_unused::<K>(stored, wanted) {
        before.push(prints::<K>(stored));
        after.push(new_prints::<K>(stored, wanted));
    });
    let difference =
        ChangeHashes { before: Some(combine_fingerprints(before)), after: Some(combine_fingerprints(after)) };
    target.summary_of("manifest", difference)
}

fn prints<K: Member>(stored: &ByKind<Stored>) -> Vec<(&str, Digest)> {
    K::of(stored).iter().map(|old| (old.key().borrow(), old.fingerprint())).collect()
}

fn new_prints<'m, K: Member>(stored: &'m ByKind<Stored>, wanted: &'m NewManifest) -> Vec<(&'m str, Digest)> {
    let Some(wanted) = K::of(wanted) else { return prints::<K>(stored) };
    wanted.iter().map(|new| (K::key_of(new).borrow(), new.fingerprint())).collect()
}

/// Whether neither the agent nor the manifest has definitions of a kind that a manifest may lack: the fingerprint is then
/// that of before the kind existed.
fn is_unused<K: Member>(stored: &ByKind<Stored>, wanted: &NewManifest) -> bool {
    K::MAY_BE_ABSENT && K::of(stored).is_empty() && listed::<K>(wanted).is_empty()
}

/// The error of a catalog that is too large to be read as one manifest.
pub fn too_large(most_bytes: usize) -> Fault {
    Fault::invalid_params(format!(
        "the manifest is larger than {most_bytes} bytes; read the definitions one by one"
    ))
}

async fn present(view: &mut Snapshot, agent: &Agent) -> Result<Revision, Fault> {
    let head = view.head(Scope::from(agent.uid)).await?;
    let lives = view.agent_exists(agent.tenant, agent.uid).await?;
    head.filter(|_| lives).map(|head| head.revision).ok_or(Fault::NO_AGENT)
}

/// Reads contents of known sizes in bounded batches.
async fn read_contents(
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

/// The size of each content in bytes.
async fn sizes(
    view: &mut Snapshot,
    agent: &Agent,
    contents: &[(ContentHash, Option<usize>)],
) -> Result<BTreeMap<ContentHash, usize>, StoreError> {
    let unknown: Vec<_> = contents.iter().filter(|(_, size)| size.is_none()).map(|(hash, _)| *hash).collect();
    let mut sizes = view.content_sizes(agent.tenant, agent.uid, &unknown).await?;
    sizes.extend(contents.iter().filter_map(|(hash, size)| Some((*hash, (*size)?))));
    Ok(sizes)
}

/// Checks the number of definitions, and that no key is a duplicate.
fn check_list<K: DefinitionKind>(wanted: &[K::New], most: usize) -> Result<(), Fault> {
    let list = K::LIST;
    if wanted.len() > most {
        return Err(Fault::invalid_params(format!("{list}: the agent may have at most {most}")));
    }
    let mut seen = BTreeSet::new();
    let twice = wanted.iter().map(K::key_of).find(|key| !seen.insert(*key));
    twice.map_or(Ok(()), |key| {
        Err(Fault::invalid_params(format!("{list}: duplicate {}", shortened(key.borrow()))))
    })
}
