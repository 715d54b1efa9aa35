//! When the feed was last heard from.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::FeedOptions;

/// A replica whose feed is unproven for longer is not ready.
const READY: Duration = Duration::from_secs(1);

/// For how long a heartbeat stands for the replica that sent it, with itself and with others.
pub(super) fn heartbeat_lease(options: &FeedOptions) -> Duration {
    options.probe * 2
}

/// The last proofs, in milliseconds since it was made; 0 is never.
#[derive(Debug)]
pub(super) struct Proof {
    since: Instant,
    /// When the last of this replica's own heartbeats that it heard was sent.
    heard: AtomicU64,
    /// The start of the last sweep that succeeded.
    swept: AtomicU64,
    /// A heartbeat is due every interval, and overdue when as long again has passed.
    heard_within: Duration,
    sweep_within: Duration,
}

impl Proof {
    pub(super) fn new(options: &FeedOptions) -> Self {
        Self {
            since: Instant::now(),
            heard: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            heard_within: heartbeat_lease(options),
            sweep_within: options.sweep * 2,
        }
    }

    /// The number of a heartbeat that is sent now.
    pub(super) fn number(&self, now: Instant) -> u64 {
        self.millis(now)
    }

    /// A heartbeat of this replica came back to it.
    pub(super) fn heard(&self, number: u64) {
        self.heard.fetch_max(number, Ordering::AcqRel);
    }

    pub(super) fn swept(&self, at: Instant) {
        self.swept.fetch_max(self.millis(at), Ordering::AcqRel);
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.since).as_millis()).unwrap_or(u64::MAX).max(1)
    }

    fn age(of: &AtomicU64, now: u64) -> Option<Duration> {
        match of.load(Ordering::Acquire) {
            0 => None,
            at => Some(Duration::from_millis(now.saturating_sub(at))),
        }
    }

    /// For how long neither the listener nor a sweep proved that changes are heard; zero while both are in time.
    pub(super) fn unproven_for(&self) -> Duration {
        self.unproven_at(Instant::now())
    }

    fn unproven_at(&self, now: Instant) -> Duration {
        let now = self.millis(now);
        let (heard, swept) = (Self::age(&self.heard, now), Self::age(&self.swept, now));
        match (heard, swept) {
            (Some(heard), Some(swept)) if heard <= self.heard_within && swept <= self.sweep_within => {
                Duration::ZERO
            }
            (Some(age), None) | (None, Some(age)) => age.max(Duration::from_millis(1)),
            (Some(heard), Some(swept)) => heard.min(swept).max(Duration::from_millis(1)),
            (None, None) => Duration::MAX,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.is_ready_at(Instant::now())
    }

    fn is_ready_at(&self, now: Instant) -> bool {
        let age = Self::age(&self.heard, self.millis(now));
        age.is_some_and(|age| age <= self.heard_within + READY) && self.swept.load(Ordering::Acquire) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof() -> (Proof, impl Fn(u64) -> Instant) {
        let ms = Duration::from_millis;
        let options = FeedOptions { probe: ms(250), sweep: ms(1000), notify: ms(3), patience: ms(1000) };
        let proof = Proof::new(&options);
        let since = proof.since;
        (proof, move |millis| since + ms(millis))
    }

    #[test]
    fn a_feed_is_proven_only_while_both_heartbeats_and_sweeps_are_in_time() {
        let (proof, at) = proof();
        let proven = |millis| (proof.unproven_at(at(millis)).is_zero(), proof.is_ready_at(at(millis)));
        assert_eq!((proof.unproven_at(at(10)), proof.is_ready_at(at(10))), (Duration::MAX, false));
        proof.heard(10);
        assert_eq!(proven(10), (false, false));
        proof.swept(at(10));
        assert_eq!(proven(10), (true, true));
        assert_eq!(proven(510), (true, true));
        assert_eq!(proven(511), (false, true));
        assert_eq!(proven(1_510), (false, true));
        assert_eq!(proven(1_511), (false, false));

        proof.heard(1_600);
        assert_eq!(proven(1_600), (true, true));
        proof.heard(2_100);
        assert_eq!(proven(2_100), (false, true), "no sweep for longer than two intervals");
    }

    #[test]
    fn an_unproven_feed_is_as_old_as_the_last_time_the_database_told_anything() {
        let (proof, at) = proof();
        proof.heard(10);
        proof.swept(at(10));
        proof.swept(at(30_000));
        assert_eq!(proof.unproven_at(at(37_000)), Duration::from_secs(7));
    }
}
