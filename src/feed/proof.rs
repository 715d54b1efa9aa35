//! When the feed was last heard from.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::FeedOptions;

/// A heartbeat or a sweep may be overdue for this long before readiness reports it.
const GRACE: Duration = Duration::from_secs(1);

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

    /// Zero while heartbeats and sweeps are in time; otherwise the age of the last successful sweep.
    ///
    /// A heartbeat proves that the connection delivers notifications, but not that every change was notified: the
    /// writer may have failed in between. Only a sweep reads the changes themselves, so heartbeats make nothing younger.
    pub(super) fn unproven_for(&self) -> Duration {
        self.unproven_at(Instant::now())
    }

    fn unproven_at(&self, now: Instant) -> Duration {
        let now = self.millis(now);
        let Some(swept) = Self::age(&self.swept, now) else { return Duration::MAX };
        let heard = Self::age(&self.heard, now);
        if swept <= self.sweep_within && heard.is_some_and(|heard| heard <= self.heard_within) {
            Duration::ZERO
        } else {
            swept.max(Duration::from_millis(1))
        }
    }

    /// Whether there ever was a heartbeat and a sweep.
    pub(super) fn has_started(&self) -> bool {
        self.heard.load(Ordering::Acquire) > 0 && self.swept.load(Ordering::Acquire) > 0
    }

    /// Whether heartbeats are delivered, or were within the last second.
    pub(super) fn is_listening(&self) -> bool {
        self.is_listening_at(Instant::now())
    }

    fn is_listening_at(&self, now: Instant) -> bool {
        Self::age(&self.heard, self.millis(now)).is_some_and(|age| age <= self.heard_within + GRACE)
    }

    /// The age of the last successful sweep.
    pub(super) fn sweep_age(&self) -> Duration {
        Self::age(&self.swept, self.millis(Instant::now())).unwrap_or(Duration::MAX)
    }

    /// Whether sweeps succeed, or did within the last second.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep_age() <= self.sweep_within + GRACE
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
        let proven = |millis| (proof.unproven_at(at(millis)).is_zero(), proof.is_listening_at(at(millis)));
        assert_eq!((proof.unproven_at(at(10)), proof.is_listening_at(at(10))), (Duration::MAX, false));
        proof.heard(10);
        assert_eq!(proven(10), (false, true));
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
    fn unproven_feed_is_as_old_as_its_last_sweep_whatever_heartbeats_say() {
        let (proof, at) = proof();
        let seconds = |millis| proof.unproven_at(at(millis)).as_secs();
        proof.heard(10);
        assert_eq!(proof.unproven_at(at(20)), Duration::MAX);
        proof.swept(at(10));
        proof.swept(at(30_000));
        assert_eq!(seconds(37_000), 7);
        for heartbeat in (30_000..60_000).step_by(250) {
            proof.heard(heartbeat);
        }
        assert_eq!(seconds(60_000), 30, "heartbeats do not hide sweeps that fail");
        proof.swept(at(60_000));
        assert_eq!(seconds(60_000), 0);
    }
}
