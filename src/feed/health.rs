//! Whether the feed delivers changes in time: the last answered probe of the `LISTEN` connection and the last
//! successful sweep.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// How long a probe or sweep may be overdue before readiness reports it.
const GRACE: Duration = Duration::from_secs(1);

/// Intervals and timeouts of the feed.
#[derive(Debug, Clone)]
pub struct FeedOptions {
    /// Interval of probes of the listener's connection, and the timeout of a probe.
    pub probe: Duration,
    /// Interval of sweeps.
    pub sweep: Duration,
    /// Minimum interval between two `NOTIFY`; messages in between are batched.
    pub notify: Duration,
    /// Timeout of connecting and of a sweep.
    pub timeout: Duration,
    /// How old the last successful sweep may be for memory to be answered from.
    pub stale: Duration,
    /// Whether traces are exported, so that events link to the writes that caused them.
    pub traces: bool,
}

/// How long a replica trusts its memory after it sent the last probe that was answered.
pub(super) fn trust_period(options: &FeedOptions) -> Duration {
    options.probe * 2
}

/// Times of the last probe and sweep, in milliseconds since creation; 0 stands for never.
#[derive(Debug)]
pub struct FeedHealth {
    since: Instant,
    /// When the newest probe that was answered was sent.
    probe: AtomicU64,
    /// Whether the connection that answered it is still open.
    connected: AtomicBool,
    /// When the last successful sweep started.
    sweep: AtomicU64,
    /// The maximum age of a probe: twice the interval.
    probe_within: Duration,
    sweep_within: Duration,
}

impl FeedHealth {
    pub(super) fn new(options: &FeedOptions) -> Self {
        Self {
            since: Instant::now(),
            probe: AtomicU64::new(0),
            connected: AtomicBool::new(false),
            sweep: AtomicU64::new(0),
            probe_within: trust_period(options),
            sweep_within: options.sweep * 2,
        }
    }

    /// Records that a probe sent at this time was answered, and everything received before the answer is processed.
    pub(super) fn record_probe(&self, sent: Instant) {
        self.probe.fetch_max(self.millis(sent), Ordering::AcqRel);
        self.connected.store(true, Ordering::Release);
    }

    /// Records that the connection is lost. Another replica may see that it is closed before this one does, and waits for
    /// the trust period from then on.
    pub(super) fn record_loss(&self) {
        self.connected.store(false, Ordering::Release);
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

    /// Zero while the connection is open, probes are answered and sweeps succeed in time; otherwise the age of the last
    /// successful sweep.
    ///
    /// An answered probe proves that the connection delivers notifications, but not that every change was
    /// notified: the writer may have failed between commit and `NOTIFY`. Only a sweep reads the changes
    /// themselves, so a probe does not reduce the age.
    pub(super) fn unproven_for(&self) -> Duration {
        self.unproven_at(Instant::now())
    }

    /// Whether the feed is proven: every change was received in time, so that cached facts are used without a query.
    pub fn is_proven(&self) -> bool {
        self.unproven_for().is_zero()
    }

    fn unproven_at(&self, now: Instant) -> Duration {
        let now = self.millis(now);
        let Some(swept) = Self::age(&self.sweep, now) else { return Duration::MAX };
        let probed = Self::age(&self.probe, now).is_some_and(|age| age <= self.probe_within);
        if swept <= self.sweep_within && probed && self.connected.load(Ordering::Acquire) {
            Duration::ZERO
        } else {
            swept.max(Duration::from_millis(1))
        }
    }

    /// Whether a probe was answered and a sweep succeeded at least once.
    pub(super) fn has_started(&self) -> bool {
        self.probe.load(Ordering::Acquire) > 0 && self.sweep.load(Ordering::Acquire) > 0
    }

    /// Whether probes are answered, with a grace of one second.
    pub(super) fn is_listening(&self) -> bool {
        self.is_listening_at(Instant::now())
    }

    fn is_listening_at(&self, now: Instant) -> bool {
        Self::age(&self.probe, self.millis(now)).is_some_and(|age| age <= self.probe_within + GRACE)
    }

    /// The age of the last successful sweep.
    pub(super) fn sweep_age(&self) -> Duration {
        Self::age(&self.sweep, self.millis(Instant::now())).unwrap_or(Duration::MAX)
    }

    /// Whether the last successful sweep, if there was one, is so old that memory is not answered from.
    pub(super) fn is_expired(&self, stale: Duration) -> bool {
        Self::age(&self.sweep, self.millis(Instant::now())).is_some_and(|age| age >= stale)
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
        let options = FeedOptions {
            probe: ms(250),
            sweep: ms(1000),
            notify: ms(3),
            timeout: ms(1000),
            stale: ms(60_000),
            traces: false,
        };
        let health = FeedHealth::new(&options);
        let since = health.since;
        (health, move |millis| since + ms(millis))
    }

    #[test]
    fn feed_is_proven_while_probes_and_sweeps_are_in_time() {
        let (health, at) = health();
        let proven = |millis| (health.unproven_at(at(millis)).is_zero(), health.is_listening_at(at(millis)));
        assert_eq!((health.unproven_at(at(10)), health.is_listening_at(at(10))), (Duration::MAX, false));
        health.record_probe(at(10));
        assert_eq!(proven(10), (false, true));
        health.record_sweep(at(10));
        assert_eq!(proven(10), (true, true));
        assert_eq!(proven(510), (true, true));
        assert_eq!(proven(511), (false, true));
        assert_eq!(proven(1_510), (false, true));
        assert_eq!(proven(1_511), (false, false));

        health.record_probe(at(1_600));
        assert_eq!(proven(1_600), (true, true));
        health.record_probe(at(2_100));
        assert_eq!(proven(2_100), (false, true), "no sweep for longer than two intervals");
    }

    #[test]
    fn lost_connection_makes_the_feed_unproven_at_once() {
        let (health, at) = health();
        let proven = |millis| (health.unproven_at(at(millis)).is_zero(), health.is_listening_at(at(millis)));
        health.record_sweep(at(10));
        health.record_probe(at(10));
        assert_eq!(proven(20), (true, true));
        health.record_loss();
        assert_eq!(proven(20), (false, true));
        health.record_probe(at(30));
        assert_eq!(proven(30), (true, true));
    }

    #[test]
    fn unproven_feed_has_the_age_of_its_last_sweep() {
        let (health, at) = health();
        let seconds = |millis| health.unproven_at(at(millis)).as_secs();
        health.record_probe(at(10));
        assert_eq!(health.unproven_at(at(20)), Duration::MAX);
        health.record_sweep(at(10));
        health.record_sweep(at(30_000));
        assert_eq!(seconds(37_000), 7);
        for probe in (30_000..60_000).step_by(250) {
            health.record_probe(at(probe));
        }
        assert_eq!(seconds(60_000), 30, "probes do not hide failing sweeps");
        health.record_sweep(at(60_000));
        assert_eq!(seconds(60_000), 0);
    }
}
