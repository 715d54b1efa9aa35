//! Histograms of durations: counted in atomics, by the bounds of a classic histogram and by those of a native one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::native_buckets::{NativeBuckets, NativeCounts};

/// The upper bounds of the classic buckets, in microseconds.
pub const BOUNDS: [u64; 15] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// A histogram of durations. Counting one is three additions.
#[derive(Debug, Default)]
pub struct DurationHistogram {
    native: NativeBuckets,
    /// The number of durations in each bucket of [`BOUNDS`] (not cumulative), and above the last.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// What a histogram has counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DurationCounts {
    /// The numbers in native buckets. A duration that is counted meanwhile may be in these alone.
    pub native: NativeCounts,
    /// The cumulative number up to each of [`BOUNDS`].
    pub within: [u64; BOUNDS.len()],
    /// The number of durations.
    pub count: u64,
    /// Their sum, in microseconds.
    pub micros: u64,
}

impl DurationHistogram {
    /// Counts a duration.
    pub fn count(&self, took: Duration) {
        self.native.count(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS.len());
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    /// What was counted so far.
    pub fn counts(&self) -> DurationCounts {
        let mut count = 0;
        let counts = self.buckets.each_ref().map(|bucket| {
            count += bucket.load(Ordering::Relaxed);
            count
        });
        let within = std::array::from_fn(|bound| counts.get(bound).copied().unwrap_or_default());
        let (native, micros) = (self.native.counts(), self.micros.load(Ordering::Relaxed));
        DurationCounts { native, within, count, micros }
    }
}

/// Microseconds as seconds, the unit of metrics.
pub(super) fn seconds(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BOUNDS, DurationHistogram};

    #[test]
    fn durations_are_counted_up_to_each_bound() {
        let histogram = DurationHistogram::default();
        for micros in [50, 51, 2_000, 40_000_000] {
            histogram.count(Duration::from_micros(micros));
        }
        let took = histogram.counts();
        assert_eq!((took.count, took.micros), (4, 40_002_101));
        assert_eq!(took.within[..6], [1, 2, 2, 2, 2, 3]);
        assert_eq!((took.within[BOUNDS.len() - 1], took.native.total()), (3, 4));
    }
}
