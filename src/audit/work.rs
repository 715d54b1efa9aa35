//! What the writer asks of the database, one thing at a time, and how it ends.

use std::pin::Pin;

use uuid::Uuid;

use super::recover::salvage;
use super::spill::Record;
use crate::model::audit::chain::{Batch, Chain};
use crate::model::sources::Sources;
use crate::store::audit::outbox::Moved;
use crate::store::audit::{AppendError, AuditLog};

/// Rows that are moved from the outbox at once.
pub(super) const MOST_MOVED: i64 = 1_000;

/// What the database was asked to do, and how it ended.
pub(super) enum Done {
    /// A batch, straight from the queue, up to this place.
    Written(Chain, Result<(), AppendError>),
    /// The next record of the spill file, which ends there.
    Replayed(u64, Result<(), AppendError>),
    Moved(Result<Moved, AppendError>),
    /// How far the chain goes after a doubt.
    Found(Result<Option<Chain>, AppendError>),
}

/// What the database is asked.
pub(super) enum Job {
    Write(Batch),
    /// A record of the spill file, which ends at `next`; the chain before it is `known`.
    Replay {
        record: Record,
        known: Uuid,
        next: u64,
    },
    Move(Chain),
    Find(Uuid),
}

pub(super) type Work = Pin<Box<dyn Future<Output = (AuditLog, Done)> + Send>>;

pub(super) async fn perform(mut log: AuditLog, job: Job, sources: Sources) -> (AuditLog, Done) {
    let done = match job {
        Job::Write(batch) => {
            let after = batch.after;
            Done::Written(after, salvage(&mut log, &batch, sources.clock.now()).await)
        }
        Job::Replay { record: Record::Rows(batch), next, .. } => {
            Done::Replayed(next, salvage(&mut log, &batch, sources.clock.now()).await)
        }
        Job::Replay { record: Record::Chain(chain), known, next } => {
            let at = sources.clock.now();
            let ended = log.end_chain(known, at, false).await;
            let changed = match ended {
                Ok(()) => log.open_chain(chain, at).await,
                failed => failed,
            };
            Done::Replayed(next, changed.map_err(AppendError::from))
        }
        Job::Move(chain) => Done::Moved(log.move_outbox(chain, MOST_MOVED).await),
        Job::Find(chain) => Done::Found(log.head(chain).await.map_err(AppendError::from)),
    };
    (log, done)
}

/// What is under way, when it has ended; where nothing is, nothing ends.
pub(super) async fn under_way(work: &mut Option<Work>) -> (AuditLog, Done) {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}
