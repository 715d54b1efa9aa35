//! Maintenance of sessions: recording their use, and ending those that are idle or too many.

use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::ids::{AgentId, SessionUid};
use crate::model::scope::{Revision, Scope};
use crate::model::session::SessionHolder;
use crate::store::write::Write;
use crate::store::{Store, StoreError};

/// Key of the advisory lock held while idle sessions are ended.
const LOCK: i64 = 0x7761_6767_6c65_0002;

/// A use of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionUse {
    /// The session.
    pub session: SessionUid,
    /// When it was used.
    pub at: OffsetDateTime,
    /// Whether it has an open stream.
    pub streams: bool,
}

/// The sessions of one holder with an agent, and the number to keep if there are too many.
#[derive(Debug, Clone, Copy)]
pub struct SessionCap {
    /// The agent.
    pub agent: AgentId,
    /// The holder.
    pub holder: SessionHolder,
    /// Number of sessions to keep.
    pub keep: i64,
    /// Number of sessions from which on some are ended.
    pub threshold: i64,
    /// A session recorded to have an open stream after this time is considered to have one.
    pub streams_since: OffsetDateTime,
}

impl Store {
    /// Records uses of sessions. Not logged as a change: code that depends on it reads the row.
    pub async fn record_session_uses(&self, uses: &[SessionUse]) -> Result<(), StoreError> {
        let sessions: Vec<_> = uses.iter().map(|used| used.session.0).collect();
        let times: Vec<_> = uses.iter().map(|used| used.at).collect();
        let streams: Vec<_> = uses.iter().map(|used| used.streams).collect();
        self.run(async |connection| {
            sqlx::query!(
                "update sessions set used_at = used.at, \
                     streamed_at = case when used.streams then used.at else streamed_at end \
                 from (select * from unnest($1::uuid[], $2::timestamptz[], $3::bool[]) as used (uid, at, streams) \
                     order by uid) as used \
                 where sessions.uid = used.uid and coalesce(ended_at, 'infinity') = 'infinity' and used_at < used.at",
                &sessions,
                &times,
                &streams,
            )
            .execute(connection)
            .await
        })
        .await?;
        Ok(())
    }

    /// The open sessions of a holder with an agent, at most `limit`.
    pub async fn sessions_of(
        &self,
        agent: AgentId,
        holder: SessionHolder,
        limit: i64,
    ) -> Result<Vec<SessionUid>, StoreError> {
        let uids = self
            .read(async |connection| {
                sqlx::query_scalar!(
                    "select uid from sessions where agent = $1 and ended_at is null \
                     and coalesce(holder, principal, '00000000-0000-0000-0000-000000000000'::uuid) = $2 limit $3",
                    agent.0,
                    holder.0,
                    limit,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        Ok(uids.into_iter().map(SessionUid).collect())
    }
}

impl Write {
    /// Acquires the lock for ending idle sessions until this transaction ends; returns whether it is
    /// acquired.
    pub async fn try_lock_idle_sessions(&mut self) -> Result<bool, StoreError> {
        let locked = sqlx::query_scalar!(r#"select pg_try_advisory_xact_lock($1) as "locked!""#, LOCK)
            .fetch_one(self.connection())
            .await?;
        Ok(locked)
    }

    /// Locks and ends sessions that were not used since `before`. Sessions with a concurrent write are
    /// skipped.
    pub async fn end_idle_sessions(
        &mut self,
        before: OffsetDateTime,
        now: OffsetDateTime,
        limit: i64,
    ) -> Result<Vec<SessionUid>, StoreError> {
        let idle = sqlx::query_as!(
            IdleSession,
            r#"select h.scope, h.revision + 1 as "next!" from sessions s join heads h on h.scope = s.uid
            where s.ended_at is null and s.used_at <= $1
            order by s.used_at limit $2 for no key update of h skip locked"#,
            before,
            limit,
        )
        .fetch_all(self.connection())
        .await?;
        self.end_locked(idle, Some(before), now).await
    }

    /// Locks and ends at most `limit` of the sessions of a holder beyond [`SessionCap::keep`]: those without an
    /// open stream first, and of these the least recently used. Sessions with a concurrent write are skipped.
    pub async fn end_sessions_beyond(
        &mut self,
        cap: SessionCap,
        now: OffsetDateTime,
        limit: i64,
    ) -> Result<Vec<SessionUid>, StoreError> {
        // The subquery does not lock: `offset` would lock the rows it skips as well.
        let beyond = sqlx::query_as!(
            IdleSession,
            r#"select h.scope, h.revision + 1 as "next!"
            from (
                select uid, count(*) over () as present, row_number() over (
                    order by coalesce(streamed_at > $6, false) desc, used_at desc, uid desc
                ) as place
                from sessions where agent = $1 and ended_at is null
                and coalesce(holder, principal, '00000000-0000-0000-0000-000000000000'::uuid) = $2
            ) as s join heads h on h.scope = s.uid
            where s.present >= $4 and s.place > $3
            order by s.place desc limit $5 for no key update of h skip locked"#,
            cap.agent.0,
            cap.holder.0,
            cap.keep,
            cap.threshold,
            limit,
            cap.streams_since,
        )
        .fetch_all(self.connection())
        .await?;
        self.end_locked(beyond, None, now).await
    }

    /// Ends sessions whose heads are locked. Uses recorded and sessions ended before the lock was acquired
    /// are visible only now.
    async fn end_locked(
        &mut self,
        found: Vec<IdleSession>,
        before: Option<OffsetDateTime>,
        now: OffsetDateTime,
    ) -> Result<Vec<SessionUid>, StoreError> {
        let uids: Vec<_> = found.iter().map(|row| row.scope).collect();
        for row in found {
            self.add_locked(Scope(row.scope), Revision(row.next));
        }
        let ended = sqlx::query_scalar!(
            "update sessions set ended_at = $3 \
             where uid = any($1) and coalesce(ended_at, 'infinity') = 'infinity' and used_at <= coalesce($2, used_at) \
             returning uid",
            &uids,
            before,
            now,
        )
        .fetch_all(self.connection())
        .await?;
        Ok(ended.into_iter().map(SessionUid).collect())
    }
}

/// A session to end, and the next revision of its scope.
struct IdleSession {
    scope: Uuid,
    next: i64,
}
