//! What becomes of sessions by itself: uses are noted, the idle end, the ended are taken away.

use time::OffsetDateTime;

use crate::model::ids::SessionUid;
use crate::model::scope::{Revision, Scope};
use crate::store::write::Write;
use crate::store::{Store, StoreError};

/// Names the lock of whoever ends idle sessions among the database's advisory locks.
const LOCK: i64 = 0x7761_6767_6c65_0002;

impl Store {
    /// Notes when sessions were last used. Not a change: whoever goes by it looks again.
    pub async fn note_session_uses(&self, uses: &[(SessionUid, OffsetDateTime)]) -> Result<(), StoreError> {
        let sessions: Vec<_> = uses.iter().map(|(session, _)| session.0).collect();
        let times: Vec<_> = uses.iter().map(|(_, at)| *at).collect();
        self.run(async |connection| {
            sqlx::query!(
                "update sessions set used_at = used.at \
                 from (select * from unnest($1::uuid[], $2::timestamptz[]) as used (uid, at) order by uid) as used \
                 where sessions.uid = used.uid and ended_at is null and used_at < used.at",
                &sessions,
                &times,
            )
            .execute(connection)
            .await
        })
        .await?;
        Ok(())
    }
}

impl Write {
    /// Whether this replica is the one that ends idle sessions, until this transaction ends.
    pub async fn ends_idle_sessions(&mut self) -> Result<bool, StoreError> {
        let locked = sqlx::query_scalar!(r#"select pg_try_advisory_xact_lock($1) as "locked!""#, LOCK)
            .fetch_one(self.connection())
            .await?;
        Ok(locked)
    }

    /// Locks and ends some of the sessions that were not used since `before`; those that somebody is writing to are
    /// left for later.
    pub async fn end_idle_sessions(
        &mut self,
        before: OffsetDateTime,
        now: OffsetDateTime,
        limit: i64,
    ) -> Result<Vec<SessionUid>, StoreError> {
        let idle = sqlx::query!(
            r#"select h.scope, h.revision + 1 as "next!" from sessions s join heads h on h.scope = s.uid
            where s.ended_at is null and s.used_at <= $1
            order by s.used_at limit $2 for no key update of h skip locked"#,
            before,
            limit,
        )
        .fetch_all(self.connection())
        .await?;
        let uids: Vec<_> = idle.iter().map(|row| row.scope).collect();
        for row in idle {
            self.locked(Scope(row.scope), Revision(row.next));
        }
        // Read again: a use may have been noted, or the session may have ended, before the lock was there.
        let ended = sqlx::query_scalar!(
            "update sessions set ended_at = $3 \
             where uid = any($1) and ended_at is null and used_at <= $2 returning uid",
            &uids,
            before,
            now,
        )
        .fetch_all(self.connection())
        .await?;
        Ok(ended.into_iter().map(SessionUid).collect())
    }
}
