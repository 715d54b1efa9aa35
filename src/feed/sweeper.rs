//! The state of the sweeper, which runs one sweep at a time, and the identity of the database's history, by which a restore or
//! failover to an earlier state is detected.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::RwLock;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use uuid::Uuid;

use super::open_transactions::OpenTransactions;
use crate::model::feed::TimelineId;
use crate::model::scope::{Revision, Scope};
use crate::store::changes::{Sweep, SweepConnection};
use crate::store::horizon::Horizon;

/// Runs one sweep at a time and keeps the state between sweeps.
#[derive(Debug, Default)]
pub(super) struct Sweeper {
    pub(super) state: Arc<Mutex<SweepState>>,
    /// The timeline that the last successful sweep read; set once nothing of an earlier one is in memory.
    pub(super) timeline: RwLock<Option<TimelineId>>,
    pub(super) succeeded: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Whether the last sweep failed.
    pub(super) failing: AtomicBool,
    pub(super) failure: Notify,
    pub(super) open_transactions: OpenTransactions,
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
    pub(super) horizon: Option<Horizon>,
    pub(super) timeline: Option<Timeline>,
    /// The revisions in memory that are not compared with the database yet, on this connection.
    pub(super) uncompared: Vec<(Scope, Revision)>,
    /// The renewal of the epoch that is due, until it has succeeded.
    pub(super) renewal: Option<EpochRenewal>,
    /// When the last successful sweep started.
    pub(super) succeeded: Option<Instant>,
    /// Whether it was logged that memory expired.
    pub(super) is_expired: bool,
}

/// Identity and position of the database history that a sweep has read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Timeline {
    pub(super) server: String,
    pub(super) epoch: Option<Uuid>,
    /// The first unassigned transaction id.
    pub(super) next_xid: u64,
}

impl Timeline {
    pub(super) fn of(sweep: &Sweep) -> Self {
        Self { server: sweep.server.clone(), epoch: sweep.epoch, next_xid: sweep.horizon.next_xid() }
    }

    /// Identifies it, without the position.
    pub(super) fn id(&self) -> TimelineId {
        TimelineId::new(&self.server, self.epoch)
    }
}

/// The epoch has to be renewed, so that every replica notices what one has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EpochRenewal {
    /// The epoch to replace.
    pub(super) known: Option<Uuid>,
    /// Whether an attempt has failed.
    pub(super) failed: bool,
}

/// What comparing the database with what is known of it has found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Comparison {
    /// Its history continues the known one.
    Continues,
    /// Its history is another one.
    Breaks(TimelineBreak),
    /// Nothing yet: the next sweep on the same connection continues.
    Unfinished,
}

/// Evidence that the database's history is not the one known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimelineBreak {
    /// Another server, database or table answers.
    Server,
    /// The epoch was renewed.
    Epoch,
    /// A scope is at a lower revision than in memory.
    Revision(Scope),
}

impl TimelineBreak {
    /// The value of the log field `reason`.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Server => "server_changed",
            Self::Epoch => "epoch_renewed",
            Self::Revision(_) => "revision_lost",
        }
    }
}
