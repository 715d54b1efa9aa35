//! A circuit breaker: after failures in a row, or when the source asks for it, nothing is fetched for a while, then one fetch
//! at a time tries again.

use std::time::Duration;

use tokio::time::Instant;

use crate::model::backoff::Backoff;

/// Failures in a row that open the circuit.
const MAX_FAILURES: u32 = 5;
/// How long it stays open at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long it stays open; each failed attempt doubles it.
const PAUSE: Backoff = Backoff::new(Duration::from_secs(1), LONGEST_PAUSE);

/// The circuit of a connection and a tenant.
#[derive(Debug, Default)]
pub(super) struct Circuit {
    failures: u32,
    /// The time before which nothing is fetched. The fetch that tries again postpones it, so that it is alone until it ends.
    open_until: Option<Instant>,
    /// Whether the source asked for that by `Retry-After`: fetches that began before end it no sooner, also if they succeed.
    is_by_retry_after: bool,
    /// Whether a fetch tries again (half open).
    is_half_open: bool,
}

impl Circuit {
    /// Whether a fetch may begin now.
    pub(super) fn admit(&mut self, now: Instant) -> bool {
        match self.open_until {
            None => true,
            Some(_) if self.is_open(now) => false,
            Some(_) => {
                self.open_until = Some(now + LONGEST_PAUSE);
                self.is_half_open = true;
                true
            }
        }
    }

    /// Whether nothing is fetched now.
    pub(super) fn is_open(&self, now: Instant) -> bool {
        self.open_until.is_some_and(|at| now < at)
    }

    /// The time before which nothing is fetched; `None` while it is closed.
    pub(super) fn open_until(&self) -> Option<Instant> {
        self.open_until
    }

    /// Whether the last fetch failed, or the circuit is not closed.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0 || self.open_until.is_some()
    }

    /// Records that the source answered.
    pub(super) fn succeed(&mut self) {
        if self.is_by_retry_after && !self.is_half_open {
            self.failures = 0;
        } else {
            *self = Self::default();
        }
    }

    /// Records that the source failed, and asked for no requests for `retry_after`. Returns whether the circuit is not closed: it
    /// is open, or its pause is over and the next fetch tries again alone.
    pub(super) fn fail(&mut self, now: Instant, retry_after: Option<Duration>) -> bool {
        self.failures = self.failures.saturating_add(1);
        let own = self.failures.checked_sub(MAX_FAILURES).map(|attempts| PAUSE.delay(attempts));
        let asked = retry_after.filter(|asked| !asked.is_zero());
        let until = own.max(asked).map(|pause| now + pause.min(LONGEST_PAUSE));
        // What the fetch that tried again found counts alone.
        if std::mem::take(&mut self.is_half_open) {
            (self.open_until, self.is_by_retry_after) = (until, asked.is_some());
        } else {
            self.open_until = self.open_until.max(until);
            self.is_by_retry_after |= asked.is_some();
        }
        self.open_until.is_some()
    }

    /// Opens it for as long as the source asked for no requests, in its answer to a fetch that does not count here.
    pub(super) fn pause(&mut self, now: Instant, retry_after: Option<Duration>) {
        if let Some(asked) = retry_after.filter(|asked| !asked.is_zero()) {
            self.open_until = self.open_until.max(Some(now + asked.min(LONGEST_PAUSE)));
            self.is_by_retry_after = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Circuit, LONGEST_PAUSE, MAX_FAILURES};

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    fn opened(start: Instant) -> Circuit {
        let mut circuit = Circuit::default();
        for _ in 1..MAX_FAILURES {
            assert!(circuit.admit(start) && !circuit.fail(start, None));
        }
        assert!(circuit.admit(start) && circuit.fail(start, None));
        circuit
    }

    #[test]
    fn failures_in_a_row_open_it() {
        let start = Instant::now();
        let mut circuit = opened(start);
        assert!(!circuit.admit(start) && !circuit.admit(after(start, 999)));
        let mut circuit = Circuit::default();
        for _ in 0..3 * MAX_FAILURES {
            assert!(!circuit.fail(start, None));
            circuit.succeed();
        }
        assert!(circuit.admit(start));
    }

    #[test]
    fn one_fetch_tries_again_and_closes_it() {
        let start = Instant::now();
        let mut circuit = opened(start);
        assert!(circuit.admit(after(start, 1_000)) && !circuit.admit(after(start, 1_001)));
        circuit.succeed();
        assert!(circuit.admit(after(start, 1_002)) && circuit.admit(after(start, 1_002)));
    }

    #[test]
    fn failed_attempts_lengthen_the_pause() {
        let start = Instant::now();
        let mut circuit = opened(start);
        assert!(circuit.admit(after(start, 1_000)) && circuit.fail(after(start, 1_000), None));
        assert!(!circuit.admit(after(start, 2_999)) && circuit.admit(after(start, 3_000)));
        assert!(circuit.fail(after(start, 3_000), Some(Duration::from_secs(20))));
        assert!(!circuit.admit(after(start, 22_999)) && circuit.admit(after(start, 23_000)));
        assert!(circuit.fail(start, Some(Duration::from_hours(24))));
        assert!(circuit.admit(start + LONGEST_PAUSE));
    }

    #[test]
    fn source_that_asks_for_a_pause_is_left_alone_at_once() {
        let start = Instant::now();
        let mut circuit = Circuit::default();
        for _ in 0..3 {
            assert!(circuit.admit(start));
        }
        assert!(circuit.fail(start, Some(Duration::from_secs(7))));
        // Those that began before do not end it.
        circuit.succeed();
        assert!(circuit.fail(start, None));
        assert!(circuit.is_failing() && !circuit.admit(after(start, 6_999)));
        assert!(circuit.admit(after(start, 7_000)) && !circuit.admit(after(start, 7_001)));
        assert!(!circuit.fail(after(start, 7_002), None), "one failure that asks for nothing");
        assert!(circuit.admit(after(start, 7_002)) && circuit.admit(after(start, 7_002)));
        assert!(circuit.fail(after(start, 7_003), Some(Duration::from_hours(24))));
        assert!(circuit.admit(after(start, 7_003) + LONGEST_PAUSE));
        circuit.succeed();
        assert!(!circuit.is_failing());
        assert!(!circuit.fail(start, Some(Duration::ZERO)) && circuit.admit(start) && circuit.admit(start));
    }

    #[test]
    fn pause_for_another_fetch_opens_it_without_a_failure() {
        let start = Instant::now();
        let mut circuit = Circuit::default();
        circuit.pause(start, None);
        circuit.pause(start, Some(Duration::ZERO));
        assert!(circuit.admit(start) && !circuit.is_failing());
        circuit.pause(start, Some(Duration::from_secs(7)));
        circuit.pause(start, Some(Duration::from_secs(2)));
        // Those that began before do not end it.
        circuit.succeed();
        assert!(!circuit.admit(after(start, 6_999)) && circuit.admit(after(start, 7_000)));
        circuit.succeed();
        circuit.pause(start, Some(Duration::from_hours(24)));
        assert!(!circuit.is_open(start + LONGEST_PAUSE));
    }

    #[test]
    fn attempt_without_an_outcome_does_not_keep_it_open() {
        let start = Instant::now();
        let mut circuit = opened(start);
        assert!(circuit.admit(after(start, 1_000)));
        assert!(circuit.admit(after(start, 1_000) + LONGEST_PAUSE));
    }
}
