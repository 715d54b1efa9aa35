//! Maintenance of sessions: writes their last uses, and ends those past the idle timeout (session expired).

use std::sync::Arc;

use time::OffsetDateTime;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Sessions;
use super::last_use::LastUse;
use crate::model::audit::write::AuditedWrite;
use crate::model::fault::Fault;
use crate::model::ids::SessionUid;
use crate::model::scope::{ChangeKind, Scope};
use crate::store::sessions::SessionUse;

/// Last uses per statement.
const USES_PER_STATEMENT: usize = 1_000;
/// Idle sessions ended per transaction.
const MAX_ENDED: i64 = 100;
/// The scope of the write permit for expiry. It is not the scope of a session, so that expiry never waits for a writer of
/// a session and takes only one share of the pool.
const EXPIRY: Scope = Scope(Uuid::max());

impl Sessions {
    /// Runs until `stop`, then writes the last uses.
    pub async fn run_maintenance(&self, stop: CancellationToken) {
        let mut ticks = tokio::time::interval(self.uses.tick());
        let mut proven = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.uses.soon() => self.write_uses().await,
                _ = ticks.tick() => {
                    self.note_streaming();
                    self.write_uses().await;
                    // After an outage all replicas have one interval to write their uses before sessions expire.
                    let before = std::mem::replace(&mut proven, self.loader.is_proven());
                    if before && proven && self.system.clock.is_confirmed() {
                        self.expire(&stop).await;
                    }
                }
            }
        }
        self.note_streaming();
        self.persist(self.uses.take_all()).await;
    }

    /// Ends the sessions past the idle timeout, unless another replica does. Their streams end too.
    pub async fn expire(&self, stop: &CancellationToken) {
        while !stop.is_cancelled() {
            let expired = self.expire_some().await;
            self.expiry.record("ending idle sessions", &expired);
            match expired {
                Ok(ended) if i64::try_from(ended).is_ok_and(|ended| ended >= MAX_ENDED) => {}
                _ => break,
            }
        }
    }

    async fn expire_some(&self) -> Result<usize, Fault> {
        let now = self.system.clock.now();
        let before = now - self.limits.idle;
        self.writer
            .transact(EXPIRY, &AuditedWrite::UNAUDITED, async |write| {
                if !write.try_lock_idle_sessions().await? {
                    return Ok(0);
                }
                let ended = write.end_idle_sessions(before, now, MAX_ENDED).await?;
                for session in &ended {
                    write.change(Scope::from(*session), ChangeKind::SessionEnded, session.to_string());
                }
                Ok(ended.len())
            })
            .await
    }

    /// Writes the last uses that are due.
    pub async fn write_uses(&self) {
        self.persist(self.uses.take(self.system.clock.now())).await;
    }

    /// Writes the last uses of these sessions that this replica knows.
    pub(super) async fn write_uses_of(&self, sessions: &[SessionUid]) {
        self.persist(self.uses.take_of(sessions)).await;
    }

    async fn persist(&self, uses: Vec<(SessionUid, Arc<LastUse>)>) {
        for batch in uses.chunks(USES_PER_STATEMENT) {
            let times: Vec<_> = batch.iter().map(|(_, used)| used.at()).collect();
            let row = |((session, _), micros): (&(SessionUid, _), &i64)| SessionUse {
                session: *session,
                at: moment(*micros),
                streams: self.open_streams.get(*session) > 0,
            };
            let rows: Vec<_> = batch.iter().zip(&times).map(row).collect();
            let recorded = self.store.record_session_uses(&rows).await;
            self.writing_uses.record("writing last uses of sessions", &recorded);
            if recorded.is_ok() {
                for ((_, used), written) in batch.iter().zip(times) {
                    used.persisted(written);
                }
            } else {
                self.uses.put_back(batch);
            }
        }
    }
}

fn moment(micros: i64) -> OffsetDateTime {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(micros) * 1_000)
        .unwrap_or(OffsetDateTime::UNIX_EPOCH)
}
