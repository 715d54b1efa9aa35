//! The time that all replicas share: the database's.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use time::{Duration, OffsetDateTime};

use super::sources::Clock;

/// A reading of the database's clock, made between two readings of the local one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockSample {
    /// Before the database was asked.
    pub before: OffsetDateTime,
    /// What the database answered.
    pub database: OffsetDateTime,
    /// After its answer.
    pub after: OffsetDateTime,
}

/// Samples that took longer say too little.
const LONGEST_SAMPLE: Duration = Duration::seconds(1);
/// The largest offset that is followed: beyond it one of the clocks is not set at all, and following it would bring
/// expired credentials back.
const LARGEST_OFFSET: Duration = Duration::DAY;
/// From this difference on, the local clock is wrong.
const SKEWED: Duration = Duration::MINUTE;

/// A clock that follows the database's, so that replicas whose clocks differ agree on what has expired.
///
/// The offset is moved only as far as a sample requires: while the local clock lies within what a sample allows, nothing
/// moves, so readings do not jitter with the latency of the network.
#[derive(Debug)]
pub struct DatabaseClock<C> {
    local: C,
    /// What is added to the local clock, in microseconds.
    offset: AtomicI64,
    /// Whether the local clock is wrong, as last measured.
    skewed: AtomicBool,
}

impl<C> DatabaseClock<C> {
    /// Follows no database yet.
    pub fn new(local: C) -> Self {
        Self { local, offset: AtomicI64::new(0), skewed: AtomicBool::new(false) }
    }

    /// Takes in by how much the database's clock is ahead of the local one.
    fn compare(&self, difference: Duration) {
        let skewed = difference.abs() >= SKEWED;
        match (self.skewed.swap(skewed, Ordering::AcqRel), skewed) {
            (false, true) => tracing::error!(
                offset_seconds = difference.whole_seconds(),
                "clock differs from the database's by a minute or more; not ready until it is corrected"
            ),
            (true, false) => tracing::info!("clock agrees with the database's again"),
            _ => {}
        }
    }
}

impl<C: Clock> Clock for DatabaseClock<C> {
    fn now(&self) -> OffsetDateTime {
        let local = self.local.now();
        local.checked_add(self.offset()).unwrap_or(local)
    }

    fn adjust(&self, sample: ClockSample) {
        let took = sample.after - sample.before;
        if took.is_negative() || took > LONGEST_SAMPLE {
            return;
        }
        let (least, most) = (sample.database - sample.after, sample.database - sample.before);
        let change = Duration::ZERO.clamp(least, most);
        let offset = self.offset() + change;
        self.compare(offset);
        if offset.abs() > LARGEST_OFFSET {
            tracing::error!(
                offset_seconds = offset.whole_seconds(),
                "clock differs from the database's by more than a day; not followed"
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
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stands still.
    struct Fixed(OffsetDateTime);

    impl Clock for Fixed {
        fn now(&self) -> OffsetDateTime {
            self.0
        }
    }

    const START: OffsetDateTime = OffsetDateTime::UNIX_EPOCH;

    /// A clock after samples of (milliseconds before, of the database, after).
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
    fn local_clock_is_skewed_from_a_difference_of_a_minute_on_though_it_follows_the_database() {
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
    fn clock_follows_the_database_no_further_than_a_sample_requires() {
        assert_eq!(offset(&[(0, 5, 10)]), 0, "within the sample");
        assert_eq!(offset(&[(0, 3_600_000, 10)]), 3_599_990);
        assert_eq!(offset(&[(0, -3_600_000, 10)]), -3_600_000);
        // The second sample is read with the offset of the first.
        assert_eq!(offset(&[(0, 1_000, 10), (990, 1_001, 1_000)]), 991);
    }

    #[test]
    fn samples_that_say_too_little_are_ignored() {
        assert_eq!(offset(&[(0, 5_000, 1_001)]), 0, "slow");
        assert_eq!(offset(&[(10, 5_000, 0)]), 0, "the local clock was set back meanwhile");
        assert_eq!(offset(&[(0, 25 * 3_600_000, 10)]), 0, "not set at all");
    }
}
