//! `NOTIFY` and `LISTEN`: the messages that replicas exchange about new revisions, and what each has acknowledged.
//!
//! An acknowledgement is no message: PostgreSQL wakes every listening connection for each `NOTIFY`, so that
//! acknowledgements by `NOTIFY` would cost the square of the number of replicas. It is part of the
//! `application_name` of the acknowledging replica's `LISTEN` connection, which the server holds in shared memory.

use std::str::FromStr;
use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgListener};
use sqlx::{ConnectOptions, Executor};

use super::changed_resources::{changed_rows, changes_of_rows};
use super::prefetched_changes::{Generation, PrefetchedChanges};
use super::{Store, StoreError};
use crate::model::ids::AgentRef;
use crate::model::scope::{Revision, Scope};
use crate::model::trace::WriteSpan;

/// The channel shared by all replicas of one database.
const CHANNEL: &str = "waggle";
/// Maximum number of messages per `NOTIFY`: PostgreSQL limits a payload to less than 8,000 bytes, and a
/// message has at most 102.
const MESSAGES_PER_NOTIFY: usize = 77;
/// Limits of probes, some of which read tables: one that waits for a lock is repeated without reading. Without a timeout of
/// statements: PostgreSQL would wake up for it after each probe, whether the probe is answered by then or not.
const PROBE_LIMITS: &str = "set lock_timeout = '20ms'; set statement_timeout = 0";

/// Identifies one `LISTEN` connection of a replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ListenerId(pub u64);

/// Identifies a request for acknowledgement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct AckRequestId(pub u64);

/// A message between replicas. Every replica receives every message, including its own, in commit order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FeedMessage {
    /// A scope is at this revision or a newer one.
    Raised(Scope, Revision),
    /// The span of the write that made a revision, sent before the revision.
    Written(WriteSpan),
    /// A replica has streams on the scope, whose events wait for acknowledgements.
    Followed(Scope),
    /// Every replica is asked to acknowledge that it has received everything before this request.
    AckRequest(AckRequestId),
    /// Every replica that may answer from memory has received everything before this request.
    Acknowledged(AckRequestId),
}

/// What a replica shows on its `LISTEN` connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerState {
    /// The connection.
    pub id: ListenerId,
    /// The newest request that the replica has received, if any.
    pub acknowledged: Option<AckRequestId>,
    /// Number of probes on the connection.
    pub probes: u64,
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
    prefetched: Arc<PrefetchedChanges>,
    generation: Generation,
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
        let generation = self.prefetched.generation();
        let session = self.session.clone();
        let pool = sqlx::postgres::PgPoolOptions::new()
            .max_connections(1)
            .test_before_acquire(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .after_connect(move |connection, _| {
                let session = session.clone();
                Box::pin(async move { session.set_and_plan_once(connection).await })
            })
            .connect_lazy_with(self.listen.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        // An automatic reconnection would hide that messages were missed.
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        Ok(NotifyListener { listener, prefetched: Arc::clone(&self.prefetched), generation })
    }

    /// Removes the listener of a replica that does not trust it any more.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn unregister_listener(&self, id: ListenerId) -> Result<(), StoreError> {
        let statement = async |connection: &mut PgConnection| {
            sqlx::query!("delete from feed_listeners where listener = $1", id.to_string())
                .execute(connection)
                .await
        };
        self.run(statement).await.map(|_| ())
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

    /// Reads the registered listeners, each with the state that it shows, or none if its connection is closed.
    ///
    /// # Errors
    /// If the connection is lost; the sender cannot be used any more.
    pub async fn listeners(&mut self) -> Result<Vec<(ListenerId, Option<ListenerState>)>, StoreError> {
        let rows = sqlx::query!(
            r#"select l.listener as "registered!", a.application_name as "shown?"
            from feed_listeners l
            left join lateral pg_stat_get_activity(l.pid) a
            on starts_with(a.application_name, 'waggle-feed/' || l.listener || '/')"#,
        )
        .fetch_all(&mut self.connection)
        .await?;
        let state = |shown: Option<String>| shown?.parse().ok();
        let listeners =
            rows.into_iter().filter_map(|row| Some((row.registered.parse().ok()?, state(row.shown))));
        Ok(listeners.collect())
    }

    /// Removes listeners of replicas that do not trust them any more.
    ///
    /// # Errors
    /// If the connection is lost; the sender cannot be used any more.
    pub async fn forget(&mut self, gone: &[ListenerId]) -> Result<(), StoreError> {
        let gone: Vec<_> = gone.iter().map(ToString::to_string).collect();
        sqlx::query!("delete from feed_listeners where listener = any($1)", &gone)
            .execute(&mut self.connection)
            .await?;
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
            None => Err(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()).into()),
        }
    }

    /// Registers the listener, in place of one that this replica trusted before. Only probes follow, within their limits.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn register(&mut self, id: ListenerId, before: Option<ListenerId>) -> Result<(), StoreError> {
        sqlx::query!(
            "with before as (delete from feed_listeners where listener = $2) \
             insert into feed_listeners (listener, pid) values ($1, pg_backend_pid())",
            id.to_string(),
            before.map(|before| before.to_string()),
        )
        .execute(&mut self.listener)
        .await?;
        self.listener.execute(PROBE_LIMITS).await?;
        Ok(())
    }

    /// Shows a state on the connection and waits until the server has done so. Every message whose sending had
    /// ended before is [`buffered`](Self::buffered) then.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn probe(&mut self, state: &ListenerState) -> Result<(), StoreError> {
        // All rows, and so to the end of the response: the messages stand before it.
        sqlx::query!("select set_config('application_name', $1, false)", state.to_string())
            .fetch_all(&mut self.listener)
            .await?;
        Ok(())
    }

    /// Probes as [`probe`](Self::probe) does, and reads in the same statement what changed of an agent after a revision, for
    /// the next call of [`Store::changed_resources`]. What cannot be read is left to that call, which reports why.
    ///
    /// # Errors
    /// If the connection is lost.
    pub async fn probe_and_read(
        &mut self,
        state: &ListenerState,
        agent: AgentRef,
        after: Revision,
    ) -> Result<(), StoreError> {
        let rows = changed_rows(&mut self.listener, agent, after, Some(&state.to_string())).await;
        match rows.map_err(StoreError::from) {
            Ok(rows) => {
                if let Ok(Some(read)) = changes_of_rows(rows, after) {
                    self.prefetched.put((agent, after), read, self.generation);
                }
                Ok(())
            }
            Err(error) if error.is_disconnected() => Err(error),
            Err(_) => self.probe(state).await,
        }
    }

    /// Messages received during a probe.
    pub fn buffered(&mut self) -> Vec<FeedMessage> {
        std::iter::from_fn(|| self.listener.next_buffered()).flat_map(|n| parse(n.payload())).collect()
    }
}

impl std::fmt::Display for ListenerId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for ListenerId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u64::from_str_radix(text, 16).map(Self)
    }
}

/// At most 62 bytes: PostgreSQL cuts an `application_name` off after 63.
impl std::fmt::Display for ListenerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "waggle-feed/{}/", self.id)?;
        match self.acknowledged {
            Some(request) => write!(f, "{:016x}", request.0)?,
            None => f.write_str("-")?,
        }
        write!(f, "/{:x}", self.probes)
    }
}

/// The text is not a [`ListenerState`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InvalidState;

impl FromStr for ListenerState {
    type Err = InvalidState;

    fn from_str(text: &str) -> Result<Self, InvalidState> {
        let mut parts = text.strip_prefix("waggle-feed/").ok_or(InvalidState)?.splitn(3, '/');
        let mut number = || match parts.next() {
            Some("-") => Ok(None),
            part => part.and_then(|part| u64::from_str_radix(part, 16).ok()).map(Some).ok_or(InvalidState),
        };
        let id = ListenerId(number()?.ok_or(InvalidState)?);
        let acknowledged = number()?.map(AckRequestId);
        Ok(Self { id, acknowledged, probes: number()?.ok_or(InvalidState)? })
    }
}

impl std::fmt::Display for FeedMessage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Raised(scope, revision) => write!(f, "{}:{revision}", scope.0.simple()),
            Self::Written(WriteSpan { scope, revision, span }) => {
                write!(f, "~{}:{revision}:{span}", scope.0.simple())
            }
            Self::Followed(scope) => write!(f, "*{}", scope.0.simple()),
            Self::AckRequest(request) => write!(f, "!{:016x}", request.0),
            Self::Acknowledged(request) => write!(f, "@{:016x}", request.0),
        }
    }
}

impl FeedMessage {
    /// The scope and revision that it announces, if any.
    pub fn raised(&self) -> Option<(Scope, Revision)> {
        match self {
            Self::Raised(scope, revision) => Some((*scope, *revision)),
            Self::Written(_) | Self::Followed(_) | Self::AckRequest(_) | Self::Acknowledged(_) => None,
        }
    }

    /// Parses a message; returns `None` for kinds of another version.
    fn parse(text: &str) -> Option<Self> {
        let request = |text| u64::from_str_radix(text, 16).ok().map(AckRequestId);
        if let Some(scope) = text.strip_prefix('*') {
            return Some(Self::Followed(Scope(scope.parse().ok()?)));
        }
        if let Some(written) = text.strip_prefix('~') {
            let (scope, rest) = written.split_once(':')?;
            let (revision, span) = rest.split_once(':')?;
            let (scope, revision) = (Scope(scope.parse().ok()?), revision.parse().ok()?);
            return Some(Self::Written(WriteSpan { scope, revision, span: span.parse().ok()? }));
        }
        if let Some(id) = text.strip_prefix('!') {
            return request(id).map(Self::AckRequest);
        }
        if let Some(id) = text.strip_prefix('@') {
            return request(id).map(Self::Acknowledged);
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

    use super::{AckRequestId, FeedMessage, ListenerId, ListenerState, MESSAGES_PER_NOTIFY, parse};
    use crate::model::scope::{Revision, Scope};
    use crate::model::trace::{SpanContext, WriteSpan};

    fn messages() -> [FeedMessage; 6] {
        let span = SpanContext { trace: u128::MAX, span: 9 };
        [
            FeedMessage::Written(WriteSpan { scope: Scope(Uuid::max()), revision: Revision(i64::MAX), span }),
            FeedMessage::Raised(Scope(Uuid::from_u128(9)), Revision(12)),
            FeedMessage::Raised(Scope(Uuid::max()), Revision(i64::MAX)),
            FeedMessage::Followed(Scope(Uuid::max())),
            FeedMessage::AckRequest(AckRequestId(3)),
            FeedMessage::Acknowledged(AckRequestId(u64::MAX)),
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
    fn listener_states_parse_to_themselves_within_the_length_of_a_name() {
        for acknowledged in [None, Some(AckRequestId(0)), Some(AckRequestId(u64::MAX))] {
            let state = ListenerState { id: ListenerId(u64::MAX), acknowledged, probes: u64::MAX };
            assert_eq!(state.to_string().parse(), Ok(state));
            assert!(state.to_string().len() < 64, "{state}");
        }
        for other in ["waggle", "waggle-feed/", "waggle-feed/1/2", "waggle-feed/-/1/2", "waggle-feed/1/2/-"] {
            assert!(other.parse::<ListenerState>().is_err(), "{other}");
        }
    }

    #[test]
    fn unknown_messages_of_another_version_are_skipped() {
        let uid = Uuid::from_u128(7).simple();
        let payload = format!(
            "{uid}:12,x:1,{uid}:y,{uid}:3:more,!{uid}:4,~{uid}:4,~{uid}:4:0,+{uid}:1,={uid}:{uid}:2,?{uid}:3,"
        );
        assert_eq!(parse(&payload), [FeedMessage::Raised(Scope(Uuid::from_u128(7)), Revision(12))]);
    }
}
