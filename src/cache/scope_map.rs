//! The map from scopes to their cells, through which the change feed and writers raise revisions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::cell::ScopeCell;
use super::loader::Loader;
use crate::model::scope::{Change, Revision, Scope};

/// The cells of one kind of scope.
pub trait CellSet: Send + Sync + 'static {
    /// The cell of a scope, if it is of this kind and in memory.
    fn cell(&self, scope: Scope) -> Option<Arc<dyn ScopeCell>>;

    /// Raises the wanted revision of a scope; returns whether its cell is behind, or `None` if the cell is not in this
    /// set.
    fn raise(&self, scope: Scope, revision: Revision) -> Option<bool> {
        self.cell(scope).map(|cell| cell.raise(revision))
    }

    /// The revisions of all cells.
    fn revisions(&self) -> Vec<(Scope, Revision)>;

    /// Empties the set: the database is on another timeline.
    fn clear(&self);
}

/// All cells in memory, by scope.
pub struct ScopeMap {
    sets: Vec<Arc<dyn CellSet>>,
    raises: AtomicU64,
    timeline: AtomicU64,
}

impl ScopeMap {
    /// Creates the map. A scope belongs to the first set that has its cell.
    pub fn new(sets: Vec<Arc<dyn CellSet>>) -> Self {
        Self { sets, raises: AtomicU64::new(0), timeline: AtomicU64::new(0) }
    }

    /// How often a scope was raised, in memory or not.
    pub fn raises(&self) -> u64 {
        self.raises.load(Ordering::SeqCst)
    }

    /// How often the database changed its timeline by a restore, or by a failover that lost commits.
    pub fn timeline(&self) -> u64 {
        self.timeline.load(Ordering::Acquire)
    }

    /// Raises the wanted revision of a scope: nothing older is answered from now on. Returns whether its cell is behind.
    pub fn raise(&self, scope: Scope, revision: Revision) -> bool {
        // Counted before the cell is looked up: a load that began earlier finds either its cell or the count raised.
        self.raises.fetch_add(1, Ordering::SeqCst);
        self.sets.iter().find_map(|set| set.raise(scope, revision)).unwrap_or(false)
    }

    /// The revision of the cell of a scope.
    pub fn applied(&self, scope: Scope) -> Option<Revision> {
        self.cell(scope).and_then(|cell| cell.applied())
    }

    /// The revisions of all cells.
    pub fn revisions(&self) -> Vec<(Scope, Revision)> {
        self.sets.iter().flat_map(|set| set.revisions()).collect()
    }

    /// Empties all cells: the database is on another timeline, whose revisions mean something else.
    pub fn clear(&self) {
        // Counted first: a cell created meanwhile is dropped below, and one created later reads the new timeline.
        self.timeline.fetch_add(1, Ordering::AcqRel);
        self.raises.fetch_add(1, Ordering::SeqCst);
        self.sets.iter().for_each(|set| set.clear());
    }

    /// Reads the changes that the cell of a scope has missed.
    pub async fn catch_up(&self, scope: Scope, loader: &Loader) {
        let Some(cell) = self.cell(scope) else { return };
        if let Err(error) = loader.load(async || cell.catch_up(loader.store(), loader.sources()).await).await
        {
            // The next read of the scope tries again and reports the failure.
            tracing::debug!(%error, scope = %scope.0, "catching up failed");
        }
    }

    /// Drops the facts that a committed write changed, before the write is answered: if the database becomes
    /// unreachable before this replica has read the change, the old state must not be answered.
    pub(super) fn forget(&self, scope: Scope, changes: &[Change]) {
        if let Some(cell) = self.cell(scope) {
            cell.forget(changes);
        }
    }

    /// Drops the facts that a commit in doubt changes, and does not cache them for a while.
    pub(super) fn doubt(&self, scope: Scope, changes: Vec<Change>) {
        if let Some(cell) = self.cell(scope) {
            cell.doubt(changes);
        }
    }

    fn cell(&self, scope: Scope) -> Option<Arc<dyn ScopeCell>> {
        self.sets.iter().find_map(|set| set.cell(scope))
    }
}

impl std::fmt::Debug for ScopeMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopeMap").finish_non_exhaustive()
    }
}
