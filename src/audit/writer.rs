//! The one writer of a process: takes events from the queue, gives them their place in the chain, and sees to it that
//! they are safe: in the log, or in the spill file until the log can take them.
//!
//! What it asks of the database is one thing at a time and may last; meanwhile events go on into the file.

mod ending;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::backlog::Backlog;
use super::quarantine::Quarantine;
use super::queue::{Events, MOST_EVENTS, Queue};
use super::recover::{Kept, lost};
use super::spill::{Record, SpillError};
use super::tally::Tally;
use super::work::{Done, Job, MOST_MOVED, Work, perform, under_way};
use crate::model::audit::chain::{Batch, Chain};
use crate::model::audit::encoding;
use crate::model::sources::Sources;
use crate::store::audit::outbox::Moved;
use crate::store::audit::{AppendError, AuditLog};

/// How long after a change its row is moved: it is safe where it is, and more may come.
const MOVE_AFTER: Duration = Duration::from_millis(100);
/// How often the outbox is looked at for what others left behind.
const SWEEP_EVERY: Duration = Duration::from_secs(2);
/// How long after a failure the database is asked again.
const RETRY: Duration = Duration::from_millis(250);
/// How long events wait for what is being moved from the outbox, since it takes places in the chain.
const MOVE_PATIENCE: Duration = Duration::from_secs(1);

/// How events are gathered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// How long others are waited for after the first event of a batch.
    pub(super) linger: Duration,
    /// How long a batch may take before it goes into the file.
    pub(super) patience: Duration,
}

/// The writer.
pub(super) struct Writer {
    queue: Arc<Queue>,
    tally: Arc<Tally>,
    quarantine: Quarantine,
    sources: Sources,
    pace: Pace,
    chain: Chain,
    /// Shared with a thread that may wait for the disk.
    backlog: Arc<Mutex<Backlog>>,
    log: Option<AuditLog>,
    work: Option<Work>,
    /// Whether what is under way, or broke off, decides where the chain goes on.
    uncertain: bool,
    /// Rows that are safe nowhere yet, for whose sake nothing newer is taken.
    stuck: Option<Arc<Batch>>,
    outbox: bool,
    next_move: Instant,
    retry: Option<Instant>,
    told_shed: u64,
    /// Up to which row of which chain rows were counted.
    counted: Chain,
    /// Those that were taken last.
    events: Events,
    /// Memory for the rows of the next batch: asked for anew each time it would cost more than the rows.
    room: Vec<u8>,
}

impl Writer {
    pub(super) fn new(
        (queue, tally): (Arc<Queue>, Arc<Tally>),
        (quarantine, sources): (Quarantine, Sources),
        pace: Pace,
        chain: Uuid,
        backlog: Backlog,
        log: AuditLog,
    ) -> Self {
        Self {
            queue,
            tally,
            quarantine,
            sources,
            pace,
            chain: Chain::new(chain),
            backlog: Arc::new(Mutex::new(backlog)),
            log: Some(log),
            work: None,
            uncertain: false,
            stuck: None,
            // Somebody may have left something.
            outbox: true,
            next_move: Instant::now(),
            retry: None,
            told_shed: 0,
            counted: Chain::new(chain),
            events: Events::default(),
            room: Vec::new(),
        }
    }

    /// Writes until `stop`, then ends the chain.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        loop {
            let (free, next) = (self.stuck.is_none(), self.next_step());
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                (log, done) = under_way(&mut self.work) => {
                    self.end_work(log, done).await;
                    // What was left behind for its sake announces itself no more.
                    self.take().await;
                }
                () = self.queue.some(), if free => {
                    sleep(self.pace.linger).await;
                    self.take().await;
                }
                () = sleep_until(next), if self.work.is_none() => self.step().await,
            }
        }
        self.finish().await;
    }

    /// When the database is asked next, if nobody comes before.
    fn next_step(&self) -> Instant {
        let urgent = self.stuck.is_some() || self.uncertain || self.is_behind();
        let wanted = match (urgent, self.outbox) {
            (true, _) => Instant::now(),
            (false, true) => self.next_move,
            (false, false) => self.next_move + SWEEP_EVERY,
        };
        self.retry.map_or(wanted, |retry| retry.max(wanted))
    }

    /// Whether something waits that comes before whatever is new.
    fn is_behind(&self) -> bool {
        !self.backlog.lock().is_empty()
    }

    /// Asks the database for whatever comes next: to settle a doubt, to take what waits in files, what is stuck, what
    /// lies in the outbox.
    async fn step(&mut self) {
        if self.uncertain {
            self.begin(Job::Find(self.chain.id));
        } else if self.is_behind() {
            self.catch_up().await;
        } else if let Some(batch) = &self.stuck {
            self.begin(Job::Write(Arc::clone(batch)));
        } else {
            self.uncertain = true;
            self.outbox = false;
            self.queue.take_outbox();
            self.next_move = Instant::now() + MOVE_AFTER;
            self.begin(Job::Move(self.chain));
        }
    }

    fn begin(&mut self, job: Job) {
        if let Some(log) = self.log.take() {
            let with = (self.quarantine.clone(), self.sources.clone());
            self.work = Some(Box::pin(perform(log, job, with)));
        }
    }

    /// Hands what is first of the backlog to the database.
    async fn catch_up(&mut self) {
        match self.with_backlog(Backlog::first).await {
            Ok(Ok(Some(step))) => self.begin(Job::CatchUp(step)),
            failed => {
                tracing::error!(?failed, "the spill file of the audit log cannot be read; it is tried again");
                self.retry = Some(Instant::now() + RETRY);
            }
        }
    }

    /// Does something with the backlog where it may block, whether anybody waits for it to end or not.
    fn with_backlog<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Backlog) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let backlog = Arc::clone(&self.backlog);
        tokio::task::spawn_blocking(move || work(&mut backlog.lock()))
    }

    /// Something that the database was asked is done.
    async fn end_work(&mut self, log: AuditLog, done: Done) {
        self.log = Some(log);
        self.work = None;
        match done {
            Done::Written(Ok(kept)) => self.end_write(kept).await,
            Done::CaughtUp(Ok(kept)) => {
                self.retry = None;
                if let Ok(Err(error)) = self.with_backlog(Backlog::done).await {
                    tracing::warn!(%error, "the spill file of the audit log stays as it is");
                }
                if let Some(kept) = kept {
                    self.count(kept).await;
                }
            }
            Done::Moved(Ok(Moved::Done(count, chain))) => {
                self.resume(chain);
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                let before = Chain { seq: chain.seq.saturating_sub(count), ..chain };
                self.count(Kept { before, after: chain, elsewhere: false }).await;
                self.outbox |= count >= MOST_MOVED;
            }
            // Asked at once where it stands.
            Done::Moved(Ok(Moved::InDoubt)) => {}
            Done::Moved(Err(AppendError::Foreign(..))) | Done::Found(Ok(None)) => {
                if self.uncertain {
                    self.go_on_anew().await;
                }
            }
            Done::Found(Ok(Some(chain))) => self.resume(chain),
            Done::Moved(Err(error)) => {
                self.uncertain = false;
                self.outbox = true;
                self.fail(&error);
            }
            Done::Written(Err(error)) | Done::Found(Err(error)) | Done::CaughtUp(Err(error)) => {
                self.fail(&error);
            }
        }
    }

    /// Goes on where the database says that the chain stands, unless the chain was left before the answer came: rows
    /// behind the end of a chain are a finding of verification.
    fn resume(&mut self, chain: Chain) {
        self.retry = None;
        if chain.id == self.chain.id {
            self.uncertain = false;
            self.chain = chain;
        }
    }

    async fn end_write(&mut self, kept: Kept) {
        self.retry = None;
        if self.stuck.take_if(|batch| batch.after == kept.after).is_some() {
            self.release(Vec::new());
            self.queue.accept();
        }
        self.count(kept).await;
    }

    /// Counts rows that are in the log, but for those that were counted before: what took too long is in the file as
    /// well, and written from there once more. A chain that somebody else has changed is left.
    async fn count(&mut self, Kept { before, after, elsewhere }: Kept) {
        let known = if self.counted.id == after.id { self.counted.seq.max(before.seq) } else { before.seq };
        if after.seq > known {
            self.tally.write(after.seq - known);
            self.counted = after;
        }
        if elsewhere && after.id == self.chain.id {
            self.go_on_anew().await;
        }
    }

    fn fail(&mut self, error: &AppendError) {
        if self.retry.is_none() {
            tracing::warn!(%error, "audit rows are kept back until the database takes them");
        }
        self.retry = Some(Instant::now() + RETRY);
    }

    /// Takes what the queue holds and makes it safe, batch after batch.
    async fn take(&mut self) {
        while self.stuck.is_none() {
            self.outbox |= self.queue.take_outbox();
            if self.queue.is_empty() || !self.settle().await {
                return;
            }
            // Counted twice for a moment, so that whoever asks never finds too few.
            self.tally.hold(self.queue.len().min(MOST_EVENTS));
            self.events = self.queue.take(std::mem::take(&mut self.events));
            let batch = self.chain_up();
            let waiters = std::mem::take(&mut self.events.waiters);
            self.keep(batch, waiters).await;
        }
    }

    /// Sees to it that it is certain where the chain goes on; otherwise it goes on in another chain, or, where there is
    /// no file that could say so, not now.
    async fn settle(&mut self) -> bool {
        let deadline = Instant::now() + MOVE_PATIENCE;
        while self.uncertain {
            if self.work.is_none() {
                self.begin(Job::Find(self.chain.id));
            }
            let ended = timeout_at(deadline, under_way(&mut self.work)).await;
            match ended {
                Ok((log, done)) => {
                    let failed = matches!(&done, Done::Found(Err(_)));
                    self.end_work(log, done).await;
                    if failed {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        if self.uncertain && self.backlog.lock().has_file() {
            self.go_on_anew().await;
        }
        !self.uncertain
    }

    /// Begins another chain; the one before ends where the database says that it does.
    async fn go_on_anew(&mut self) {
        let Ok(id) = self.sources.uid() else { return };
        let appended = self.with_backlog(move |backlog| backlog.append(&Record::Chain(id))).await;
        match appended {
            Ok(Ok(())) => {
                tracing::warn!(left = %self.chain.id, chain = %id, "the audit log goes on in another chain");
                self.chain = Chain::new(id);
                self.uncertain = false;
            }
            failed => tracing::error!(?failed, "the audit log cannot go on in another chain"),
        }
    }

    /// Gives the events that were taken their place in the chain. That some were lost is an event itself.
    fn chain_up(&mut self) -> Batch {
        let mut batch = Batch::with_room(self.chain, std::mem::take(&mut self.room));
        batch.reserve(self.events.len(), self.events.size());
        let shed = self.queue.shed_so_far();
        if shed > self.told_shed {
            let mut event = Vec::new();
            encoding::event(&mut event, &lost(shed - self.told_shed, self.sources.clock.now()));
            batch.push(&event);
            self.told_shed = shed;
        }
        self.events.iter().for_each(|event| batch.push(event));
        self.chain = batch.after;
        batch
    }

    /// Makes a batch safe: in the log, where that is soon done and nothing older waits; else in the file.
    async fn keep(&mut self, batch: Batch, waiters: Vec<oneshot::Sender<()>>) {
        let batch = Arc::new(batch);
        if self.work.is_none() && !self.is_behind() && self.retry.is_none() {
            self.begin(Job::Write(Arc::clone(&batch)));
            if let Ok((log, done)) = timeout(self.pace.patience, under_way(&mut self.work)).await {
                let written = matches!(&done, Done::Written(Ok(_)));
                self.end_work(log, done).await;
                if written {
                    self.room = Arc::into_inner(batch).map(Batch::into_room).unwrap_or_default();
                    return self.release(waiters);
                }
            }
        }
        match self.spill(Batch::clone(&batch)).await {
            Ok(()) => self.release(waiters),
            Err(error) => {
                tracing::error!(%error, "audit rows wait in memory");
                // Those who wait for these rows are told so, as the others are.
                drop(waiters);
                self.queue.refuse();
                self.stuck = Some(batch);
            }
        }
    }

    /// Rows are safe.
    fn release(&self, waiters: Vec<oneshot::Sender<()>>) {
        self.tally.hold(0);
        for waiter in waiters {
            // One who has gone away waits no more.
            let _ = waiter.send(());
        }
    }

    async fn spill(&mut self, batch: Batch) -> Result<(), SpillError> {
        let spilled = self.with_backlog(move |backlog| {
            let first = backlog.is_empty();
            backlog.append(&Record::Rows(batch))?;
            if first {
                tracing::warn!("audit rows go into the spill file until the database takes them");
            }
            Ok(())
        });
        spilled.await.unwrap_or(Err(SpillError::Nowhere))
    }
}
