//! What `waggle doctor` reads of a database: its version and settings, the rights of the role, and whether a notification
//! passes through the connections of the gateway.

use std::time::Duration;

use sqlx::postgres::PgListener;
use sqlx::{ConnectOptions, Connection};
use time::OffsetDateTime;

use super::migrate::in_time;
use super::{Store, StoreError};

/// How long a notification may take.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(5);

/// Facts about a database.
#[derive(Debug)]
pub struct DatabaseFacts {
    /// The version of the server, such as `15.4`.
    pub version: String,
    /// The same as a number, such as 150004.
    pub version_number: i32,
    /// The encoding of the database.
    pub encoding: String,
    /// The clock of the server.
    pub now: OffsetDateTime,
    /// The role that the gateway connects as.
    pub role: String,
    /// Whether the role is a superuser.
    pub is_superuser: bool,
    /// Whether the server refuses writes, since it is a standby.
    pub is_standby: bool,
    /// Whether sessions of the role refuse writes by default.
    pub is_read_only: bool,
    /// The maximum number of connections of the server.
    pub max_connections: i32,
    /// The number of connections in use.
    pub connections: i32,
    /// The number of replicas that listen for changes in the database.
    pub replicas: i32,
    /// The age in seconds of the oldest transaction of any database of the server.
    pub oldest_transaction: f64,
}

impl Store {
    /// Reads facts about the database.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    pub async fn facts(&self) -> Result<DatabaseFacts, StoreError> {
        let facts = sqlx::query_as!(
            DatabaseFacts,
            r#"select current_setting('server_version') as "version!",
                      current_setting('server_version_num')::integer as "version_number!",
                      pg_encoding_to_char(d.encoding) as "encoding!", clock_timestamp() as "now!",
                      r.rolname as "role!", r.rolsuper as "is_superuser!", pg_is_in_recovery() as "is_standby!",
                      current_setting('default_transaction_read_only')::boolean as "is_read_only!",
                      current_setting('max_connections')::integer as "max_connections!",
                      (select count(*) from pg_stat_activity where backend_type = 'client backend')::integer
                          as "connections!",
                      (select count(*) from pg_stat_activity
                       where datname = current_database() and starts_with(application_name, 'waggle-feed/'))::integer
                          as "replicas!",
                      (select coalesce(max(extract(epoch from clock_timestamp() - xact_start)), 0)
                       from pg_stat_activity where backend_type = 'client backend')::float8
                          as "oldest_transaction!"
               from pg_database d, pg_roles r
               where d.datname = current_database() and r.rolname = current_user"#,
        );
        // A connection of its own: the pool retries to connect, and then reports that it timed out instead of the cause.
        in_time(async {
            let mut connection = self.pool.connect_options().connect().await?;
            let facts = facts.fetch_one(&mut connection).await?;
            connection.close().await?;
            Ok(facts)
        })
        .await
    }

    /// Sends a notification on a channel of its own and receives it on a `LISTEN` connection; returns how long that took.
    ///
    /// # Errors
    /// [`StoreError::Timeout`] if it does not arrive, as through a pooler in transaction mode.
    pub async fn notification_round_trip(&self, channel: &str) -> Result<Duration, StoreError> {
        let trip = async {
            let pool = sqlx::postgres::PgPoolOptions::new().max_connections(1);
            let pool = pool.connect_with(self.listen.clone()).await?;
            let mut listener = PgListener::connect_with(&pool).await?;
            listener.listen(channel).await?;
            // The time to connect is none of the notification's.
            let mut sender = self.acquire().await?;
            let sent = std::time::Instant::now();
            sqlx::query!("select pg_notify($1, '')::text as sent", channel)
                .fetch_one(sender.connection())
                .await?;
            listener.recv().await?;
            Ok(sent.elapsed())
        };
        tokio::time::timeout(NOTIFICATION_TIMEOUT, trip).await.unwrap_or(Err(StoreError::Timeout))
    }
}
