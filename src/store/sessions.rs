//! Sessions and their subscriptions.
//!
//! Statements that find a session by its id compare `coalesce(ended_at, …)`, not `ended_at is null`: without statistics the partial
//! index of the sessions that have not ended would be read from end to end (ADR 0022).

mod maintenance;
mod open;

pub use maintenance::{SessionCap, SessionUse};
pub use open::{OpenOutcome, PlacedSession, SessionRow};
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::write::Write;
use super::{Store, StoreError};
use crate::model::ids::{AgentId, PrincipalId, ResourceUri, SessionUid, TenantId};
use crate::model::label::LabelsDigest;
use crate::model::scope::Revision;
use crate::model::session::{LogLevel, ResourceSubscription, Session};

/// A session as stored.
#[derive(Debug, Clone)]
pub struct StoredSession {
    /// The session.
    pub session: Session,
    /// Hash of its id.
    pub hash: [u8; 32],
    /// Persisted time of last use.
    pub used_at: OffsetDateTime,
}

/// State needed to add a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubscriptionState {
    /// Whether the session already has it.
    pub present: bool,
    /// Number of subscriptions of the session.
    pub count: i64,
    /// Current revision of the agent's scope.
    pub since: Revision,
}

impl Store {
    /// Reads a session with the revision of its scope, unless it has ended.
    pub async fn session(
        &self,
        session: SessionUid,
    ) -> Result<Option<(Revision, StoredSession)>, StoreError> {
        let row = self.read(async |connection| read(connection, session).await).await?;
        row.map(|row| Ok((Revision(row.revision), row.read(session)?))).transpose()
    }
}

impl Write {
    /// Reads a session in this transaction, unless it has ended.
    pub async fn session(&mut self, session: SessionUid) -> Result<Option<Session>, StoreError> {
        let row = read(self.connection(), session).await?;
        row.map(|row| Ok(row.read(session)?.session)).transpose()
    }

    /// Reads the state needed to add a subscription; `None` if the session has ended.
    pub async fn subscription_state(
        &mut self,
        session: SessionUid,
        uri: &ResourceUri,
    ) -> Result<Option<SubscriptionState>, StoreError> {
        let row = sqlx::query!(
            r#"select h.revision,
                exists (select from subscriptions u where u.session = s.uid and u.uri = $2) as "present!",
                (select count(*) from subscriptions u where u.session = s.uid) as "count!"
            from sessions s join heads h on h.scope = s.agent
            where s.uid = $1 and coalesce(s.ended_at, 'infinity') = 'infinity'"#,
            session.0,
            uri.as_str(),
        )
        .fetch_optional(self.connection())
        .await?;
        Ok(row.map(|row| SubscriptionState {
            present: row.present,
            count: row.count,
            since: Revision(row.revision),
        }))
    }

    /// Inserts a subscription.
    pub async fn insert_subscription(
        &mut self,
        session: SessionUid,
        uri: &ResourceUri,
        since: Revision,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "insert into subscriptions (session, uri, since_revision) values ($1, $2, $3)",
            session.0,
            uri.as_str(),
            since.0,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Deletes a subscription; returns whether it existed.
    pub async fn delete_subscription(
        &mut self,
        session: SessionUid,
        uri: &ResourceUri,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "delete from subscriptions where session = $1 and uri = $2",
            session.0,
            uri.as_str()
        )
        .execute(self.connection())
        .await?;
        Ok(done.rows_affected() > 0)
    }

    /// Sets the minimum level of log messages sent to a session.
    pub async fn set_session_level(
        &mut self,
        session: SessionUid,
        level: LogLevel,
    ) -> Result<(), StoreError> {
        sqlx::query!("update sessions set level = $2 where uid = $1", session.0, level.as_str())
            .execute(self.connection())
            .await?;
        Ok(())
    }

    /// Sets the number of streams that a session has had, including the one opening now.
    pub async fn set_streams_opened(
        &mut self,
        session: SessionUid,
        streams_opened: i64,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "update sessions set epoch = $2, streamed_at = $3 where uid = $1",
            session.0,
            streams_opened,
            now
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Ends a session; returns false if it had ended before.
    pub async fn end_session(
        &mut self,
        session: SessionUid,
        now: OffsetDateTime,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "update sessions set ended_at = $2 where uid = $1 and coalesce(ended_at, 'infinity') = 'infinity'",
            session.0,
            now
        )
        .execute(self.connection())
        .await?;
        Ok(done.rows_affected() > 0)
    }
}

struct Row {
    revision: i64,
    tenant: uuid::Uuid,
    agent: uuid::Uuid,
    principal: Option<uuid::Uuid>,
    hash: Vec<u8>,
    version: String,
    client_name: String,
    client_version: String,
    level: Option<String>,
    epoch: i64,
    since_revision: i64,
    labels_digest: Option<i64>,
    used_at: OffsetDateTime,
    uris: Vec<String>,
    sinces: Vec<i64>,
}

async fn read(connection: &mut PgConnection, session: SessionUid) -> Result<Option<Row>, sqlx::Error> {
    sqlx::query_as!(
        Row,
        r#"select h.revision, s.tenant, s.agent, s.principal, s.hash, s.version, s.client_name, s.client_version,
            s.level, s.epoch, s.since_revision, s.labels_digest, s.used_at,
            array(select uri from subscriptions where session = $1 order by uri) as "uris!",
            array(select since_revision from subscriptions where session = $1 order by uri) as "sinces!"
        from sessions s join heads h on h.scope = s.uid where s.uid = $1 and coalesce(s.ended_at, 'infinity') = 'infinity'"#,
        session.0,
    )
    .fetch_optional(connection)
    .await
}

impl Row {
    fn read(self, uid: SessionUid) -> Result<StoredSession, StoreError> {
        let subscription = |(uri, since): (String, i64)| {
            let uri = ResourceUri::parse(&uri).map_err(|_| StoreError::Unreadable("subscription"))?;
            Ok(ResourceSubscription { uri, since: Revision(since) })
        };
        let level = |level: &String| LogLevel::parse(level).ok_or(StoreError::Unreadable("level"));
        let session = Session {
            uid,
            tenant: TenantId(self.tenant),
            agent: AgentId(self.agent),
            principal: self.principal.map(PrincipalId),
            version: self.version,
            client_name: self.client_name,
            client_version: self.client_version,
            level: self.level.as_ref().map(level).transpose()?,
            streams_opened: self.epoch,
            since: Revision(self.since_revision),
            labels: self.labels_digest.map(|digest| LabelsDigest(digest.to_be_bytes())),
            subscriptions: self
                .uris
                .into_iter()
                .zip(self.sinces)
                .map(subscription)
                .collect::<Result<_, StoreError>>()?,
        };
        let hash = self.hash.try_into().map_err(|_| StoreError::Unreadable("session"))?;
        Ok(StoredSession { session, hash, used_at: self.used_at })
    }
}
