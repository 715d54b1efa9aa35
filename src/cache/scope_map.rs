//! Finds the cell of a scope. A [`CellMap`] holds the cells of one kind of scope within the budget of all caches; the
//! [`ScopeMap`] has the sets of all kinds, and through it the change feed and writers raise the [`WantedRevision`] of a cell.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;

use super::memory_budget::{Charge, MemoryBudget};
use super::weighed_cache::WeighedCache;
use crate::model::caller::Payer;
use crate::model::feed::BoxFuture;
use crate::model::ids::TenantId;
use crate::model::scope::{Change, Revision, Scope};
use crate::model::system::System;
use crate::store::{Store, StoreError};

/// How often a cell that is found by a handle is looked up to count as used, in milliseconds.
const USED_EVERY_MS: u32 = 1_000;

/// The interface of a cell for the change feed and for writers.
pub trait ScopeCell: Any + Send + Sync {
    /// Raises the wanted revision; returns whether the cell is behind it.
    fn raise(&self, revision: Revision) -> bool;

    /// The revision of the cell; `None` while nothing is cached.
    fn applied(&self) -> Option<Revision>;

    /// Drops the facts that a commit of this replica changed.
    fn forget(&self, changes: &[Change]);

    /// Drops the facts that a commit in doubt changes, and does not cache them while that commit may still take effect.
    fn doubt(&self, changes: Vec<Change>);

    /// Called under the map's lock before the cell is removed. Its wanted revision is not raised afterwards.
    fn set_removed(&self) {}

    /// Whether [`set_removed`](Self::set_removed) was called: then [handles](CellHandle) must not find the cell. True
    /// for a cell that does not record it.
    fn is_removed(&self) -> bool {
        true
    }

    /// Whether changes are in doubt: without the cell nothing would be known of them.
    fn is_in_doubt(&self) -> bool;

    /// The payer of reads that bring the cell up to date in the background.
    fn payer(&self) -> Payer {
        Payer::Gateway
    }

    /// Reads the missed changes.
    fn catch_up<'a>(&'a self, store: &'a Store, system: &'a System) -> BoxFuture<'a, Result<(), StoreError>>;
}

/// The cells of one kind of scope.
pub trait CellSet: Send + Sync + 'static {
    /// The cell of a scope, if it is of this kind and in memory.
    fn cell(&self, scope: Scope) -> Option<Arc<dyn ScopeCell>>;

    /// Raises the wanted revision of a scope; returns whether its cell is behind, or `None` if the cell is not in this
    /// set.
    fn raise(&self, scope: Scope, revision: Revision) -> Option<bool> {
        self.cell(scope).map(|cell| cell.raise(revision))
    }

    /// Whether access decisions rest on the facts of this set.
    fn decides_access(&self) -> bool {
        false
    }

    /// The revisions of all cells.
    fn revisions(&self) -> Vec<(Scope, Revision)>;

    /// Empties the set: the database is on another timeline.
    fn clear(&self);
}

/// A map from scope to cell within the budget of all caches. A cell is not evicted while anything else refers to it, such
/// as a load: what the change feed raises is the cell that is loaded into.
#[derive(Debug)]
pub struct CellMap<C>(Arc<WeighedCache<Scope, Arc<C>>>);

impl<C: ScopeCell> CellMap<C> {
    /// An empty map within `budget`. `name` labels its metrics.
    pub fn new(budget: &Arc<MemoryBudget>, name: &'static str) -> Self {
        let is_in_use = |cell: &Arc<C>| Arc::strong_count(cell) > 1 || cell.is_in_doubt();
        Self(WeighedCache::with_removals(budget, name, is_in_use, |cell| cell.set_removed()))
    }

    /// The cell of a scope, if there is one. Does not count as a use.
    pub fn get(&self, scope: impl Into<Scope>) -> Option<Arc<C>> {
        self.0.peek(&scope.into())
    }

    /// What `find` finds in the cell of a scope. Counts as a use if it finds anything, and never as a miss, since
    /// another look-up follows.
    pub fn find<T>(&self, scope: impl Into<Scope>, find: impl FnOnce(&C) -> Option<T>) -> Option<T> {
        self.0.try_with(&scope.into(), |cell| find(cell))
    }

    /// As [`find`](Self::find), for the cell of a handle. It counts as a use once a second at most.
    pub fn find_by<T>(&self, handle: &CellHandle, find: impl FnOnce(&C) -> Option<T>) -> Option<T> {
        let now = self.0.now();
        if let Some(cell) = handle.cell(now)
            && let Some(cell) = (&*cell as &dyn Any).downcast_ref()
        {
            return find(cell).inspect(|_| self.0.count_hit(&handle.scope));
        }
        self.0.try_with(&handle.scope, |cell| find(cell).inspect(|_| handle.remember(cell, now)))
    }

    /// The cell of a scope, created for a tenant before anything is read into it. What `create` makes charges its facts to
    /// what it is given.
    pub fn get_or_create(
        &self,
        scope: impl Into<Scope>,
        tenant: Option<TenantId>,
        create: impl FnOnce(Scope, Charge) -> C,
    ) -> Arc<C> {
        self.0.get_or_create(scope.into(), tenant, |scope, charge| Arc::new(create(*scope, charge)))
    }

    /// Whether there is no cell.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Drops the cell of a scope.
    pub fn remove(&self, scope: impl Into<Scope>) {
        self.0.remove(&scope.into());
    }
}

impl<C: ScopeCell> CellSet for CellMap<C> {
    fn cell(&self, scope: Scope) -> Option<Arc<dyn ScopeCell>> {
        self.get(scope).map(|cell| cell as Arc<dyn ScopeCell>)
    }

    fn revisions(&self) -> Vec<(Scope, Revision)> {
        self.0.collect(|scope, cell| Some((*scope, cell.applied()?)))
    }

    fn clear(&self) {
        self.0.clear();
    }
}

/// Remembers where the cell of a scope was found first, for look-ups that repeat: one in the table costs two further memory
/// accesses, one after the other. It does not keep the cell in memory.
///
/// It does not name the type of the cell, which those who keep handles may not know.
#[derive(Debug)]
pub struct CellHandle {
    scope: Scope,
    cell: OnceLock<Weak<dyn ScopeCell>>,
    is_outdated: AtomicBool,
    /// When the cell was looked up last, in milliseconds.
    used_at: AtomicU32,
}

impl CellHandle {
    /// The maximum size of a cell in bytes: a handle keeps the memory of the cell allocated, not what the cell refers to.
    pub const MOST_RETAINED: usize = 192;

    /// A handle of the cell of a scope, which is looked up first.
    pub fn new(scope: impl Into<Scope>) -> Self {
        let (cell, is_outdated, used_at) = (OnceLock::new(), AtomicBool::new(false), AtomicU32::new(0));
        Self { scope: scope.into(), cell, is_outdated, used_at }
    }

    /// Whether the map no longer has the cell: another one is looked up each time from then on.
    pub fn is_outdated(&self) -> bool {
        self.is_outdated.load(Ordering::Relaxed)
    }

    /// Loads the beginning of the cell into the cache of the processor. Returns what was read, so that the compiler keeps the
    /// loads.
    pub fn touch(&self) -> usize {
        self.cell.get().map_or(0, Weak::strong_count)
    }

    /// The cell, if the map has it and it need not be looked up to count as used.
    fn cell(&self, now: u32) -> Option<Arc<dyn ScopeCell>> {
        let cell = self.cell.get()?;
        if now.wrapping_sub(self.used_at.load(Ordering::Relaxed)) >= USED_EVERY_MS {
            return None;
        }
        let cell = cell.upgrade().filter(|cell| !cell.is_removed());
        if cell.is_none() {
            self.is_outdated.store(true, Ordering::Relaxed);
        }
        cell
    }

    /// Remembers a cell that was looked up.
    fn remember<C: ScopeCell>(&self, cell: &Arc<C>, now: u32) {
        const { assert!(size_of::<C>() <= Self::MOST_RETAINED, "kept by handles") };
        let known = self.cell.get_or_init(|| Arc::downgrade(&(Arc::clone(cell) as Arc<dyn ScopeCell>)));
        if std::ptr::addr_eq(known.as_ptr(), Arc::as_ptr(cell)) {
            self.used_at.store(now, Ordering::Relaxed);
        } else {
            self.is_outdated.store(true, Ordering::Relaxed);
        }
    }
}

/// All cells in memory, by scope.
pub struct ScopeMap {
    sets: Vec<Arc<dyn CellSet>>,
    raises: AtomicU64,
    access_version: AtomicU64,
    timeline: AtomicU64,
}

impl ScopeMap {
    /// Creates the map. A scope belongs to the first set that has its cell.
    pub fn new(sets: Vec<Arc<dyn CellSet>>) -> Self {
        Self {
            sets,
            raises: AtomicU64::new(0),
            access_version: AtomicU64::new(0),
            timeline: AtomicU64::new(0),
        }
    }

    /// How often a scope was raised, in memory or not.
    pub fn raises(&self) -> u64 {
        self.raises.load(Ordering::SeqCst)
    }

    /// A number that is different after each change on which an access decision may rest: a decision made after the number
    /// was read holds while it is the same, whether the cells that it was made from are still in memory or not.
    pub fn access_version(&self) -> u64 {
        self.access_version.load(Ordering::SeqCst)
    }

    fn renew_access_version(&self) {
        self.access_version.fetch_add(1, Ordering::SeqCst);
    }

    /// How often the database changed its timeline by a restore, or by a failover that lost commits.
    pub fn timeline(&self) -> u64 {
        self.timeline.load(Ordering::Acquire)
    }

    /// Raises the wanted revision of a scope: nothing older is answered from now on. Returns whether its cell is behind.
    pub fn raise(&self, scope: Scope, revision: Revision) -> bool {
        // Counted before the cell is looked up: a load that began earlier finds either its cell or the count raised.
        self.raises.fetch_add(1, Ordering::SeqCst);
        let raised = |set: &Arc<dyn CellSet>| Some((set.raise(scope, revision)?, set.decides_access()));
        let raised = self.sets.iter().find_map(raised);
        // A scope without a cell may be that of a tenant. Renewed after the cell was raised, so that a decision made from the
        // old cell has the old version.
        if raised.is_none_or(|(_, decides_access)| decides_access) {
            self.renew_access_version();
        }
        raised.is_some_and(|(behind, _)| behind)
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
        self.renew_access_version();
    }

    /// Drops the facts that a committed write changed, before the write is answered: if the database becomes
    /// unreachable before this replica has read the change, the old state must not be answered.
    pub(super) fn forget(&self, scope: Scope, changes: &[Change]) {
        if let Some(cell) = self.cell(scope) {
            cell.forget(changes);
        }
        if !changes.is_empty() {
            self.renew_access_version();
        }
    }

    /// Drops the facts that a commit in doubt changes, and does not cache them for a while.
    pub(super) fn doubt(&self, scope: Scope, changes: Vec<Change>) {
        let has_changes = !changes.is_empty();
        if let Some(cell) = self.cell(scope) {
            cell.doubt(changes);
        }
        if has_changes {
            self.renew_access_version();
        }
    }

    pub(super) fn cell(&self, scope: Scope) -> Option<Arc<dyn ScopeCell>> {
        self.sets.iter().find_map(|set| set.cell(scope))
    }
}

impl std::fmt::Debug for ScopeMap {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScopeMap").finish_non_exhaustive()
    }
}

/// The newest announced revision of a scope.
///
/// It rises with announcements. A read of the database that began after all of them and finds a lower revision proves
/// that the announced one does not exist: an announcement from before the database was set back arrived late. Then it is
/// lowered to what was read; otherwise the scope would be behind, and read again, for ever.
#[derive(Debug, Default)]
pub struct WantedRevision {
    revision: AtomicI64,
    /// Number of announcements. Held while the revision changes, so that none is lost to a read in progress.
    announcements: Mutex<u64>,
}

/// What was announced before a read began.
#[derive(Debug, Clone, Copy)]
pub struct Announced {
    revision: Revision,
    announcements: u64,
}

impl WantedRevision {
    /// The newest announced revision; 0 before the first announcement.
    pub fn get(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Raises the revision, unless it is as high already.
    pub fn raise(&self, revision: Revision) {
        let mut announcements = self.announcements.lock();
        *announcements += 1;
        self.revision.fetch_max(revision.0, Ordering::AcqRel);
    }

    /// What is announced now; taken before a read whose result is passed to [`lower`](Self::lower).
    pub fn announced(&self) -> Announced {
        let announcements = self.announcements.lock();
        Announced { revision: self.get(), announcements: *announcements }
    }

    /// Lowers the revision to the head that was read, if it is lower and nothing was announced since before the read: not
    /// even the same revision, which may exist by now.
    pub fn lower(&self, before: Announced, head: Revision) {
        let announcements = self.announcements.lock();
        if head < before.revision && *announcements == before.announcements {
            self.revision.store(head.0, Ordering::Release);
        }
    }

    /// Forgets all announcements: the database is on another timeline.
    pub fn reset(&self) {
        let mut announcements = self.announcements.lock();
        *announcements += 1;
        self.revision.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
