//! `NOTIFY` and `LISTEN`: the messages that replicas exchange about new revisions and their acknowledgement.

use sqlx::postgres::{PgConnection, PgListener};
use sqlx::{ConnectOptions, Executor};
use uuid::Uuid;

use super::{Store, StoreError};
use crate::model::scope::{Revision, Scope};

/// The channel shared by all replicas of one database.
const CHANNEL: &str = "waggle";
/// Maximum number of messages per `NOTIFY`: PostgreSQL limits a payload to less than 8,000 bytes, and a
/// message has at most 86.
const MESSAGES_PER_NOTIFY: usize = 90;

/// Identifies one run of a gateway process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplicaId(pub Uuid);

/// A message between replicas. Every replica receives every message, including its own, in commit order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedMessage {
    /// A scope is at this revision or a newer one.
    Raised(Scope, Revision),
    /// The replica is alive and receives messages. It recognizes its own heartbeat by the number.
    Heartbeat(ReplicaId, u64),
    /// The replica asks the others to acknowledge that they have received everything before this request.
    AckRequest(ReplicaId, u64),
    /// The first replica has received everything before this request of the second.
    Ack(ReplicaId, ReplicaId, u64),
}

/// A dedicated connection for sending messages, independent of the pool.
#[derive(Debug)]
pub struct NotifySender {
    connection: PgConnection,
}

/// A dedicated connection that receives the messages of all replicas.
#[derive(Debug)]
pub struct NotifyListener {
    listener: PgListener,
}

impl Store {
    /// Connects a sender.
    ///
    /// # Errors
    /// If the database cannot be reached.
    pub async fn notify_sender(&self) -> Result<NotifySender, StoreError> {
        let mut connection = self.listen.connect().await?;
        // Messages need not survive a crash of the database, so that they do not wait for its disk.
        connection.execute("set synchronous_commit = off").await?;
        Ok(NotifySender { connection })
    }

    /// Connects a listener, which receives every message sent from now on.
    ///
    /// # Errors
    /// If the database cannot be reached.
    pub async fn notify_listener(&self) -> Result<NotifyListener, StoreError> {
        let pool = sqlx::postgres::PgPoolOptions::new()
            .max_connections(1)
            .test_before_acquire(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .connect_lazy_with(self.listen.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        // An automatic reconnection would hide that messages were missed.
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        Ok(NotifyListener { listener })
    }
}

impl NotifySender {
    /// Sends messages to all replicas.
    ///
    /// # Errors
    /// If the connection is lost; the sender cannot be used any more.
    pub async fn send(&mut self, messages: &[FeedMessage]) -> Result<(), StoreError> {
        for batch in messages.chunks(MESSAGES_PER_NOTIFY) {
            let payload: Vec<_> = batch.iter().map(ToString::to_string).collect();
            sqlx::query!("select pg_notify($1, $2)", CHANNEL, payload.join(","))
                .execute(&mut self.connection)
                .await?;
        }
        Ok(())
    }
}

impl NotifyListener {
    /// Waits for the next messages. Cancel-safe.
    ///
    /// # Errors
    /// If the connection is lost; messages sent meanwhile are missed.
    pub async fn next(&mut self) -> Result<Vec<FeedMessage>, StoreError> {
        match self.listener.try_recv().await? {
            Some(notification) => Ok(parse(notification.payload())),
            None => Err(StoreError::Unavailable(sqlx::Error::WorkerCrashed)),
        }
    }

    /// Sends a query on the listening connection and waits for its result.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn probe(&mut self) -> Result<(), StoreError> {
        sqlx::query_scalar!(r#"select 1 as "one!""#).fetch_one(&mut self.listener).await?;
        Ok(())
    }

    /// Messages received during a probe.
    pub fn buffered(&mut self) -> Vec<FeedMessage> {
        std::iter::from_fn(|| self.listener.next_buffered()).flat_map(|n| parse(n.payload())).collect()
    }
}

impl std::fmt::Display for FeedMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Raised(scope, revision) => write!(f, "{}:{revision}", scope.0.simple()),
            Self::Heartbeat(replica, number) => write!(f, "+{}:{number}", replica.0.simple()),
            Self::AckRequest(replica, number) => write!(f, "?{}:{number}", replica.0.simple()),
            Self::Ack(by, of, number) => write!(f, "={}:{}:{number}", by.0.simple(), of.0.simple()),
        }
    }
}

impl FeedMessage {
    /// The scope and revision that it announces, if any.
    pub fn raised(&self) -> Option<(Scope, Revision)> {
        match self {
            Self::Raised(scope, revision) => Some((*scope, *revision)),
            Self::Heartbeat(..) | Self::AckRequest(..) | Self::Ack(..) => None,
        }
    }

    /// Parses a message; returns `None` for kinds added by a newer version.
    fn parse(text: &str) -> Option<Self> {
        let numbered = |text: &str| {
            let (replica, number) = text.split_once(':')?;
            Some((ReplicaId(replica.parse().ok()?), number.parse().ok()?))
        };
        if let Some(heartbeat) = text.strip_prefix('+') {
            return numbered(heartbeat).map(|(replica, number)| Self::Heartbeat(replica, number));
        }
        if let Some(request) = text.strip_prefix('?') {
            return numbered(request).map(|(replica, number)| Self::AckRequest(replica, number));
        }
        if let Some(ack) = text.strip_prefix('=') {
            let (by, request) = ack.split_once(':')?;
            let by = ReplicaId(by.parse().ok()?);
            return numbered(request).map(|(of, number)| Self::Ack(by, of, number));
        }
        let (scope, revision) = text.split_once(':')?;
        Some(Self::Raised(Scope(scope.parse().ok()?), revision.parse().ok()?))
    }
}

/// Parses a payload. Messages that are not understood are skipped: the sweep finds the changes they announce.
fn parse(payload: &str) -> Vec<FeedMessage> {
    payload.split(',').filter_map(FeedMessage::parse).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{FeedMessage, MESSAGES_PER_NOTIFY, ReplicaId, parse};
    use crate::model::scope::{Revision, Scope};

    fn messages() -> [FeedMessage; 4] {
        let (one, two) = (ReplicaId(Uuid::from_u128(7)), ReplicaId(Uuid::max()));
        [
            FeedMessage::Raised(Scope(Uuid::from_u128(9)), Revision(12)),
            FeedMessage::Heartbeat(one, 3),
            FeedMessage::AckRequest(two, u64::MAX),
            FeedMessage::Ack(two, one, u64::MAX),
        ]
    }

    #[test]
    fn messages_parse_to_themselves_within_the_payload_limit() {
        let payload = messages().map(|message| message.to_string()).join(",");
        assert_eq!(parse(&payload), messages());
        let longest = messages().iter().map(|message| message.to_string().len()).max().unwrap();
        assert!((longest + 1) * MESSAGES_PER_NOTIFY < 8_000, "{longest}");
    }

    #[test]
    fn unknown_messages_of_a_newer_version_are_skipped() {
        let uid = Uuid::from_u128(7).simple();
        let payload = format!("{uid}:12,x:1,{uid}:y,{uid}:3:more,!{uid}:4,+{uid},={uid}:{uid},?{uid}:-1,");
        assert_eq!(parse(&payload), [FeedMessage::Raised(Scope(Uuid::from_u128(7)), Revision(12))]);
    }
}
