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
    events: Mutex<Vec<Queued>>,
    most: usize,
    /// Told when the first event comes, and when there is something in the outbox.
    some: Notify,
    outbox: AtomicBool,
    shed: AtomicU64,
    /// When the log was told that events are lost.
    told: Mutex<Option<Instant>>,
}

impl Queue {
    pub(super) fn new(most: usize) -> Self {
        Self {
            events: Mutex::default(),
            most,
            some: Notify::new(),
            outbox: AtomicBool::new(false),
            shed: AtomicU64::new(0),
            told: Mutex::default(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.len() >= self.most
    }

    pub(super) fn len(&self) -> usize {
        self.events.lock().len()
    }

    pub(super) fn push(&self, event: Event) -> Result<(), Full> {
        self.add(Queued { event, waiter: None })
    }

    /// Adds an event; what is answered ends well when it is safe, and ill when it is given up.
    pub(super) fn push_awaited(&self, event: Event) -> Result<oneshot::Receiver<()>, Full> {
        let (waiter, safe) = oneshot::channel();
        self.add(Queued { event, waiter: Some(waiter) }).map(|()| safe)
    }

    fn add(&self, queued: Queued) -> Result<(), Full> {
        let mut events = self.events.lock();
        if events.len() >= self.most {
            return Err(Full);
        }
        events.push(queued);
        let first = events.len() == 1;
        drop(events);
        if first {
            self.some.notify_one();
        }
        Ok(())
    }

    /// Counts an event that is lost. The log is told at once, and every second while it lasts.
    pub(super) fn shed(&self) {
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
        let mut events = self.events.lock();
        if events.len() <= most {
            return std::mem::take(&mut *events);
        }
        events.drain(..most).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events.lock().is_empty()
    }
}
