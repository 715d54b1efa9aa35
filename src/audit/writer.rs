//! The one writer of a process: takes events from the queue, gives them their place in the chain, and sees to it that
//! they are safe: in the log, or in the spill file until the log can take them.
//!
//! What it asks of the database is one thing at a time and may last; meanwhile events go on into the file.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::queue::{Queue, Queued};
use super::recover::lost;
use super::spill::{Record, Spill, SpillError};
use super::work::{Done, Job, MOST_MOVED, Work, perform, under_way};
use crate::model::audit::chain::{Batch, Chain};
use crate::model::audit::encoding;
use crate::model::sources::Sources;
use crate::store::audit::outbox::Moved;
use crate::store::audit::{AppendError, AuditLog};

/// Events of one batch.
const MOST_EVENTS: usize = 4_096;
/// How long after a change its row is moved: it is safe where it is, and more may come.
const MOVE_AFTER: Duration = Duration::from_millis(100);
/// How often the outbox is looked at for what others left behind.
const SWEEP_EVERY: Duration = Duration::from_secs(2);
/// How long after a failure the database is asked again.
const RETRY: Duration = Duration::from_millis(250);
/// How long events wait for what is being moved from the outbox, since it takes places in the chain.
const MOVE_PATIENCE: Duration = Duration::from_secs(1);
/// How long the end may wait for the database.
const END_PATIENCE: Duration = Duration::from_millis(1_500);

/// How events are gathered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    /// How long others are waited for after the first event of a batch.
    pub(super) linger: Duration,
    /// How long a batch may take before it goes into the file.
    pub(super) patience: Duration,
}

/// Rows that are safe nowhere yet, and who waits for them.
struct Stuck {
    batch: Batch,
    waiters: Vec<oneshot::Sender<()>>,
}

/// The writer.
pub(super) struct Writer {
    queue: Arc<Queue>,
    sources: Sources,
    pace: Pace,
    chain: Chain,
    /// The chain as the database knows it: behind `chain` while a replay has not come to its beginning.
    replayed: Uuid,
    spill: Option<Spill>,
    log: Option<AuditLog>,
    work: Option<Work>,
    /// Whether what is under way, or broke off, decides where the chain goes on.
    uncertain: bool,
    stuck: Option<Stuck>,
    outbox: bool,
    next_move: Instant,
    retry: Option<Instant>,
    told_shed: u64,
    scratch: Vec<u8>,
}

impl Writer {
    pub(super) fn new(
        queue: Arc<Queue>,
        sources: Sources,
        pace: Pace,
        chain: Uuid,
        spill: Option<Spill>,
        log: AuditLog,
    ) -> Self {
        Self {
            queue,
            sources,
            pace,
            chain: Chain::new(chain),
            replayed: chain,
            spill,
            log: Some(log),
            work: None,
            uncertain: false,
            stuck: None,
            // Somebody may have left something.
            outbox: true,
            next_move: Instant::now(),
            retry: None,
            told_shed: 0,
            scratch: Vec::new(),
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
        let urgent = self.stuck.is_some() || self.uncertain || self.is_spilling();
        let wanted = match (urgent, self.outbox) {
            (true, _) => Instant::now(),
            (false, true) => self.next_move,
            (false, false) => self.next_move + SWEEP_EVERY,
        };
        self.retry.map_or(wanted, |retry| retry.max(wanted))
    }

    fn is_spilling(&self) -> bool {
        self.spill.as_ref().is_some_and(|spill| !spill.is_drained())
    }

    /// Asks the database for whatever comes next: to settle a doubt, to take what was spilled, what is stuck, what lies
    /// in the outbox.
    async fn step(&mut self) {
        if self.uncertain {
            self.begin(Job::Find(self.chain.id));
        } else if self.is_spilling() {
            self.replay().await;
        } else if let Some(Stuck { batch, .. }) = &self.stuck {
            self.begin(Job::Write(batch.clone()));
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
            self.work = Some(Box::pin(perform(log, job, self.sources.clone())));
        }
    }

    /// Hands the next record of the spill file to the database.
    async fn replay(&mut self) {
        let peeked = self.with_spill(|spill| spill.peek()).await;
        match peeked {
            Some(Ok(Some((record, next)))) => {
                let known = self.replayed;
                if let Record::Chain(chain) = &record {
                    self.replayed = *chain;
                }
                self.begin(Job::Replay { record, known, next });
            }
            None => {}
            failed => {
                tracing::error!(?failed, "the spill file of the audit log cannot be read; it is tried again");
                self.retry = Some(Instant::now() + RETRY);
            }
        }
    }

    /// Does something with the spill file, if there is one, where it may block.
    async fn with_spill<T: Send + 'static>(
        &mut self,
        work: impl FnOnce(&mut Spill) -> T + Send + 'static,
    ) -> Option<T> {
        let mut spill = self.spill.take()?;
        let working = tokio::task::spawn_blocking(move || {
            let done = work(&mut spill);
            (spill, done)
        });
        let (spill, done) = working.await.ok()?;
        self.spill = Some(spill);
        Some(done)
    }

    /// Something that the database was asked is done.
    async fn end_work(&mut self, log: AuditLog, done: Done) {
        self.log = Some(log);
        self.work = None;
        match done {
            Done::Written(after, written) => self.end_write(after, written),
            Done::Replayed(next, Ok(())) => {
                self.retry = None;
                self.pass(next).await;
            }
            Done::Moved(Ok(Moved::Done(count, chain))) => {
                self.uncertain = false;
                self.retry = None;
                self.chain = chain;
                self.outbox |= i64::try_from(count).is_ok_and(|count| count >= MOST_MOVED);
            }
            // Asked at once where it stands.
            Done::Moved(Ok(Moved::InDoubt)) => {}
            Done::Moved(Err(AppendError::Foreign(..))) | Done::Found(Ok(None)) => self.go_on_anew().await,
            Done::Found(Ok(Some(chain))) => {
                self.uncertain = false;
                self.retry = None;
                self.chain = chain;
            }
            Done::Moved(Err(error)) => {
                self.uncertain = false;
                self.outbox = true;
                self.fail(&error);
            }
            Done::Found(Err(error)) | Done::Replayed(_, Err(error)) => self.fail(&error),
        }
    }

    fn end_write(&mut self, after: Chain, written: Result<(), AppendError>) {
        match written {
            Ok(()) => {
                self.retry = None;
                if self.stuck.as_ref().is_some_and(|stuck| stuck.batch.after == after)
                    && let Some(stuck) = self.stuck.take()
                {
                    release(stuck.waiters);
                }
            }
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &AppendError) {
        if self.retry.is_none() {
            tracing::warn!(%error, "audit rows are kept back until the database takes them");
        }
        self.retry = Some(Instant::now() + RETRY);
    }

    /// A record of the file is in the log.
    async fn pass(&mut self, next: u64) {
        let passed = self.with_spill(move |spill| {
            spill.pass(next);
            let drained = spill.is_drained();
            spill.shorten().map(|()| drained)
        });
        match passed.await {
            Some(Ok(true)) => tracing::info!("all audit rows that were kept back are in the log"),
            Some(Err(error)) => {
                tracing::warn!(%error, "the spill file of the audit log stays as long as it is");
            }
            Some(Ok(false)) | None => {}
        }
    }

    /// Takes what the queue holds and makes it safe, batch after batch.
    async fn take(&mut self) {
        while self.stuck.is_none() {
            self.outbox |= self.queue.take_outbox();
            if self.queue.is_empty() || !self.settle().await {
                return;
            }
            let queued = self.queue.take(MOST_EVENTS);
            let (batch, waiters) = self.chain_up(queued);
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
            let ended = tokio::time::timeout_at(deadline, under_way(&mut self.work)).await;
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
        if self.uncertain && self.spill.is_some() {
            self.go_on_anew().await;
        }
        !self.uncertain
    }

    /// Begins another chain; the one before ends where the database says that it does.
    async fn go_on_anew(&mut self) {
        let Ok(id) = self.sources.uid() else { return };
        let appended = self.with_spill(move |spill| spill.append(&Record::Chain(id))).await;
        match appended {
            Some(Ok(())) => {
                tracing::warn!(left = %self.chain.id, chain = %id, "the audit log goes on in another chain");
                self.chain = Chain::new(id);
                self.uncertain = false;
            }
            Some(Err(error)) => tracing::error!(%error, "the audit log cannot go on in another chain"),
            None => tracing::error!("the audit log cannot go on in another chain without audit.spill_dir"),
        }
    }

    /// Gives events their place in the chain. That some were lost is an event itself.
    fn chain_up(&mut self, queued: Vec<Queued>) -> (Batch, Vec<oneshot::Sender<()>>) {
        let mut batch = Batch::after(self.chain);
        let mut waiters = Vec::new();
        let shed = self.queue.shed_so_far();
        if shed > self.told_shed {
            encoding::event(&mut self.scratch, &lost(shed - self.told_shed, self.sources.clock.now()));
            batch.push(&self.scratch);
            self.told_shed = shed;
        }
        for Queued { event, waiter } in queued {
            self.scratch.clear();
            encoding::event(&mut self.scratch, &event);
            batch.push(&self.scratch);
            waiters.extend(waiter);
        }
        self.scratch.clear();
        self.chain = batch.after;
        (batch, waiters)
    }

    /// Makes a batch safe: in the log, where that is soon done and nothing older waits; else in the file.
    async fn keep(&mut self, batch: Batch, waiters: Vec<oneshot::Sender<()>>) {
        if self.work.is_none() && !self.is_spilling() && self.retry.is_none() {
            self.begin(Job::Write(batch.clone()));
            if let Ok((log, done)) = timeout(self.pace.patience, under_way(&mut self.work)).await {
                let written = matches!(&done, Done::Written(_, Ok(())));
                self.end_work(log, done).await;
                if written {
                    return release(waiters);
                }
            }
        }
        let record = Record::Rows(batch);
        let (record, kept) = match self.spill(record).await {
            (_, Ok(())) => return release(waiters),
            (record, Err(error)) => (record, error),
        };
        tracing::error!(error = %kept, "audit rows wait in memory");
        if let Record::Rows(batch) = record {
            self.stuck = Some(Stuck { batch, waiters });
        }
    }

    async fn spill(&mut self, record: Record) -> (Record, Result<(), SpillError>) {
        let Some(mut spill) = self.spill.take() else { return (record, Err(SpillError::Nowhere)) };
        let first = spill.is_drained();
        let working = tokio::task::spawn_blocking(move || {
            let done = spill.append(&record);
            (spill, record, done)
        });
        let Ok((spill, record, done)) = working.await else {
            return (Record::Chain(self.chain.id), Err(SpillError::Nowhere));
        };
        if first && done.is_ok() {
            tracing::warn!("audit rows go into the spill file until the database takes them");
        }
        self.spill = Some(spill);
        (record, done)
    }

    /// Writes what is there, and ends the chain; what the database does not take in time stays in the file for the next
    /// process.
    async fn finish(mut self) {
        let deadline = Instant::now() + END_PATIENCE;
        let ending = async {
            self.take().await;
            self.outbox = true;
            loop {
                if self.work.is_some() {
                    let (log, done) = under_way(&mut self.work).await;
                    self.end_work(log, done).await;
                } else if self.retry.is_some() {
                    return false;
                } else if self.uncertain || self.is_spilling() || self.stuck.is_some() || self.outbox {
                    self.step().await;
                } else {
                    self.take().await;
                    return self.queue.is_empty() && self.stuck.is_none() && !self.is_spilling();
                }
            }
        };
        let in_order = tokio::time::timeout_at(deadline, ending).await.unwrap_or(false);
        if !in_order {
            // Nothing is left in memory that has room in the file.
            self.take().await;
            tracing::warn!("the audit chain stays open; the next start in this directory ends it");
            return;
        }
        let at = self.sources.clock.now();
        let Some(mut log) = self.log.take() else { return };
        match log.end_chain(self.chain.id, at, true).await {
            Ok(()) => {
                if let Some(Err(error)) = self.spill.take().map(Spill::remove) {
                    tracing::warn!(%error, "the spill file of the audit log cannot be removed");
                }
            }
            Err(error) => tracing::warn!(%error, "the audit chain stays open"),
        }
        log.close().await;
    }
}

fn release(waiters: Vec<oneshot::Sender<()>>) {
    for waiter in waiters {
        // One who has gone away waits no more.
        let _ = waiter.send(());
    }
}
