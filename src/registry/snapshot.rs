//! An agent in memory: its definitions at one revision, patched from its changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use arc_swap::ArcSwapOption;
use imbl::OrdMap;
use tokio::sync::Mutex;

use crate::model::agent::AgentDescription;
use crate::model::ids::{AgentId, TenantId};
use crate::model::resource::Resource;
use crate::model::scope::{Change, ChangeKind, Revision, Scope};
use crate::model::sources::{Point, Sources};
use crate::model::uri::ResourceUri;
use crate::store::snapshot::{Head, Snapshot};
use crate::store::{Store, StoreError};

/// Changes patched at once; a snapshot further behind is loaded anew.
const MOST_CHANGES: usize = 10_000;
/// Loads for one caller while the agent keeps changing; the last is answered, and it is newer than the call.
const MOST_LOADS: usize = 4;

/// What an agent has registered, at one revision.
#[derive(Debug)]
pub struct AgentSnapshot {
    /// The revision of the agent's scope.
    pub revision: Revision,
    /// The newest revision that changed what a list of resources shows.
    pub listed: Revision,
    /// The newest revision that changed what the agent says of itself.
    pub described: Revision,
    /// What the agent says of itself.
    pub description: AgentDescription,
    /// Its resources, in byte order of their URIs.
    pub resources: OrdMap<ResourceUri, Arc<Resource>>,
}

impl AgentSnapshot {
    /// A page of definitions after a URI, and whether there are more.
    pub fn page(&self, after: Option<&str>, size: usize) -> (Vec<Arc<Resource>>, bool) {
        use std::ops::Bound::{Excluded, Unbounded};
        let start = after.map_or(Unbounded, Excluded);
        let mut rest = self.resources.range::<_, str>((start, Unbounded)).map(|(_, resource)| resource);
        let page: Vec<_> = rest.by_ref().take(size).cloned().collect();
        (page, rest.next().is_some())
    }
}

/// What changes from one snapshot to the next, and when it last did.
struct Contents {
    resources: OrdMap<ResourceUri, Arc<Resource>>,
    listed: Revision,
    described: Revision,
}

/// The place of an agent's snapshot. It is there before the snapshot is.
#[derive(Debug)]
pub(super) struct AgentCell {
    tenant: TenantId,
    agent: AgentId,
    wanted: AtomicI64,
    current: ArcSwapOption<AgentSnapshot>,
    loading: Mutex<()>,
}

impl AgentCell {
    pub(super) fn new(tenant: TenantId, agent: AgentId) -> Self {
        Self {
            tenant,
            agent,
            wanted: AtomicI64::new(0),
            current: ArcSwapOption::empty(),
            loading: Mutex::new(()),
        }
    }

    pub(super) fn raise(&self, revision: Revision) -> bool {
        self.wanted.fetch_max(revision.0, Ordering::AcqRel);
        self.current.load().as_ref().is_some_and(|current| current.revision < self.wanted())
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
        let Contents { resources, listed, described } = match patched {
            Some(patched) => patched,
            None => Contents {
                resources: self.read(&mut view, None, sources).await?,
                listed: head.revision,
                described: head.revision,
            },
        };
        view.end().await?;
        sources.pause(Point::CacheFillRead).await;
        let loaded =
            Arc::new(AgentSnapshot { revision: head.revision, listed, described, description, resources });
        self.current.store(Some(Arc::clone(&loaded)));
        Ok(Some(loaded))
    }

    /// The old snapshot with what changed since; `None` where that is too much or not known any more.
    async fn patch(
        &self,
        view: &mut Snapshot,
        head: Head,
        old: &AgentSnapshot,
        sources: &Sources,
    ) -> Result<Option<Contents>, StoreError> {
        let changes = view.changes_after(Scope::from(self.agent), old.revision, MOST_CHANGES + 1).await?;
        let whole = changes.len() <= MOST_CHANGES;
        if head.floor > old.revision || !whole || changes.iter().any(|c| c.kind == ChangeKind::Unknown) {
            return Ok(None);
        }
        let mut subjects: Vec<_> =
            changes.iter().filter(|c| is_resource(c)).map(|c| c.subject.clone()).collect();
        subjects.sort_unstable();
        subjects.dedup();
        let mut resources = old.resources.clone();
        for uri in &subjects {
            resources.remove(uri.as_str());
        }
        if !subjects.is_empty() {
            resources = self.read(view, Some(&subjects), sources).await?.union(resources);
        }
        let last = |of: fn(&Change) -> bool, old| changes.iter().rfind(|c| of(c)).map_or(old, |c| c.revision);
        let described = last(|change| change.kind == ChangeKind::Agent, old.described);
        Ok(Some(Contents { resources, listed: last(is_resource, old.listed), described }))
    }

    async fn read(
        &self,
        view: &mut Snapshot,
        only: Option<&[String]>,
        sources: &Sources,
    ) -> Result<OrdMap<ResourceUri, Arc<Resource>>, StoreError> {
        let rows = view.resources(self.tenant, self.agent, only, sources).await?;
        Ok(rows.into_iter().map(|resource| (resource.uri.clone(), Arc::new(resource))).collect())
    }
}

fn is_resource(change: &Change) -> bool {
    matches!(
        change.kind,
        ChangeKind::ResourceAdded
            | ChangeKind::ResourceRemoved
            | ChangeKind::ResourceDefined
            | ChangeKind::ResourceContents
            | ChangeKind::ResourceTouched
    )
}
