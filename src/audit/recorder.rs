//! Records audit events: aggregates or queues them and, with [`Durability::Sync`], waits until they are durable. The queue holds
//! encoded events between the requests and the writer.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::aggregator::Aggregator;
use super::metrics::AuditMetrics;
use crate::model::audit::chain::MAX_BUFFER;
use crate::model::audit::encoding;
use crate::model::audit::event::Event;
use crate::model::audit::signature::Signer;
use crate::model::fault::Fault;
use crate::model::system::System;
use crate::store::Store;

/// When a response may be sent, relative to its audit row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// At once; the row is written within milliseconds.
    Batched,
    /// Once the row is on disk.
    Sync,
}

/// How often it is checked whether the minute of aggregation is over.
const AGGREGATION_POLL: Duration = Duration::from_millis(500);

/// Maximum number of events per batch.
pub(super) const MAX_EVENTS: usize = 4_096;
/// Minimum interval between log events about lost audit events.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Expected size of an encoded event, in bytes.
const EXPECTED_SIZE: usize = 384;

/// The maximum number of answers at a time whose events are made afterwards; further answers wait for theirs.
const MAX_LATER: usize = 64;

/// Records audit events: the entry point for every surface.
#[derive(Debug)]
pub struct AuditRecorder {
    pub(super) queue: Arc<EventQueue>,
    pub(super) aggregator: Aggregator,
    pub(super) metrics: Arc<AuditMetrics>,
    pub(super) durability: Durability,
    /// Whether accesses are recorded; changes always are.
    pub(super) accesses: bool,
    pub(super) system: System,
    pub(super) store: Store,
    pub(super) signer: Option<Arc<Signer>>,
    /// The events that are made after their answers.
    pub(super) later: TaskTracker,
}

impl AuditRecorder {
    /// The time for events.
    pub fn now(&self) -> time::OffsetDateTime {
        self.system.clock.now()
    }

    /// Checks that a request can be audited before it is admitted.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if responses wait for their row (`sync`) and no more rows can be queued or made
    /// durable.
    pub fn check_available(&self) -> Result<(), Fault> {
        let refuses = self.is_waited_for() && !self.queue.is_open();
        if refuses { Err(Fault::BUSY) } else { Ok(()) }
    }

    /// Whether answers wait for their rows.
    fn is_waited_for(&self) -> bool {
        self.accesses && self.durability == Durability::Sync
    }

    /// Records the event of an access; with [`Durability::Sync`], returns once its row is durable. Events
    /// that share an aggregated row are not waited for.
    ///
    /// # Errors
    /// With [`Durability::Sync`], [`Fault::Unavailable`] if the row cannot be made durable; the response must
    /// not be sent. With [`Durability::Batched`], an event that exceeds the queue is dropped and counted.
    pub async fn record(&self, event: &Event) -> Result<(), Fault> {
        if !self.has_own_row(event) {
            return Ok(());
        }
        match self.durability {
            Durability::Batched => {
                self.queue.push(event);
                Ok(())
            }
            Durability::Sync => {
                let durable = self.queue.push_durable(event).map_err(|QueueFull| Fault::BUSY)?;
                durable.await.map_err(|_| Fault::BUSY)
            }
        }
    }

    /// Records the events of one response, like [`record`](Self::record).
    ///
    /// # Errors
    /// Those of [`record`](Self::record).
    pub async fn record_all(&self, events: &[Event]) -> Result<(), Fault> {
        let rows = events.iter().filter(|event| self.has_own_row(event));
        match self.durability {
            Durability::Batched => rows.for_each(|event| self.queue.push(event)),
            Durability::Sync => {
                for durable in self.queue.push_all_durable(rows) {
                    durable.map_err(|QueueFull| Fault::BUSY)?.await.map_err(|_| Fault::BUSY)?;
                }
            }
        }
        Ok(())
    }

    /// Records events that a blocking thread makes, without delaying the answer. With [`Durability::Sync`], and while
    /// too many are being made, returns only afterwards, like [`record_all`](Self::record_all).
    ///
    /// # Errors
    /// Those of [`record`](Self::record).
    pub async fn record_later(
        self: &Arc<Self>,
        events: impl FnOnce() -> Vec<Event> + Send + 'static,
    ) -> Result<(), Fault> {
        if self.is_waited_for() || self.later.len() >= MAX_LATER {
            let made = self.later.spawn_blocking(events).await;
            return self.record_all(&made.map_err(|error| Fault::Internal(error.to_string()))?).await;
        }
        let audit = Arc::clone(self);
        self.later.spawn_blocking(move || events().iter().for_each(|event| audit.record_detached(event)));
        Ok(())
    }

    /// Records an event without waiting for its row.
    pub fn record_detached(&self, event: &Event) {
        if self.has_own_row(event) {
            self.queue.push(event);
        }
    }

    /// Whether to queue an event; otherwise it was added to an aggregated row, or accesses are not recorded. To be called once
    /// for each event.
    fn has_own_row(&self, event: &Event) -> bool {
        if !self.accesses {
            return false;
        }
        let admitted = !event.may_be_aggregated() || self.aggregator.admit(event);
        if !admitted {
            self.metrics.add_aggregated();
        }
        admitted
    }

    /// Queues the aggregated rows of each minute until `stop`.
    pub(super) async fn write_aggregates(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(AGGREGATION_POLL);
        // Not many at once after a time without any request to count.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let next = async {
                self.aggregator.begun().await;
                tick.tick().await;
            };
            if stop.run_until_cancelled(next).await.is_none() {
                return;
            }
            for row in self.aggregator.due(self.now()) {
                self.queue.push(&row);
            }
        }
    }

    /// Queues the aggregated rows of the current minute.
    pub(super) fn flush_aggregates(&self) {
        for row in self.aggregator.end(self.now()) {
            self.queue.push(&row);
        }
    }

    /// Notifies the writer of a row that a change has left in the outbox.
    pub fn notify_outbox(&self) {
        self.queue.notify_outbox();
    }
}

/// The row of the event cannot be made durable: the queue is full, and the event is lost, or it is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueueFull;

/// A batch of encoded events, and the channels that are signalled once it is durable.
#[derive(Debug, Default)]
pub(super) struct EventBatch {
    bytes: Vec<u8>,
    /// End offset and version of each event.
    ends: Vec<(usize, i16)>,
    /// When the first event was queued.
    pub(super) began: Option<Instant>,
    pub(super) waiters: Vec<oneshot::Sender<()>>,
}

impl EventBatch {
    fn push(&mut self, (version, event): (i16, &[u8]), waiter: Option<oneshot::Sender<()>>) {
        // Only once a batch: reading the clock would cost each request as much as the copy.
        self.began.get_or_insert_with(Instant::now);
        self.bytes.extend_from_slice(event);
        self.ends.push((self.bytes.len(), version));
        self.waiters.extend(waiter);
    }

    /// Number of events.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Total size in bytes.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// The encoded events with their versions.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i16, &[u8])> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts
            .zip(&self.ends)
            .filter_map(|(start, (end, version))| Some((*version, self.bytes.get(start..*end)?)))
    }

    /// An empty batch that reuses the allocated memory.
    fn cleared(mut self) -> Self {
        if self.bytes.capacity() > MAX_BUFFER {
            return Self::default();
        }
        self.bytes.clear();
        self.ends.clear();
        self.began = None;
        self.waiters.clear();
        self
    }
}

/// Encoded events between the requests and the writer: a bounded first-in, first-out queue of batches. The writer is notified
/// of the first event alone, and takes batches until none is left.
#[derive(Debug)]
pub(super) struct EventQueue {
    state: Mutex<QueueState>,
    capacity: usize,
    /// Notified of the first event and of rows in the outbox.
    changed: Notify,
    /// Whether a row was left in the outbox since the writer asked.
    outbox: AtomicBool,
    /// Events that were lost.
    shed: AtomicU64,
    /// When the loss of events was last logged.
    last_report: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct QueueState {
    /// The oldest batch first.
    events: VecDeque<EventBatch>,
    count: usize,
    /// An empty batch with allocated memory, for reuse.
    spare: EventBatch,
    /// Rows cannot be made durable: events are queued, but requests must not wait for theirs.
    suspended: bool,
}

impl QueueState {
    /// The batch to add the next event to.
    fn last(&mut self) -> &mut EventBatch {
        if self.events.back().is_none_or(|last| last.len() >= MAX_EVENTS) {
            self.events.push_back(std::mem::take(&mut self.spare));
        }
        let last = self.events.len() - 1;
        &mut self.events[last]
    }
}

impl EventQueue {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            state: Mutex::default(),
            capacity,
            changed: Notify::new(),
            outbox: AtomicBool::new(false),
            shed: AtomicU64::new(0),
            last_report: Mutex::default(),
        }
    }

    /// Whether an event can be queued and made durable.
    pub(super) fn is_open(&self) -> bool {
        let state = self.state.lock();
        !state.suspended && state.count < self.capacity
    }

    /// The maximum number of events.
    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().count
    }

    /// When the oldest event was queued.
    pub(super) fn oldest(&self) -> Option<Instant> {
        self.state.lock().events.front().and_then(|events| events.began)
    }

    /// Queues an event; drops and counts it if the queue is full.
    pub(super) fn push(&self, event: &Event) {
        // A dropped event is counted.
        let _ = self.add(event, None);
    }

    /// Queues an event and returns a channel that resolves once its row is durable, and closes if it cannot
    /// be made so. With [`QueueFull`], the event is queued all the same if there is room.
    pub(super) fn push_durable(&self, event: &Event) -> Result<oneshot::Receiver<()>, QueueFull> {
        let (waiter, durable) = oneshot::channel();
        self.add(event, Some(waiter)).map(|()| durable)
    }

    /// Queues events like [`push_durable`](Self::push_durable): also those after one that cannot be made durable.
    fn push_all_durable<'e>(
        &self,
        events: impl Iterator<Item = &'e Event>,
    ) -> Vec<Result<oneshot::Receiver<()>, QueueFull>> {
        events.map(|event| self.push_durable(event)).collect()
    }

    fn add(&self, event: &Event, mut waiter: Option<oneshot::Sender<()>>) -> Result<(), QueueFull> {
        let mut bytes = Vec::with_capacity(EXPECTED_SIZE);
        encoding::event(&mut bytes, event);
        let mut state = self.state.lock();
        if state.count >= self.capacity {
            drop(state);
            self.shed();
            return Err(QueueFull);
        }
        let refused = state.suspended && waiter.take().is_some();
        state.last().push((encoding::version(event), &bytes), waiter);
        state.count += 1;
        let first = state.count == 1;
        drop(state);
        if first {
            self.changed.notify_one();
        }
        if refused { Err(QueueFull) } else { Ok(()) }
    }

    /// Fails waiting requests, and new ones until [`resume`](Self::resume): rows cannot be made durable.
    pub(super) fn suspend(&self) {
        let mut state = self.state.lock();
        state.suspended = true;
        state.events.iter_mut().for_each(|events| events.waiters.clear());
    }

    /// Rows can be made durable again.
    pub(super) fn resume(&self) {
        self.state.lock().suspended = false;
    }

    /// Counts a lost event, and logs the loss at once and then every [`REPORT_INTERVAL`].
    fn shed(&self) {
        let shed = self.shed.fetch_add(1, Ordering::Relaxed) + 1;
        if self.should_report() {
            tracing::error!(
                shed,
                "audit events lost: neither the database nor a spill file takes them in time"
            );
        }
    }

    /// Whether the loss is to be logged now.
    fn should_report(&self) -> bool {
        let (mut last, now) = (self.last_report.lock(), Instant::now());
        let due = last.is_none_or(|last| now.duration_since(last) >= REPORT_INTERVAL);
        if due {
            *last = Some(now);
        }
        due
    }

    pub(super) fn shed_count(&self) -> u64 {
        self.shed.load(Ordering::Relaxed)
    }

    pub(super) fn notify_outbox(&self) {
        if !self.outbox.swap(true, Ordering::Relaxed) {
            self.changed.notify_one();
        }
    }

    /// Returns whether a row was left in the outbox since the last call.
    pub(super) fn take_outbox(&self) -> bool {
        self.outbox.swap(false, Ordering::Relaxed)
    }

    /// Waits until there is something to write.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes the oldest batch, of at most [`MAX_EVENTS`] events. The memory of `before` is reused.
    pub(super) fn take(&self, before: EventBatch) -> EventBatch {
        let before = before.cleared();
        let mut state = self.state.lock();
        state.spare = before;
        let events = state.events.pop_front().unwrap_or_default();
        state.count -= events.len();
        events
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests;
