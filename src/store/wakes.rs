//! NOTIFY and LISTEN: hints that a scope has a new revision, and what replicas tell each other of having heard them.

use sqlx::postgres::{PgConnection, PgListener};
use sqlx::{ConnectOptions, Executor};
use uuid::Uuid;

use super::{Store, StoreError};
use crate::model::scope::{Revision, Scope};

/// The channel that all replicas of one database share.
const CHANNEL: &str = "waggle";
/// Most messages of one notification: PostgreSQL takes payloads under 8,000 bytes, a message has at most 86.
const MESSAGES: usize = 90;

/// One life of a gateway process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ReplicaId(pub Uuid);

/// What replicas tell each other. All of them hear all of it, the sender included, in the order of its commits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// A scope is at this revision or a newer one.
    Raised(Scope, Revision),
    /// The replica is there and hears; the number is its own, to know its message again.
    Alive(ReplicaId, u64),
    /// The replica asks all others to tell it when they have heard everything before this question.
    Ask(ReplicaId, u64),
    /// The first replica has heard everything before this question of the second.
    Heard(ReplicaId, ReplicaId, u64),
}

/// A connection of its own for sending wakes, so that they wait for no pool and no write waits for them.
#[derive(Debug)]
pub struct WakeSender {
    connection: PgConnection,
}

/// A connection that hears the wakes of all replicas.
#[derive(Debug)]
pub struct WakeListener {
    listener: PgListener,
}

impl Store {
    /// Connects a sender.
    pub async fn wake_sender(&self) -> Result<WakeSender, StoreError> {
        let mut connection = self.listen.connect().await?;
        // Nothing that is sent here needs to survive the database: no message waits for its disk.
        connection.execute("set synchronous_commit = off").await?;
        Ok(WakeSender { connection })
    }

    /// Connects a listener; what is sent from now on is heard.
    pub async fn wake_listener(&self) -> Result<WakeListener, StoreError> {
        let pool = sqlx::postgres::PgPoolOptions::new()
            .max_connections(1)
            .test_before_acquire(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .connect_lazy_with(self.listen.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        // A silent reconnection would hide what was missed meanwhile.
        listener.eager_reconnect(false);
        listener.listen(CHANNEL).await?;
        Ok(WakeListener { listener })
    }
}

impl WakeSender {
    /// Tells all replicas.
    pub async fn send(&mut self, messages: &[Wake]) -> Result<(), StoreError> {
        for batch in messages.chunks(MESSAGES) {
            let payload: Vec<_> = batch.iter().map(ToString::to_string).collect();
            sqlx::query!("select pg_notify($1, $2)", CHANNEL, payload.join(","))
                .execute(&mut self.connection)
                .await?;
        }
        Ok(())
    }
}

impl WakeListener {
    /// The next messages. Cancelling loses none.
    ///
    /// # Errors
    /// When the connection is lost: what was sent meanwhile must be found otherwise.
    pub async fn next(&mut self) -> Result<Vec<Wake>, StoreError> {
        match self.listener.try_recv().await? {
            Some(notification) => Ok(parse(notification.payload())),
            None => Err(StoreError::Away(sqlx::Error::WorkerCrashed)),
        }
    }

    /// Asks the server for an answer, on the very connection that hears the wakes.
    pub async fn probe(&mut self) -> Result<(), StoreError> {
        sqlx::query_scalar!(r#"select 1 as "one!""#).fetch_one(&mut self.listener).await?;
        Ok(())
    }

    /// What was heard while a probe was under way.
    pub fn heard(&mut self) -> Vec<Wake> {
        std::iter::from_fn(|| self.listener.next_buffered()).flat_map(|n| parse(n.payload())).collect()
    }
}

impl std::fmt::Display for Wake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Raised(scope, revision) => write!(f, "{}:{revision}", scope.0.simple()),
            Self::Alive(replica, number) => write!(f, "+{}:{number}", replica.0.simple()),
            Self::Ask(replica, number) => write!(f, "?{}:{number}", replica.0.simple()),
            Self::Heard(by, of, number) => write!(f, "={}:{}:{number}", by.0.simple(), of.0.simple()),
        }
    }
}

impl Wake {
    /// The scope that it tells of.
    pub fn raised(&self) -> Option<(Scope, Revision)> {
        match self {
            Self::Raised(scope, revision) => Some((*scope, *revision)),
            Self::Alive(..) | Self::Ask(..) | Self::Heard(..) => None,
        }
    }

    /// Reads a message; what a newer version may have added is none.
    fn parse(text: &str) -> Option<Self> {
        let numbered = |text: &str| {
            let (replica, number) = text.split_once(':')?;
            Some((ReplicaId(replica.parse().ok()?), number.parse().ok()?))
        };
        if let Some(alive) = text.strip_prefix('+') {
            return numbered(alive).map(|(replica, number)| Self::Alive(replica, number));
        }
        if let Some(question) = text.strip_prefix('?') {
            return numbered(question).map(|(replica, number)| Self::Ask(replica, number));
        }
        if let Some(answer) = text.strip_prefix('=') {
            let (by, question) = answer.split_once(':')?;
            let by = ReplicaId(by.parse().ok()?);
            return numbered(question).map(|(of, number)| Self::Heard(by, of, number));
        }
        let (scope, revision) = text.split_once(':')?;
        Some(Self::Raised(Scope(scope.parse().ok()?), revision.parse().ok()?))
    }
}

/// Reads a payload; what is not understood is passed over, the sweep finds what it tells of.
fn parse(payload: &str) -> Vec<Wake> {
    payload.split(',').filter_map(Wake::parse).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::{MESSAGES, ReplicaId, Wake, parse};
    use crate::model::scope::{Revision, Scope};

    fn messages() -> [Wake; 4] {
        let (one, two) = (ReplicaId(Uuid::from_u128(7)), ReplicaId(Uuid::max()));
        [
            Wake::Raised(Scope(Uuid::from_u128(9)), Revision(12)),
            Wake::Alive(one, 3),
            Wake::Ask(two, u64::MAX),
            Wake::Heard(two, one, u64::MAX),
        ]
    }

    #[test]
    fn what_is_sent_is_what_is_heard() {
        let payload = messages().map(|message| message.to_string()).join(",");
        assert_eq!(parse(&payload), messages());
        let longest = messages().iter().map(|message| message.to_string().len()).max().unwrap();
        assert!((longest + 1) * MESSAGES < 8_000, "{longest}");
    }

    #[test]
    fn a_payload_of_a_newer_version_is_read_as_far_as_it_is_understood() {
        let uid = Uuid::from_u128(7).simple();
        let payload = format!("{uid}:12,x:1,{uid}:y,{uid}:3:more,!{uid}:4,+{uid},={uid}:{uid},?{uid}:-1,");
        assert_eq!(parse(&payload), [Wake::Raised(Scope(Uuid::from_u128(7)), Revision(12))]);
    }
}
