//! Whether the feed delivers changes in time: the last heartbeat received and the last successful sweep.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::options::FeedOptions;

/// How long a heartbeat or sweep may be overdue before readiness reports it.
const GRACE: Duration = Duration::from_secs(1);

/// How long a heartbeat of a replica is valid, for the replica itself and for others.
pub(super) fn heartbeat_lease(options: &FeedOptions) -> Duration {
    options.probe * 2
}

/// Times of the last heartbeat and sweep, in milliseconds since creation; 0 stands for never.
#[derive(Debug)]
pub(super) struct FeedHealth {
    since: Instant,
    /// When the newest of this replica's heartbeats that it received back was sent.
    heartbeat: AtomicU64,
    /// When the last successful sweep started.
    sweep: AtomicU64,
    /// The maximum age of a heartbeat: twice the interval.
    heartbeat_within: Duration,
    sweep_within: Duration,
}

impl FeedHealth {
    pub(super) fn new(options: &FeedOptions) -> Self {
        Self {
            since: Instant::now(),
            heartbeat: AtomicU64::new(0),
            sweep: AtomicU64::new(0),
            heartbeat_within: heartbeat_lease(options),
            sweep_within: options.sweep * 2,
        }
    }

    /// The number to send in a heartbeat now.
    pub(super) fn number(&self, now: Instant) -> u64 {
        self.millis(now)
    }

    /// Records that a heartbeat of this replica was received back.
    pub(super) fn record_heartbeat(&self, number: u64) {
        self.heartbeat.fetch_max(number, Ordering::AcqRel);
    }

    pub(super) fn record_sweep(&self, at: Instant) {
        self.sweep.fetch_max(self.millis(at), Ordering::AcqRel);
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

    /// Zero while heartbeats and sweeps arrive in time; otherwise the age of the last successful sweep.
    ///
    /// A heartbeat proves that the connection delivers notifications, but not that every change was notified:
    /// the writer may have failed between commit and `NOTIFY`. Only a sweep reads the changes themselves, so a
    /// heartbeat does not reduce the age.
    pub(super) fn unproven_for(&self) -> Duration {
        self.unproven_at(Instant::now())
    }

    fn unproven_at(&self, now: Instant) -> Duration {
        let now = self.millis(now);
        let Some(swept) = Self::age(&self.sweep, now) else { return Duration::MAX };
        let heartbeat = Self::age(&self.heartbeat, now);
        if swept <= self.sweep_within && heartbeat.is_some_and(|age| age <= self.heartbeat_within) {
            Duration::ZERO
        } else {
            swept.max(Duration::from_millis(1))
        }
    }

    /// Whether a heartbeat was received and a sweep succeeded at least once.
    pub(super) fn has_started(&self) -> bool {
        self.heartbeat.load(Ordering::Acquire) > 0 && self.sweep.load(Ordering::Acquire) > 0
    }

    /// Whether heartbeats are received, with a grace of one second.
    pub(super) fn is_listening(&self) -> bool {
        self.is_listening_at(Instant::now())
    }

    fn is_listening_at(&self, now: Instant) -> bool {
        Self::age(&self.heartbeat, self.millis(now)).is_some_and(|age| age <= self.heartbeat_within + GRACE)
    }

    /// The age of the last successful sweep.
    pub(super) fn sweep_age(&self) -> Duration {
        Self::age(&self.sweep, self.millis(Instant::now())).unwrap_or(Duration::MAX)
    }

    /// Whether sweeps succeed, with a grace of one second.
    pub(super) fn is_sweeping(&self) -> bool {
        self.sweep_age() <= self.sweep_within + GRACE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn health() -> (FeedHealth, impl Fn(u64) -> Instant) {
        let ms = Duration::from_millis;
        let options = FeedOptions { probe: ms(250), sweep: ms(1000), notify: ms(3), timeout: ms(1000) };
        let health = FeedHealth::new(&options);
        let since = health.since;
        (health, move |millis| since + ms(millis))
    }

    #[test]
    fn feed_is_proven_while_heartbeats_and_sweeps_are_in_time() {
        let (health, at) = health();
        let proven = |millis| (health.unproven_at(at(millis)).is_zero(), health.is_listening_at(at(millis)));
        assert_eq!((health.unproven_at(at(10)), health.is_listening_at(at(10))), (Duration::MAX, false));
        health.record_heartbeat(10);
        assert_eq!(proven(10), (false, true));
        health.record_sweep(at(10));
        assert_eq!(proven(10), (true, true));
        assert_eq!(proven(510), (true, true));
        assert_eq!(proven(511), (false, true));
        assert_eq!(proven(1_510), (false, true));
        assert_eq!(proven(1_511), (false, false));

        health.record_heartbeat(1_600);
        assert_eq!(proven(1_600), (true, true));
        health.record_heartbeat(2_100);
        assert_eq!(proven(2_100), (false, true), "no sweep for longer than two intervals");
    }

    #[test]
    fn unproven_feed_has_the_age_of_its_last_sweep() {
        let (health, at) = health();
        let seconds = |millis| health.unproven_at(at(millis)).as_secs();
        health.record_heartbeat(10);
        assert_eq!(health.unproven_at(at(20)), Duration::MAX);
        health.record_sweep(at(10));
        health.record_sweep(at(30_000));
        assert_eq!(seconds(37_000), 7);
        for heartbeat in (30_000..60_000).step_by(250) {
            health.record_heartbeat(heartbeat);
        }
        assert_eq!(seconds(60_000), 30, "heartbeats do not hide failing sweeps");
        health.record_sweep(at(60_000));
        assert_eq!(seconds(60_000), 0);
    }
}
