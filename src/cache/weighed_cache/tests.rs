//! Eviction, fairness between tenants, cells in use, and the accounting.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use foldhash::SharedSeed;
use foldhash::fast::SeedableRandomState;
use proptest::prelude::*;
use uuid::Uuid;

use super::WeighedCache;
use crate::cache::memory_budget::Evict;
use crate::cache::{Cell, CellMap, Invalidate, MemoryBudget, PROTECTED, ScopeCell};
use crate::model::ids::TenantId;
use crate::model::scope::{Change, ChangeKind, Revision, Scope};

type Numbers = Arc<WeighedCache<u64, u64>>;

const KIB: usize = 1 << 10;
const MIB: usize = 1 << 20;

/// [`PROTECTED`] in milliseconds.
const PROTECTED_MS: u32 = 5 * 60 * 1_000;

const A: Option<TenantId> = Some(TenantId(Uuid::from_u128(1)));
const B: Option<TenantId> = Some(TenantId(Uuid::from_u128(2)));

/// A budget, and the milliseconds of its clock.
fn budget(bytes: usize) -> (Arc<MemoryBudget>, Arc<AtomicU32>) {
    let now = Arc::new(AtomicU32::new(0));
    let clock = Arc::clone(&now);
    (MemoryBudget::with_clock(bytes as u64, move || clock.load(Ordering::Relaxed)), now)
}

fn numbers(budget: &Arc<MemoryBudget>, name: &'static str) -> Numbers {
    WeighedCache::new(budget, name, |_| false)
}

/// The same hashes in each run.
fn numbers_hashed_by(seed: u64, budget: &Arc<MemoryBudget>) -> Numbers {
    let hasher = SeedableRandomState::with_seed(seed, SharedSeed::global_fixed());
    WeighedCache::with_hasher(budget, "test", |_| false, |_| {}, hasher)
}

/// Which of the keys are cached. Counts as no use.
fn cached(cache: &Numbers, keys: std::ops::Range<u64>) -> usize {
    keys.filter(|key| cache.contains(key)).count()
}

/// Inserts ten times what the budget holds, in entries of a kibibyte, one each millisecond.
fn flood(cache: &Numbers, now: &AtomicU32, tenant: Option<TenantId>) {
    let first = 1_000_000 + u64::from(now.load(Ordering::Relaxed)) * 1_000_000;
    for key in first..first + 10 * 1_024 {
        now.fetch_add(1, Ordering::Relaxed);
        cache.insert(key, key, tenant, KIB);
    }
}

#[test]
fn least_recently_used_entries_are_evicted() {
    let mut outlived = 0;
    for seed in 0..10 {
        let (budget, now) = budget(MIB);
        let cache = numbers_hashed_by(seed, &budget);
        for key in 0..10_000 {
            now.fetch_add(1, Ordering::Relaxed);
            cache.insert(key, key, A, KIB);
            assert!(budget.used() <= MIB);
            if key % 100 == 0 {
                (0..20).for_each(|used| assert!(key < 20 || cache.get(&used).is_some(), "{used} at {key}"));
            }
        }
        // A new entry outlives those that are older than most.
        assert!(cached(&cache, 9_900..10_000) > 95);
        // Eviction samples: an entry outlives twice as many as the cache holds in one of fifty runs.
        assert_eq!(cached(&cache, 20..7_500), 0, "with seed {seed}");
        outlived += cached(&cache, 20..8_000);
        let stats = budget.stats()[0];
        assert!(stats.entries > 700 && stats.bytes == budget.used(), "{stats:?}");
        assert_eq!(stats.evictions, 10_000 - stats.entries as u64);
    }
    assert!(outlived <= 2, "{outlived} entries are older than twice what the cache holds");
}

#[test]
fn entries_of_all_shards_have_the_same_chance_of_eviction() {
    let (budget, _) = budget(MIB);
    let cache = numbers_hashed_by(0, &budget);
    (0..600).for_each(|key| cache.insert(key, key, A, KIB));
    let mut sampled = std::collections::HashMap::<_, u32>::new();
    for _ in 0..600 * 1_000 {
        let candidate = cache.sample().unwrap();
        *sampled.entry((candidate.shard, candidate.bucket)).or_default() += 1;
    }
    // A thousand each, with a standard deviation of 32.
    assert_eq!(sampled.len(), 600);
    assert!(sampled.values().all(|times| (800..1_200).contains(times)), "{sampled:?}");
}

#[test]
fn entry_of_an_almost_empty_table_is_found() {
    let (budget, _) = budget(MIB);
    let cache = numbers_hashed_by(0, &budget);
    (0..5_000).for_each(|key| cache.insert(key, key, A, 0));
    (1..5_000).for_each(|key| cache.remove(&key));
    assert_eq!(cached(&cache, 0..5_000), 1);
    // A window of 32 of its shard's 128 buckets is looked at.
    assert!((0..1_000).filter_map(|_| cache.sample()).count() > 200);
}

#[test]
fn protection_lasts_as_long_as_documented() {
    assert_eq!(PROTECTED.as_millis(), u128::from(PROTECTED_MS));
}

#[test]
fn entries_used_after_the_clock_was_read_are_the_newest() {
    let (budget, now) = budget(MIB);
    let cache = numbers_hashed_by(0, &budget);
    (0..600).for_each(|key| cache.insert(key, key, A, KIB));
    now.store(200, Ordering::Relaxed);
    budget.tick();
    (0..300).for_each(|key| assert!(cache.get(&key).is_some()));
    // As another thread sees it that read the clock before.
    now.store(100, Ordering::Relaxed);
    (1_000..1_600).for_each(|key| cache.insert(key, key, A, KIB));
    let (used, unused) = (cached(&cache, 0..300), cached(&cache, 300..600));
    assert!(used > 250 && unused < 150, "{used} and {unused} of 300");
}

#[test]
fn tenant_keeps_what_it_uses_while_another_floods() {
    let (budget, now) = budget(MIB);
    let cache = numbers(&budget, "test");
    // A fifth of the budget: less than its part, a quarter.
    (0..180).for_each(|key| cache.insert(key, key, A, KIB));
    for _ in 0..10 {
        flood(&cache, &now, B);
        assert_eq!(cached(&cache, 0..180), 180, "of 180 after {now:?} ms");
    }
    assert!(budget.used() > MIB * 9 / 10, "the rest goes by use");
    now.fetch_add(PROTECTED_MS, Ordering::Relaxed);
    flood(&cache, &now, B);
    assert_eq!(cached(&cache, 0..180), 0, "what is not used is not protected");
}

#[test]
fn tenant_above_its_part_loses_only_what_is_above_it() {
    let (budget, now) = budget(MIB);
    let cache = numbers(&budget, "test");
    (0..800).for_each(|key| cache.insert(key, key, A, KIB));
    flood(&cache, &now, B);
    let kept = cached(&cache, 0..800) * KIB;
    assert!((MIB / 6..MIB / 3).contains(&kept), "{kept} bytes of a quarter of {MIB}");
}

#[test]
fn large_entries_do_not_evict_many_small_ones() {
    let (budget, now) = budget(MIB);
    let (small, large) = (numbers(&budget, "small"), numbers(&budget, "large"));
    (0..500).for_each(|key| small.insert(key, key, A, 200));
    for key in 0..1_000 {
        now.fetch_add(1, Ordering::Relaxed);
        large.insert(key, key, A, MIB / 5);
        assert!((0..500).filter_map(|key| small.get(&key)).count() > 490);
    }
    assert!(cached(&large, 990..1_000) > 2);
    assert!(cached(&small, 0..500) > 495, "{}", cached(&small, 0..500));
}

#[test]
fn entry_above_a_quarter_of_the_budget_is_not_cached() {
    let (budget, _) = budget(MIB);
    let cache = numbers(&budget, "test");
    (0..500).for_each(|key| cache.insert(key, key, A, KIB));
    cache.insert(500, 500, A, MIB / 4);
    assert_eq!((cached(&cache, 0..500), cached(&cache, 500..501)), (500, 0));
    cache.insert(500, 500, A, MIB / 4 - KIB);
    assert_eq!(cached(&cache, 0..501), 501);
}

#[test]
fn pinned_bytes_reduce_the_rest_and_are_not_evicted() {
    let (budget, now) = budget(MIB);
    let cache = numbers(&budget, "test");
    let pinned = budget.pin("pinned");
    flood(&cache, &now, A);
    pinned.resize(MIB * 3 / 4);
    assert_eq!(pinned.bytes(), MIB * 3 / 4);
    assert!(budget.used() <= MIB, "{}", budget.used());
    flood(&cache, &now, A);
    assert!(budget.used() <= MIB && budget.stats()[0].bytes > MIB / 5);
}

/// Facts of a scope: a text for each subject.
#[derive(Debug, Default)]
struct Facts(Vec<String>);

impl Invalidate for Facts {
    fn invalidate(&mut self, change: &Change) {
        self.0.retain(|fact| *fact != change.subject);
    }

    fn heap(&self) -> usize {
        self.0.iter().map(String::len).sum()
    }
}

fn scope(number: u128) -> Scope {
    Scope(Uuid::from_u128(number))
}

fn cells(budget: &Arc<MemoryBudget>) -> CellMap<Cell<Facts>> {
    CellMap::new(budget, "cells")
}

fn change(subject: &str) -> Change {
    Change { revision: Revision(2), kind: ChangeKind::Key, subject: subject.to_owned() }
}

#[test]
fn cell_in_use_is_not_evicted_and_is_raised() {
    let (budget, now) = budget(MIB);
    let (cells, cache) = (cells(&budget), numbers(&budget, "test"));
    let in_use = cells.get_or_create(scope(1), A, Cell::new);
    drop(cells.get_or_create(scope(2), A, Cell::new));
    now.fetch_add(PROTECTED_MS + 1, Ordering::Relaxed);
    flood(&cache, &now, B);
    assert!(cells.get(scope(2)).is_none());
    // A change that arrives during a load reaches the cell that is loaded into: the older facts are not kept.
    cells.get(scope(1)).expect("in use").raise(Revision(2));
    in_use.keep(Revision(1), 0, |facts| facts.0.push("old".to_owned()));
    assert_eq!(in_use.get_stale(|facts| facts.0.first().cloned()), None);
    in_use.keep(Revision(2), 0, |facts| facts.0.push("new".to_owned()));
    let again = cells.get_or_create(scope(1), A, Cell::new);
    assert!(Arc::ptr_eq(&in_use, &again));
    assert_eq!(again.get_stale(|facts| facts.0.first().cloned()).as_deref(), Some("new"));
    drop((in_use, again));
    now.fetch_add(PROTECTED_MS + 1, Ordering::Relaxed);
    flood(&cache, &now, B);
    assert!(cells.get(scope(1)).is_none(), "evicted once it is not in use");
}

#[test]
fn cell_with_changes_in_doubt_is_not_evicted() {
    let (budget, now) = budget(MIB);
    let (cells, cache) = (cells(&budget), numbers(&budget, "test"));
    cells.get_or_create(scope(1), A, Cell::new).doubt(vec![change("revoked")]);
    now.fetch_add(PROTECTED_MS + 1, Ordering::Relaxed);
    flood(&cache, &now, B);
    let cell = cells.get_or_create(scope(1), A, Cell::new);
    cell.keep(Revision(1), 0, |facts| facts.0.push("revoked".to_owned()));
    assert_eq!(cell.get(|facts| facts.0.first().cloned()), None);
}

#[test]
fn facts_of_a_cell_are_charged_while_they_are_in_memory() {
    let (budget, _) = budget(MIB);
    let cells = cells(&budget);
    let cell = cells.get_or_create(scope(1), A, Cell::new);
    let empty = budget.used();
    let keep = |fact: &str| cell.keep(Revision(1), 0, |facts| facts.0.push(fact.to_owned()));
    keep(&"a".repeat(1_000));
    keep("b");
    assert_eq!(budget.used(), empty + 1_001);
    cell.forget(&[change("b")]);
    assert_eq!(budget.used(), empty + 1_000);
    // Facts that are too many for one cell are dropped, and are kept again from then on.
    keep(&"c".repeat(MIB / 4));
    assert_eq!(budget.used(), empty);
    keep("d");
    assert_eq!((budget.used(), cell.get(|facts| Some(facts.0.len()))), (empty + 1, Some(1)));
    // Removed from the map, but in use: as a session that ended.
    cells.remove(scope(1));
    keep("e");
    assert_eq!(budget.used(), 2);
    drop(cell);
    assert_eq!(budget.used(), 0);
}

#[test]
fn concurrent_use_leaves_no_bytes_behind() {
    let budget = MemoryBudget::new(MIB as u64);
    let (cache, cells) = (numbers(&budget, "test"), cells(&budget));
    std::thread::scope(|threads| {
        for thread in 0..4_u64 {
            let (cache, cells, budget) = (&cache, &cells, &budget);
            threads.spawn(move || {
                for n in 0..20_000 {
                    let key = n * 7 % 3_000;
                    cache.insert(key, thread, if n % 2 == 0 { A } else { B }, KIB);
                    let cell = cells.get_or_create(scope(u128::from(n % 500)), A, Cell::new);
                    cell.keep(Revision(1), 0, |facts| facts.0.push("x".repeat(100)));
                    if n % 11 == 0 {
                        cache.remove(&key);
                        cells.remove(scope(u128::from(n % 500)));
                    }
                    // Each thread may exceed it by what it inserts and has not made room for.
                    assert!(budget.used() <= MIB + 4 * 64 * KIB, "{}", budget.used());
                }
            });
        }
    });
    let stats = budget.stats();
    assert_eq!(stats.iter().map(|cache| cache.bytes).sum::<usize>(), budget.used());
    (0..3_000).for_each(|key| cache.remove(&key));
    (0..500).for_each(|number| cells.remove(scope(number)));
    assert_eq!(budget.used(), 0);
    assert!(budget.stats().iter().all(|cache| cache.entries == 0 && cache.bytes == 0));
}

/// A value that counts its removals, and those at which another thread could not look it up.
#[derive(Default)]
struct Removed {
    cache: OnceLock<Weak<WeighedCache<u64, Arc<Removed>>>>,
    removals: AtomicU32,
    locked: AtomicU32,
}

impl Removed {
    fn count(&self) {
        let Some(cache) = self.cache.get().and_then(Weak::upgrade) else { return };
        self.removals.fetch_add(1, Ordering::Relaxed);
        let is_locked = cache.shard_of(&1_u64).1.entries.try_read().is_none();
        self.locked.fetch_add(u32::from(is_locked), Ordering::Relaxed);
    }
}

#[test]
fn value_is_called_once_under_the_lock_when_it_is_removed() {
    type Remove = fn(&WeighedCache<u64, Arc<Removed>>, &AtomicU32);
    let remove: [Remove; 4] = [
        |cache, _| cache.remove(&1),
        |cache, _| cache.clear(),
        |cache, _| cache.insert(1, Arc::default(), A, KIB),
        |cache, now| {
            for key in 2..10_000 {
                now.fetch_add(1, Ordering::Relaxed);
                cache.insert(key, Arc::default(), A, KIB);
            }
        },
    ];
    for remove in remove {
        let (budget, now) = budget(MIB);
        let cache =
            WeighedCache::with_removals(&budget, "test", |_| false, |value: &Arc<Removed>| value.count());
        let value = Arc::<Removed>::default();
        value.cache.get_or_init(|| Arc::downgrade(&cache));
        cache.insert(1, Arc::clone(&value), A, KIB);
        remove(&cache, &now);
        let counts = [&value.removals, &value.locked].map(|count| count.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 1]);
    }
}

proptest! {
    #[test]
    fn cache_answers_what_was_inserted_last(operations in prop::collection::vec((0..4_u8, 0..50_u64), 0..500)) {
        let (budget, now) = budget(MIB);
        let cache = numbers(&budget, "test");
        let mut model = std::collections::HashMap::new();
        for (value, (operation, key)) in operations.into_iter().enumerate() {
            now.fetch_add(1, Ordering::Relaxed);
            match operation {
                0 | 1 => {
                    cache.insert(key, value as u64, A, KIB);
                    model.insert(key, value as u64);
                }
                2 => {
                    cache.remove(&key);
                    model.remove(&key);
                }
                _ => prop_assert_eq!(cache.get(&key), model.get(&key).copied()),
            }
        }
        prop_assert_eq!(budget.used(), model.len() * (KIB + WeighedCache::<u64, u64>::overhead()));
        cache.clear();
        prop_assert_eq!(budget.used(), 0);
    }
}

/// A budget of 64 MiB and its cache, in a process with so much resident memory.
fn resident_budget(resident: &Arc<AtomicUsize>) -> (Arc<MemoryBudget>, Numbers) {
    let resident = Arc::clone(resident);
    let read = Box::new(move || Some(resident.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0));
    let budget = MemoryBudget::with(64 * MIB as u64, || 0, read);
    let cache = numbers(&budget, "test");
    (budget, cache)
}

/// Inserts so many bytes in new entries of 16 KiB.
fn insert_bytes(cache: &Numbers, first: u64, bytes: usize) {
    let count = (bytes / (16 * KIB)) as u64;
    (first..first + count).for_each(|key| cache.insert(key, key, None, 16 * KIB));
}

#[test]
fn caches_shrink_while_too_much_memory_is_resident() {
    let resident = Arc::new(AtomicUsize::new(104 * MIB));
    let (budget, cache) = resident_budget(&resident);
    insert_bytes(&cache, 0, 128 * MIB);
    assert!(budget.withheld() == 0 && budget.used() > 63 * MIB, "an eighth and 32 MiB above the budget");
    resident.store(105 * MIB, Ordering::Relaxed);
    insert_bytes(&cache, 1_000_000, 8 * MIB);
    let withheld = budget.withheld();
    assert!((3 * MIB..=5 * MIB).contains(&withheld), "by what is too much at each reading: {withheld}");
    assert!(budget.used() <= 64 * MIB - withheld);
    resident.store(500 * MIB, Ordering::Relaxed);
    insert_bytes(&cache, 2_000_000, 256 * MIB);
    assert_eq!(budget.withheld(), 32 * MIB, "no more than half of the budget");
    assert!(budget.used() <= 32 * MIB);
    resident.store(100 * MIB, Ordering::Relaxed);
    insert_bytes(&cache, 3_000_000, 64 * MIB);
    let recovering = budget.withheld();
    assert!((20 * MIB..31 * MIB).contains(&recovering), "slowly: {recovering}");
    insert_bytes(&cache, 4_000_000, 512 * MIB);
    assert!(budget.withheld() == 0 && budget.used() > 63 * MIB);
}

#[test]
fn caches_that_are_not_full_stop_growing() {
    let resident = Arc::new(AtomicUsize::new(100 * MIB));
    let (budget, cache) = resident_budget(&resident);
    insert_bytes(&cache, 0, 40 * MIB);
    resident.store(105 * MIB, Ordering::Relaxed);
    insert_bytes(&cache, 1_000_000, 3 * MIB);
    assert!(budget.used() < 42 * MIB, "{}", budget.used());
}

#[test]
fn nothing_is_withheld_where_resident_memory_is_unknown() {
    let resident = Arc::new(AtomicUsize::new(500 * MIB));
    let (budget, cache) = resident_budget(&resident);
    insert_bytes(&cache, 0, 64 * MIB);
    assert!(budget.withheld() > 0);
    resident.store(0, Ordering::Relaxed);
    insert_bytes(&cache, 1_000_000, 4 * MIB);
    assert_eq!(budget.withheld(), 0);
}
