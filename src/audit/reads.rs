//! What is read of the audit log: its rows, checkpoints, and the counters of this process.

use super::checkpoints::make_checkpoint;
use super::metrics::AuditStats;
use super::recorder::AuditRecorder;
use crate::model::audit::checkpoint::Checkpoint;
use crate::model::audit::row::{AuditFilter, AuditPosition, AuditRow};
use crate::store::StoreError;
use crate::telemetry::histogram::DurationCounts;

impl AuditRecorder {
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
