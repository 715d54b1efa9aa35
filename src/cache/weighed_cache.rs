//! A cache whose entries count to the budget of all caches, which evicts them (cache eviction).

use std::hash::{BuildHasher, Hash};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use foldhash::fast::SeedableRandomState;
use hashbrown::{Equivalent, HashTable};
use parking_lot::RwLock;

use super::memory_budget::{CacheCounters, CacheStats, Candidate, Charge, Evict, MemoryBudget};
use crate::model::allocated::{allocated, in_table};
use crate::model::ids::TenantId;

/// Locks that look-ups are spread over; a power of two.
const SHARDS: usize = 64;
/// Random buckets that are looked at for one that is occupied: about four are enough unless most entries were removed.
const DRAWS: usize = 64;
/// Buckets of each shard that are looked at in their order where the random ones were empty.
const PROBES: usize = 32;

/// A concurrent map from keys to values.
///
/// Clients choose parts of some keys, but cannot compute their hashes: the hasher has a random seed in each process.
#[derive(Debug)]
pub struct WeighedCache<K, V> {
    budget: Arc<MemoryBudget>,
    /// The time of the budget, in milliseconds.
    time: Arc<AtomicU32>,
    counters: Arc<CacheCounters>,
    hasher: SeedableRandomState,
    shards: Box<[Shard<K, V>]>,
    /// The most buckets that the table of a shard has had.
    most_buckets: AtomicUsize,
    /// Whether a value must not be evicted now.
    is_in_use: fn(&V) -> bool,
    /// Called under the lock, before a value is removed or replaced.
    on_removal: fn(&V),
}

#[derive(Debug)]
struct Shard<K, V> {
    entries: RwLock<HashTable<Slot<K, V>>>,
    /// Beside the lock, in the line that a look-up writes anyway.
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug)]
struct Slot<K, V> {
    hash: u64,
    entry: Box<Entry<K, V>>,
}

#[derive(Debug)]
struct Entry<K, V> {
    key: K,
    value: V,
    used: AtomicU32,
    charge: Charge,
}

impl<K, V> WeighedCache<K, V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// An empty cache within `budget`. `name` labels its metrics; `is_in_use` says which values must not be evicted.
    pub fn new(budget: &Arc<MemoryBudget>, name: &'static str, is_in_use: fn(&V) -> bool) -> Arc<Self> {
        Self::with_hasher(budget, name, is_in_use, |_| {}, SeedableRandomState::random())
    }

    /// As [`new`](Self::new). `on_removal` is called under the lock, before a value is removed or replaced: what looks up its key
    /// afterwards finds the call done.
    pub(super) fn with_removals(
        budget: &Arc<MemoryBudget>,
        name: &'static str,
        is_in_use: fn(&V) -> bool,
        on_removal: fn(&V),
    ) -> Arc<Self> {
        Self::with_hasher(budget, name, is_in_use, on_removal, SeedableRandomState::random())
    }

    fn with_hasher(
        budget: &Arc<MemoryBudget>,
        name: &'static str,
        is_in_use: fn(&V) -> bool,
        on_removal: fn(&V),
        hasher: SeedableRandomState,
    ) -> Arc<Self> {
        let shard = || Shard {
            entries: RwLock::new(HashTable::new()),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        };
        let cache = Arc::new(Self {
            budget: Arc::clone(budget),
            time: budget.time(),
            counters: CacheCounters::new(name),
            hasher,
            shards: (0..SHARDS).map(|_| shard()).collect(),
            most_buckets: AtomicUsize::new(1),
            is_in_use,
            on_removal,
        });
        let evicted: Weak<dyn Evict> = Arc::downgrade(&(Arc::clone(&cache) as Arc<dyn Evict>));
        budget.register(evicted);
        cache
    }

    /// The bytes that an entry takes beside the heap memory of its key and its value.
    pub const fn overhead() -> usize {
        allocated(size_of::<Entry<K, V>>()) + in_table::<Slot<K, V>>()
    }

    /// What `of` makes of the value of a key, which may be in a borrowed form with the same hash. Counts as a use if it makes
    /// anything of it.
    pub fn get_with<Q: Hash + Equivalent<K>, T>(
        &self,
        key: &Q,
        of: impl FnOnce(&V) -> Option<T>,
    ) -> Option<T> {
        let found = self.try_with(key, of);
        if found.is_none() {
            self.shard_of(key).1.misses.fetch_add(1, Ordering::Relaxed);
        }
        found
    }

    /// As [`get_with`](Self::get_with), where another look-up follows if this one makes nothing: it does not count as a miss.
    pub fn try_with<Q: Hash + Equivalent<K>, T>(
        &self,
        key: &Q,
        of: impl FnOnce(&V) -> Option<T>,
    ) -> Option<T> {
        let (hash, shard) = self.shard_of(key);
        let entries = shard.entries.read();
        let Slot { entry, .. } = entries.find(hash, |slot| key.equivalent(&slot.entry.key))?;
        let found = of(&entry.value)?;
        shard.hits.fetch_add(1, Ordering::Relaxed);
        let now = self.now();
        // Only where it changes: most entries in use are used many times a millisecond, by all threads.
        if entry.used.load(Ordering::Relaxed) != now {
            entry.used.store(now, Ordering::Relaxed);
        }
        Some(found)
    }

    /// The time at which an entry that is used now counts as used, in milliseconds.
    pub(super) fn now(&self) -> u32 {
        self.time.load(Ordering::Relaxed)
    }

    /// Counts a hit of a value that was found without a look-up.
    pub(super) fn count_hit(&self, key: &K) {
        self.shard_of(key).1.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether there is a value of a key. Does not count as a use.
    pub fn contains(&self, key: &K) -> bool {
        let (hash, shard) = self.shard_of(key);
        shard.entries.read().find(hash, |slot| slot.entry.key == *key).is_some()
    }

    /// Caches a value for a tenant, or for none. `heap` are the bytes of heap memory of the key and the value. Nothing is
    /// cached where they are too many for one entry, or too little else can be evicted.
    pub fn insert(&self, key: K, value: V, tenant: Option<TenantId>, heap: usize) {
        self.budget.tick();
        let account = self.budget.account(tenant);
        let bytes = heap + Self::overhead();
        if bytes > self.budget.most_of_one() {
            return;
        }
        let charge = Charge::new(&account, &self.counters, bytes);
        if !self.budget.make_room() {
            return;
        }
        let (hash, shard) = self.shard_of(&key);
        let used = AtomicU32::new(self.now());
        let entry = Box::new(Entry { key, value, used, charge });
        let replaced = {
            let mut entries = shard.entries.write();
            let same = entries.find_mut(hash, |slot| slot.entry.key == entry.key);
            if let Some(slot) = same {
                (self.on_removal)(&slot.entry.value);
                Some(std::mem::replace(&mut slot.entry, entry))
            } else {
                self.insert_new(&mut entries, Slot { hash, entry });
                None
            }
        };
        drop(replaced);
    }

    /// Drops the value of a key.
    pub fn remove(&self, key: &K) {
        let (hash, shard) = self.shard_of(key);
        let removed = {
            let mut entries = shard.entries.write();
            let found = entries.find_entry(hash, |slot| slot.entry.key == *key).ok();
            found.map(|found| {
                (self.on_removal)(&found.get().entry.value);
                found.remove().0
            })
        };
        self.counters.entries.fetch_sub(usize::from(removed.is_some()), Ordering::Relaxed);
    }

    /// Drops all values.
    pub fn clear(&self) {
        for shard in &self.shards {
            let entries = {
                let mut entries = shard.entries.write();
                entries.iter().for_each(|slot| (self.on_removal)(&slot.entry.value));
                std::mem::take(&mut *entries)
            };
            self.counters.entries.fetch_sub(entries.len(), Ordering::Relaxed);
        }
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.counters.entries.load(Ordering::Relaxed) == 0
    }

    /// What `of` makes of each entry.
    pub(super) fn collect<T>(&self, of: impl Fn(&K, &V) -> Option<T>) -> Vec<T> {
        let mut all = Vec::new();
        for shard in &self.shards {
            let entries = shard.entries.read();
            all.extend(entries.iter().filter_map(|slot| of(&slot.entry.key, &slot.entry.value)));
        }
        all
    }

    fn insert_new(&self, entries: &mut HashTable<Slot<K, V>>, slot: Slot<K, V>) {
        entries.insert_unique(slot.hash, slot, |slot| slot.hash);
        self.counters.entries.fetch_add(1, Ordering::Relaxed);
        if entries.num_buckets() > self.most_buckets.load(Ordering::Relaxed) {
            self.most_buckets.fetch_max(entries.num_buckets(), Ordering::Relaxed);
        }
    }

    /// The entry in a bucket, if it may be evicted.
    fn candidate(&self, shard: usize, bucket: usize) -> Option<Candidate> {
        let entries = self.shards[shard].entries.read();
        let entry = &entries.get_bucket(bucket)?.entry;
        let used = entry.used.load(Ordering::Relaxed);
        let candidate = Candidate { shard, bucket, used, held: entry.charge.held() };
        (!(self.is_in_use)(&entry.value)).then_some(candidate)
    }

    /// The first entry from a bucket on that may be evicted, where most buckets are empty. Not all have the same chance.
    fn next_candidate(&self, random: u64) -> Option<Candidate> {
        let (first_shard, first_bucket) = split(random);
        (first_shard..first_shard + SHARDS).find_map(|shard| {
            let shard = shard % SHARDS;
            let buckets = self.shards[shard].entries.read().num_buckets();
            (first_bucket..first_bucket + PROBES.min(buckets))
                .find_map(|bucket| self.candidate(shard, bucket % buckets))
        })
    }

    fn shard_of(&self, key: &impl Hash) -> (u64, &Shard<K, V>) {
        let hash = self.hasher.hash_one(key);
        // Not the bits by which the table of a shard finds its buckets.
        (hash, &self.shards[(hash >> 40) as usize % SHARDS])
    }
}

impl<K, V> WeighedCache<K, V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// The value of a key, which may be in a borrowed form with the same hash. Counts as a use.
    pub fn get<Q: Hash + Equivalent<K>>(&self, key: &Q) -> Option<V> {
        self.get_with(key, |value| Some(value.clone()))
    }

    /// The value of a key. Does not count as a use.
    pub fn peek(&self, key: &K) -> Option<V> {
        let (hash, shard) = self.shard_of(key);
        let entries = shard.entries.read();
        entries.find(hash, |slot| slot.entry.key == *key).map(|slot| slot.entry.value.clone())
    }

    /// The value of a key, or a new one, which is cached also above the total: it is in use, and what grows later is
    /// charged to what `create` is given.
    pub fn get_or_create(&self, key: K, tenant: Option<TenantId>, create: impl FnOnce(&K, Charge) -> V) -> V {
        if let Some(value) = self.get(&key) {
            return value;
        }
        self.budget.tick();
        let account = self.budget.account(tenant);
        let charge = |bytes| Charge::new(&account, &self.counters, bytes);
        let (hash, shard) = self.shard_of(&key);
        let value = {
            let mut entries = shard.entries.write();
            if let Some(slot) = entries.find(hash, |slot| slot.entry.key == key) {
                return slot.entry.value.clone();
            }
            let value = create(&key, charge(0));
            let used = AtomicU32::new(self.now());
            let entry = Entry { key, value: value.clone(), used, charge: charge(Self::overhead()) };
            self.insert_new(&mut entries, Slot { hash, entry: Box::new(entry) });
            value
        };
        self.budget.make_room();
        value
    }
}

impl<K, V> Evict for WeighedCache<K, V>
where
    K: Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn bytes(&self) -> usize {
        self.counters.bytes.load(Ordering::Relaxed)
    }

    fn sample(&self) -> Option<Candidate> {
        let most = self.most_buckets.load(Ordering::Relaxed);
        // In the range of the largest table, in every shard: otherwise an entry of a table that has doubled would have half
        // the chance of others, and one behind empty buckets more than others.
        let mut draws = (0..DRAWS).map(|_| split(self.budget.random()));
        draws
            .find_map(|(shard, bucket)| self.candidate(shard % SHARDS, bucket % most))
            .or_else(|| self.next_candidate(self.budget.random()))
    }

    fn evict(&self, candidate: &Candidate) {
        let mut entries = self.shards[candidate.shard].entries.write();
        let Ok(found) = entries.get_bucket_entry(candidate.bucket) else { return };
        let entry = &found.get().entry;
        if entry.used.load(Ordering::Relaxed) != candidate.used || (self.is_in_use)(&entry.value) {
            return;
        }
        (self.on_removal)(&entry.value);
        let (evicted, _) = found.remove();
        drop(entries);
        drop(evicted);
        self.counters.entries.fetch_sub(1, Ordering::Relaxed);
        self.counters.evictions.fetch_add(1, Ordering::Relaxed);
    }

    fn stats(&self) -> CacheStats {
        let sum = |of: fn(&Shard<K, V>) -> &AtomicU64| {
            self.shards.iter().map(|shard| of(shard).load(Ordering::Relaxed)).sum()
        };
        CacheStats {
            name: self.counters.name,
            entries: self.counters.entries.load(Ordering::Relaxed),
            bytes: self.bytes(),
            hits: sum(|shard| &shard.hits),
            misses: sum(|shard| &shard.misses),
            evictions: self.counters.evictions.load(Ordering::Relaxed),
        }
    }
}

/// Two independent numbers of a random one.
fn split(random: u64) -> (usize, usize) {
    ((random >> 32) as usize, (random & 0xffff_ffff) as usize)
}

#[cfg(test)]
mod tests;
