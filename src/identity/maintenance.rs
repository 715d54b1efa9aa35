//! Maintenance of identity: writing last uses of keys, counting keys that expire soon, following the filter of issued keys.

use std::time::Duration;

use time::format_description::well_known::Rfc3339;
use tokio_util::sync::CancellationToken;

use super::Identity;
use crate::store::StoreError;
use crate::store::horizon::Horizon;
use crate::store::keys::ExpiringKey;

/// The interval at which last uses are written; they are recorded to the minute.
const WRITE_USES_EVERY: Duration = Duration::from_secs(20);
/// The interval at which the keys that expire soon are counted.
const COUNT_EVERY: Duration = Duration::from_mins(1);
/// How many keys that expire soon the log names; the next ones follow when these have expired.
const MAX_NAMED: i64 = 100;
/// The time within which a key counts as expiring soon.
const EXPIRES_SOON: time::Duration = time::Duration::days(14);

impl Identity {
    /// Runs until `stop`, then writes the last uses.
    pub async fn run_maintenance(&self, stop: CancellationToken) {
        let mut write = tokio::time::interval(WRITE_USES_EVERY);
        let mut count = tokio::time::interval(COUNT_EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = write.tick() => self.write_key_uses().await,
                _ = count.tick() => self.count_expiring_keys().await,
            }
        }
        self.write_key_uses().await;
    }

    /// Writes when keys were last used.
    pub async fn write_key_uses(&self) {
        let uses = self.key_activity.take();
        if uses.is_empty() {
            return;
        }
        if let Err(error) = self.store.record_key_uses(&uses).await {
            tracing::warn!(%error, keys = uses.len(), "last uses of keys not written; retried later");
            self.key_activity.put_back(uses);
        }
    }

    /// Counts the keys that expire soon, and names each once in the log.
    pub async fn count_expiring_keys(&self) {
        let now = self.system.clock.now();
        match self.store.keys_expiring(now, now + EXPIRES_SOON, MAX_NAMED).await {
            Ok((keys, count)) => {
                self.key_activity.set_expiring(count);
                for ExpiringKey { key, tenant, agent, expires_at } in self.key_activity.not_named(keys) {
                    let expires_at = expires_at.format(&Rfc3339).unwrap_or_default();
                    tracing::warn!(key_id = %key, %tenant, agent, expires_at, "key expires soon");
                }
            }
            Err(error) => tracing::debug!(%error, "expiring keys not counted; retried later"),
        }
    }

    /// Loads the filter of issued keys; returns the horizon up to which it covers the log of changes.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub async fn load_issued_keys(&self) -> Result<Horizon, StoreError> {
        self.memory.issued.load(&self.store).await
    }

    /// Keeps the filter of issued keys up to date until `stop`, from the horizon of a load, if there was one.
    pub async fn follow_issued_keys(&self, loaded: Option<Horizon>, stop: &CancellationToken) {
        self.memory.issued.follow(&self.store, loaded, stop).await;
    }
}
