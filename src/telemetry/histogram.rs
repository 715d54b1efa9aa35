//! Histograms of durations: counted in atomics, by the bounds of a classic histogram and by those of a native one.
//!
//! The native buckets are those of schema 3 of Prometheus over a fixed range. Bucket `i` holds what is above 2^((i-1)/8) s and
//! at most 2^(i/8) s. The range is fixed, so that counting takes neither a lock nor memory: durations up to
//! [`ZERO_THRESHOLD`] are in the zero bucket, those above 128 s in the last one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

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

/// The resolution: each power of two has 2³ buckets, so that a bound is 9.05 % above the one before.
pub const SCHEMA: i32 = 3;
/// The upper bound of the zero bucket in seconds: 2⁻²⁰, just below a microsecond.
pub const ZERO_THRESHOLD: f64 = 1.0 / 1_048_576.0;
/// The index of the first bucket above the zero bucket.
const FIRST_NATIVE: i32 = -159;
/// The number of buckets, the zero bucket included: up to 2⁷ s.
const NATIVE_COUNT: usize = 217;
/// The greatest duration of each bucket, in nanoseconds.
const NATIVE_BOUNDS: [u64; NATIVE_COUNT] = native_bounds();

/// 2^(k/8) for each `k`, in units of 2⁻⁶³.
const EIGHTHS: [u128; 8] = [
    0x8000_0000_0000_0000,
    0x8b95_c1e3_ea8b_d6e7,
    0x9837_f051_8db8_a96f,
    0xa5fe_d6a9_b151_38ea,
    0xb504_f333_f9de_6484,
    0xc567_2a11_5506_dadd,
    0xd744_fcca_d69d_6af4,
    0xeac0_c6e7_dd24_392f,
];

#[expect(clippy::cast_possible_truncation, reason = "the last bound is 128 s, below 2³⁷ ns")]
const fn native_bounds() -> [u64; NATIVE_COUNT] {
    let mut bounds = [0; NATIVE_COUNT];
    let mut nth = 0;
    while nth < NATIVE_COUNT {
        // The eighths of a power of two above the zero bucket, whose bound is 2⁻²⁰.
        bounds[nth] = ((1_000_000_000 * EIGHTHS[nth % 8]) >> (63 + 20 - nth / 8)) as u64;
        nth += 1;
    }
    bounds
}

/// Counts durations by bucket.
#[derive(Debug)]
struct NativeBuckets(Box<[AtomicU64]>);

/// The counts of all buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NativeCounts(Box<[u64]>);

/// Consecutive buckets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketSpan {
    /// The number of buckets between the span before and this one; of the first span, the index of its first bucket.
    pub offset: i32,
    /// The counts of its buckets.
    pub counts: Vec<u64>,
}

impl Default for NativeBuckets {
    fn default() -> Self {
        Self((0..NATIVE_COUNT).map(|_| AtomicU64::new(0)).collect())
    }
}

impl NativeBuckets {
    /// Counts a duration.
    fn count(&self, nanos: u64) {
        if let Some(bucket) = self.0.get(position(nanos)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was counted so far.
    fn counts(&self) -> NativeCounts {
        NativeCounts(self.0.iter().map(|bucket| bucket.load(Ordering::Relaxed)).collect())
    }
}

/// The position of a duration's bucket; that of the zero bucket is 0.
fn position(nanos: u64) -> usize {
    NATIVE_BOUNDS.partition_point(|bound| *bound < nanos).min(NATIVE_COUNT - 1)
}

impl NativeCounts {
    /// The number of durations.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// The number of durations in the zero bucket.
    pub fn zero(&self) -> u64 {
        self.0.first().copied().unwrap_or(0)
    }

    /// The buckets above the zero bucket that are not empty. Spans that are one or two empty buckets apart are one: another
    /// span takes as much space.
    pub fn spans(&self) -> Vec<BucketSpan> {
        let mut spans: Vec<BucketSpan> = Vec::new();
        // The index after the last span.
        let mut end = 0;
        for (index, count) in (FIRST_NATIVE..).zip(self.0.iter().skip(1)).filter(|(_, count)| **count > 0) {
            let offset = index - end;
            match spans.last_mut() {
                Some(last) if offset <= 2 => {
                    last.counts.extend((0..offset).map(|_| 0));
                    last.counts.push(*count);
                }
                _ => spans.push(BucketSpan { offset, counts: vec![*count] }),
            }
            end = index + 1;
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::{
        BOUNDS, BucketSpan, DurationHistogram, FIRST_NATIVE, NATIVE_BOUNDS, NATIVE_COUNT, NativeBuckets,
        SCHEMA, ZERO_THRESHOLD, position,
    };

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

    /// The upper bound of a bucket in nanoseconds, by the formula of Prometheus: 2^(index × 2^-schema) seconds.
    fn bound(index: i32) -> f64 {
        2_f64.powf(f64::from(index) * 2_f64.powi(-SCHEMA)) * 1e9
    }

    fn index(nanos: u64) -> i32 {
        FIRST_NATIVE - 1 + i32::try_from(position(nanos)).unwrap()
    }

    fn float(nanos: u64) -> f64 {
        // Exact below 2⁵³ ns, which is 104 days.
        f64::from(u32::try_from(nanos >> 32).unwrap()) * 2_f64.powi(32)
            + f64::from(u32::try_from(nanos & u64::from(u32::MAX)).unwrap())
    }

    #[test]
    fn buckets_end_at_the_bounds_of_the_schema() {
        assert_eq!((ZERO_THRESHOLD * 1e9).to_bits(), bound(FIRST_NATIVE - 1).to_bits());
        for (index_of_bound, last) in (FIRST_NATIVE - 1..).zip(NATIVE_BOUNDS) {
            assert!(float(last) <= bound(index_of_bound), "{index_of_bound}");
            assert!(float(last + 1) > bound(index_of_bound), "{index_of_bound}");
            assert_eq!(index(last), index_of_bound);
            let next = (index_of_bound + 1).min(index(u64::MAX));
            assert_eq!(index(last + 1), next);
        }
        assert_eq!(
            (index(0), index(u64::MAX), NATIVE_BOUNDS[NATIVE_COUNT - 1]),
            (FIRST_NATIVE - 1, 56, 128_000_000_000)
        );
    }

    proptest! {
        #[test]
        fn durations_are_within_the_bounds_of_their_buckets(nanos in 954..=128_000_000_000_u64) {
            let index = index(nanos);
            prop_assert!(bound(index - 1) < float(nanos) && float(nanos) <= bound(index), "{nanos}: {index}");
        }
    }

    #[test]
    fn spans_hold_the_buckets_that_are_not_empty() {
        let buckets = NativeBuckets::default();
        assert_eq!((buckets.counts().spans(), buckets.counts().total()), (vec![], 0));
        // In the zero bucket, in those from 2⁻¹⁰ s on, and at 1 s and above 128 s.
        for nanos in [0, 953, 976_562, 976_563, 976_563, 1_266_000, 1_000_000_000, 900_000_000_000] {
            buckets.count(nanos);
        }
        let counts = buckets.counts();
        assert_eq!((counts.total(), counts.zero()), (8, 2));
        let span = |offset, counts: &[u64]| BucketSpan { offset, counts: counts.to_vec() };
        assert_eq!(counts.spans(), [span(-80, &[1, 2, 0, 1]), span(76, &[1]), span(55, &[1])]);
    }

    #[test]
    fn counting_allocates_nothing() {
        let buckets = NativeBuckets::default();
        let counted = allocation_counter::measure(|| buckets.count(1_234_567));
        assert_eq!((counted.count_total, buckets.counts().total()), (0, 1));
    }
}
