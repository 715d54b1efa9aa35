//! When the feed was last heard from.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::FeedOptions;

/// A replica whose feed is unproven for longer is not ready.
const READY: Duration = Duration::from_secs(1);

/// The last proofs, in milliseconds since it was made; 0 is never.
#[derive(Debug)]
pub(super) struct Proof {
    since: Instant,
    /// The start of the last probe that was answered on the listener's connection.
    probed: AtomicU64,
    /// The start of the last sweep that succeeded.
    swept: AtomicU64,
    /// A probe is due every interval, and overdue when as long again has passed.
    probe_within: Duration,
    sweep_within: Duration,
}

impl Proof {
    pub(super) fn new(options: &FeedOptions) -> Self {
        Self {
            since: Instant::now(),
            probed: AtomicU64::new(0),
            swept: AtomicU64::new(0),
            probe_within: options.probe * 2,
            sweep_within: options.sweep * 2,
        }
    }

    pub(super) fn probed(&self, at: Instant) {
        self.probed.fetch_max(self.millis(at), Ordering::AcqRel);
    }

    pub(super) fn swept(&self, at: Instant) {
        self.swept.fetch_max(self.millis(at), Ordering::AcqRel);
    }

    fn millis(&self, at: Instant) -> u64 {
        u64::try_from(at.duration_since(self.since).as_millis()).unwrap_or(u64::MAX).max(1)
    }

    fn age(&self, of: &AtomicU64, now: u64) -> Option<Duration> {
        match of.load(Ordering::Acquire) {
            0 => None,
            at => Some(Duration::from_millis(now.saturating_sub(at))),
        }
    }

    /// For how long neither the listener nor a sweep proved that changes are heard; zero while both are in time.
    pub(super) fn unproven_for(&self) -> Duration {
        let now = self.millis(Instant::now());
        let (probed, swept) = (self.age(&self.probed, now), self.age(&self.swept, now));
        match (probed, swept) {
            (Some(probed), Some(swept)) if probed <= self.probe_within && swept <= self.sweep_within => {
                Duration::ZERO
            }
            (Some(age), None) | (None, Some(age)) => age.max(Duration::from_millis(1)),
            (Some(probed), Some(swept)) => probed.min(swept).max(Duration::from_millis(1)),
            (None, None) => Duration::MAX,
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        let age = self.age(&self.probed, self.millis(Instant::now()));
        age.is_some_and(|age| age <= self.probe_within + READY) && self.swept.load(Ordering::Acquire) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof() -> Proof {
        let ms = Duration::from_millis;
        Proof::new(&FeedOptions { probe: ms(250), sweep: ms(1000), notify: ms(3), patience: ms(1000) })
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_is_proven_only_while_both_probes_and_sweeps_are_in_time() {
        let proof = proof();
        assert_eq!((proof.unproven_for(), proof.is_ready()), (Duration::MAX, false));
        proof.probed(Instant::now());
        assert_eq!((proof.unproven_for().is_zero(), proof.is_ready()), (false, false));
        proof.swept(Instant::now());
        assert_eq!((proof.unproven_for(), proof.is_ready()), (Duration::ZERO, true));

        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(proof.unproven_for(), Duration::ZERO);
        tokio::time::advance(Duration::from_millis(2)).await;
        assert_eq!(proof.unproven_for().is_zero(), false);
        assert!(proof.is_ready());
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(!proof.is_ready());

        proof.probed(Instant::now());
        assert_eq!(proof.unproven_for(), Duration::ZERO);
        tokio::time::advance(Duration::from_millis(600)).await;
        proof.probed(Instant::now());
        assert!(!proof.unproven_for().is_zero(), "no sweep for longer than two intervals");
    }

    #[tokio::test(start_paused = true)]
    async fn an_unproven_feed_is_as_old_as_the_last_time_the_database_told_anything() {
        let proof = proof();
        proof.probed(Instant::now());
        proof.swept(Instant::now());
        tokio::time::advance(Duration::from_secs(30)).await;
        proof.swept(Instant::now());
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(proof.unproven_for(), Duration::from_secs(7));
    }
}
