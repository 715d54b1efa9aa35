//! What is done now and then: noting when keys were used, purging what nothing names.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Registry;

/// How often uses are written down; they are told to the minute.
const NOTE_EVERY: Duration = Duration::from_secs(20);
/// How often the purge looks for something to do.
const PURGE_EVERY: Duration = Duration::from_mins(1);
/// For how long what nothing names is kept: far longer than any replica answers from a stale memory.
const PURGE_AFTER: time::Duration = time::Duration::minutes(30);

impl Registry {
    /// Runs until `stop`, then notes the last uses.
    pub async fn keep_house(&self, stop: CancellationToken) {
        let mut note = tokio::time::interval(NOTE_EVERY);
        let mut purge = tokio::time::interval(PURGE_EVERY);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                _ = note.tick() => self.note_key_uses().await,
                _ = purge.tick() => self.purge(&stop).await,
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
        if let Err(error) = self.store.note_key_use(&uses).await {
            tracing::warn!(%error, keys = uses.len(), "the last uses of some keys could not be noted");
        }
    }

    async fn purge(&self, stop: &CancellationToken) {
        let before = self.sources.clock.now() - PURGE_AFTER;
        while !stop.is_cancelled() {
            match self.store.purge(before).await {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    tracing::warn!(%error, "the purge goes on later");
                    break;
                }
            }
        }
    }
}
