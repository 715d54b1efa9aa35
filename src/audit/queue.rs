//! The queue of encoded events between the requests and the writer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use crate::model::audit::chain::MAX_BUFFER;
use crate::model::audit::encoding;
use crate::model::audit::event::Event;

/// Maximum number of events per batch.
pub(super) const MAX_EVENTS: usize = 4_096;
/// Minimum interval between log events about lost audit events.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// Expected size of an encoded event, in bytes.
const EXPECTED_SIZE: usize = 384;

/// The event was not accepted: the queue is full, or rows cannot be made durable.
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

/// A bounded first-in, first-out queue.
#[derive(Debug)]
pub(super) struct EventQueue {
    state: Mutex<State>,
    capacity: usize,
    /// Notified of the first event and of rows in the outbox.
    changed: Notify,
    outbox: AtomicBool,
    shed: AtomicU64,
    /// When the loss of events was last logged.
    last_report: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct State {
    /// The oldest batch first.
    events: VecDeque<EventBatch>,
    count: usize,
    /// An empty batch with allocated memory, for reuse.
    spare: EventBatch,
    /// Rows cannot be made durable: requests must not wait for it.
    suspended: bool,
}

impl State {
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
mod tests {
    use std::borrow::Cow;
    use std::net::{IpAddr, Ipv4Addr};

    use time::OffsetDateTime;
    use tokio::sync::oneshot::error::TryRecvError;

    use super::{EventBatch, EventQueue, MAX_EVENTS, QueueFull};
    use crate::model::audit::encoding;
    use crate::model::audit::event::Event;

    fn event(number: usize) -> Event {
        let (at, client) = (OffsetDateTime::UNIX_EPOCH, IpAddr::V4(Ipv4Addr::LOCALHOST).into());
        Event::new(at, number.to_string().into(), client, Cow::Borrowed("ping"))
    }

    fn encoded(numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
        let encode = |number| {
            let mut bytes = Vec::new();
            encoding::event(&mut bytes, &event(number));
            bytes
        };
        numbers.map(encode).collect()
    }

    fn taken(events: &EventBatch) -> Vec<Vec<u8>> {
        events.iter().map(|(_, event)| event.to_vec()).collect()
    }

    #[test]
    fn events_are_taken_in_order_in_batches() {
        let queue = EventQueue::new(usize::MAX);
        (0..=MAX_EVENTS).for_each(|number| queue.push(&event(number)));
        let first = queue.take(EventBatch::default());
        assert_eq!(taken(&first), encoded(0..MAX_EVENTS));
        queue.push(&event(MAX_EVENTS + 1));
        assert_eq!(queue.len(), 2);
        let second = queue.take(first);
        assert_eq!(taken(&second), encoded(MAX_EVENTS..MAX_EVENTS + 2), "in reused memory");
        assert!(queue.is_empty());
        assert_eq!(queue.take(second).len(), 0);
    }

    #[test]
    fn overflow_is_dropped_and_refusing_queue_fails_waiters() {
        let queue = EventQueue::new(2);
        let mut waits = queue.push_durable(&event(0)).unwrap();
        queue.suspend();
        assert_eq!(waits.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(queue.push_durable(&event(1)).unwrap_err(), QueueFull);
        queue.push(&event(2));
        assert_eq!((queue.len(), queue.shed_count()), (2, 1), "the refused event is queued all the same");
        queue.resume();
        let all = queue.take(EventBatch::default());
        assert_eq!(taken(&all), encoded(0..2));
        assert!(queue.push_durable(&event(3)).is_ok());
    }
}
