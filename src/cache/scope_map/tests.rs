//! Access versions, and cells that are found by handles.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use uuid::Uuid;

use super::{CellHandle, CellMap, CellSet, ScopeCell, ScopeMap};
use crate::cache::memory_budget::MemoryBudget;
use crate::cache::{Cell, Invalidate};
use crate::model::feed::BoxFuture;
use crate::model::scope::{Change, ChangeKind, Revision, Scope};
use crate::model::sources::Sources;
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

/// A cell that answers until it is removed.
#[derive(Default)]
struct Removable(AtomicBool);

impl Removable {
    fn answer(&self) -> Option<&'static str> {
        (!self.0.load(Ordering::Acquire)).then_some("answer")
    }
}

impl ScopeCell for Removable {
    fn raise(&self, _: Revision) -> bool {
        false
    }

    fn applied(&self) -> Option<Revision> {
        None
    }

    fn forget(&self, _: &[Change]) {}

    fn doubt(&self, _: Vec<Change>) {}

    fn set_removed(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_in_doubt(&self) -> bool {
        false
    }

    fn catch_up<'a>(&'a self, _: &'a Store, _: &'a Sources) -> BoxFuture<'a, Result<(), StoreError>> {
        Box::pin(async { Ok(()) })
    }
}

const SCOPE: Scope = Scope(Uuid::from_u128(1));

/// A map with the cell of [`SCOPE`], its budget, and the milliseconds of the budget's clock.
fn with_cell() -> (CellMap<Removable>, Arc<MemoryBudget>, Arc<AtomicU32>) {
    let now = Arc::new(AtomicU32::new(0));
    let clock = Arc::clone(&now);
    let budget = MemoryBudget::with_clock(1 << 20, move || clock.load(Ordering::Relaxed));
    let cells = CellMap::new(&budget, "test");
    cells.get_or_create(SCOPE, None, |_, _| Removable::default());
    (cells, budget, now)
}

#[test]
fn cell_that_is_found_by_a_handle_is_used_and_hit() {
    let (cells, budget, now) = with_cell();
    let handle = CellHandle::default();
    let find = || cells.find(SCOPE, Some(&handle), Removable::answer);
    let hits = || budget.stats().iter().map(|cache| cache.hits).sum::<u64>();
    assert_eq!([find(), find(), find()], [Some("answer"); 3]);
    assert_eq!(hits(), 1, "the other two are counted later");
    let other = CellHandle::default();
    assert_eq!(cells.find(Scope(Uuid::from_u128(2)), Some(&other), Removable::answer), None);
    now.store(1_000, Ordering::Relaxed);
    budget.tick();
    assert_eq!((find(), hits(), handle.is_outdated()), (Some("answer"), 4, false));
}

#[test]
fn cell_that_was_removed_is_not_found_by_a_handle() {
    let remove: [fn(&CellMap<Removable>); 2] = [|cells| cells.remove(SCOPE), |cells| cells.clear()];
    for remove in remove {
        let (cells, ..) = with_cell();
        let handle = CellHandle::default();
        let find = || cells.find(SCOPE, Some(&handle), Removable::answer);
        assert_eq!(find(), Some("answer"));
        // As while it is loaded into.
        let in_use = cells.get(SCOPE);
        remove(&cells);
        assert_eq!((find(), handle.is_outdated()), (None, false));
        drop(in_use);
        assert_eq!((find(), handle.is_outdated()), (None, true));
        cells.get_or_create(SCOPE, None, |_, _| Removable::default());
        assert_eq!(find(), Some("answer"), "by look-up");
    }
}
