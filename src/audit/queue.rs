//! Events that wait for the writer: bounded, and cheap to add to.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::model::audit::chain::MOST_ROOM;
use crate::model::audit::encoding;
use crate::model::audit::event::Event;

/// Events that are taken at once, and make a batch.
pub(super) const MOST_EVENTS: usize = 4_096;
/// How often the log is told that events are being lost.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// Bytes that an event hardly ever needs more than.
const USUAL: usize = 384;

/// There is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// Encoded events that were taken together, and those who wait until they are safe.
#[derive(Debug, Default)]
pub(super) struct Events {
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
    pub(super) waiters: Vec<oneshot::Sender<()>>,
}

impl Events {
    fn push(&mut self, event: &[u8], waiter: Option<oneshot::Sender<()>>) {
        self.bytes.extend_from_slice(event);
        self.ends.push(self.bytes.len());
        self.waiters.extend(waiter);
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all of them.
    pub(super) fn size(&self) -> usize {
        self.bytes.len()
    }

    /// Each of them, encoded.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(&0).chain(&self.ends);
        starts.zip(&self.ends).filter_map(|(start, end)| self.bytes.get(*start..*end))
    }

    /// None of them, in the memory of those that were: the next ones find room without asking for it.
    fn cleared(mut self) -> Self {
        if self.bytes.capacity() > MOST_ROOM {
            return Self::default();
        }
        self.bytes.clear();
        self.ends.clear();
        self.waiters.clear();
        self
    }
}

/// Events in the order in which they came.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<State>,
    most: usize,
    /// Told when the first event comes, and when there is something in the outbox.
    some: Notify,
    outbox: AtomicBool,
    shed: AtomicU64,
    /// When the log was told that events are lost.
    told: Mutex<Option<Instant>>,
}

#[derive(Debug, Default)]
struct State {
    /// The oldest first, as many together as are taken at once.
    events: VecDeque<Events>,
    count: usize,
    /// Where the next ones find room.
    room: Events,
    /// Nothing can be made safe: nobody is to wait for it.
    refuses: bool,
}

impl State {
    /// Those that the next event belongs to.
    fn last(&mut self) -> &mut Events {
        if self.events.back().is_none_or(|last| last.len() >= MOST_EVENTS) {
            self.events.push_back(std::mem::take(&mut self.room));
        }
        let last = self.events.len() - 1;
        &mut self.events[last]
    }
}

impl Queue {
    pub(super) fn new(most: usize) -> Self {
        Self {
            state: Mutex::default(),
            most,
            some: Notify::new(),
            outbox: AtomicBool::new(false),
            shed: AtomicU64::new(0),
            told: Mutex::default(),
        }
    }

    /// Whether an event that somebody waits for can be added.
    pub(super) fn is_open(&self) -> bool {
        let state = self.state.lock();
        !state.refuses && state.count < self.most
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().count
    }

    /// Adds an event; one that there is no room for is lost.
    pub(super) fn push(&self, event: &Event) {
        // What becomes of it is counted.
        let _ = self.add(event, None);
    }

    /// Adds an event; what is answered ends well when it is safe, and ill when it is given up. It is added, if there is
    /// room, even where nobody may wait for it.
    pub(super) fn push_awaited(&self, event: &Event) -> Result<oneshot::Receiver<()>, Full> {
        let (waiter, safe) = oneshot::channel();
        self.add(event, Some(waiter)).map(|()| safe)
    }

    fn add(&self, event: &Event, mut waiter: Option<oneshot::Sender<()>>) -> Result<(), Full> {
        let mut bytes = Vec::with_capacity(USUAL);
        encoding::event(&mut bytes, event);
        let mut state = self.state.lock();
        if state.count >= self.most {
            drop(state);
            self.shed();
            return Err(Full);
        }
        let refused = state.refuses && waiter.take().is_some();
        state.last().push(&bytes, waiter);
        state.count += 1;
        let first = state.count == 1;
        drop(state);
        if first {
            self.some.notify_one();
        }
        if refused { Err(Full) } else { Ok(()) }
    }

    /// Nothing can be made safe any more: whoever waits is told so, and nobody else is to wait.
    pub(super) fn refuse(&self) {
        let mut state = self.state.lock();
        state.refuses = true;
        state.events.iter_mut().for_each(|events| events.waiters.clear());
    }

    /// Events can be made safe again.
    pub(super) fn accept(&self) {
        self.state.lock().refuses = false;
    }

    /// Counts an event that is lost. The log is told at once, and every second while it lasts.
    fn shed(&self) {
        let shed = self.shed.fetch_add(1, Ordering::Relaxed) + 1;
        if self.is_to_tell() {
            tracing::error!(
                shed,
                "audit events are lost: the database takes none, and the spill file is full or missing"
            );
        }
    }

    /// Whether the log is to be told now.
    fn is_to_tell(&self) -> bool {
        let (mut told, now) = (self.told.lock(), Instant::now());
        let due = told.is_none_or(|told| now.duration_since(told) >= TELL_EVERY);
        if due {
            *told = Some(now);
        }
        due
    }

    pub(super) fn shed_so_far(&self) -> u64 {
        self.shed.load(Ordering::Relaxed)
    }

    pub(super) fn point_at_outbox(&self) {
        if !self.outbox.swap(true, Ordering::Relaxed) {
            self.some.notify_one();
        }
    }

    /// Whether something was left in the outbox since the last time that this was asked.
    pub(super) fn take_outbox(&self) -> bool {
        self.outbox.swap(false, Ordering::Relaxed)
    }

    /// Returns when something came.
    pub(super) async fn some(&self) {
        self.some.notified().await;
    }

    /// Takes the oldest events, at most [`MOST_EVENTS`]; those that were taken before leave their memory.
    pub(super) fn take(&self, before: Events) -> Events {
        let before = before.cleared();
        let mut state = self.state.lock();
        state.room = before;
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

    use super::{Events, Full, MOST_EVENTS, Queue};
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

    fn taken(events: &Events) -> Vec<Vec<u8>> {
        events.iter().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn events_are_taken_in_their_order_as_many_as_make_a_batch() {
        let queue = Queue::new(usize::MAX);
        (0..=MOST_EVENTS).for_each(|number| queue.push(&event(number)));
        let first = queue.take(Events::default());
        assert_eq!(taken(&first), encoded(0..MOST_EVENTS));
        queue.push(&event(MOST_EVENTS + 1));
        assert_eq!(queue.len(), 2);
        let second = queue.take(first);
        assert_eq!(taken(&second), encoded(MOST_EVENTS..MOST_EVENTS + 2), "in memory that was used before");
        assert!(queue.is_empty());
        assert_eq!(queue.take(second).len(), 0);
    }

    #[test]
    fn one_too_many_is_lost_and_nobody_waits_where_nothing_can_be_made_safe() {
        let queue = Queue::new(2);
        let mut waits = queue.push_awaited(&event(0)).unwrap();
        queue.refuse();
        assert_eq!(waits.try_recv(), Err(TryRecvError::Closed));
        assert_eq!(queue.push_awaited(&event(1)).unwrap_err(), Full);
        queue.push(&event(2));
        assert_eq!((queue.len(), queue.shed_so_far()), (2, 1), "what is refused is written all the same");
        queue.accept();
        let all = queue.take(Events::default());
        assert_eq!(taken(&all), encoded(0..2));
        assert!(queue.push_awaited(&event(3)).is_ok());
    }
}
