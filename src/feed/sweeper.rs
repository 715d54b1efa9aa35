//! The state of the sweeper, which runs one sweep at a time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;

use super::timeline::Timeline;
use crate::store::changes::SweepConnection;

/// Runs one sweep at a time and keeps the state between sweeps.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    pub(super) state: Mutex<SweepState>,
    pub(super) succeeded: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Whether the last sweep failed.
    pub(super) failing: AtomicBool,
    pub(super) failure: Notify,
}

impl Sweeper {
    /// The numbers of successful and failed sweeps.
    pub(super) fn counts(&self) -> (u64, u64) {
        (self.succeeded.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// Whether the last sweep failed.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire)
    }
}

/// State kept between sweeps.
#[derive(Debug, Default)]
pub(super) struct SweepState {
    pub(super) connection: Option<SweepConnection>,
    pub(super) horizon: Option<String>,
    pub(super) timeline: Option<Timeline>,
    /// When the last successful sweep started.
    pub(super) succeeded: Option<Instant>,
}
