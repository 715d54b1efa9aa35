//! Latencies counted in a fixed table, with an error of at most 1.6 %.

use std::time::Duration;

/// Values up to this are counted exactly; above, each doubling is split into half as many buckets.
const EXACT: u64 = 128;
const HALF: u64 = EXACT / 2;
/// Covers latencies up to 2³² µs, over an hour; longer ones fall into the last bucket.
const BUCKETS: usize = 128 + 25 * 64;

/// How often each latency occurred, in microseconds.
pub(crate) struct Histogram {
    counts: Vec<u64>,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { counts: vec![0; BUCKETS] }
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(micros).min(BUCKETS - 1)) {
            *count += 1;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// How many latencies were recorded.
    pub(crate) fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The latency, in microseconds, that `per_mille` of a thousand do not exceed; 0 when empty.
    pub(crate) fn quantile(&self, per_mille: u64) -> u64 {
        let wanted = (self.len() * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        found.map_or(0, lower_bound)
    }
}

fn bucket(micros: u64) -> usize {
    let doublings = micros.checked_ilog2().unwrap_or(0).saturating_sub(HALF.ilog2());
    let index = u64::from(doublings) * HALF + (micros >> doublings);
    usize::try_from(index).unwrap_or(BUCKETS)
}

fn lower_bound(bucket: usize) -> u64 {
    let index = bucket as u64;
    if index < EXACT {
        return index;
    }
    let doublings = index / HALF - 1;
    (index - doublings * HALF) << doublings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_below_128_and_near_above() {
        let mut histogram = Histogram::new();
        for micros in 1..=1000 {
            histogram.record(Duration::from_micros(micros));
        }
        assert_eq!(histogram.len(), 1000);
        assert_eq!(histogram.quantile(100), 100);
        assert_eq!(histogram.quantile(500), 500);
        assert_eq!(histogram.quantile(990), 984);
    }

    #[test]
    fn buckets_begin_at_their_lower_bound() {
        for index in 0..BUCKETS {
            assert_eq!(bucket(lower_bound(index)), index);
        }
    }

    #[test]
    fn a_latency_of_hours_is_counted_and_not_lost() {
        let mut histogram = Histogram::new();
        histogram.record(Duration::from_hours(10));
        assert_eq!(histogram.len(), 1);
    }
}
