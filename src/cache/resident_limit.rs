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
const BESIDES: usize = 32 << 20;
/// The most that is withheld. Memory that is not the caches', such as that of streams, must not empty them.
const MAX_WITHHELD: usize = 64 << 20;

/// Resident memory of the process in bytes, if it is known.
pub(super) type ReadResident = Box<dyn Fn() -> Option<usize> + Send + Sync>;

/// What is withheld from a budget.
pub(super) struct ResidentLimit {
    read: ReadResident,
    budget: usize,
    /// Above this much resident memory, the caches may hold less.
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
            budget,
            most: budget.saturating_add(budget / 8).saturating_add(BESIDES),
            step: (budget / READS).max(1),
            most_withheld: (budget / 2).min(MAX_WITHHELD),
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

    /// Reads resident memory, if enough was inserted since it was last read, and withholds more or less of the budget, of which
    /// so much is used.
    pub(super) fn update(&self, used: usize) {
        let (inserted, read_at) =
            (self.inserted.load(Ordering::Relaxed), self.read_at.load(Ordering::Relaxed));
        let is_due = inserted.wrapping_sub(read_at) >= self.step;
        let relaxed = Ordering::Relaxed;
        // Of the threads that see it due, one reads.
        if is_due && self.read_at.compare_exchange(read_at, inserted, relaxed, relaxed).is_ok() {
            let withheld = (self.read)().map_or(0, |resident| self.next(resident, used));
            self.withheld.store(withheld, relaxed);
        }
    }

    /// What is to be withheld with so much resident memory: what is not used and what is too much, at most a step of it; or less
    /// by a part of a step.
    fn next(&self, resident: usize, used: usize) -> usize {
        let withheld = self.withheld();
        if resident > self.most {
            let unused = self.budget.saturating_sub(used).max(withheld);
            (unused + (resident - self.most).min(self.step)).min(self.most_withheld)
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
    use super::of_process;

    #[test]
    fn resident_memory_of_this_process_is_read() {
        assert!(of_process().is_none_or(|bytes| bytes > 1 << 20));
    }
}
