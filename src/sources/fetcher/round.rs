//! Rounds of polls: what is asked once serves all content of a connection that is polled in the same round.

use std::time::Duration;

use tokio::time::Instant;

use super::Fetcher;
use crate::model::ids::ConnectionId;

/// The present round of polls of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Round {
    /// When it began.
    pub began: Instant,
    /// When the next one begins.
    pub next: Instant,
}

impl Round {
    /// The round at a time, where one begins at `first` and each lasts for `every`.
    fn at(now: Instant, first: Instant, every: Duration) -> Self {
        let every = every.max(Duration::from_millis(1));
        let gone = now.saturating_duration_since(first).as_nanos() % every.as_nanos();
        let began = now - Duration::from_nanos(u64::try_from(gone).unwrap_or(0));
        Self { began, next: began + every }
    }

    /// The time until the next one begins.
    pub fn left(self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }
}

impl Fetcher {
    /// The present round of polls of a connection. Those of different connections begin at different times.
    pub fn round(&self, connection: ConnectionId, every: Duration) -> Round {
        let (seconds, nanos) = (connection.0.as_u128() % 3_600, connection.0.as_u128() % 1_000_000_000);
        let offset = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanos).unwrap_or(0));
        let first = self.inner.began.checked_sub(offset).unwrap_or(self.inner.began);
        Round::at(Instant::now(), first, every)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Round;

    #[test]
    fn rounds_follow_each_other_without_gaps() {
        let first = Instant::now();
        let at = |millis| first + Duration::from_millis(millis);
        let round = |millis| Round::at(at(millis), first, Duration::from_secs(1));
        assert_eq!(round(0), Round { began: at(0), next: at(1_000) });
        assert_eq!((round(999), round(1_000)), (round(0), Round { began: at(1_000), next: at(2_000) }));
        assert_eq!(round(61_234), round(61_000));
    }
}
