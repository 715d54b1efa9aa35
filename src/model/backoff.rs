//! Exponential backoff.

use std::time::Duration;

use super::system::Random;

/// Delays that double with each failure in a row.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
}

impl Backoff {
    /// Delays from `first` to `longest`.
    pub const fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest }
    }

    /// The delay after a failure that follows `earlier` others, varied by up to half, so that many clients, streams or replicas
    /// do not retry together after an outage.
    pub fn jittered(self, earlier: u32, random: &dyn Random) -> Duration {
        random.jitter(self.delay(earlier))
    }

    /// The delay after a failure that follows `earlier` others.
    pub fn delay(self, earlier: u32) -> Duration {
        self.first.saturating_mul(2_u32.saturating_pow(earlier)).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Backoff;

    #[test]
    fn delay_doubles_up_to_the_longest() {
        let backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let delays = [0, 1, 2, 3, 31, u32::MAX].map(|earlier| backoff.delay(earlier).as_secs());
        assert_eq!(delays, [1, 2, 4, 5, 5, 5]);
    }
}
