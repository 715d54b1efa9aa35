//! The clock: that of the system, or one that follows the database's, so that replicas with clock skew share one time.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use time::{Duration, OffsetDateTime};

/// A source of the current time.
pub trait Clock: Send + Sync {
    /// The current UTC time in whole microseconds, the resolution of the database.
    fn now(&self) -> OffsetDateTime;

    /// Adjusts the clock by a reading of the database's clock. A clock that does not follow the database ignores it.
    fn adjust(&self, _sample: ClockSample) {}

    /// The current correction of the local clock towards the database's clock.
    fn offset(&self) -> time::Duration {
        time::Duration::ZERO
    }

    /// Whether the local clock differed from the database's by a minute or more in the last sample.
    fn is_skewed(&self) -> bool {
        false
    }

    /// Whether the local clock is known to agree with the database's. What is deleted by its age cannot be restored: it is
    /// deleted only while the clock is confirmed.
    fn is_confirmed(&self) -> bool {
        true
    }
}

/// The system clock.
#[derive(Debug, Clone, Copy)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc().truncate_to_microsecond()
    }
}

/// A reading of the database's clock between two readings of the local clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// Local time before the query was sent.
    pub before: OffsetDateTime,
    /// The database's time.
    pub database: OffsetDateTime,
    /// Local time after the result was received.
    pub after: OffsetDateTime,
}

/// Samples that took longer are not accurate enough.
const MAX_SAMPLE_DURATION: Duration = Duration::seconds(1);
/// Larger offsets are not followed: one of the clocks is not set, and following it could make expired
/// credentials valid again.
const MAX_OFFSET: Duration = Duration::DAY;
/// From this difference on, the local clock is considered wrong.
const SKEW_THRESHOLD: Duration = Duration::MINUTE;

/// A clock that follows the database's, so that replicas with different local clocks agree on what has
/// expired.
///
/// The offset changes only as far as a sample requires. While the local time lies within the bounds of a
/// sample, the offset remains unchanged, so that the time does not jitter with network latency.
#[derive(Debug)]
pub struct DatabaseClock<C> {
    local: C,
    /// Added to the local clock, in microseconds.
    offset: AtomicI64,
    /// Whether there was a sample.
    sampled: AtomicBool,
    /// Whether the local clock differed by [`SKEW_THRESHOLD`] or more in the last sample.
    skewed: AtomicBool,
}

impl<C> DatabaseClock<C> {
    /// A clock without an offset.
    pub fn new(local: C) -> Self {
        Self {
            local,
            offset: AtomicI64::new(0),
            sampled: AtomicBool::new(false),
            skewed: AtomicBool::new(false),
        }
    }

    /// Updates and logs whether the local clock is skewed.
    fn compare(&self, difference: Duration) {
        let skewed = difference.abs() >= SKEW_THRESHOLD;
        match (self.skewed.swap(skewed, Ordering::AcqRel), skewed) {
            (false, true) => tracing::error!(
                offset_seconds = difference.whole_seconds(),
                "local clock differs from the database's by a minute or more; not ready until it is corrected"
            ),
            (true, false) => tracing::info!("local clock agrees with the database's again"),
            _ => {}
        }
        self.sampled.store(true, Ordering::Release);
    }
}

impl<C: Clock> Clock for DatabaseClock<C> {
    fn now(&self) -> OffsetDateTime {
        let local = self.local.now();
        local.checked_add(self.offset()).unwrap_or(local)
    }

    fn adjust(&self, sample: ClockSample) {
        let took = sample.after - sample.before;
        if took.is_negative() || took > MAX_SAMPLE_DURATION {
            return;
        }
        let (least, most) = (sample.database - sample.after, sample.database - sample.before);
        let change = Duration::ZERO.clamp(least, most);
        let offset = self.offset() + change;
        self.compare(offset);
        if offset.abs() > MAX_OFFSET {
            tracing::error!(
                offset_seconds = offset.whole_seconds(),
                "local clock differs from the database's by more than a day; not followed"
            );
            return;
        }
        self.offset.store(i64::try_from(offset.whole_microseconds()).unwrap_or_default(), Ordering::Release);
    }

    fn offset(&self) -> Duration {
        Duration::microseconds(self.offset.load(Ordering::Acquire))
    }

    fn is_skewed(&self) -> bool {
        self.skewed.load(Ordering::Acquire)
    }

    fn is_confirmed(&self) -> bool {
        self.sampled.load(Ordering::Acquire) && !self.is_skewed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that stands still.
    struct Fixed(OffsetDateTime);

    impl Clock for Fixed {
        fn now(&self) -> OffsetDateTime {
            self.0
        }
    }

    const START: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    /// A clock that was adjusted by samples of milliseconds before, of the database, and after.
    fn sampled(samples: &[(i64, i64, i64)]) -> DatabaseClock<Fixed> {
        let clock = DatabaseClock::new(Fixed(START));
        let at = |millis| START + Duration::milliseconds(millis);
        for (before, database, after) in samples {
            clock.adjust(ClockSample { before: at(*before), database: at(*database), after: at(*after) });
        }
        assert_eq!(clock.now(), START + clock.offset());
        clock
    }

    /// The offset after samples, in milliseconds.
    fn offset(samples: &[(i64, i64, i64)]) -> i128 {
        sampled(samples).offset().whole_milliseconds()
    }

    #[test]
    fn clock_is_skewed_from_a_difference_of_a_minute() {
        let skewed = |samples: &[_]| sampled(samples).is_skewed();
        assert!(!skewed(&[]));
        assert_eq!(
            [59_999, 60_000, -59_999, -60_000].map(|database| skewed(&[(0, database, 0)])),
            [false, true, false, true]
        );
        assert!(!skewed(&[(0, 60_009, 10)]), "less than a minute after the answer");
        // The second sample is read with the offset of the first.
        assert!(skewed(&[(0, 90_000, 0), (90_000, 90_000, 90_000)]));
        assert!(!skewed(&[(0, 90_000, 0), (90_000, 30_000, 90_000)]), "the clock was corrected by a minute");
        assert!(skewed(&[(0, 25 * 3_600_000, 0)]), "beyond the offset that is followed");
    }

    #[test]
    fn clock_is_confirmed_by_a_sample_that_agrees() {
        let confirmed = |samples: &[_]| sampled(samples).is_confirmed();
        assert!(!confirmed(&[]));
        assert!(!confirmed(&[(0, 0, 1_001)]), "too slow a sample");
        assert!(confirmed(&[(0, 59_999, 0)]));
        assert!(!confirmed(&[(0, 25 * 3_600_000, 0)]));
        assert!(!confirmed(&[(0, 0, 0), (0, 60_000, 0)]));
    }

    #[test]
    fn clock_follows_no_further_than_a_sample_requires() {
        assert_eq!(offset(&[(0, 5, 10)]), 0, "within the sample");
        assert_eq!(offset(&[(0, 3_600_000, 10)]), 3_599_990);
        assert_eq!(offset(&[(0, -3_600_000, 10)]), -3_600_000);
        // The second sample is read with the offset of the first.
        assert_eq!(offset(&[(0, 1_000, 10), (990, 1_001, 1_000)]), 991);
    }

    #[test]
    fn inaccurate_samples_are_ignored() {
        assert_eq!(offset(&[(0, 5_000, 1_001)]), 0, "slow");
        assert_eq!(offset(&[(10, 5_000, 0)]), 0, "the local clock was set back meanwhile");
        assert_eq!(offset(&[(0, 25 * 3_600_000, 10)]), 0, "clock not set");
    }
}
