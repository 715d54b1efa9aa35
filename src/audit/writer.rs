//! The writer, one per process: takes events from the queue, assigns their position in the chain, and makes
//! them durable, either in the log or in the spill file.
//!
//! Database operations run one at a time and may take long; meanwhile events are written to the spill file.

mod batch_builder;
mod schedule;
mod shutdown;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use self::batch_builder::BatchBuilder;
use self::schedule::WriteSchedule;
use super::backlog::Backlog;
use super::job::{Job, JobResult, JobRunner, MAX_MOVED};
use super::metrics::AuditMetrics;
use super::quarantine::{Appended, Quarantine};
use super::recorder::{EventQueue, MAX_EVENTS};
use super::spill::{Record, SpillError};
use crate::model::audit::chain::{Batch, ChainPosition};
use crate::model::system::System;
use crate::store::audit::outbox::Moved;
use crate::store::audit::{AppendError, AuditLog};

/// Delay between a change and moving its row out of the outbox, so that several are moved together.
const MOVE_DELAY: Duration = Duration::from_millis(100);
/// Interval of checks for rows that other processes left in the outbox.
const OUTBOX_INTERVAL: Duration = Duration::from_secs(2);
/// How long queued events wait for a move from the outbox, which assigns positions in the chain.
const MOVE_TIMEOUT: Duration = Duration::from_secs(1);

/// How events are batched.
#[derive(Debug, Clone, Copy)]
pub(super) struct BatchOptions {
    /// Whether events wait for others, to share a transaction.
    pub(super) lingers: bool,
    /// How long events wait, after others, until they are written to the spill file instead of the database.
    pub(super) timeout: Duration,
}

/// State of the writer.
pub(super) struct Writer {
    queue: Arc<EventQueue>,
    metrics: Arc<AuditMetrics>,
    system: System,
    schedule: WriteSchedule,
    /// How long events wait for the database.
    timeout: Duration,
    end: ChainEnd,
    /// Shared with a blocking task that writes to the disk.
    backlog: Arc<Mutex<Backlog>>,
    jobs: JobRunner,
    /// A batch that could be written to neither the log nor the spill file. No newer one is taken before it.
    blocked: Option<Arc<Batch>>,
    /// Whether the spill file took no rows when it was written to last.
    spill_failed: bool,
    outbox: OutboxSchedule,
    batches: BatchBuilder,
}

/// The end of the chain.
struct ChainEnd {
    /// The last row that has its position.
    chain: ChainPosition,
    /// Whether the end of the chain in the database is unknown, because of an operation that is running or failed.
    unknown: bool,
    /// The last row that was counted as written.
    counted: ChainPosition,
}

impl ChainEnd {
    fn new(chain: Uuid) -> Self {
        Self { chain: ChainPosition::new(chain), unknown: false, counted: ChainPosition::new(chain) }
    }

    /// Counts appended rows once; returns how many are new. A batch that took too long is in the spill file as well, and
    /// appended again from there.
    fn count(&mut self, before: ChainPosition, after: ChainPosition) -> i64 {
        let known = if self.counted.id == after.id { self.counted.seq.max(before.seq) } else { before.seq };
        if after.seq > known {
            self.counted = after;
        }
        (after.seq - known).max(0)
    }
}

/// When rows are moved out of the outbox.
struct OutboxSchedule {
    /// Whether there may be rows.
    waiting: bool,
    next_move: Instant,
}

impl OutboxSchedule {
    /// When the next move is due.
    fn due(&self) -> Instant {
        if self.waiting { self.next_move } else { self.next_move + OUTBOX_INTERVAL }
    }

    /// Records that a move starts.
    fn begin(&mut self) {
        *self = Self { waiting: false, next_move: Instant::now() + MOVE_DELAY };
    }
}

impl Writer {
    pub(super) fn new(
        (queue, metrics): (Arc<EventQueue>, Arc<AuditMetrics>),
        (quarantine, system): (Quarantine, System),
        options: BatchOptions,
        chain: Uuid,
        backlog: Backlog,
        log: AuditLog,
    ) -> Self {
        Self {
            queue,
            metrics,
            jobs: JobRunner::new(log, quarantine, system.clone()),
            system,
            schedule: if options.lingers { WriteSchedule::batched() } else { WriteSchedule::immediate() },
            timeout: options.timeout,
            end: ChainEnd::new(chain),
            backlog: Arc::new(Mutex::new(backlog)),
            blocked: None,
            spill_failed: false,
            // A previous process may have left rows.
            outbox: OutboxSchedule { waiting: true, next_move: Instant::now() },
            batches: BatchBuilder::default(),
        }
    }

    /// Writes until `stop`, then closes the chain.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        // When the queued events are to be written.
        let mut due = None;
        loop {
            let (free, next) = (self.blocked.is_none(), self.next_job_at());
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                result = self.jobs.finished() => {
                    self.finish_job(result).await;
                    // Events queued meanwhile have not notified the writer.
                    due = Some(self.next_write());
                }
                // Before the events, which may arrive without a pause: spill files would not be drained.
                () = sleep_until(next), if self.jobs.is_idle() => self.start_next_job().await,
                () = self.queue.changed(), if free && due.is_none() => {
                    due = Some(self.next_write());
                }
                () = sleep_until(due.unwrap_or(next)), if free && due.is_some() => {
                    // Also if only rows of the outbox wait.
                    self.write_queued(self.queue.len().max(1)).await;
                    // The result of an operation makes events due again.
                    due = (!self.queue.is_empty() && !self.end.unknown).then(|| self.next_write());
                }
            }
        }
        self.finish().await;
    }

    /// When the queued events are due, or what only the outbox has.
    fn next_write(&self) -> Instant {
        self.schedule.due(self.queue.oldest().unwrap_or_else(Instant::now))
    }

    /// When the next database operation is due.
    fn next_job_at(&self) -> Instant {
        let urgent = self.blocked.is_some() || self.end.unknown || self.is_behind();
        let wanted = if urgent { Instant::now() } else { self.outbox.due() };
        self.jobs.retry_at.map_or(wanted, |retry| retry.max(wanted))
    }

    /// Whether older rows wait in a spill file.
    fn is_behind(&self) -> bool {
        !self.backlog.lock().is_empty()
    }

    /// Starts the next database operation: resolving the end of the chain, draining spill files, retrying a
    /// batch, or moving rows from the outbox, in this order.
    async fn start_next_job(&mut self) {
        if self.end.unknown {
            self.jobs.start(Job::FindEnd(self.end.chain.id));
        } else if self.is_behind() {
            self.append_spilled().await;
        } else if let Some(batch) = &self.blocked {
            self.jobs.start(Job::Write(Arc::clone(batch)));
        } else {
            self.end.unknown = true;
            self.queue.take_outbox();
            self.outbox.begin();
            self.jobs.start(Job::MoveOutbox(self.end.chain));
        }
    }

    /// Starts to append what is next in the spill files.
    async fn append_spilled(&mut self) {
        match self.with_backlog(Backlog::first).await {
            Ok(Ok(Some(step))) => self.jobs.start(Job::AppendSpilled(step)),
            failed => {
                tracing::error!(?failed, "reading the audit spill file failed; retrying");
                self.jobs.retry_later();
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
    async fn finish_job(&mut self, result: JobResult) {
        match result {
            JobResult::Written(Ok(appended)) => self.finish_write(appended).await,
            JobResult::SpillAppended(Ok(appended)) => {
                self.jobs.retry_at = None;
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
                let before = ChainPosition { seq: chain.seq.saturating_sub(count), ..chain };
                self.count(Appended { before, after: chain, relocated: false }).await;
                self.outbox.waiting |= count >= MAX_MOVED;
            }
            // The next step asks for the end of the chain.
            JobResult::OutboxMoved(Ok(Moved::InDoubt)) => {}
            JobResult::OutboxMoved(Err(AppendError::Foreign(..))) | JobResult::EndFound(Ok(None)) => {
                if self.end.unknown {
                    self.switch_chain().await;
                }
            }
            JobResult::EndFound(Ok(Some(chain))) => self.resume(chain),
            JobResult::OutboxMoved(Err(error)) => {
                self.end.unknown = false;
                self.outbox.waiting = true;
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
    fn resume(&mut self, chain: ChainPosition) {
        self.jobs.retry_at = None;
        if chain.id == self.end.chain.id {
            self.end.unknown = false;
            self.end.chain = chain;
        }
    }

    async fn finish_write(&mut self, appended: Appended) {
        self.jobs.retry_at = None;
        if self.blocked.take_if(|batch| batch.after == appended.after).is_some() {
            tracing::info!("audit rows durable again");
            self.release(Vec::new());
            self.queue.resume();
        }
        self.count(appended).await;
    }

    /// Counts appended rows. A chain that was changed by another process is abandoned.
    async fn count(&mut self, Appended { before, after, relocated }: Appended) {
        self.metrics.add_written(self.end.count(before, after));
        if relocated && after.id == self.end.chain.id {
            self.switch_chain().await;
        }
    }

    fn schedule_retry(&mut self, error: &AppendError) {
        if self.jobs.retry_at.is_none() {
            tracing::warn!(%error, "audit log write failed; retrying");
        }
        self.jobs.retry_later();
    }

    /// Takes at least `most` events from the queue, or all, and makes them durable. Operations on the database make no
    /// progress meanwhile.
    async fn write_queued(&mut self, most: usize) {
        let mut taken = 0;
        while taken < most && self.blocked.is_none() {
            self.outbox.waiting |= self.queue.take_outbox();
            if self.queue.is_empty() || !self.resolve_end().await {
                return;
            }
            // Counted twice for a moment, so that the metric never shows too few.
            self.metrics.set_pending(self.queue.len().min(MAX_EVENTS), self.queue.oldest());
            let began = Instant::now();
            let (batch, waiters) = self.batches.take(&self.queue, self.end.chain, &self.system);
            taken += usize::try_from(batch.after.seq - batch.before.seq).unwrap_or(usize::MAX);
            self.end.chain = batch.after;
            self.make_durable(batch, waiters).await;
            let took = began.elapsed();
            self.schedule.record(took);
            self.metrics.count_write(took);
        }
    }

    /// Resolves the end of the chain. If that does not succeed in time, switches to another chain, provided
    /// that there is a spill file to record it in. Returns whether the end is known.
    async fn resolve_end(&mut self) -> bool {
        let deadline = Instant::now() + MOVE_TIMEOUT;
        while self.end.unknown {
            if self.jobs.is_idle() {
                self.jobs.start(Job::FindEnd(self.end.chain.id));
            }
            let ended = timeout_at(deadline, self.jobs.finished()).await;
            match ended {
                Ok(result) => {
                    let failed = matches!(&result, JobResult::EndFound(Err(_)));
                    self.finish_job(result).await;
                    if failed {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        if self.end.unknown && self.backlog.lock().has_file() {
            self.switch_chain().await;
        }
        !self.end.unknown
    }

    /// Switches to a new chain; the previous one ends where the database has it.
    async fn switch_chain(&mut self) {
        let Ok(id) = self.system.uid() else { return };
        let appended = self.with_backlog(move |backlog| backlog.append(&Record::Chain(id))).await;
        match appended {
            Ok(Ok(())) => {
                tracing::warn!(previous = %self.end.chain.id, chain = %id, "audit chain switched");
                self.end.chain = ChainPosition::new(id);
                self.end.unknown = false;
            }
            failed => tracing::error!(?failed, "switching the audit chain failed"),
        }
    }

    /// Makes a batch durable: in the log if that succeeds in time and nothing older waits, otherwise in the
    /// spill file. So events do not wait in memory for a database that is slower than they are made.
    async fn make_durable(&mut self, batch: Batch, waiters: Vec<oneshot::Sender<()>>) {
        let batch = Arc::new(batch);
        // Rows that waited for the database longer than that go there first if the file is not usable.
        let may_spill = !self.spill_failed && self.backlog.lock().has_file();
        let queued = self.batches.began().filter(|_| may_spill);
        let deadline =
            queued.map_or_else(Instant::now, |queued| queued + self.schedule.longest()) + self.timeout;
        let waits = !self.jobs.is_idle() || self.is_behind() || self.jobs.retry_at.is_some();
        if !waits && Instant::now() < deadline {
            self.jobs.start(Job::Write(Arc::clone(&batch)));
            if let Ok(result) = timeout_at(deadline, self.jobs.finished()).await {
                let written = matches!(&result, JobResult::Written(Ok(_)));
                self.finish_job(result).await;
                if written {
                    self.batches.reuse(Arc::into_inner(batch));
                    return self.release(waiters);
                }
            }
        }
        let spilled = self.spill(Batch::clone(&batch)).await;
        self.spill_failed = spilled.is_err();
        match spilled {
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
        self.metrics.set_pending(0, None);
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
