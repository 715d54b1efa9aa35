//! A token bucket in one atomic word, by the generic cell rate algorithm.
//!
//! `governor` has no operation that reads without taking, which is needed to refuse a request before its body is read.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::model::limits::Rate;

const SECOND: u64 = 1_000_000_000;

/// The state of one rate. All times are nanoseconds since a start that the owner chooses.
#[derive(Debug)]
pub(super) struct Bucket {
    /// The time in which one unit is restored.
    interval: u64,
    /// The burst.
    burst: u32,
    /// When all units are restored.
    full_at: AtomicU64,
}

/// Why units are not available.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Short {
    /// They are available after this time.
    Until(Duration),
    /// There are never that many: the burst is smaller.
    Always,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(rate: Rate) -> Self {
        let interval = SECOND / u64::from(rate.per_second.get());
        Self { interval, burst: rate.burst.get(), full_at: AtomicU64::new(0) }
    }

    /// Takes units, all or none. Returns how many are left.
    ///
    /// # Errors
    /// [`Short`].
    pub(super) fn take(&self, units: u32, now: u64) -> Result<u32, Short> {
        let mut full_at = self.full_at.load(Ordering::Relaxed);
        loop {
            let after = self.after(full_at, units, now)?;
            let swapped =
                self.full_at.compare_exchange_weak(full_at, after, Ordering::Relaxed, Ordering::Relaxed);
            match swapped {
                Ok(_) => return Ok(self.units(after, now)),
                Err(other) => full_at = other,
            }
        }
    }

    /// Whether units could be taken. Takes nothing.
    ///
    /// # Errors
    /// [`Short`].
    pub(super) fn check(&self, units: u32, now: u64) -> Result<(), Short> {
        self.after(self.full_at.load(Ordering::Relaxed), units, now).map(drop)
    }

    /// How many units are left.
    pub(super) fn left(&self, now: u64) -> u32 {
        self.units(self.full_at.load(Ordering::Relaxed), now)
    }

    /// Whether all units are left.
    pub(super) fn is_full(&self, now: u64) -> bool {
        self.full_at.load(Ordering::Relaxed) <= now
    }

    /// When all units would be restored after some more were taken.
    fn after(&self, full_at: u64, units: u32, now: u64) -> Result<u64, Short> {
        if units > self.burst {
            return Err(Short::Always);
        }
        let after = full_at.max(now) + self.interval * u64::from(units);
        match after.checked_sub(now + self.capacity()) {
            None | Some(0) => Ok(after),
            Some(early) => Err(Short::Until(Duration::from_nanos(early))),
        }
    }

    fn units(&self, full_at: u64, now: u64) -> u32 {
        let left = self.capacity().saturating_sub(full_at.saturating_sub(now)) / self.interval;
        u32::try_from(left).unwrap_or(u32::MAX)
    }

    fn capacity(&self) -> u64 {
        self.interval * u64::from(self.burst)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Bucket, SECOND, Short};
    use crate::model::limits::Rate;

    fn bucket() -> Bucket {
        Bucket::new(Rate::new(10, 20).unwrap())
    }

    #[test]
    fn check_returns_the_result_of_take_and_takes_nothing() {
        let bucket = bucket();
        assert_eq!(bucket.take(20, 0), Ok(0));
        let short = Err(Short::Until(Duration::from_millis(300)));
        assert_eq!([bucket.check(3, 0), bucket.check(3, 0)], [short; 2]);
        assert_eq!(bucket.take(3, 0).map(drop), short);
        assert_eq!(bucket.check(3, SECOND * 3 / 10), Ok(()));
        assert_eq!(bucket.take(3, SECOND * 3 / 10), Ok(0));
    }

    #[test]
    fn units_above_the_burst_are_never_available() {
        assert_eq!([bucket().check(21, SECOND), bucket().check(20, 0)], [Err(Short::Always), Ok(())]);
    }

    #[test]
    fn an_idle_bucket_is_refilled_up_to_its_burst() {
        let bucket = bucket();
        assert!(bucket.is_full(0));
        assert_eq!(bucket.take(5, SECOND), Ok(15));
        assert_eq!((bucket.left(SECOND), bucket.is_full(SECOND)), (15, false));
        assert_eq!((bucket.left(100 * SECOND), bucket.is_full(100 * SECOND)), (20, true));
    }
}
