//! A circuit breaker: after failures in a row nothing is fetched for a while, then one fetch at a time tries again.

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row that open the circuit.
const MOST_FAILURES: u32 = 5;
/// How long it stays open at first; each failed attempt doubles it.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// How long it stays open at most.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// The circuit of a connection and a tenant.
#[derive(Debug, Default)]
pub(super) struct Circuit {
    failures: u32,
    /// Until when nothing is fetched. Moved on by the fetch that tries again, so that it is alone until it ends.
    closed_at: Option<Instant>,
}

impl Circuit {
    /// Whether a fetch may begin now.
    pub(super) fn admit(&mut self, now: Instant) -> bool {
        match self.closed_at {
            None => true,
            Some(at) if now < at => false,
            Some(_) => {
                self.closed_at = Some(now + LONGEST_PAUSE);
                true
            }
        }
    }

    /// Whether the last fetch failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Records that the source answered.
    pub(super) fn succeed(&mut self) {
        *self = Self::default();
    }

    /// Records that the source failed, which asks to be left alone for `retry_after`. Returns whether the circuit is open.
    pub(super) fn fail(&mut self, now: Instant, retry_after: Option<Duration>) -> bool {
        self.failures = self.failures.saturating_add(1);
        let Some(excess) = self.failures.checked_sub(MOST_FAILURES) else { return false };
        let pause = FIRST_PAUSE.saturating_mul(1 << excess.min(5)).max(retry_after.unwrap_or_default());
        self.closed_at = Some(now + pause.min(LONGEST_PAUSE));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Circuit, LONGEST_PAUSE, MOST_FAILURES};

    fn after(start: Instant, millis: u64) -> Instant {
        start + Duration::from_millis(millis)
    }

    fn opened(start: Instant) -> Circuit {
        let mut circuit = Circuit::default();
        for _ in 1..MOST_FAILURES {
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
        for _ in 0..3 * MOST_FAILURES {
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
    fn attempt_without_an_outcome_does_not_keep_it_open() {
        let start = Instant::now();
        let mut circuit = opened(start);
        assert!(circuit.admit(after(start, 1_000)));
        assert!(circuit.admit(after(start, 1_000) + LONGEST_PAUSE));
    }
}
