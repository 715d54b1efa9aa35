//! The cell of an agent's snapshot: loads it, and patches it with later changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use tokio::sync::Mutex;

use super::AgentSnapshot;
use super::definitions::Definitions;
use super::partial::{AgentPart, DueLoad, PartialSnapshots};
use super::patch::MAX_CHANGES;
use crate::cache::{Charge, ScopeCell, WantedRevision};
use crate::model::caller::Payer;
use crate::model::changed_resources::ChangedResources;
use crate::model::content::ContentHash;
use crate::model::feed::BoxFuture;
use crate::model::ids::AgentRef;
use crate::model::kinds::ByKind;
use crate::model::scope::{Change, Revision};
use crate::model::scope_changes::ScopeChanges;
use crate::model::system::{FailPoint, System};
use crate::store::agent_rows::{AgentState, Found};
use crate::store::agent_state::AgentRead;
use crate::store::{Store, StoreError};

/// The maximum number of loads for one caller while the agent keeps changing; the last one is answered, since it is
/// newer than the call.
const MAX_ATTEMPTS: usize = 4;
/// The maximum number of rows of a table that are read for one call that needs a part of the agent alone: about two
/// milliseconds of the database's time.
const MAX_ROWS: usize = 1_000;

/// What is known of a call that an agent is loaded for.
#[derive(Clone, Copy)]
pub struct LoadRequest<'a> {
    /// Whether the agent is expected to have only resources: its other definitions are read if it has more.
    pub only_resources: bool,
    /// What of the agent is needed; all of it if it is `None`, or if the agent is small. Short contents of a resource are
    /// loaded with the agent, in one statement.
    pub part: Option<&'a AgentPart>,
    /// Caches contents.
    pub keep: &'a (dyn Fn((ContentHash, Bytes)) + Sync),
}

/// What of an agent is loaded.
#[derive(Clone, Copy)]
enum Extent<'a> {
    /// All of it, unless a table has more rows of it than [`MAX_ROWS`] and there is no snapshot yet.
    Bounded,
    /// All of it.
    All,
    /// A part.
    Part(&'a AgentPart),
}

/// What a load found.
enum Loaded {
    /// What was to be loaded.
    Found(Arc<AgentSnapshot>),
    /// No agent.
    Gone,
    /// An agent that is too large to be loaded for one call; of [`Extent::Bounded`] alone.
    TooLarge,
    /// All of a large agent, which is in memory now, and behind: it is patched where others patch it; of [`Extent::All`] alone.
    Behind,
}

/// The cell of an agent's snapshot. It exists before the snapshot is loaded. What each read needs comes first, in one line of
/// the processor's caches.
#[derive(Debug)]
#[repr(C)]
pub struct AgentCell {
    wanted: WantedRevision,
    pub(super) current: ArcSwapOption<AgentSnapshot>,
    is_removed: AtomicBool,
    agent: AgentRef,
    timeline: u64,
    loading: Mutex<()>,
    /// Whether the last changes were few and of resources alone, as most are: they are read with less work.
    changes_resources: AtomicBool,
    /// Whether the agent was found to have, or may have had, other definitions than resources.
    has_others: AtomicBool,
    /// Present if the agent was found to be too large to be loaded for one call and not all of it is in memory.
    partial: ArcSwapOption<PartialSnapshots>,
    /// Of the snapshot.
    pub(super) charge: Charge,
}

impl AgentCell {
    /// An empty cell, whose snapshots are charged to `charge`.
    pub fn new(agent: AgentRef, timeline: u64, charge: Charge) -> Self {
        Self {
            agent,
            timeline,
            wanted: WantedRevision::default(),
            current: ArcSwapOption::empty(),
            is_removed: AtomicBool::new(false),
            loading: Mutex::new(()),
            changes_resources: AtomicBool::new(true),
            has_others: AtomicBool::new(false),
            partial: ArcSwapOption::empty(),
            charge,
        }
    }

    fn wanted(&self) -> Revision {
        self.wanted.get()
    }

    /// The current snapshot, however old; `None` before the first.
    pub fn stale(&self) -> Option<Arc<AgentSnapshot>> {
        self.current.load_full()
    }

    /// The snapshot, unless a newer revision is known.
    pub fn fresh(&self) -> Option<Arc<AgentSnapshot>> {
        self.stale().filter(|current| current.revision >= self.wanted())
    }

    /// As [`stale`](Self::stale), or a partial snapshot of the part that is needed.
    pub fn stale_of(&self, part: Option<&AgentPart>) -> Option<Arc<AgentSnapshot>> {
        self.stale().or_else(|| self.partial.load_full()?.get(part?))
    }

    /// As [`fresh`](Self::fresh), or a partial snapshot of the part that is needed.
    pub fn fresh_of(&self, part: Option<&AgentPart>) -> Option<Arc<AgentSnapshot>> {
        self.stale_of(part).filter(|found| found.revision >= self.wanted())
    }

    /// Whether all of the agent is to be loaded, since parts of it are read often. It is not due again before what is returned
    /// is dropped.
    pub fn take_all_due(&self) -> Option<DueLoad> {
        DueLoad::take(self.partial.load().as_ref()?)
    }

    /// A snapshot at the newest known revision, or a newer one; `None` if the agent is gone. It is a partial one if `request`
    /// names a part and the agent is large. What is not a patch comes with the contents of the resource of `request`.
    pub async fn snapshot(
        &self,
        store: &Store,
        system: &System,
        request: Option<LoadRequest<'_>>,
    ) -> Result<Option<Arc<AgentSnapshot>>, StoreError> {
        let part = request.and_then(|request| request.part);
        loop {
            let Some(partial) = self.partial.load_full() else {
                let _one_at_a_time = self.loading.lock().await;
                if let Some(fresh) = self.fresh_of(part) {
                    return Ok(Some(fresh));
                }
                if self.partial.load().is_none() {
                    match self.newest(store, system, request, Extent::Bounded).await? {
                        Loaded::Found(found) => return Ok(Some(found)),
                        Loaded::Gone => return Ok(None),
                        Loaded::TooLarge | Loaded::Behind => self.mark_large(),
                    }
                }
                continue;
            };
            // What needs a part does not wait for all of a large agent.
            let (_one_at_a_time, extent) = match part {
                Some(part) => (partial.lock(part).await, Extent::Part(part)),
                None => (partial.loading_all.lock().await, Extent::All),
            };
            if let Some(fresh) = self.fresh_of(part) {
                return Ok(Some(fresh));
            }
            // Otherwise all of it was loaded meanwhile, and is patched.
            if self.partial.load().as_ref().is_some_and(|present| Arc::ptr_eq(present, &partial)) {
                match self.newest(store, system, request, extent).await? {
                    Loaded::Found(found) => return Ok(Some(found)),
                    Loaded::Gone => return Ok(None),
                    Loaded::Behind | Loaded::TooLarge => {}
                }
            }
        }
    }

    /// Repeats a load until it finds the newest known revision.
    async fn newest(
        &self,
        store: &Store,
        system: &System,
        request: Option<LoadRequest<'_>>,
        extent: Extent<'_>,
    ) -> Result<Loaded, StoreError> {
        for _ in 1..MAX_ATTEMPTS {
            let (announced, present) = (self.wanted.announced(), self.applied());
            let loaded = self.load(store, system, request, extent).await?;
            let Loaded::Found(found) = &loaded else { return Ok(loaded) };
            if is_set_back(present, found) {
                return Ok(loaded);
            }
            self.wanted.lower(announced, found.revision);
            // Not looked up in the cell, which does not keep a snapshot that is too large.
            if found.revision >= self.wanted() {
                return Ok(loaded);
            }
            if matches!(extent, Extent::All) && self.partial.load().is_none() {
                return Ok(Loaded::Behind);
            }
        }
        self.load(store, system, request, extent).await
    }

    /// Reads what changed since the present snapshot, if there is one and not too much changed; otherwise what `extent` says.
    async fn load(
        &self,
        store: &Store,
        system: &System,
        request: Option<LoadRequest<'_>>,
        extent: Extent<'_>,
    ) -> Result<Loaded, StoreError> {
        if let Extent::Part(part) = extent {
            let state = store.partial_agent_state(self.agent, part.uri(), system).await?;
            let Some(state) = state else { return Ok(Loaded::Gone) };
            let loaded = self.loaded(state, request);
            system.pause(FailPoint::CacheFillRead).await;
            return Ok(Loaded::Found(self.keep_partial(part, loaded)));
        }
        let (old, present) = (self.stale(), self.applied());
        if let Some(old) = &old {
            let state = self.read_after(old, store, system).await?;
            let Some(mut state) = state else { return Ok(Loaded::Gone) };
            if old.is_patched_by(&state) {
                return Ok(Loaded::Found(self.keep(old.patched(&mut state), present, system).await));
            }
        }
        let read = AgentRead {
            only_resources: request.is_some_and(|request| request.only_resources)
                && !self.has_others.load(Ordering::Relaxed),
            uri: request.and_then(|request| request.part?.uri()),
            most: (old.is_none() && matches!(extent, Extent::Bounded)).then_some(MAX_ROWS),
        };
        Ok(match store.agent_state(self.agent, read, system).await? {
            None => Loaded::Gone,
            Some(Found::TooLarge) => Loaded::TooLarge,
            Some(Found::Whole(state)) => {
                self.has_others.store(!state.only_resources, Ordering::Relaxed);
                Loaded::Found(self.keep(self.loaded(*state, request), present, system).await)
            }
        })
    }

    /// Reads the agent in parts from now on.
    pub(super) fn mark_large(&self) {
        if self.current.load().is_some() {
            return;
        }
        self.partial.store(Some(Arc::new(PartialSnapshots::new(self.charge.beside()))));
    }

    /// Keeps a partial snapshot, unless all of the agent is in memory by now.
    pub(super) fn keep_partial(&self, part: &AgentPart, loaded: AgentSnapshot) -> Arc<AgentSnapshot> {
        let loaded = Arc::new(loaded);
        self.answer_nothing_older(loaded.revision);
        if let Some(partial) = &*self.partial.load() {
            partial.insert(part, &loaded);
        }
        loaded
    }

    /// Keeps a snapshot of all of the agent, unless a newer revision was `present` before it was read.
    pub(super) async fn keep(
        &self,
        loaded: AgentSnapshot,
        present: Option<Revision>,
        system: &System,
    ) -> Arc<AgentSnapshot> {
        system.pause(FailPoint::CacheFillRead).await;
        let loaded = Arc::new(loaded);
        if is_set_back(present, &loaded) {
            return loaded;
        }
        // Served and not kept if it is too large for one entry, or too little else can be evicted for it.
        let kept = self.charge.try_resize(loaded.memory());
        self.current.store(kept.then(|| Arc::clone(&loaded)));
        if kept {
            self.partial.store(None);
        } else if let Some(partial) = &*self.partial.load() {
            self.answer_nothing_older(loaded.revision);
            partial.read_at(loaded.revision);
        }
        loaded
    }

    /// After an answer that is not what others are answered from: no part, nor all of the agent, is answered at an older
    /// revision any more.
    fn answer_nothing_older(&self, than: Revision) {
        // Also the same one, which may have been announced before it existed, and must not be taken back.
        if than >= self.wanted() {
            self.wanted.raise(than);
        }
    }

    /// Patches the present snapshot with what changed since. Returns the changes after `seen`, with those that came with
    /// them; `None` if there is no snapshot that can be patched, it has some of these changes already, or it is being loaded.
    pub async fn patch(
        &self,
        store: &Store,
        system: &System,
        seen: Revision,
    ) -> Result<Option<ScopeChanges>, StoreError> {
        let Ok(_one_at_a_time) = self.loading.try_lock() else { return Ok(None) };
        let Some(old) = self.stale().filter(|old| old.revision <= seen) else { return Ok(None) };
        let announced = self.wanted.announced();
        let state = self.read_after(&old, store, system).await?;
        let Some(mut state) = state.filter(|state| old.is_patched_by(state)) else { return Ok(None) };
        self.keep(old.patched(&mut state), Some(old.revision), system).await;
        self.wanted.lower(announced, state.head.revision);
        let AgentState { head, changes, audiences, .. } = state;
        let missed = || changes.iter().zip(&audiences).filter(|(change, _)| change.revision > seen);
        let oldest = missed().map(|(_, (_, at))| *at).min();
        let changes = missed().map(|(change, (audience, _))| (change.clone(), audience.clone())).collect();
        Ok(Some(ScopeChanges { head, changes, oldest }))
    }

    /// The revision after which [`Store::changed_resources`] reads the agent next; `None` if memory is not behind, or more is
    /// expected to be read.
    pub fn next_read(&self) -> Option<(AgentRef, Revision)> {
        let present = self.current.load().as_ref()?.revision;
        let is_due = present < self.wanted() && self.changes_resources.load(Ordering::Relaxed);
        is_due.then_some((self.agent, present))
    }

    /// Reads the agent with what changed since a snapshot; `None` if it is gone.
    async fn read_after(
        &self,
        old: &AgentSnapshot,
        store: &Store,
        system: &System,
    ) -> Result<Option<AgentState>, StoreError> {
        if self.changes_resources.load(Ordering::Relaxed)
            && let Some(changed) =
                store.changed_resources(self.agent, (old.revision, self.wanted()), system).await?
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

    /// The snapshot of what was read first.
    fn loaded(&self, state: AgentState, request: Option<LoadRequest<'_>>) -> AgentSnapshot {
        let AgentState { head, description, definitions, entries, contents, .. } = state;
        if let Some(LoadRequest { keep, .. }) = request {
            contents.into_iter().for_each(keep);
        }
        AgentSnapshot::new(self.timeline, head.revision, description, Definitions::new(definitions, entries))
    }
}

impl ScopeCell for AgentCell {
    /// Whether all of the agent is in memory and behind: partial snapshots do not catch up.
    fn raise(&self, revision: Revision) -> bool {
        self.wanted.raise(revision);
        self.current.load().as_ref().is_some_and(|current| current.revision < self.wanted())
    }

    fn applied(&self) -> Option<Revision> {
        let current = self.current.load().as_ref().map(|current| current.revision);
        current.or_else(|| self.partial.load().as_ref()?.newest())
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
        // Partial snapshots are loaded again when they are needed.
        if self.partial.load().is_some() {
            return Box::pin(std::future::ready(Ok(())));
        }
        Box::pin(async move { self.snapshot(store, system, None).await.map(drop) })
    }
}

/// Whether a newer revision was present before a snapshot was read, as it is once the database was set back. It stays until a
/// sweep finds that by its revision.
fn is_set_back(present: Option<Revision>, read: &AgentSnapshot) -> bool {
    present.is_some_and(|present| present > read.revision)
}
