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

    /// When the first round of a connection begins on a replica that began at `began`. The UUID of the connection decides, in place
    /// of jitter: connections are polled at different times, and all content of one at the same time.
    fn first(began: Instant, connection: ConnectionId) -> Instant {
        let (seconds, nanos) = (connection.0.as_u128() % 3_600, connection.0.as_u128() % 1_000_000_000);
        let offset = Duration::new(u64::try_from(seconds).unwrap_or(0), u32::try_from(nanos).unwrap_or(0));
        began.checked_sub(offset).unwrap_or(began)
    }

    /// The time until the next one begins.
    pub fn left(self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }
}

impl Fetcher {
    /// The present round of polls of a connection. Those of different connections begin at different times.
    pub fn round(&self, connection: ConnectionId, every: Duration) -> Round {
        Round::at(Instant::now(), Round::first(self.inner.began, connection), every)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;
    use uuid::Uuid;

    use super::Round;
    use crate::model::ids::ConnectionId;

    #[test]
    fn rounds_follow_each_other_without_gaps() {
        let first = Instant::now();
        let at = |millis| first + Duration::from_millis(millis);
        let round = |millis| Round::at(at(millis), first, Duration::from_secs(1));
        assert_eq!(round(0), Round { began: at(0), next: at(1_000) });
        assert_eq!((round(999), round(1_000)), (round(0), Round { began: at(1_000), next: at(2_000) }));
        assert_eq!(round(61_234), round(61_000));
    }

    #[test]
    fn rounds_of_connections_are_spread_over_the_interval() {
        let (began, every) = (Instant::now(), Duration::from_secs(30));
        let mut in_each_second = [0; 30];
        for number in 0..3_000_u128 {
            // As random as the UUIDs of connections are.
            let uid = Uuid::from_u128(number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
            let left = Round::at(began, Round::first(began, ConnectionId(uid)), every).next - began;
            in_each_second[usize::try_from(left.as_nanos() / 1_000_000_000).unwrap().min(29)] += 1;
        }
        assert!(in_each_second.iter().all(|count| (50..200).contains(count)), "{in_each_second:?}");
    }
}
