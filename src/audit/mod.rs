//! The audit log: events are gathered in memory, chained, and written by one writer a process.
//!
//! [`Audit`] is what the surfaces hold: it takes an event and, where that is asked for, waits until it is safe. The
//! writer moves what it took, and what changes left in the outbox, into the log; while the database is away or slow,
//! into a file.

mod aggregate;
mod backlog;
mod checkpoints;
mod facts;
mod gaps;
mod keep;
mod quarantine;
mod queue;
mod recover;
mod signatures;
mod spill;
mod start;
mod tally;
pub mod verify;
mod work;
mod writer;

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::model::audit::checkpoint::Checkpoint;
use crate::model::audit::event::Event;
use crate::model::audit::row::{AuditFilter, AuditPosition, AuditRow};
use crate::model::audit::signature::Signer;
use crate::model::fault::Fault;
use crate::model::sources::Sources;
use crate::store::{Store, StoreError};

use aggregate::Aggregator;
use queue::{Full, Queue};
use tally::Tally;

pub use start::{AuditError, AuditOptions, Started, start};
pub use tally::AuditStats;

/// When an answer may leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// At once: its row is written a moment later.
    Batched,
    /// When its row is on disk.
    Sync,
}

/// How often it is looked whether a minute is over.
const SUMS_EVERY: Duration = Duration::from_millis(500);

const FULL: Fault = Fault::Unavailable { retry_after: Duration::from_secs(1) };

/// Takes events.
#[derive(Debug)]
pub struct Audit {
    queue: Arc<Queue>,
    aggregator: Aggregator,
    tally: Arc<Tally>,
    durability: Durability,
    accesses: bool,
    sources: Sources,
    store: Store,
    signer: Option<Arc<Signer>>,
}

impl Audit {
    /// Whether accesses are written down at all; changes always are.
    pub fn takes_accesses(&self) -> bool {
        self.accesses
    }

    /// The time of day, for events.
    pub fn now(&self) -> time::OffsetDateTime {
        self.sources.clock.now()
    }

    /// Whether another request may be let in.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] where none is answered without its row, and no more rows can be taken or made safe.
    pub fn admit(&self) -> Result<(), Fault> {
        let refuses = self.accesses && self.durability == Durability::Sync && !self.queue.is_open();
        if refuses { Err(FULL) } else { Ok(()) }
    }

    /// Takes the event of an access; with `sync`, returns when it is on disk.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] with `sync`, where it cannot be: the answer must not leave. With `batched` an event for
    /// which there is no room is shed, and counted. One that shares a row with others is not waited for.
    pub async fn record(&self, event: &Event) -> Result<(), Fault> {
        if !self.keeps_row(event) {
            return Ok(());
        }
        match self.durability {
            Durability::Batched => {
                self.queue.push(event);
                Ok(())
            }
            Durability::Sync => {
                let safe = self.queue.push_awaited(event).map_err(|Full| FULL)?;
                safe.await.map_err(|_| FULL)
            }
        }
    }

    /// Takes the events of one answer, as [`record`](Self::record) takes one.
    ///
    /// # Errors
    /// As of [`record`](Self::record).
    pub async fn record_all(&self, events: &[Event]) -> Result<(), Fault> {
        let rows = events.iter().filter(|event| self.keeps_row(event));
        match self.durability {
            Durability::Batched => rows.for_each(|event| self.queue.push(event)),
            Durability::Sync => {
                let pushed = rows.map(|event| self.queue.push_awaited(event));
                let waited: Vec<_> = pushed.collect::<Result<_, Full>>().map_err(|Full| FULL)?;
                for safe in waited {
                    safe.await.map_err(|_| FULL)?;
                }
            }
        }
        Ok(())
    }

    /// Takes an event that nobody waits for.
    pub fn note(&self, event: &Event) {
        if self.keeps_row(event) {
            self.queue.push(event);
        }
    }

    /// Whether an event has a row of its own.
    fn keeps_row(&self, event: &Event) -> bool {
        if !self.accesses {
            return false;
        }
        let admitted = self.aggregator.admit(event);
        if !admitted {
            self.tally.aggregate();
        }
        admitted
    }

    /// Writes the rows that several requests share, once a minute, until `stop`.
    async fn write_sums(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(SUMS_EVERY);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            for row in self.aggregator.due(self.now()) {
                self.queue.push(&row);
            }
        }
    }

    /// Writes those of the minute that has begun.
    fn end_sums(&self) {
        for row in self.aggregator.end(self.now()) {
            self.queue.push(&row);
        }
    }

    /// Says that a change has left something in the outbox.
    pub fn changed(&self) {
        self.queue.point_at_outbox();
    }

    /// Rows that a filter lets pass, the newest first, from behind a position.
    pub async fn rows(
        &self,
        filter: &AuditFilter,
        after: Option<AuditPosition>,
        limit: i64,
    ) -> Result<Vec<AuditRow>, StoreError> {
        self.store.audit_rows(filter, after, limit).await
    }

    /// How this process fares with it.
    pub fn stats(&self) -> AuditStats {
        self.tally.stats(self.queue.len(), self.queue.shed_so_far())
    }

    /// Where all chains stand, signed where the gateway has a key.
    pub async fn checkpoint(&self) -> Result<Checkpoint, StoreError> {
        checkpoint(&self.store, self.now(), self.signer.as_deref()).await
    }
}

/// Where all chains stand, signed where there is a key.
async fn checkpoint(
    store: &Store,
    at: time::OffsetDateTime,
    signer: Option<&Signer>,
) -> Result<Checkpoint, StoreError> {
    let checkpoint = store.audit_checkpoint(at).await?;
    Ok(match signer {
        Some(signer) => checkpoint.signed(signer),
        None => checkpoint,
    })
}
