//! The database operations of the writer, of which one runs at a time.

use std::pin::Pin;
use std::sync::Arc;

use time::OffsetDateTime;
use uuid::Uuid;

use super::backlog::Step;
use super::quarantine::{Appended, Quarantine, salvage};
use crate::model::audit::chain::{Batch, Chain};
use crate::model::sources::Sources;
use crate::store::StoreError;
use crate::store::audit::outbox::Moved;
use crate::store::audit::{AppendError, AuditLog};

/// Maximum number of rows moved from the outbox at once.
pub(super) const MAX_MOVED: i64 = 1_000;

/// Result of a [`Job`].
pub(super) enum JobResult {
    /// A batch from the queue.
    Written(Result<Appended, AppendError>),
    /// The first step of the backlog, with the rows it appended, if any.
    SpillAppended(Result<Option<Appended>, AppendError>),
    OutboxMoved(Result<Moved, AppendError>),
    /// The end of the chain in the database.
    EndFound(Result<Option<Chain>, AppendError>),
}

/// A database operation.
pub(super) enum Job {
    Write(Arc<Batch>),
    /// The first step of the backlog.
    AppendSpilled(Step),
    MoveOutbox(Chain),
    FindEnd(Uuid),
}

pub(super) type RunningJob = Pin<Box<dyn Future<Output = (AuditLog, JobResult)> + Send>>;

pub(super) async fn run(
    mut log: AuditLog,
    job: Job,
    (quarantine, sources): (Quarantine, Sources),
) -> (AuditLog, JobResult) {
    let at = sources.clock.now();
    let result = match job {
        Job::Write(batch) => JobResult::Written(salvage(&mut log, &quarantine, &batch, at).await),
        Job::AppendSpilled(Step::Rows(batch)) => {
            JobResult::SpillAppended(salvage(&mut log, &quarantine, &batch, at).await.map(Some))
        }
        Job::AppendSpilled(Step::SwitchChain { ended, opened }) => {
            let switched = switch_chain(&mut log, ended, opened, at).await;
            JobResult::SpillAppended(switched.map(|()| None).map_err(AppendError::from))
        }
        Job::AppendSpilled(Step::Damaged { ended, chain, state }) => {
            let entered = enter_damage(&mut log, ended, (chain, state), at).await;
            JobResult::SpillAppended(entered.map(|()| None).map_err(AppendError::from))
        }
        Job::MoveOutbox(chain) => {
            JobResult::OutboxMoved(quarantine.move_outbox(&mut log, (chain, at), MAX_MOVED).await)
        }
        Job::FindEnd(chain) => JobResult::EndFound(log.head(chain).await.map_err(AppendError::from)),
    };
    (log, result)
}

async fn switch_chain(
    log: &mut AuditLog,
    ended: Option<Uuid>,
    opened: Option<Uuid>,
    at: OffsetDateTime,
) -> Result<(), StoreError> {
    if let Some(chain) = ended {
        log.interrupt_chain(chain, at).await?;
    }
    if let Some(chain) = opened {
        log.open_chain(chain, at).await?;
    }
    Ok(())
}

/// Records corruption of a spill file that held the end of one chain, the rows of another, or both.
async fn enter_damage(
    log: &mut AuditLog,
    ended: Option<Uuid>,
    (chain, state): (Uuid, Option<Chain>),
    at: OffsetDateTime,
) -> Result<(), StoreError> {
    if let Some(ended) = ended {
        log.enter_damage(ended, None, at).await?;
    }
    switch_chain(log, ended, Some(chain), at).await?;
    let rows = log.enter_damage(chain, state, at).await?;
    tracing::error!(%chain, rows, "audit rows lost with a corrupt spill file");
    Ok(())
}

/// Waits for the running operation; never returns if there is none.
pub(super) async fn finished(job: &mut Option<RunningJob>) -> (AuditLog, JobResult) {
    match job {
        Some(job) => job.await,
        None => std::future::pending().await,
    }
}
