//! NOTIFY and LISTEN: hints that a scope has a new revision.

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnection, PgListener};

use super::{Store, StoreError};
use crate::model::scope::{Revision, Scope};

/// The channel that all replicas of one database share.
const CHANNEL: &str = "waggle";
/// Most hints of one notification: PostgreSQL takes payloads under 8,000 bytes, a hint has at most 42.
const HINTS: usize = 150;

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
        Ok(WakeSender { connection: self.listen.connect().await? })
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
    /// Tells all replicas of these revisions.
    pub async fn send(&mut self, hints: &[(Scope, Revision)]) -> Result<(), StoreError> {
        for batch in hints.chunks(HINTS) {
            let payload: Vec<_> =
                batch.iter().map(|(scope, revision)| format!("{}:{revision}", scope.0.simple())).collect();
            sqlx::query!("select pg_notify($1, $2)", CHANNEL, payload.join(","))
                .execute(&mut self.connection)
                .await?;
        }
        Ok(())
    }
}

impl WakeListener {
    /// The next hints. Cancelling loses none.
    ///
    /// # Errors
    /// When the connection is lost: what was sent meanwhile must be found otherwise.
    pub async fn next(&mut self) -> Result<Vec<(Scope, Revision)>, StoreError> {
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
    pub fn heard(&mut self) -> Vec<(Scope, Revision)> {
        std::iter::from_fn(|| self.listener.next_buffered()).flat_map(|n| parse(n.payload())).collect()
    }
}

/// Reads a payload; what a newer version may have added is passed over, the sweep finds it.
fn parse(payload: &str) -> Vec<(Scope, Revision)> {
    let hint = |text: &str| {
        let (scope, revision) = text.split_once(':')?;
        Some((Scope(scope.parse().ok()?), revision.parse().ok()?))
    };
    payload.split(',').filter_map(hint).collect()
}

#[cfg(test)]
mod tests {
    use super::parse;
    use crate::model::scope::{Revision, Scope};

    #[test]
    fn a_payload_of_a_newer_version_is_read_as_far_as_it_is_understood() {
        let uid = uuid::Uuid::from_u128(7);
        let payload = format!("{}:12,x:1,{}:y,{}:3:more,", uid.simple(), uid.simple(), uid.simple());
        assert_eq!(parse(&payload), [(Scope(uid), Revision(12))]);
    }
}
