//! Sessions that nobody uses end by themselves.

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::model::fault::Fault;
use crate::model::scope::{ChangeKind, Scope};
use crate::registry::Registry;

/// Idle sessions ended at once.
const BATCH: i64 = 100;
/// No scope of anybody's: who ends sessions waits for none of them, and takes only a share of the pool.
const NOBODY: Scope = Scope(Uuid::max());

impl Registry {
    /// Notes uses and ends idle sessions until `stop`.
    pub(in crate::registry) async fn keep_sessions(&self, stop: &CancellationToken) {
        let mut ticks = tokio::time::interval(self.session_tick());
        let mut proven = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.session_uses.soon() => self.note_session_uses().await,
                _ = ticks.tick() => {
                    self.keep_streaming_sessions();
                    self.note_session_uses().await;
                    // When the database comes back, all replicas first have the time to note what they could not.
                    let before = std::mem::replace(&mut proven, self.feed.unproven_for().is_zero());
                    if before && proven {
                        self.expire_sessions(stop).await;
                    }
                }
            }
        }
        self.keep_streaming_sessions();
        self.note_last_session_uses().await;
    }

    /// Ends the sessions that are idle now, unless another replica does. Their streams hear of it.
    pub async fn expire_sessions(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            match self.expire_some().await {
                Ok(ended) if i64::try_from(ended).is_ok_and(|ended| ended >= BATCH) => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::warn!(%error, "idle sessions are ended later");
                    break;
                }
            }
        }
    }

    async fn expire_some(&self) -> Result<usize, Fault> {
        let now = self.sources.clock.now();
        let before = now - self.limits.session_idle;
        self.transact(NOBODY, async |write| {
            if !write.try_lock_idle_sessions().await? {
                return Ok(0);
            }
            let ended = write.end_idle_sessions(before, now, BATCH).await?;
            for session in &ended {
                write.change(Scope::from(*session), ChangeKind::SessionEnded, session.to_string());
            }
            Ok(ended.len())
        })
        .await
    }
}
