//! The index of one agent.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::{Mutex, OwnedMutexGuard};

use super::document::{Group, SearchIndex, SearchedSubject};
use super::request::SearchRequest;
use crate::cache::Charge;
use crate::catalog::snapshot::AgentSnapshot;
use crate::model::label::CallerLabels;

/// The index of one agent. Empty until it is built, and again after it took too much memory.
#[derive(Debug)]
pub(super) struct AgentIndex {
    state: RwLock<Option<Indexed>>,
    /// Held by the one who changes it.
    update_lock: Arc<Mutex<()>>,
    charge: Charge,
}

/// The definitions of a snapshot, indexed.
#[derive(Debug)]
pub(super) struct Indexed {
    pub(super) index: SearchIndex,
    pub(super) snapshot: Arc<AgentSnapshot>,
    pub(super) extent: IndexExtent,
}

/// What is indexed: the less, the less memory there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IndexExtent {
    /// Definitions, the texts of their contents, and the names and URIs of the files of mounts.
    Full,
    /// Definitions and the texts of their contents.
    WithoutFiles,
    /// Definitions alone.
    Definitions,
}

/// The permission to change an index.
pub(super) type UpdateLock = OwnedMutexGuard<()>;

impl Indexed {
    fn memory(&self) -> usize {
        // The snapshot mostly is, and need not be, the one that is cached.
        self.index.memory() + self.snapshot.memory()
    }
}

impl AgentIndex {
    /// An empty index, which is charged to `charge`.
    pub(super) fn new(charge: Charge) -> Self {
        Self { state: RwLock::new(None), update_lock: Arc::default(), charge }
    }

    /// Waits for exclusive access to change it.
    pub(super) async fn lock_updates(&self) -> UpdateLock {
        Arc::clone(&self.update_lock).lock_owned().await
    }

    /// Whether it was made from this snapshot or a newer one.
    pub(super) fn answers_for(&self, snapshot: &AgentSnapshot) -> bool {
        self.state.read().as_ref().is_some_and(|Indexed { snapshot: own, .. }| {
            own.timeline == snapshot.timeline && own.revision >= snapshot.revision
        })
    }

    /// The snapshot that it was made from, and what of it is indexed.
    pub(super) fn made_from(&self) -> Option<(Arc<AgentSnapshot>, IndexExtent)> {
        self.state.read().as_ref().map(|state| (Arc::clone(&state.snapshot), state.extent))
    }

    /// The best `candidates` definitions that match, of those visible to a caller with these labels, and the snapshot that
    /// they are in; `None` if it is empty.
    pub(super) fn find(
        &self,
        request: &SearchRequest,
        labels: &CallerLabels,
        candidates: usize,
    ) -> Option<(Arc<AgentSnapshot>, Vec<SearchedSubject>)> {
        let SearchRequest { query, kind, .. } = request;
        let state = self.state.read();
        let Indexed { index, snapshot, .. } = state.as_ref()?;
        let is_visible =
            |group: &Group| kind.is_none_or(|kind| kind == group.kind) && labels.sees(&group.labels);
        let hits = index.search(query, candidates, is_visible);
        Some((Arc::clone(snapshot), hits.into_iter().map(|hit| hit.key).collect()))
    }

    /// Replaces its state; returns whether there is memory for the new one.
    pub(super) fn set(&self, state: Option<Indexed>) -> bool {
        let memory = state.as_ref().map_or(0, Indexed::memory);
        // What is replaced is freed after the lock is released.
        let replaced = std::mem::replace(&mut *self.state.write(), state);
        drop(replaced);
        self.is_charged(memory)
    }

    /// Changes its state, if there is one, in place.
    pub(super) fn patch(&self, change: impl FnOnce(&mut Indexed)) -> bool {
        let memory = {
            let mut state = self.state.write();
            let Some(state) = state.as_mut() else { return false };
            change(state);
            state.memory()
        };
        let is_sparse = self.state.read().as_ref().is_some_and(|state| state.index.is_sparse());
        if is_sparse {
            // Searches continue meanwhile; this is the only writer.
            let compacted = self.state.read().as_ref().map(|state| state.index.compacted());
            if let (Some(state), Some(compacted)) = (self.state.write().as_mut(), compacted) {
                state.index = compacted;
            }
        }
        self.is_charged(memory)
    }

    /// Charges its memory; empties it if that is too much.
    fn is_charged(&self, memory: usize) -> bool {
        let fits = self.charge.try_resize(memory);
        if !fits {
            let dropped = self.state.write().take();
            drop(dropped);
        }
        fits
    }

    /// Charges the memory of an index that is being built; false if that is too much.
    pub(super) fn charge_build(&self, index: &SearchIndex) -> bool {
        self.charge.try_resize(index.memory())
    }
}
