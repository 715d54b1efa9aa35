//! Sessions and their subscriptions.

mod housekeeping;

pub use housekeeping::{Crowd, SessionUse};

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::snapshot::Snapshot;
use super::write::Write;
use super::{Store, StoreError};
use crate::model::ids::{AgentId, PrincipalId, SessionUid, TenantId};
use crate::model::scope::Revision;
use crate::model::session::{LogLevel, Session, SessionHolder, Subscription};
use crate::model::uri::ResourceUri;

/// A session that is not there yet.
#[derive(Debug, Clone)]
pub struct OpenSession {
    /// The hash of its id.
    pub hash: [u8; 32],
    /// Its identity.
    pub uid: SessionUid,
    /// The agent's tenant.
    pub tenant: TenantId,
    /// The agent.
    pub agent: AgentId,
    /// Who opens it.
    pub principal: Option<PrincipalId>,
    /// Whom it is accounted to.
    pub holder: SessionHolder,
    /// The negotiated revision of the protocol.
    pub version: String,
    /// What the client calls itself.
    pub client_name: String,
    /// Which version of itself the client says that it is.
    pub client_version: String,
    /// What the client can do, as JSON.
    pub capabilities: String,
    /// Now.
    pub now: OffsetDateTime,
}

/// What became of a session that was to be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    /// It is there.
    Yes,
    /// The holder has as many as it may have.
    Full,
    /// The agent is gone.
    NoAgent,
}

/// A session as it is stored.
#[derive(Debug, Clone)]
pub struct StoredSession {
    /// The session.
    pub session: Session,
    /// The hash of its id.
    pub hash: [u8; 32],
    /// When it was last noted to be used.
    pub used_at: OffsetDateTime,
}

/// What decides over a new subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscribing {
    /// Whether the session has it already.
    pub present: bool,
    /// How many the session has.
    pub count: i64,
    /// The revision of the agent's scope.
    pub since: Revision,
}

impl Store {
    /// Opens a session, with its head, unless its holder has `most` that have not ended. Holders that open many at the
    /// same moment may have some more.
    pub async fn open_session(&self, new: &OpenSession, most: i64) -> Result<Opened, StoreError> {
        let row = self
            .run(async |connection| {
                sqlx::query!(
                    r#"with agent as (
                        select a.tenant, a.uid, h.revision from agents a join heads h on h.scope = a.uid
                        where a.tenant = $3 and a.uid = $4 and a.deleted_at is null
                    ),
                    present as (
                        select count(*) as count from (
                            select from sessions s
                            where s.agent = $4 and s.ended_at is null
                            and coalesce(s.holder, s.principal, '00000000-0000-0000-0000-000000000000'::uuid) = $12
                            limit $11
                        ) as counted
                    ),
                    opened as (
                        insert into sessions (uid, hash, tenant, agent, principal, version, client_name,
                            client_version, capabilities, since_revision, created_at, used_at, holder)
                        select $1, $2, agent.tenant, agent.uid, $5, $6, $7, $8, $9, agent.revision, $10, $10, $12
                        from agent, present where present.count < $11
                        returning uid
                    ),
                    head as (insert into heads (scope, revision, floor) select uid, 1, 1 from opened)
                    select exists (select from agent) as "agent!", exists (select from opened) as "opened!""#,
                    new.uid.0,
                    &new.hash[..],
                    new.tenant.0,
                    new.agent.0,
                    new.principal.map(|principal| principal.0),
                    new.version,
                    new.client_name,
                    new.client_version,
                    new.capabilities,
                    new.now,
                    most,
                    new.holder.0,
                )
                .fetch_one(connection)
                .await
            })
            .await?;
        Ok(match (row.opened, row.agent) {
            (true, _) => Opened::Yes,
            (false, true) => Opened::Full,
            (false, false) => Opened::NoAgent,
        })
    }
}

impl Snapshot {
    /// A session that has not ended.
    pub async fn session(&mut self, session: SessionUid) -> Result<Option<StoredSession>, StoreError> {
        read(self.connection(), session).await
    }
}

impl Write {
    /// A session that has not ended, as this transaction sees it.
    pub async fn session(&mut self, session: SessionUid) -> Result<Option<Session>, StoreError> {
        Ok(read(self.connection(), session).await?.map(|stored| stored.session))
    }

    /// What decides over a new subscription of a session; `None` where the session ended.
    pub async fn subscribing(
        &mut self,
        session: SessionUid,
        uri: &ResourceUri,
    ) -> Result<Option<Subscribing>, StoreError> {
        let row = sqlx::query!(
            r#"select h.revision,
                exists (select from subscriptions u where u.session = s.uid and u.uri = $2) as "present!",
                (select count(*) from subscriptions u where u.session = s.uid) as "count!"
            from sessions s join heads h on h.scope = s.agent
            where s.uid = $1 and s.ended_at is null"#,
            session.0,
            uri.as_str(),
        )
        .fetch_optional(self.connection())
        .await?;
        Ok(row.map(|row| Subscribing {
            present: row.present,
            count: row.count,
            since: Revision(row.revision),
        }))
    }

    /// Adds a subscription.
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

    /// Removes a subscription; answers whether there was one.
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

    /// Sets from which level on a session sees messages.
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

    /// Sets how many streams a session has had, the last of which opens now.
    pub async fn set_session_epoch(
        &mut self,
        session: SessionUid,
        epoch: i64,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "update sessions set epoch = $2, streamed_at = $3 where uid = $1",
            session.0,
            epoch,
            now
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Ends a session; answers whether it had not ended before.
    pub async fn end_session(
        &mut self,
        session: SessionUid,
        now: OffsetDateTime,
    ) -> Result<bool, StoreError> {
        let done = sqlx::query!(
            "update sessions set ended_at = $2 where uid = $1 and ended_at is null",
            session.0,
            now
        )
        .execute(self.connection())
        .await?;
        Ok(done.rows_affected() > 0)
    }
}

struct Row {
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
    used_at: OffsetDateTime,
    uris: Vec<String>,
    sinces: Vec<i64>,
}

async fn read(
    connection: &mut PgConnection,
    session: SessionUid,
) -> Result<Option<StoredSession>, StoreError> {
    let row = sqlx::query_as!(
        Row,
        r#"select tenant, agent, principal, hash, version, client_name, client_version, level, epoch,
            since_revision, used_at,
            array(select uri from subscriptions where session = $1 order by uri) as "uris!",
            array(select since_revision from subscriptions where session = $1 order by uri) as "sinces!"
        from sessions where uid = $1 and ended_at is null"#,
        session.0,
    )
    .fetch_optional(connection)
    .await?;
    row.map(|row| row.read(session)).transpose()
}

impl Row {
    fn read(self, uid: SessionUid) -> Result<StoredSession, StoreError> {
        let subscription = |(uri, since): (String, i64)| {
            let uri = ResourceUri::parse(&uri).map_err(|_| StoreError::Unreadable("subscription"))?;
            Ok(Subscription { uri, since: Revision(since) })
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
            epoch: self.epoch,
            since: Revision(self.since_revision),
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
