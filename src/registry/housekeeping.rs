//! What is done now and then: noting when keys and sessions were used, ending idle sessions, purging what nothing
//! names, pruning old changes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Registry;
use crate::store::StoreError;

/// How often uses are written down; they are told to the minute.
const NOTE_EVERY: Duration = Duration::from_secs(20);
/// How long a step of the purge or the pruning may take.
const STEP: Duration = Duration::from_secs(30);
/// How often the purge and the pruning look for something to do.
const PURGE_EVERY: Duration = Duration::from_mins(1);
/// For how long what nothing names is kept: far longer than any replica answers from a stale memory.
const PURGE_AFTER: time::Duration = time::Duration::minutes(30);
/// Keys that expire within so long are counted, lest their owners find out by being refused.
const EXPIRES_SOON: time::Duration = time::Duration::days(14);

impl Registry {
    /// Runs until `stop`, then notes the last uses.
    pub async fn keep_house(&self, stop: CancellationToken) {
        // Side by side: a long purge must not keep a session's last use from being noted in time.
        tokio::join!(self.keep_sessions(&stop), self.keep_rest(&stop));
    }

    async fn keep_rest(&self, stop: &CancellationToken) {
        let mut note = tokio::time::interval(NOTE_EVERY);
        let mut purge = tokio::time::interval(PURGE_EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = note.tick() => self.note_key_uses().await,
                _ = purge.tick() => {
                    self.purge(stop).await;
                    self.prune_changes(stop).await;
                    self.count_expiring_keys().await;
                }
            }
        }
        self.note_key_uses().await;
    }

    /// Writes down when keys were last used.
    pub async fn note_key_uses(&self) {
        let uses = self.uses.take();
        if uses.is_empty() {
            return;
        }
        if let Err(error) = self.store.record_key_uses(&uses).await {
            tracing::warn!(%error, keys = uses.len(), "the last uses of some keys could not be noted");
        }
    }

    /// Counts the keys that expire soon.
    pub async fn count_expiring_keys(&self) {
        let now = self.sources.clock.now();
        match self.store.keys_expiring(now, now + EXPIRES_SOON).await {
            Ok(count) => self.expiring_keys.store(count, Ordering::Relaxed),
            Err(error) => tracing::debug!(%error, "the keys that expire soon are counted later"),
        }
    }

    /// Takes away what was deleted, orphaned or ended long ago.
    pub async fn purge(&self, stop: &CancellationToken) {
        let before = self.sources.clock.now() - PURGE_AFTER;
        while !stop.is_cancelled() {
            match in_time(self.store.purge(before)).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "the purge goes on later");
                    break;
                }
            }
        }
    }

    /// Takes away the changes that are older than they are kept, unless another replica does.
    pub async fn prune_changes(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            match in_time(self.store.prune(self.limits.retain_changes)).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "old changes are pruned later");
                    break;
                }
            }
        }
    }
}

/// A step that ends, whether the network brings its answers or not: locks would be held, and nothing done ever again.
async fn in_time<T>(step: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
    tokio::time::timeout(STEP, step).await.unwrap_or(Err(StoreError::Timeout))
}
