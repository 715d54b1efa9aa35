//! When queued events are written: as late as the promise of [`WITHIN`] allows, so that many share a transaction.

use tokio::time::{Duration, Instant};

/// How long an event is in memory only, at most, while each write takes no longer than [`IN_TIME`].
const WITHIN: Duration = Duration::from_millis(50);
/// The duration of a write with which the promise holds. Where writes take longer, they follow each other without a pause,
/// and an event waits for two of them.
const IN_TIME: Duration = Duration::from_millis(20);
/// The weight of the earlier durations in the moving average; that of the last one is 1.
const WEIGHT: u32 = 7;

/// Decides when the events of a queue are due.
#[derive(Debug)]
pub(super) struct WriteSchedule {
    /// How long the oldest event waits for others if writes take no time.
    longest: Duration,
    /// How long a write is expected to take: the moving average.
    expected: Duration,
}

impl WriteSchedule {
    /// Events are written as soon as possible.
    pub(super) const fn immediate() -> Self {
        Self { longest: Duration::ZERO, expected: Duration::ZERO }
    }

    /// Events wait for others. Nothing is known about the database yet, so the first are written at once.
    pub(super) const fn batched() -> Self {
        let longest = WITHIN.saturating_sub(IN_TIME);
        Self { longest, expected: longest }
    }

    /// The longest that an event waits for others.
    pub(super) const fn longest(&self) -> Duration {
        self.longest
    }

    /// When events are due of which the oldest was queued at this time.
    pub(super) fn due(&self, oldest: Instant) -> Instant {
        oldest + self.longest.saturating_sub(self.expected)
    }

    /// Records how long a write took until its events were durable.
    pub(super) fn record(&mut self, took: Duration) {
        // A write that took longer than any that matters would be expected for too long afterwards.
        self.expected = (self.expected * WEIGHT + took.min(WITHIN)) / (WEIGHT + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What was observed while events were queued and written.
    #[derive(Debug)]
    struct Observed {
        /// The greatest age of an event when it was durable.
        oldest: Duration,
        writes: usize,
    }

    const MS: Duration = Duration::from_millis(1);

    /// Queues events at these times after the start and writes all that are queued whenever they are due, on a clock of its
    /// own. The writes take `durations` in turn.
    fn observe(mut schedule: WriteSchedule, queued: &[Duration], durations: &[Duration]) -> Observed {
        let start = Instant::now();
        let (mut observed, mut now) = (Observed { oldest: Duration::ZERO, writes: 0 }, start);
        let mut events = queued.iter().map(|after| start + *after).peekable();
        while let Some(oldest) = events.next() {
            let begin = now.max(schedule.due(oldest));
            while events.next_if(|event| *event <= begin).is_some() {}
            let took = durations[observed.writes % durations.len()];
            now = begin + took;
            schedule.record(took);
            observed.oldest = observed.oldest.max(now - oldest);
            observed.writes += 1;
        }
        observed
    }

    /// The times of so many events a second, for ten seconds.
    fn evenly(per_second: u32) -> Vec<Duration> {
        (0..10 * per_second).map(|nth| Duration::from_secs(1) * nth / per_second).collect()
    }

    #[test]
    fn events_are_durable_within_the_promise_while_writes_are_in_time() {
        for per_second in [1, 10, 100, 1_000, 15_000] {
            for took in 0..=20 {
                let observed = observe(WriteSchedule::batched(), &evenly(per_second), &[took * MS]);
                assert!(observed.oldest <= 50 * MS, "{per_second}/s, {took} ms: {observed:?}");
            }
            // Fast for a while, so that slow ones are not expected.
            for slow in [1, 2, 20] {
                let mut durations = vec![Duration::ZERO; 100];
                durations.extend(vec![20 * MS; slow]);
                let observed = observe(WriteSchedule::batched(), &evenly(per_second), &durations);
                assert!(observed.oldest <= 50 * MS, "{per_second}/s, {slow} slow: {observed:?}");
            }
        }
    }

    #[test]
    fn writes_wait_for_further_events_as_long_as_the_promise_allows() {
        for (took, most) in [(0, 350), (4, 400), (10, 510)] {
            let observed = observe(WriteSchedule::batched(), &evenly(15_000), &[took * MS]);
            assert!(observed.writes <= most, "{took} ms: {observed:?}");
        }
        assert_eq!(observe(WriteSchedule::batched(), &[], &[MS]).writes, 0, "idle");
    }

    #[test]
    fn slow_writes_follow_each_other_without_a_pause() {
        for took in [30, 60, 400] {
            let observed = observe(WriteSchedule::batched(), &evenly(1_000), &[took * MS]);
            assert!(observed.oldest <= 2 * took * MS, "{took} ms: {observed:?}");
        }
    }

    #[test]
    fn immediate_writes_wait_for_nothing() {
        let observed = observe(WriteSchedule::immediate(), &evenly(10), &[3 * MS]);
        assert_eq!((observed.oldest, observed.writes), (3 * MS, 100));
    }
}
