//! The database operations of the writer, of which one runs at a time.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use time::OffsetDateTime;
use tokio::time::Instant;
use uuid::Uuid;

use super::backlog::Step;
use super::quarantine::{Appended, Quarantine, salvage};
use crate::model::audit::chain::{Batch, ChainPosition};
use crate::model::system::System;
use crate::store::StoreError;
use crate::store::audit::outbox::Moved;
use crate::store::audit::{AppendError, AuditLog};

/// Maximum number of rows moved from the outbox at once.
pub(super) const MAX_MOVED: i64 = 1_000;
/// Delay before a failed database operation is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(250);

/// Result of a [`Job`].
pub(super) enum JobResult {
    /// A batch from the queue.
    Written(Result<Appended, AppendError>),
    /// The first step of the backlog, with the rows it appended, if any.
    SpillAppended(Result<Option<Appended>, AppendError>),
    OutboxMoved(Result<Moved, AppendError>),
    /// The end of the chain in the database.
    EndFound(Result<Option<ChainPosition>, AppendError>),
}

/// A database operation.
pub(super) enum Job {
    Write(Arc<Batch>),
    /// The first step of the backlog.
    AppendSpilled(Step),
    MoveOutbox(ChainPosition),
    FindEnd(Uuid),
}

/// Runs one operation at a time. It has the connection to the log meanwhile.
pub(super) struct JobRunner {
    log: Option<AuditLog>,
    running: Option<RunningJob>,
    quarantine: Quarantine,
    system: System,
    /// When a failed operation is repeated.
    pub(super) retry_at: Option<Instant>,
}

type RunningJob = Pin<Box<dyn Future<Output = (AuditLog, JobResult)> + Send>>;

impl JobRunner {
    pub(super) fn new(log: AuditLog, quarantine: Quarantine, system: System) -> Self {
        Self { log: Some(log), running: None, quarantine, system, retry_at: None }
    }

    /// Whether no operation runs.
    pub(super) fn is_idle(&self) -> bool {
        self.running.is_none()
    }

    /// Starts an operation, if none runs.
    pub(super) fn start(&mut self, job: Job) {
        if let Some(log) = self.log.take() {
            let with = (self.quarantine.clone(), self.system.clone());
            self.running = Some(Box::pin(run(log, job, with)));
        }
    }

    /// Waits for the running operation; never returns if there is none. It continues when the wait is abandoned.
    pub(super) async fn finished(&mut self) -> JobResult {
        let Some(job) = &mut self.running else { return std::future::pending().await };
        let (log, result) = job.await;
        self.running = None;
        self.log = Some(log);
        result
    }

    /// Repeats operations after a delay.
    pub(super) fn retry_later(&mut self) {
        self.retry_at = Some(Instant::now() + RETRY_DELAY);
    }

    /// Takes the connection to the log, after which no operation starts; `None` while one runs.
    pub(super) fn take_log(&mut self) -> Option<AuditLog> {
        self.log.take()
    }
}

async fn run(
    mut log: AuditLog,
    job: Job,
    (quarantine, system): (Quarantine, System),
) -> (AuditLog, JobResult) {
    let at = system.clock.now();
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
    (chain, state): (Uuid, Option<ChainPosition>),
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
