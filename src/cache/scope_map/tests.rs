//! Access versions, wanted revisions, and cells that are found by handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};

use uuid::Uuid;

use super::{CellHandle, CellMap, CellSet, ScopeCell, ScopeMap, WantedRevision};
use crate::cache::memory_budget::MemoryBudget;
use crate::cache::{Cell, Invalidate, WeighedCache};
use crate::model::feed::BoxFuture;
use crate::model::scope::{Change, ChangeKind, Revision, Scope};
use crate::model::system::System;
use crate::store::{Store, StoreError};

#[derive(Debug, Default)]
struct Nothing;

impl Invalidate for Nothing {
    fn invalidate(&mut self, _: &Change) {}

    fn heap(&self) -> usize {
        0
    }
}

/// One cell.
struct Only {
    scope: Scope,
    cell: Arc<Cell<Nothing>>,
    decides_access: bool,
}

impl Only {
    fn set(scope: Scope, decides_access: bool) -> Arc<dyn CellSet> {
        let charge = MemoryBudget::new(1 << 20).pin("test");
        Arc::new(Self { scope, cell: Arc::new(Cell::new(scope, charge)), decides_access })
    }
}

impl CellSet for Only {
    fn cell(&self, scope: Scope) -> Option<Arc<dyn ScopeCell>> {
        (scope == self.scope).then(|| Arc::clone(&self.cell) as Arc<dyn ScopeCell>)
    }

    fn decides_access(&self) -> bool {
        self.decides_access
    }

    fn revisions(&self) -> Vec<(Scope, Revision)> {
        Vec::new()
    }

    fn clear(&self) {}
}

#[test]
fn access_version_differs_after_each_change_that_may_decide_access() {
    let scope = |number| Scope(Uuid::from_u128(number));
    let (agent, tenant, not_in_memory) = (scope(1), scope(2), scope(3));
    let map = ScopeMap::new(vec![Only::set(agent, false), Only::set(tenant, true)]);
    let change = || Change { revision: Revision(2), kind: ChangeKind::Key, subject: String::new() };
    let renewed = |act: &dyn Fn()| {
        let before = map.access_version();
        act();
        map.access_version() != before
    };
    assert!(!renewed(&|| _ = map.raise(agent, Revision(2))));
    assert!(renewed(&|| _ = map.raise(tenant, Revision(2))));
    assert!(renewed(&|| _ = map.raise(not_in_memory, Revision(2))), "a tenant whose cell was evicted");
    assert!(renewed(&|| map.forget(tenant, &[change()])));
    assert!(renewed(&|| map.doubt(tenant, vec![change()])));
    assert!(renewed(&|| map.doubt(not_in_memory, vec![change()])));
    assert!(!renewed(&|| map.forget(agent, &[])));
    assert!(renewed(&|| map.clear()));
}

/// A cell that answers its revision unless a newer one is known.
#[derive(Default)]
struct Revisioned {
    wanted: AtomicI64,
    current: AtomicI64,
    is_removed: AtomicBool,
}

impl Revisioned {
    fn fresh(&self) -> Option<i64> {
        let current = self.current.load(Ordering::SeqCst);
        (current >= self.wanted.load(Ordering::SeqCst)).then_some(current)
    }
}

impl ScopeCell for Revisioned {
    fn raise(&self, revision: Revision) -> bool {
        self.wanted.fetch_max(revision.0, Ordering::SeqCst);
        true
    }

    fn applied(&self) -> Option<Revision> {
        None
    }

    fn forget(&self, _: &[Change]) {}

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

    fn catch_up<'a>(&'a self, _: &'a Store, _: &'a System) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }
}

const SCOPE: Scope = Scope(Uuid::from_u128(1));

fn create(cells: &CellMap<Revisioned>) -> Arc<Revisioned> {
    cells.get_or_create(SCOPE, None, |_, _| Revisioned::default())
}

/// A map with the cell of [`SCOPE`], its budget, and the milliseconds of the budget's clock.
fn with_cell() -> (CellMap<Revisioned>, Arc<MemoryBudget>, Arc<AtomicU32>) {
    let now = Arc::new(AtomicU32::new(0));
    let clock = Arc::clone(&now);
    let budget = MemoryBudget::with_clock(1 << 20, move || clock.load(Ordering::Relaxed));
    let cells = CellMap::new(&budget, "test");
    create(&cells);
    (cells, budget, now)
}

#[test]
fn cell_that_is_found_by_a_handle_is_hit_and_used() {
    let (cells, budget, now) = with_cell();
    let numbers = WeighedCache::new(&budget, "numbers", |_| false);
    let handle = CellHandle::new(SCOPE);
    let hits = || budget.stats().iter().map(|cache| cache.hits).sum::<u64>();
    for found in 1..=3 {
        assert_eq!((cells.find_by(&handle, Revisioned::fresh), hits()), (Some(0), found));
    }
    // Many times what the budget holds in ten seconds: what is used meanwhile is not evicted.
    for key in 0..20_000 {
        now.fetch_add(10, Ordering::Relaxed);
        numbers.insert(key, key, None, 1 << 10);
        if key % 10 == 0 {
            assert_eq!(cells.find_by(&handle, Revisioned::fresh), Some(0), "{key}");
        }
    }
    assert!(!handle.is_outdated());
}

#[test]
fn cell_that_was_removed_is_not_found_by_a_handle() {
    let remove: [fn(&CellMap<Revisioned>); 2] = [|cells| cells.remove(SCOPE), |cells| cells.clear()];
    for remove in remove {
        for is_held in [false, true] {
            let (cells, ..) = with_cell();
            let handle = CellHandle::new(SCOPE);
            let find = || (cells.find_by(&handle, Revisioned::fresh), handle.is_outdated());
            assert_eq!(find(), (Some(0), false));
            // As while it is loaded into.
            let held = is_held.then(|| cells.get(SCOPE));
            remove(&cells);
            assert_eq!(find(), (None, true));
            create(&cells);
            assert_eq!(find(), (Some(0), true), "another one, by look-up");
            drop(held);
        }
    }
}

#[test]
fn handle_of_another_cell_than_the_map_has_is_outdated() {
    let (cells, budget, now) = with_cell();
    let handle = CellHandle::new(SCOPE);
    cells.find_by(&handle, Revisioned::fresh);
    cells.remove(SCOPE);
    create(&cells);
    now.store(1_000, Ordering::Relaxed);
    budget.tick();
    assert_eq!((cells.find_by(&handle, Revisioned::fresh), handle.is_outdated()), (Some(0), true));
}

#[test]
fn nothing_older_than_what_was_raised_is_found_by_a_handle() {
    const REVISIONS: i64 = 20_000;
    let (cells, ..) = with_cell();
    let (raised, done) = (AtomicI64::new(0), AtomicBool::new(false));
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let mut held = None;
            for revision in 1..=REVISIONS {
                cells.raise(SCOPE, Revision(revision));
                raised.store(revision, Ordering::SeqCst);
                let cell = create(&cells);
                cell.current.store(revision, Ordering::SeqCst);
                if revision % 3 == 0 {
                    cells.remove(SCOPE);
                    held = Some(cell);
                }
            }
            drop(held);
            done.store(true, Ordering::SeqCst);
        });
        let mut handle = CellHandle::new(SCOPE);
        while !done.load(Ordering::SeqCst) {
            let due = raised.load(Ordering::SeqCst);
            if let Some(found) = cells.find_by(&handle, Revisioned::fresh) {
                // A new cell has not been raised, and answers once it is loaded.
                assert!(found == 0 || found >= due, "{found} < {due}");
            }
            if handle.is_outdated() {
                handle = CellHandle::new(SCOPE);
            }
        }
    });
}

#[test]
fn announced_revision_that_does_not_exist_is_lowered() {
    let wanted = WantedRevision::default();
    wanted.raise(Revision(8));
    wanted.lower(wanted.announced(), Revision(7));
    assert_eq!(wanted.get(), Revision(7));
    wanted.lower(wanted.announced(), Revision(9));
    assert_eq!(wanted.get(), Revision(7), "a read raises nothing");
}

#[test]
fn announcement_during_a_read_is_not_lowered() {
    let wanted = WantedRevision::default();
    wanted.raise(Revision(8));
    for announced in [8, 9] {
        let before = wanted.announced();
        wanted.raise(Revision(announced));
        wanted.lower(before, Revision(7));
        assert_eq!(wanted.get(), Revision(announced));
    }
    let before = wanted.announced();
    wanted.reset();
    wanted.lower(before, Revision(7));
    assert_eq!(wanted.get(), Revision(0), "the read was of another timeline");
}
