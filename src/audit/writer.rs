//! The writer, one per process: takes events from the queue, assigns their position in the chain, and makes
//! them durable, either in the log or in the spill file.
//!
//! Database operations run one at a time and may take long; meanwhile events are written to the spill file.

mod shutdown;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::backlog::Backlog;
use super::job::{self, Job, JobResult, MAX_MOVED, RunningJob, finished};
use super::metrics::AuditMetrics;
use super::quarantine::{Appended, Quarantine, loss_event};
use super::queue::{EventBatch, EventQueue, MAX_EVENTS};
use super::spill::{Record, SpillError};
use crate::model::audit::chain::{Batch, Chain};
use crate::model::audit::encoding;
use crate::model::sources::Sources;
use crate::store::audit::outbox::Moved;
use crate::store::audit::{AppendError, AuditLog};

/// Delay between a change and moving its row out of the outbox, so that several are moved together.
const MOVE_DELAY: Duration = Duration::from_millis(100);
/// Interval of checks for rows that other processes left in the outbox.
const OUTBOX_INTERVAL: Duration = Duration::from_secs(2);
/// Delay before a failed database operation is repeated.
const RETRY_DELAY: Duration = Duration::from_millis(250);
/// How long queued events wait for a move from the outbox, which assigns positions in the chain.
const MOVE_TIMEOUT: Duration = Duration::from_secs(1);

/// How events are batched.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchOptions {
    /// How long a batch waits for further events after its first.
    pub(super) linger: Duration,
    /// How long a batch waits for the database before it is written to the spill file.
    pub(super) timeout: Duration,
}

/// State of the writer.
pub(super) struct Writer {
    queue: Arc<EventQueue>,
    metrics: Arc<AuditMetrics>,
    quarantine: Quarantine,
    sources: Sources,
    options: BatchOptions,
    chain: Chain,
    /// Shared with a blocking task that writes to the disk.
    backlog: Arc<Mutex<Backlog>>,
    log: Option<AuditLog>,
    job: Option<RunningJob>,
    /// Whether the end of the chain in the database is unknown, because of an operation that is running or
    /// failed.
    end_unknown: bool,
    /// A batch that could be written to neither the log nor the spill file. No newer one is taken before it.
    blocked: Option<Arc<Batch>>,
    outbox: bool,
    next_move: Instant,
    retry_at: Option<Instant>,
    reported_shed: u64,
    /// The last row that was counted as written.
    counted: Chain,
    /// The last batch that was taken; its memory is reused.
    events: EventBatch,
    /// Memory for the rows of the next batch: allocating it each time would cost more than encoding the rows.
    row_buffer: Vec<u8>,
}

impl Writer {
    pub(super) fn new(
        (queue, metrics): (Arc<EventQueue>, Arc<AuditMetrics>),
        (quarantine, sources): (Quarantine, Sources),
        options: BatchOptions,
        chain: Uuid,
        backlog: Backlog,
        log: AuditLog,
    ) -> Self {
        Self {
            queue,
            metrics,
            quarantine,
            sources,
            options,
            chain: Chain::new(chain),
            backlog: Arc::new(Mutex::new(backlog)),
            log: Some(log),
            job: None,
            end_unknown: false,
            blocked: None,
            // A previous process may have left rows.
            outbox: true,
            next_move: Instant::now(),
            retry_at: None,
            reported_shed: 0,
            counted: Chain::new(chain),
            events: EventBatch::default(),
            row_buffer: Vec::new(),
        }
    }

    /// Writes until `stop`, then closes the chain.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let (free, next) = (self.blocked.is_none(), self.next_job_at());
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                (log, result) = finished(&mut self.job) => {
                    self.finish_job(log, result).await;
                    // Events queued meanwhile have not notified the writer.
                    self.write_queued().await;
                }
                () = self.queue.changed(), if free => {
                    sleep(self.options.linger).await;
                    self.write_queued().await;
                }
                () = sleep_until(next), if self.job.is_none() => self.start_next_job().await,
            }
        }
        self.finish().await;
    }

    /// When the next database operation is due.
    fn next_job_at(&self) -> Instant {
        let urgent = self.blocked.is_some() || self.end_unknown || self.is_behind();
        let wanted = match (urgent, self.outbox) {
            (true, _) => Instant::now(),
            (false, true) => self.next_move,
            (false, false) => self.next_move + OUTBOX_INTERVAL,
        };
        self.retry_at.map_or(wanted, |retry| retry.max(wanted))
    }

    /// Whether older rows wait in a spill file.
    fn is_behind(&self) -> bool {
        !self.backlog.lock().is_empty()
    }

    /// Starts the next database operation: resolving the end of the chain, draining spill files, retrying a
    /// batch, or moving rows from the outbox, in this order.
    async fn start_next_job(&mut self) {
        if self.end_unknown {
            self.start(Job::FindEnd(self.chain.id));
        } else if self.is_behind() {
            self.append_spilled().await;
        } else if let Some(batch) = &self.blocked {
            self.start(Job::Write(Arc::clone(batch)));
        } else {
            self.end_unknown = true;
            self.outbox = false;
            self.queue.take_outbox();
            self.next_move = Instant::now() + MOVE_DELAY;
            self.start(Job::MoveOutbox(self.chain));
        }
    }

    fn start(&mut self, job: Job) {
        if let Some(log) = self.log.take() {
            let with = (self.quarantine.clone(), self.sources.clone());
            self.job = Some(Box::pin(job::run(log, job, with)));
        }
    }

    /// Starts to append what is next in the spill files.
    async fn append_spilled(&mut self) {
        match self.with_backlog(Backlog::first).await {
            Ok(Ok(Some(step))) => self.start(Job::AppendSpilled(step)),
            failed => {
                tracing::error!(?failed, "reading the audit spill file failed; retrying");
                self.retry_at = Some(Instant::now() + RETRY_DELAY);
            }
        }
    }

    /// Runs an operation on the backlog in a blocking task, which completes even if this future is dropped.
    fn with_backlog<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Backlog) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let backlog = Arc::clone(&self.backlog);
        tokio::task::spawn_blocking(move || work(&mut backlog.lock()))
    }

    /// Handles the result of a database operation.
    async fn finish_job(&mut self, log: AuditLog, result: JobResult) {
        self.log = Some(log);
        self.job = None;
        match result {
            JobResult::Written(Ok(appended)) => self.finish_write(appended).await,
            JobResult::SpillAppended(Ok(appended)) => {
                self.retry_at = None;
                if let Ok(Err(error)) = self.with_backlog(Backlog::done).await {
                    tracing::warn!(%error, "truncating the audit spill file failed");
                }
                if let Some(appended) = appended {
                    self.count(appended).await;
                }
            }
            JobResult::OutboxMoved(Ok(Moved::Done(count, chain))) => {
                self.resume(chain);
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                let before = Chain { seq: chain.seq.saturating_sub(count), ..chain };
                self.count(Appended { before, after: chain, relocated: false }).await;
                self.outbox |= count >= MAX_MOVED;
            }
            // The next step asks for the end of the chain.
            JobResult::OutboxMoved(Ok(Moved::InDoubt)) => {}
            JobResult::OutboxMoved(Err(AppendError::Foreign(..))) | JobResult::EndFound(Ok(None)) => {
                if self.end_unknown {
                    self.switch_chain().await;
                }
            }
            JobResult::EndFound(Ok(Some(chain))) => self.resume(chain),
            JobResult::OutboxMoved(Err(error)) => {
                self.end_unknown = false;
                self.outbox = true;
                self.schedule_retry(&error);
            }
            JobResult::Written(Err(error))
            | JobResult::EndFound(Err(error))
            | JobResult::SpillAppended(Err(error)) => {
                self.schedule_retry(&error);
            }
        }
    }

    /// Continues the chain from where the database has it. Ignored if the chain was switched meanwhile: rows
    /// after the end of a chain would fail verification.
    fn resume(&mut self, chain: Chain) {
        self.retry_at = None;
        if chain.id == self.chain.id {
            self.end_unknown = false;
            self.chain = chain;
        }
    }

    async fn finish_write(&mut self, appended: Appended) {
        self.retry_at = None;
        if self.blocked.take_if(|batch| batch.after == appended.after).is_some() {
            self.release(Vec::new());
            self.queue.resume();
        }
        self.count(appended).await;
    }

    /// Counts appended rows once. A batch that took too long is in the spill file as well, and appended again
    /// from there. A chain that was changed by another process is abandoned.
    async fn count(&mut self, Appended { before, after, relocated }: Appended) {
        let known = if self.counted.id == after.id { self.counted.seq.max(before.seq) } else { before.seq };
        if after.seq > known {
            self.metrics.add_written(after.seq - known);
            self.counted = after;
        }
        if relocated && after.id == self.chain.id {
            self.switch_chain().await;
        }
    }

    fn schedule_retry(&mut self, error: &AppendError) {
        if self.retry_at.is_none() {
            tracing::warn!(%error, "audit log write failed; retrying");
        }
        self.retry_at = Some(Instant::now() + RETRY_DELAY);
    }

    /// Takes batches from the queue and makes them durable.
    async fn write_queued(&mut self) {
        while self.blocked.is_none() {
            self.outbox |= self.queue.take_outbox();
            if self.queue.is_empty() || !self.resolve_end().await {
                return;
            }
            // Counted twice for a moment, so that the metric never shows too few.
            self.metrics.set_pending(self.queue.len().min(MAX_EVENTS));
            self.events = self.queue.take(std::mem::take(&mut self.events));
            let batch = self.build_batch();
            let waiters = std::mem::take(&mut self.events.waiters);
            self.make_durable(batch, waiters).await;
        }
    }

    /// Resolves the end of the chain. If that does not succeed in time, switches to another chain, provided
    /// that there is a spill file to record it in. Returns whether the end is known.
    async fn resolve_end(&mut self) -> bool {
        let deadline = Instant::now() + MOVE_TIMEOUT;
        while self.end_unknown {
            if self.job.is_none() {
                self.start(Job::FindEnd(self.chain.id));
            }
            let ended = timeout_at(deadline, finished(&mut self.job)).await;
            match ended {
                Ok((log, result)) => {
                    let failed = matches!(&result, JobResult::EndFound(Err(_)));
                    self.finish_job(log, result).await;
                    if failed {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        if self.end_unknown && self.backlog.lock().has_file() {
            self.switch_chain().await;
        }
        !self.end_unknown
    }

    /// Switches to a new chain; the previous one ends where the database has it.
    async fn switch_chain(&mut self) {
        let Ok(id) = self.sources.uid() else { return };
        let appended = self.with_backlog(move |backlog| backlog.append(&Record::Chain(id))).await;
        match appended {
            Ok(Ok(())) => {
                tracing::warn!(previous = %self.chain.id, chain = %id, "audit chain switched");
                self.chain = Chain::new(id);
                self.end_unknown = false;
            }
            failed => tracing::error!(?failed, "switching the audit chain failed"),
        }
    }

    /// Builds a batch of the events taken, preceded by an event for any that were lost.
    fn build_batch(&mut self) -> Batch {
        let mut batch = Batch::with_buffer(self.chain, std::mem::take(&mut self.row_buffer));
        batch.reserve(self.events.len(), self.events.size());
        let shed = self.queue.shed_count();
        if shed > self.reported_shed {
            let mut event = Vec::new();
            encoding::event(&mut event, &loss_event(shed - self.reported_shed, self.sources.clock.now()));
            batch.push(&event);
            self.reported_shed = shed;
        }
        self.events.iter().for_each(|event| batch.push(event));
        self.chain = batch.after;
        batch
    }

    /// Makes a batch durable: in the log if that succeeds in time and nothing older waits, otherwise in the
    /// spill file.
    async fn make_durable(&mut self, batch: Batch, waiters: Vec<oneshot::Sender<()>>) {
        let batch = Arc::new(batch);
        if self.job.is_none() && !self.is_behind() && self.retry_at.is_none() {
            self.start(Job::Write(Arc::clone(&batch)));
            if let Ok((log, result)) = timeout(self.options.timeout, finished(&mut self.job)).await {
                let written = matches!(&result, JobResult::Written(Ok(_)));
                self.finish_job(log, result).await;
                if written {
                    self.row_buffer = Arc::into_inner(batch).map(Batch::into_buffer).unwrap_or_default();
                    return self.release(waiters);
                }
            }
        }
        match self.spill(Batch::clone(&batch)).await {
            Ok(()) => self.release(waiters),
            Err(error) => {
                tracing::error!(%error, "audit rows not durable; they wait in memory");
                // Requests that wait for these rows fail, like the ones after them.
                drop(waiters);
                self.queue.suspend();
                self.blocked = Some(batch);
            }
        }
    }

    /// Signals that rows are durable.
    fn release(&self, waiters: Vec<oneshot::Sender<()>>) {
        self.metrics.set_pending(0);
        for waiter in waiters {
            // The request may have been cancelled.
            let _ = waiter.send(());
        }
    }

    async fn spill(&mut self, batch: Batch) -> Result<(), SpillError> {
        let spilled = self.with_backlog(move |backlog| {
            let first = backlog.is_empty();
            backlog.append(&Record::Rows(batch))?;
            if first {
                tracing::warn!("audit rows are written to the spill file until the database accepts them");
            }
            Ok(())
        });
        spilled.await.unwrap_or(Err(SpillError::NoDirectory))
    }
}
