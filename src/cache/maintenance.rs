//! Maintenance of the database: periodically purges deleted rows and prunes the log of changes, one replica at a time.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::model::system::System;
use crate::store::{Store, StoreError};
use crate::telemetry::RepeatedWork;

/// The timeout of one step of a purge or of pruning.
const STEP: Duration = Duration::from_secs(30);
/// How long after a start both run first: until then requests load what is not in memory.
const START_DELAY: Duration = Duration::from_secs(20);
/// The interval between runs of both.
const EVERY: Duration = Duration::from_mins(1);
/// How long unreferenced rows are kept: far longer than any replica uses stale facts.
const PURGE_AFTER: time::Duration = time::Duration::minutes(30);

/// Purges deleted rows and prunes old changes.
#[derive(Debug)]
pub struct StoreMaintenance {
    store: Store,
    system: System,
    retain_changes: Duration,
    purging: RepeatedWork,
    pruning: RepeatedWork,
}

impl StoreMaintenance {
    /// Creates the task; changes are retained for `retain_changes`.
    pub fn new(store: Store, system: System, retain_changes: Duration) -> Self {
        let (purging, pruning) = <(RepeatedWork, RepeatedWork)>::default();
        Self { store, system, retain_changes, purging, pruning }
    }

    /// Runs until `stop`.
    pub async fn run(&self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval_at(Instant::now() + START_DELAY, EVERY);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            self.prune_changes(&stop).await;
            if self.system.clock.is_confirmed() {
                self.purge(&stop).await;
            }
        }
    }

    /// Purges rows that were deleted, became unreferenced or ended more than half an hour ago.
    pub async fn purge(&self, stop: &CancellationToken) {
        let before = self.system.clock.now() - PURGE_AFTER;
        while !stop.is_cancelled() {
            let purged = in_time(self.store.purge(before)).await;
            self.purging.record("purge", &purged);
            if !matches!(purged, Ok(true)) {
                break;
            }
        }
    }

    /// Removes the changes older than their retention, unless another replica does.
    pub async fn prune_changes(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let pruned = in_time(self.store.prune(self.retain_changes)).await;
            self.pruning.record("pruning changes", &pruned);
            if !matches!(pruned, Ok(true)) {
                break;
            }
        }
    }
}

/// Runs a step with a timeout, since a lost connection would keep the locks of the step.
async fn in_time<T>(step: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::time::timeout(STEP, step).await.unwrap_or(Err(StoreError::Timeout))
}
