//! An agent in memory: a snapshot of its definitions at one revision, patched from its changes.

use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwapOption;
use imbl::OrdMap;
use tokio::sync::Mutex;

use super::template_set::Templates;
use crate::cache::ScopeCell;
use crate::model::agent::AgentDescription;
use crate::model::call::Page;
use crate::model::fault::Fault;
use crate::model::feed::BoxFuture;
use crate::model::ids::{AgentId, TenantId};
use crate::model::prompt::{Prompt, PromptName};
use crate::model::resource::Resource;
use crate::model::scope::{Change, ChangeKind, Revision, Scope};
use crate::model::sources::{FailPoint, Sources};
use crate::model::uri::ResourceUri;
use crate::store::snapshot::{Head, Snapshot};
use crate::store::{Store, StoreError};

/// Changes patched at once; a snapshot further behind is loaded anew.
const MOST_CHANGES: usize = 10_000;
/// Most loads for one caller while the agent keeps changing; the last is answered, since it is newer than the call.
const MOST_LOADS: usize = 4;

/// The definitions of an agent at one revision.
#[derive(Debug)]
pub struct AgentSnapshot {
    /// Which timeline of the database it was read in: the same revision means something else in another.
    pub timeline: u64,
    /// The revision of the agent's scope.
    pub revision: Revision,
    /// The description of the agent.
    pub description: AgentDescription,
    /// Its definitions.
    pub definitions: Definitions,
    /// The newest revisions that changed what results show.
    pub changed: Changed,
}

/// Definitions of every kind.
#[derive(Debug, Clone)]
pub struct Definitions {
    /// Resources, in byte order of their URIs.
    pub resources: OrdMap<ResourceUri, Arc<Resource>>,
    /// Resource templates.
    pub templates: Templates,
    /// Prompts, in byte order of their names.
    pub prompts: OrdMap<PromptName, Arc<Prompt>>,
}

impl Definitions {
    /// Whether a URI can be read.
    pub fn answers(&self, uri: &ResourceUri) -> bool {
        self.resources.contains_key(uri) || self.templates.find(uri).is_some()
    }

    /// Checks that a URI can be read.
    ///
    /// # Errors
    /// [`Fault::ResourceNotFound`].
    pub fn check_readable(&self, uri: &ResourceUri) -> Result<(), Fault> {
        if self.answers(uri) { Ok(()) } else { Err(Fault::ResourceNotFound(uri.clone())) }
    }
}

/// The newest revisions that changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Changed {
    /// The description of the agent.
    pub description: Revision,
    /// What a list of resources shows.
    pub resources: Revision,
    /// What a list of resource templates shows.
    pub templates: Revision,
    /// What a list of prompts shows.
    pub prompts: Revision,
}

/// A page of definitions after a position.
pub(super) fn page<K: Ord + Borrow<str>, V>(
    all: &OrdMap<K, Arc<V>>,
    after: Option<&str>,
    size: usize,
) -> Page<V> {
    use std::ops::Bound::{Excluded, Unbounded};
    let start = after.map_or(Unbounded, Excluded);
    let mut rest = all.range::<_, str>((start, Unbounded)).map(|(_, item)| item);
    let items = rest.by_ref().take(size).cloned().collect();
    Page { items, more: rest.next().is_some() }
}

/// The cell of an agent's snapshot. It exists before the snapshot is loaded.
#[derive(Debug)]
pub struct AgentCell {
    tenant: TenantId,
    agent: AgentId,
    timeline: u64,
    wanted: AtomicI64,
    current: ArcSwapOption<AgentSnapshot>,
    loading: Mutex<()>,
}

impl AgentCell {
    pub(super) fn new(tenant: TenantId, agent: AgentId, timeline: u64) -> Self {
        Self {
            tenant,
            agent,
            timeline,
            wanted: AtomicI64::new(0),
            current: ArcSwapOption::empty(),
            loading: Mutex::new(()),
        }
    }

    fn wanted(&self) -> Revision {
        Revision(self.wanted.load(Ordering::Acquire))
    }

    /// The snapshot as it is, however old; `None` before the first.
    pub(super) fn stale(&self) -> Option<Arc<AgentSnapshot>> {
        self.current.load_full()
    }

    /// The snapshot, unless a newer revision is known.
    pub(super) fn fresh(&self) -> Option<Arc<AgentSnapshot>> {
        self.stale().filter(|current| current.revision >= self.wanted())
    }

    /// A snapshot at the newest known revision, or a newer one; `None` where the agent is gone.
    pub(super) async fn snapshot(
        &self,
        store: &Store,
        sources: &Sources,
    ) -> Result<Option<Arc<AgentSnapshot>>, StoreError> {
        let _one_at_a_time = self.loading.lock().await;
        for _ in 1..MOST_LOADS {
            if let Some(fresh) = self.fresh() {
                return Ok(Some(fresh));
            }
            if self.load(store, sources).await?.is_none() {
                return Ok(None);
            }
        }
        self.load(store, sources).await
    }

    async fn load(&self, store: &Store, sources: &Sources) -> Result<Option<Arc<AgentSnapshot>>, StoreError> {
        let mut view = store.snapshot().await?;
        let head = view.head(Scope::from(self.agent)).await?;
        let description = view.agent_description(self.tenant, self.agent).await?;
        let (Some(head), Some(description)) = (head, description) else {
            view.end().await?;
            return Ok(None);
        };
        let patched = match self.stale() {
            Some(old) => self.patch(&mut view, head, &old, sources).await?,
            None => None,
        };
        let (definitions, changed) = match patched {
            Some(patched) => patched,
            None => (self.read(&mut view, sources).await?, Changed::all_at(head.revision)),
        };
        view.end().await?;
        sources.pause(FailPoint::CacheFillRead).await;
        let loaded = Arc::new(AgentSnapshot {
            timeline: self.timeline,
            revision: head.revision,
            description,
            definitions,
            changed,
        });
        self.current.store(Some(Arc::clone(&loaded)));
        Ok(Some(loaded))
    }

    /// The old snapshot with the changes since; `None` where there are too many, or they are pruned.
    async fn patch(
        &self,
        view: &mut Snapshot,
        head: Head,
        old: &AgentSnapshot,
        sources: &Sources,
    ) -> Result<Option<(Definitions, Changed)>, StoreError> {
        let changes = view.changes_after(Scope::from(self.agent), old.revision, MOST_CHANGES + 1).await?;
        let whole = changes.len() <= MOST_CHANGES;
        if head.floor > old.revision || !whole || changes.iter().any(|c| c.kind == ChangeKind::Unknown) {
            return Ok(None);
        }
        let (tenant, agent) = (self.tenant, self.agent);
        let mut definitions = old.definitions.clone();
        let resources = subjects(&changes, ChangeKind::is_of_resource);
        if !resources.is_empty() {
            let rows = view.resources(tenant, agent, Some(&resources), sources).await?;
            replace(&mut definitions.resources, &resources, rows.into_iter().map(|r| (r.uri.clone(), r)));
        }
        let templates = subjects(&changes, ChangeKind::is_of_template);
        if !templates.is_empty() {
            let rows = view.templates(tenant, agent, Some(&templates)).await?;
            let mut by_text = definitions.templates.by_text().clone();
            replace(&mut by_text, &templates, rows.into_iter().map(|t| (t.uri_template.clone(), t)));
            definitions.templates = Templates::new(by_text);
        }
        let prompts = subjects(&changes, ChangeKind::is_of_prompt);
        if !prompts.is_empty() {
            let rows = view.prompts(tenant, agent, Some(&prompts)).await?;
            replace(&mut definitions.prompts, &prompts, rows.into_iter().map(|p| (p.name.clone(), p)));
        }
        Ok(Some((definitions, old.changed.after(&changes))))
    }

    async fn read(&self, view: &mut Snapshot, sources: &Sources) -> Result<Definitions, StoreError> {
        let (tenant, agent) = (self.tenant, self.agent);
        let resources = view.resources(tenant, agent, None, sources).await?;
        let templates = view.templates(tenant, agent, None).await?;
        let prompts = view.prompts(tenant, agent, None).await?;
        let by_text = templates.into_iter().map(|t| (t.uri_template.clone(), Arc::new(t))).collect();
        Ok(Definitions {
            resources: resources.into_iter().map(|r| (r.uri.clone(), Arc::new(r))).collect(),
            templates: Templates::new(by_text),
            prompts: prompts.into_iter().map(|p| (p.name.clone(), Arc::new(p))).collect(),
        })
    }
}

impl ScopeCell for AgentCell {
    fn raise(&self, revision: Revision) -> bool {
        self.wanted.fetch_max(revision.0, Ordering::AcqRel);
        self.current.load().as_ref().is_some_and(|current| current.revision < self.wanted())
    }

    fn applied(&self) -> Option<Revision> {
        self.current.load().as_ref().map(|current| current.revision)
    }

    /// Nothing: a snapshot older than the revision wanted is patched before it is used.
    fn forget(&self, _: &[Change]) {}

    /// Nothing: a snapshot decides nothing about access.
    fn doubt(&self, _: Vec<Change>) {}

    fn catch_up<'a>(
        &'a self,
        store: &'a Store,
        sources: &'a Sources,
    ) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.snapshot(store, sources).await.map(drop) })
    }
}

impl Changed {
    fn all_at(revision: Revision) -> Self {
        Self { description: revision, resources: revision, templates: revision, prompts: revision }
    }

    fn after(self, changes: &[Change]) -> Self {
        let last = |of: fn(ChangeKind) -> bool, old| {
            changes.iter().rfind(|change| of(change.kind)).map_or(old, |change| change.revision)
        };
        Self {
            description: last(|kind| kind == ChangeKind::Agent, self.description),
            resources: last(ChangeKind::is_of_resource, self.resources),
            templates: last(ChangeKind::relists_templates, self.templates),
            prompts: last(ChangeKind::relists_prompts, self.prompts),
        }
    }
}

/// The subjects of the changes of a kind, each once.
fn subjects(changes: &[Change], of: fn(ChangeKind) -> bool) -> Vec<String> {
    let mut subjects: Vec<_> =
        changes.iter().filter(|change| of(change.kind)).map(|change| change.subject.clone()).collect();
    subjects.sort_unstable();
    subjects.dedup();
    subjects
}

/// Removes the subjects and inserts the rows of those that still exist.
fn replace<K: Ord + Clone + Borrow<str>, V>(
    all: &mut OrdMap<K, Arc<V>>,
    subjects: &[String],
    rows: impl Iterator<Item = (K, V)>,
) {
    for subject in subjects {
        all.remove(subject.as_str());
    }
    all.extend(rows.map(|(key, value)| (key, Arc::new(value))));
}
