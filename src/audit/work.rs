//! What the writer asks of the database, one thing at a time, and how it ends.

use std::pin::Pin;
use std::sync::Arc;

use time::OffsetDateTime;
use uuid::Uuid;

use super::backlog::Step;
use super::quarantine::Quarantine;
use super::recover::{Kept, salvage};
use crate::model::audit::chain::{Batch, Chain};
use crate::model::sources::Sources;
use crate::store::StoreError;
use crate::store::audit::outbox::Moved;
use crate::store::audit::{AppendError, AuditLog};

/// Rows that are moved from the outbox at once.
pub(super) const MOST_MOVED: i64 = 1_000;

/// What the database was asked to do, and how it ended.
pub(super) enum Done {
    /// A batch, straight from the queue.
    Written(Result<Kept, AppendError>),
    /// What was first of the backlog; rows, if it were any.
    CaughtUp(Result<Option<Kept>, AppendError>),
    Moved(Result<Moved, AppendError>),
    /// How far the chain goes after a doubt.
    Found(Result<Option<Chain>, AppendError>),
}

/// What the database is asked.
pub(super) enum Job {
    Write(Arc<Batch>),
    /// What is first of the backlog.
    CatchUp(Step),
    Move(Chain),
    Find(Uuid),
}

pub(super) type Work = Pin<Box<dyn Future<Output = (AuditLog, Done)> + Send>>;

pub(super) async fn perform(
    mut log: AuditLog,
    job: Job,
    (quarantine, sources): (Quarantine, Sources),
) -> (AuditLog, Done) {
    let at = sources.clock.now();
    let done = match job {
        Job::Write(batch) => Done::Written(salvage(&mut log, &quarantine, &batch, at).await),
        Job::CatchUp(Step::Rows(batch)) => {
            Done::CaughtUp(salvage(&mut log, &quarantine, &batch, at).await.map(Some))
        }
        Job::CatchUp(Step::Turn { ended, begun }) => {
            let turned = turn(&mut log, ended, begun, at).await;
            Done::CaughtUp(turned.map(|()| None).map_err(AppendError::from))
        }
        Job::CatchUp(Step::Damaged { ended, chain, state }) => {
            let entered = enter_damage(&mut log, ended, (chain, state), at).await;
            Done::CaughtUp(entered.map(|()| None).map_err(AppendError::from))
        }
        Job::Move(chain) => Done::Moved(quarantine.move_outbox(&mut log, (chain, at), MOST_MOVED).await),
        Job::Find(chain) => Done::Found(log.head(chain).await.map_err(AppendError::from)),
    };
    (log, done)
}

async fn turn(
    log: &mut AuditLog,
    ended: Option<Uuid>,
    begun: Option<Uuid>,
    at: OffsetDateTime,
) -> Result<(), StoreError> {
    if let Some(chain) = ended {
        log.interrupt_chain(chain, at).await?;
    }
    if let Some(chain) = begun {
        log.open_chain(chain, at).await?;
    }
    Ok(())
}

/// Enters that a spill file was corrupt where it held the end of one chain, or the rows of another, or both.
async fn enter_damage(
    log: &mut AuditLog,
    ended: Option<Uuid>,
    (chain, state): (Uuid, Option<Chain>),
    at: OffsetDateTime,
) -> Result<(), StoreError> {
    if let Some(ended) = ended {
        log.enter_damage(ended, None, at).await?;
    }
    turn(log, ended, Some(chain), at).await?;
    let rows = log.enter_damage(chain, state, at).await?;
    tracing::error!(%chain, rows, "audit rows lost with a corrupt spill file");
    Ok(())
}

/// What is under way, when it has ended; where nothing is, nothing ends.
pub(super) async fn under_way(work: &mut Option<Work>) -> (AuditLog, Done) {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}
