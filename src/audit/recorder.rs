//! Records audit events: aggregates or queues them and, with [`Durability::Sync`], waits until they are durable.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::aggregator::Aggregator;
use super::checkpoints::make_checkpoint;
use super::metrics::{AuditMetrics, AuditStats};
use super::queue::{EventQueue, QueueFull};
use crate::model::audit::checkpoint::Checkpoint;
use crate::model::audit::event::Event;
use crate::model::audit::row::{AuditFilter, AuditPosition, AuditRow};
use crate::model::audit::signature::Signer;
use crate::model::fault::Fault;
use crate::model::system::System;
use crate::store::{Store, StoreError};
use crate::telemetry::histogram::DurationCounts;

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

/// The maximum number of answers whose events are made afterwards; further answers wait for theirs.
const MAX_LATER: usize = 64;

/// Records audit events: the entry point for every surface.
#[derive(Debug)]
pub struct AuditRecorder {
    pub(super) queue: Arc<EventQueue>,
    pub(super) aggregator: Aggregator,
    pub(super) metrics: Arc<AuditMetrics>,
    pub(super) durability: Durability,
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
    pub fn admit(&self) -> Result<(), Fault> {
        let refuses = self.is_waited_for() && !self.queue.is_open();
        if refuses { Err(Fault::BUSY) } else { Ok(()) }
    }

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
                let pushed = rows.map(|event| self.queue.push_durable(event));
                let pending: Vec<_> =
                    pushed.collect::<Result<_, QueueFull>>().map_err(|QueueFull| Fault::BUSY)?;
                for durable in pending {
                    durable.await.map_err(|_| Fault::BUSY)?;
                }
            }
        }
        Ok(())
    }

    /// Records events that a thread of its own makes while the answer is sent already. With [`Durability::Sync`], and while
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

    /// Whether an event gets a row of its own; otherwise it was added to an aggregated row.
    fn has_own_row(&self, event: &Event) -> bool {
        if !self.accesses {
            return false;
        }
        let admitted = self.aggregator.admit(event);
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

    /// Reads the rows that match a filter, newest first, after a position.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    pub async fn rows(
        &self,
        filter: &AuditFilter,
        after: Option<AuditPosition>,
        limit: i64,
    ) -> Result<Vec<AuditRow>, StoreError> {
        self.store.audit_rows(filter, after, limit).await
    }

    /// The maximum number of events in the queue.
    pub fn capacity(&self) -> usize {
        self.queue.capacity()
    }

    /// The counters of this process.
    pub fn stats(&self) -> AuditStats {
        // The queue first: what is taken from it meanwhile is pending.
        let (queued, since) = (self.queue.len(), self.queue.oldest());
        self.metrics.stats(queued, since, self.queue.shed_count())
    }

    /// How long the writes of queued events took, until they were in the log or in the spill file.
    pub fn writes(&self) -> DurationCounts {
        self.metrics.writes()
    }

    /// Makes a checkpoint of all chains, signed if the gateway has a key.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    pub async fn checkpoint(&self) -> Result<Checkpoint, StoreError> {
        make_checkpoint(&self.store, self.now(), self.signer.as_deref()).await
    }
}
