//! Lowers what the caches may hold while the process has more memory resident than their budget accounts for.
//!
//! An allocator does not return at once what is freed to the operating system. How much it retains depends on how fast
//! entries are evicted and replaced, and no cache knows of it. Therefore resident memory is read whenever a part of the
//! budget has been inserted: never while nothing is, and before much can have been retained.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Resident memory is read after each of so many parts of the budget.
const READS: usize = 32;
/// The parts of a step by which the caches may hold more again.
const RECOVERY: usize = 8;
/// What the process may have resident besides the budget and an eighth of it: what an idle gateway needs, and what the
/// allocator retains.
const BESIDES: usize = 40 << 20;
/// The most that is withheld. Memory that is not the caches', such as that of streams, must not empty them.
const MOST_WITHHELD: usize = 64 << 20;

/// Resident memory of the process in bytes, if it is known.
pub(super) type ReadResident = Box<dyn Fn() -> Option<usize> + Send + Sync>;

/// What is withheld from a budget.
pub(super) struct ResidentLimit {
    read: ReadResident,
    /// Above this, the caches may hold less.
    most: usize,
    step: usize,
    most_withheld: usize,
    /// Bytes inserted since the start.
    inserted: AtomicUsize,
    /// Of these, when resident memory was last read.
    read_at: AtomicUsize,
    withheld: AtomicUsize,
}

impl ResidentLimit {
    pub(super) fn new(budget: usize, read: ReadResident) -> Self {
        Self {
            read,
            most: budget.saturating_add(budget / 8).saturating_add(BESIDES),
            step: (budget / READS).max(1),
            most_withheld: (budget / 2).min(MOST_WITHHELD),
            inserted: AtomicUsize::new(0),
            read_at: AtomicUsize::new(0),
            withheld: AtomicUsize::new(0),
        }
    }

    /// The bytes by which the caches must stay below their budget.
    pub(super) fn withheld(&self) -> usize {
        self.withheld.load(Ordering::Relaxed)
    }

    /// Counts inserted bytes.
    pub(super) fn insert(&self, bytes: usize) {
        self.inserted.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Reads resident memory, if enough was inserted since it was last read, and withholds more or less.
    pub(super) fn update(&self) {
        let (inserted, read_at) =
            (self.inserted.load(Ordering::Relaxed), self.read_at.load(Ordering::Relaxed));
        let is_due = inserted.wrapping_sub(read_at) >= self.step;
        let relaxed = Ordering::Relaxed;
        // Of the threads that see it due, one reads.
        if is_due && self.read_at.compare_exchange(read_at, inserted, relaxed, relaxed).is_ok() {
            let withheld = (self.read)().map_or(0, |resident| self.next(resident));
            self.withheld.store(withheld, relaxed);
        }
    }

    /// What is to be withheld with so much resident memory: more by what is too much, at most by a step, or less by a part of
    /// one.
    fn next(&self, resident: usize) -> usize {
        let withheld = self.withheld();
        if resident > self.most {
            (withheld + (resident - self.most).min(self.step)).min(self.most_withheld)
        } else {
            withheld - withheld.min((self.most - resident).min(self.step / RECOVERY))
        }
    }
}

/// Reads the resident memory of this process from `proc_pid_status(5)`: kB are 1,024 bytes. `None` on other systems than Linux.
pub(super) fn of_process() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse::<usize>().ok()?.checked_mul(1_024)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::of_process;
    use crate::cache::{MemoryBudget, WeighedCache};

    const KIB: usize = 1 << 10;
    const MIB: usize = 1 << 20;

    /// A budget of 64 MiB and its cache, in a process with so much resident memory.
    fn budget(resident: &Arc<AtomicUsize>) -> (Arc<MemoryBudget>, Arc<WeighedCache<u64, u64>>) {
        let resident = Arc::clone(resident);
        let read = Box::new(move || Some(resident.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0));
        let budget = MemoryBudget::with(64 * MIB as u64, || 0, read);
        let cache = WeighedCache::new(&budget, "test", |_| false);
        (budget, cache)
    }

    /// Inserts so many bytes in new entries of 16 KiB.
    fn insert(cache: &WeighedCache<u64, u64>, first: u64, bytes: usize) {
        let count = (bytes / (16 * KIB)) as u64;
        (first..first + count).for_each(|key| cache.insert(key, key, None, 16 * KIB));
    }

    #[test]
    fn caches_shrink_while_too_much_memory_is_resident() {
        let resident = Arc::new(AtomicUsize::new(112 * MIB));
        let (budget, cache) = budget(&resident);
        insert(&cache, 0, 128 * MIB);
        assert!(budget.withheld() == 0 && budget.used() > 63 * MIB, "an eighth and 40 MiB above the budget");
        resident.store(113 * MIB, Ordering::Relaxed);
        insert(&cache, 1_000_000, 8 * MIB);
        let withheld = budget.withheld();
        assert!((3 * MIB..=5 * MIB).contains(&withheld), "by what is too much at each reading: {withheld}");
        assert!(budget.used() <= 64 * MIB - withheld);
        resident.store(500 * MIB, Ordering::Relaxed);
        insert(&cache, 2_000_000, 256 * MIB);
        assert_eq!(budget.withheld(), 32 * MIB, "no more than half of the budget");
        assert!(budget.used() <= 32 * MIB);
        resident.store(100 * MIB, Ordering::Relaxed);
        insert(&cache, 3_000_000, 64 * MIB);
        let recovering = budget.withheld();
        assert!((20 * MIB..31 * MIB).contains(&recovering), "slowly: {recovering}");
        insert(&cache, 4_000_000, 512 * MIB);
        assert!(budget.withheld() == 0 && budget.used() > 63 * MIB);
    }

    #[test]
    fn nothing_is_withheld_where_resident_memory_is_unknown() {
        let resident = Arc::new(AtomicUsize::new(500 * MIB));
        let (budget, cache) = budget(&resident);
        insert(&cache, 0, 64 * MIB);
        assert!(budget.withheld() > 0);
        resident.store(0, Ordering::Relaxed);
        insert(&cache, 1_000_000, 4 * MIB);
        assert_eq!(budget.withheld(), 0);
    }

    #[test]
    fn resident_memory_of_this_process_is_read() {
        assert!(of_process().is_none_or(|bytes| bytes > MIB));
    }
}
