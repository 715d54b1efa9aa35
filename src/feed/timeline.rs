//! The identity of the database's history, by which a restore or failover to an earlier state is detected.

use uuid::Uuid;

use crate::model::scope::Scope;
use crate::store::changes::Sweep;

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
        Self { server: sweep.server.clone(), epoch: sweep.epoch, next_xid: sweep.next_xid }
    }
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
