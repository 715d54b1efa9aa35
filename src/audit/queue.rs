//! Events that wait for the writer: bounded, and cheap to add to.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};

use crate::model::audit::event::Event;

/// How often the log is told that events are being lost.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// There is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

/// An event, and who waits until it is safe.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) event: Event,
    pub(super) waiter: Option<oneshot::Sender<()>>,
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
    events: Vec<Queued>,
    /// Nothing can be made safe: nobody is to wait for it.
    refuses: bool,
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
        !state.refuses && state.events.len() < self.most
    }

    pub(super) fn len(&self) -> usize {
        self.state.lock().events.len()
    }

    /// Adds an event; one that there is no room for is lost.
    pub(super) fn push(&self, event: Event) {
        // What becomes of it is counted.
        let _ = self.add(Queued { event, waiter: None });
    }

    /// Adds an event; what is answered ends well when it is safe, and ill when it is given up. It is added, if there is
    /// room, even where nobody may wait for it.
    pub(super) fn push_awaited(&self, event: Event) -> Result<oneshot::Receiver<()>, Full> {
        let (waiter, safe) = oneshot::channel();
        self.add(Queued { event, waiter: Some(waiter) }).map(|()| safe)
    }

    fn add(&self, mut queued: Queued) -> Result<(), Full> {
        let mut state = self.state.lock();
        if state.events.len() >= self.most {
            drop(state);
            self.shed();
            return Err(Full);
        }
        let refused = state.refuses && queued.waiter.take().is_some();
        state.events.push(queued);
        let first = state.events.len() == 1;
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
        state.events.iter_mut().for_each(|queued| drop(queued.waiter.take()));
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

    /// Takes the oldest events, at most so many.
    pub(super) fn take(&self, most: usize) -> Vec<Queued> {
        let State { events, .. } = &mut *self.state.lock();
        if events.len() <= most {
            // As much room as they took is there for the next ones at once.
            let room = Vec::with_capacity(events.len());
            return std::mem::replace(events, room);
        }
        events.drain(..most).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
