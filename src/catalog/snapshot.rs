//! Snapshots: all definitions of an agent in memory at one revision, patched with later changes. Callers are answered from
//! a [`view`] of one.

mod content_revisions;
mod definitions;
mod labelled_map;
mod mounts;
mod skills;
#[cfg(test)]
mod tests;
mod trees;
pub mod view;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tokio::sync::Mutex;

use self::content_revisions::ContentRevisions;
use self::definitions::Definitions;
use self::labelled_map::LabelledMap;
pub(super) use self::mounts::ListedFile;
use crate::cache::{Charge, ScopeCell};
use crate::model::agent::AgentDescription;
use crate::model::allocated::{behind_arc, texts};
use crate::model::audience::Audience;
use crate::model::caller::Payer;
use crate::model::content::ContentHash;
use crate::model::definition::DefinitionKind;
use crate::model::feed::BoxFuture;
use crate::model::ids::{AgentRef, ResourceUri};
use crate::model::kinds::{ByKind, Family, Member, by_kind, each_kind};
use crate::model::scope::{Change, ChangeKind, Revision, WantedRevision};
use crate::model::scope_changes::ScopeChanges;
use crate::model::system::{FailPoint, System};
use crate::store::agent_rows::AgentState;
use crate::store::changed_resources::ChangedResources;
use crate::store::{Store, StoreError};

/// The maximum number of changes to patch; a snapshot further behind is loaded again.
const MAX_CHANGES: usize = 10_000;
/// The maximum number of loads for one caller while the agent keeps changing; the last one is answered, since it is
/// newer than the call.
const MAX_LOADS: usize = 4;

/// The definitions of an agent at one revision. What each read needs comes first, in one or two lines of the processor's
/// caches.
#[derive(Debug)]
#[repr(C)]
pub struct AgentSnapshot {
    /// Which timeline of the database it was read in: the same revision means something else in another.
    pub timeline: u64,
    /// The revision of the agent's scope.
    pub revision: Revision,
    /// Whether a definition has labels.
    has_labels: bool,
    /// The newest revisions that changed each list and the description.
    pub changed: ChangeRevisions,
    /// The description of the agent.
    pub description: AgentDescription,
    /// Its definitions, read through a [`view::View`].
    definitions: Definitions,
    /// The newest revisions that changed what URIs of templates answer.
    touched: ContentRevisions,
    /// Those at which the content of registered resources changed that comes from connections.
    touched_resources: ContentRevisions,
}

impl AgentSnapshot {
    /// The memory that it takes.
    pub(super) fn memory(&self) -> usize {
        let AgentDescription { name, title, instructions, tools: _ } = &self.description;
        let optional = [title, instructions].map(Option::as_deref);
        behind_arc(size_of::<Self>())
            + texts([name.as_str()])
            + texts(optional.into_iter().flatten())
            + self.definitions.memory()
            + self.touched.memory()
            + self.touched_resources.memory()
    }
}

/// The newest revisions that changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeRevisions {
    /// The description of the agent.
    pub description: Revision,
    /// What the list of each kind shows.
    pub lists: ByKind<Revisions>,
}

/// A revision for each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revisions;

impl Family for Revisions {
    type Of<K: DefinitionKind> = Revision;
}

/// What is known of the first read of an agent.
#[derive(Clone, Copy)]
pub(super) struct FirstRead<'a> {
    /// Whether the agent is expected to have only resources: its other definitions are read if it has more.
    pub(super) only_resources: bool,
    /// A resource that is read as soon as the agent is in memory: short contents are loaded with the agent, in one statement.
    pub(super) uri: Option<&'a ResourceUri>,
    /// Caches contents.
    pub(super) keep: &'a (dyn Fn((ContentHash, Bytes)) + Sync),
}

/// The cell of an agent's snapshot. It exists before the snapshot is loaded. What each read needs comes first, in one line of
/// the processor's caches.
#[derive(Debug)]
#[repr(C)]
pub struct AgentCell {
    wanted: WantedRevision,
    current: ArcSwapOption<AgentSnapshot>,
    is_removed: AtomicBool,
    agent: AgentRef,
    timeline: u64,
    loading: Mutex<()>,
    /// Whether the last changes were few and of resources alone, as most are: they are read with less work.
    changes_resources: AtomicBool,
    /// Whether the agent was found to have, or may have had, other definitions than resources.
    has_others: AtomicBool,
    /// Of the snapshot.
    charge: Charge,
}

impl AgentCell {
    /// An empty cell, whose snapshot is charged to `charge`.
    pub(super) fn new(agent: AgentRef, timeline: u64, charge: Charge) -> Self {
        Self {
            agent,
            timeline,
            wanted: WantedRevision::default(),
            current: ArcSwapOption::empty(),
            is_removed: AtomicBool::new(false),
            loading: Mutex::new(()),
            changes_resources: AtomicBool::new(true),
            has_others: AtomicBool::new(false),
            charge,
        }
    }

    fn wanted(&self) -> Revision {
        self.wanted.get()
    }

    /// The current snapshot, however old; `None` before the first.
    pub(super) fn stale(&self) -> Option<Arc<AgentSnapshot>> {
        self.current.load_full()
    }

    /// The snapshot, unless a newer revision is known.
    pub(super) fn fresh(&self) -> Option<Arc<AgentSnapshot>> {
        self.stale().filter(|current| current.revision >= self.wanted())
    }

    /// A snapshot at the newest known revision, or a newer one; `None` if the agent is gone. If all of the agent is read for
    /// it, so are the contents of the resource of `first`.
    pub(super) async fn snapshot(
        &self,
        store: &Store,
        system: &System,
        first: Option<FirstRead<'_>>,
    ) -> Result<Option<Arc<AgentSnapshot>>, StoreError> {
        let _one_at_a_time = self.loading.lock().await;
        if let Some(fresh) = self.fresh() {
            return Ok(Some(fresh));
        }
        for _ in 1..MAX_LOADS {
            let announced = self.wanted.announced();
            let Some(loaded) = self.load(store, system, first).await? else { return Ok(None) };
            if self.is_ahead_of(loaded.revision) {
                return Ok(Some(loaded));
            }
            self.wanted.lower(announced, loaded.revision);
            // Not looked up in the cell, which does not keep a snapshot that is too large.
            if loaded.revision >= self.wanted() {
                return Ok(Some(loaded));
            }
        }
        self.load(store, system, first).await
    }

    async fn load(
        &self,
        store: &Store,
        system: &System,
        first: Option<FirstRead<'_>>,
    ) -> Result<Option<Arc<AgentSnapshot>>, StoreError> {
        let Some(loaded) = self.read(store, system, first).await? else { return Ok(None) };
        Ok(Some(self.keep(loaded, system).await))
    }

    async fn keep(&self, loaded: AgentSnapshot, system: &System) -> Arc<AgentSnapshot> {
        system.pause(FailPoint::CacheFillRead).await;
        let loaded = Arc::new(loaded);
        if self.is_ahead_of(loaded.revision) {
            return loaded;
        }
        // Served and not kept if it is too large for one entry, or too little else can be evicted for it.
        let kept = self.charge.try_resize(loaded.memory());
        self.current.store(kept.then(|| Arc::clone(&loaded)));
        loaded
    }

    /// Whether the present snapshot is newer than a revision that was read after it, as it is once the database was set
    /// back. It stays until a sweep finds that by its revision.
    fn is_ahead_of(&self, read: Revision) -> bool {
        self.applied().is_some_and(|applied| applied > read)
    }

    /// Patches the present snapshot with what changed since. Returns the changes after `seen`, with those that came with
    /// them; `None` if there is no snapshot that can be patched, it has some of these changes already, or it is being loaded.
    pub(super) async fn patch(
        &self,
        store: &Store,
        system: &System,
        seen: Revision,
    ) -> Result<Option<ScopeChanges>, StoreError> {
        let Ok(_one_at_a_time) = self.loading.try_lock() else { return Ok(None) };
        let Some(old) = self.stale().filter(|old| old.revision <= seen) else { return Ok(None) };
        let announced = self.wanted.announced();
        let state = self.read_after(&old, store, system).await?;
        let Some(mut state) = state.filter(|state| is_patch(state, &old)) else { return Ok(None) };
        self.keep(self.patched(&old, &mut state), system).await;
        self.wanted.lower(announced, state.head.revision);
        let AgentState { head, changes, audiences, .. } = state;
        let missed = || changes.iter().zip(&audiences).filter(|(change, _)| change.revision > seen);
        let oldest = missed().map(|(_, (_, at))| *at).min();
        let changes = missed().map(|(change, (audience, _))| (change.clone(), audience.clone())).collect();
        Ok(Some(ScopeChanges { head, changes, oldest }))
    }

    /// Reads the agent with what changed since a snapshot; `None` if it is gone.
    async fn read_after(
        &self,
        old: &AgentSnapshot,
        store: &Store,
        system: &System,
    ) -> Result<Option<AgentState>, StoreError> {
        if self.changes_resources.load(Ordering::Relaxed)
            && let Some(changed) = store.changed_resources(self.agent, old.revision, system).await?
        {
            let ChangedResources { head, changes, audiences, resources } = changed;
            return Ok(Some(AgentState {
                head,
                description: old.description.clone(),
                only_resources: !self.has_others.load(Ordering::Relaxed),
                changes,
                audiences,
                definitions: ByKind { resources, ..ByKind::default() },
                entries: Vec::new(),
                contents: Vec::new(),
            }));
        }
        let state = store.agent_state_after(self.agent, old.revision, MAX_CHANGES + 1, system).await?;
        if let Some(state) = &state {
            let changes_resources = ChangedResources::suffice(&state.changes, &state.definitions.resources);
            self.changes_resources.store(changes_resources, Ordering::Relaxed);
        }
        Ok(state)
    }

    /// Reads what changed since the present snapshot; everything if there is none, or too much changed.
    async fn read(
        &self,
        store: &Store,
        system: &System,
        first: Option<FirstRead<'_>>,
    ) -> Result<Option<AgentSnapshot>, StoreError> {
        if let Some(old) = self.stale() {
            let state = self.read_after(&old, store, system).await?;
            let Some(mut state) = state else { return Ok(None) };
            if is_patch(&state, &old) {
                return Ok(Some(self.patched(&old, &mut state)));
            }
        }
        let only_resources =
            first.is_some_and(|first| first.only_resources) && !self.has_others.load(Ordering::Relaxed);
        let uri = first.and_then(|first| first.uri);
        let state = store.agent_state(self.agent, only_resources, uri, system).await?;
        Ok(state.map(
            |AgentState { head, description, only_resources, definitions, entries, contents, .. }| {
                self.has_others.store(!only_resources, Ordering::Relaxed);
                if let Some(FirstRead { keep, .. }) = first {
                    contents.into_iter().for_each(keep);
                }
                let definitions = Definitions::new(definitions, entries);
                let touched = || ContentRevisions::all_at(head.revision);
                let changed = (ChangeRevisions::all_at(head.revision), [touched(), touched()]);
                self.at(head.revision, description, definitions, changed)
            },
        ))
    }

    /// The old snapshot with the changes since.
    fn patched(&self, old: &AgentSnapshot, state: &mut AgentState) -> AgentSnapshot {
        let AgentState { head, description, changes, audiences, definitions, entries, .. } = state;
        let mut all = old.definitions.all.clone();
        each_kind!(K => {
            let now = std::mem::take(K::of_mut(definitions));
            replace::<K>(K::of_mut(&mut all), changes, now);
        });
        let matched = changes.iter().any(|change| change.kind.is_of_template());
        let trees = old.definitions.trees.after(&all.mounts, changes, std::mem::take(entries));
        let templates = (!matched).then(|| old.definitions.templates.clone());
        let definitions = Definitions::indexed(all, templates, trees);
        let resource = |change: &Change| definitions.all.resources.get(&change.subject);
        // Of a resource alone if no others are concerned than those who see it: a mount or a template may answer these.
        let is_of_resource = |change: &Change, audience: &Audience| {
            resource(change).is_some_and(|resource| Audience::of(&resource.labels) == *audience)
        };
        let audiences = audiences.iter().map(|(audience, _)| audience);
        let others = changes.iter().zip(audiences).filter(|(change, of)| !is_of_resource(change, of));
        let touched = old.touched.after(others.map(|(change, _)| change));
        let of_resources = changes.iter().filter(|change| resource(change).is_some());
        let touched_resources = old.touched_resources.after(of_resources);
        let changed = (old.changed.after(changes), [touched, touched_resources]);
        self.at(head.revision, description.clone(), definitions, changed)
    }

    fn at(
        &self,
        revision: Revision,
        description: AgentDescription,
        definitions: Definitions,
        (changed, [touched, touched_resources]): (ChangeRevisions, [ContentRevisions; 2]),
    ) -> AgentSnapshot {
        let (timeline, has_labels) = (self.timeline, definitions.has_labels());
        AgentSnapshot {
            timeline,
            revision,
            has_labels,
            changed,
            description,
            definitions,
            touched,
            touched_resources,
        }
    }
}

impl ScopeCell for AgentCell {
    fn raise(&self, revision: Revision) -> bool {
        self.wanted.raise(revision);
        self.current.load().as_ref().is_some_and(|current| current.revision < self.wanted())
    }

    fn applied(&self) -> Option<Revision> {
        self.current.load().as_ref().map(|current| current.revision)
    }

    /// Nothing: a snapshot older than the revision wanted is patched before it is used.
    fn forget(&self, _: &[Change]) {}

    /// Nothing: a snapshot decides nothing about access.
    fn doubt(&self, _: Vec<Change>) {}

    fn set_removed(&self) {
        self.is_removed.store(true, Ordering::Release);
    }

    fn is_removed(&self) -> bool {
        self.is_removed.load(Ordering::Acquire)
    }

    fn is_in_doubt(&self) -> bool {
        false
    }

    fn payer(&self) -> Payer {
        Payer::Tenant(self.agent.tenant)
    }

    fn catch_up<'a>(&'a self, store: &'a Store, system: &'a System) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async move { self.snapshot(store, system, None).await.map(drop) })
    }
}

impl ChangeRevisions {
    fn all_at(revision: Revision) -> Self {
        Self { description: revision, lists: by_kind!(Revisions, _K => revision) }
    }

    fn after(self, changes: &[Change]) -> Self {
        let last = |of: fn(ChangeKind) -> bool, old| {
            changes.iter().rfind(|change| of(change.kind)).map_or(old, |change| change.revision)
        };
        Self {
            description: last(|kind| kind == ChangeKind::Agent, self.description),
            lists: by_kind!(Revisions, K => last(K::IS_RELISTED_BY, *K::of(&self.lists))),
        }
    }
}

/// Whether the changes that were read are all that happened since the old snapshot, and are all of known kinds.
fn is_patch(state: &AgentState, old: &AgentSnapshot) -> bool {
    let unknown = |change: &Change| change.kind == ChangeKind::Unknown;
    state.head.revision >= old.revision
        && state.head.floor <= old.revision
        && state.changes.len() <= MAX_CHANGES
        && !state.changes.iter().any(unknown)
}

/// Replaces the definitions of one kind that changed by those that exist now.
fn replace<K: DefinitionKind>(all: &mut LabelledMap<K>, changes: &[Change], now: Vec<K>) {
    for change in changes.iter().filter(|change| (K::IS_CHANGED_BY)(change.kind)) {
        all.remove(&change.subject);
    }
    for definition in now {
        all.insert(definition);
    }
}
