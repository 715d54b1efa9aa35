//! Intervals and timeouts of the change feed.

use std::time::Duration;

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
}
