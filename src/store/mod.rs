//! The connection pool, and all SQL statements, one file per table, checked at build time.
//!
//! Reads are methods of [`Store`], or of a [`Snapshot`](snapshot::Snapshot) if several must be consistent.
//! Writes are methods of [`Write`](write::Write), a transaction that locks the scopes it changes.

mod acquisition;
pub mod activity;
pub mod agent_rows;
pub mod agent_state;
pub mod agents;
pub mod audit;
mod batch;
pub mod changed_resources;
pub mod changes;
mod columns;
mod completion_sources;
pub mod connections;
pub mod contents;
pub mod definitions;
pub mod diagnosis;
pub mod error;
pub mod found_contents;
pub mod gateway;
pub mod hooks;
pub mod horizon;
pub mod issued_keys;
pub mod key_lookup;
pub mod keys;
pub mod leases;
pub mod migrate;
pub mod mount_entries;
pub mod mounts;
pub mod notify;
mod pooled_connection;
mod prefetched_changes;
pub mod prompts;
pub mod prune;
pub mod purge;
pub mod resources;
mod roles;
pub mod sessions;
pub mod skills;
pub mod snapshot;
mod tagged_rows;
pub mod templates;
pub mod tenants;
mod undelayed;
pub mod usage;
mod warm_connections;
pub mod watched;
pub mod watching;
pub mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Executor, PgConnection, PgPool};

pub use error::StoreError;

use acquisition::Acquisitions;
use prefetched_changes::PrefetchedChanges;
use warm_connections::WarmConnections;

/// The text is not a PostgreSQL URL.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct DatabaseUrlError(sqlx::Error);

/// Parses the URL of a database.
///
/// # Errors
/// If the text is not a PostgreSQL URL.
pub fn parse_url(url: &str) -> Result<PgConnectOptions, DatabaseUrlError> {
    let options: PgConnectOptions = url.parse().map_err(DatabaseUrlError)?;
    Ok(options.application_name("waggle"))
}

/// Host, port and name of a database, without credentials.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseLocation {
    /// Host name, or the directory of the Unix socket.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Database name, by default that of the user.
    pub database: String,
}

impl std::fmt::Display for DatabaseLocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port, database } = self;
        write!(f, "database {database} on {host}:{port}")
    }
}

/// Minimum idle timeout of a transaction. No transaction of the gateway is idle for as long between two statements.
const MIN_IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to wait for the response after the statement timeout has passed; then it is lost.
const RESPONSE_GRACE: Duration = Duration::from_secs(1);
/// Each prepared statement of a pooled connection is planned at its first execution only. PostgreSQL would plan the first five for
/// their values, which takes longer than executing them: after a start, for each statement on each connection.
const PLAN_ONCE: &str = "set plan_cache_mode = force_generic_plan";

/// Options of the database connections.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// For everything except `LISTEN` and migrations.
    pub connect: PgConnectOptions,
    /// For `LISTEN` and session locks, which do not work through a pooler in transaction mode.
    pub listen: PgConnectOptions,
    /// The role that owns the tables, if the gateway runs as another role: for migrations and dropping
    /// partitions.
    pub owner: Option<PgConnectOptions>,
    /// Maximum number of connections in the pool.
    pub max_connections: u32,
    /// Timeout of acquiring a connection.
    pub acquire: Duration,
    /// Timeout of a statement.
    pub statement: Duration,
    /// Timeout of acquiring a lock.
    pub lock: Duration,
}

/// The database. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Store {
    pool: PgPool,
    warm: Arc<WarmConnections>,
    acquisitions: Arc<Acquisitions>,
    listen: PgConnectOptions,
    owner: Option<PgConnectOptions>,
    /// Timeout of the response to a single statement.
    response_timeout: Duration,
    key_lookups: Arc<AtomicU64>,
    prefetched: Arc<PrefetchedChanges>,
    session: SessionSettings,
}

/// Settings of the PostgreSQL sessions that serve requests, write the audit log, or belong to the feed: timeouts, in milliseconds, and how they plan.
///
/// A plan is kept while its tables grow, so it uses their indexes, however few rows they had when it was made. What is left to
/// scan is small, and not worth compiling the plan.
#[derive(Debug, Clone)]
struct SessionSettings {
    statement: String,
    lock: String,
    idle: String,
}

impl SessionSettings {
    async fn set(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query!(
            "select set_config('statement_timeout', $1, false) as statement, \
             set_config('lock_timeout', $2, false) as lock, \
             set_config('idle_in_transaction_session_timeout', $3, false) as idle, \
             set_config('enable_seqscan', 'off', false) as scans, set_config('jit', 'off', false) as jit",
            self.statement,
            self.lock,
            self.idle,
        )
        .fetch_one(connection)
        .await
        .map(|_| ())
    }

    /// Sets them on a connection whose prepared statements find rows by their keys.
    async fn set_and_plan_once(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        self.set(&mut *connection).await?;
        connection.execute(PLAN_ONCE).await.map(|_| ())
    }
}

impl Store {
    /// Creates the pool. Connections are opened on demand.
    pub fn new(options: StoreOptions) -> Self {
        // The transaction of a gateway that the network lost must not hold locks for longer than others wait
        // for them.
        let idle = millis(options.lock.max(MIN_IDLE_TIMEOUT));
        let session =
            SessionSettings { statement: millis(options.statement), lock: millis(options.lock), idle };
        let pool_session = session.clone();
        let retired = Arc::new(Mutex::new(None::<Instant>));
        let retired_at = Arc::clone(&retired);
        let response_timeout = options.statement + RESPONSE_GRACE;
        let pool = PgPoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(options.acquire)
            // After a restart of the database, pooled connections are dead; a failed statement closes its
            // connection, and the next one is new. Testing each before use would cost a round trip per query.
            .test_before_acquire(false)
            .after_connect(move |connection, _| {
                let session = pool_session.clone();
                Box::pin(async move { session.set_and_plan_once(connection).await })
            })
            .before_acquire(move |_, metadata| {
                let retired = retired_at.lock().is_some_and(|at| metadata.age >= at.elapsed());
                Box::pin(async move { Ok(!retired) })
            })
            .connect_lazy_with(options.connect);
        let (listen, owner, warm) =
            (options.listen, options.owner, WarmConnections::new(pool.clone(), retired));
        let (acquisitions, key_lookups, prefetched) = Default::default();
        Self { pool, warm, acquisitions, listen, owner, response_timeout, key_lookups, prefetched, session }
    }

    /// The database to which migrations are applied.
    pub fn location(&self) -> DatabaseLocation {
        let options = self.owner.as_ref().unwrap_or(&self.listen);
        let host = options
            .get_socket()
            .map_or_else(|| options.get_host().to_owned(), |directory| directory.display().to_string());
        let database = options.get_database().unwrap_or_else(|| options.get_username()).to_owned();
        DatabaseLocation { host, port: options.get_port(), database }
    }

    /// The numbers of pooled connections in use and idle.
    pub fn connections(&self) -> (usize, usize) {
        let (all, idle) = (self.pool.size() as usize, self.pool.num_idle() + self.warm.idle());
        (all.saturating_sub(idle), idle)
    }

    /// The number of connections that the pool may open.
    pub fn connection_limit(&self) -> u32 {
        self.pool.options().get_max_connections()
    }

    /// The number of waits for a connection that timed out.
    pub fn acquisitions_timed_out(&self) -> u64 {
        self.acquisitions.timed_out()
    }

    /// Closes all currently open connections of the pool instead of using them again, since they may lead to
    /// another server than new ones.
    pub fn retire_connections(&self) {
        self.warm.retire();
    }

    /// Forgets what probes have read, and what they read on `LISTEN` connections that are open now: the database is on another
    /// timeline.
    pub fn forget_prefetched(&self) {
        self.prefetched.retire();
    }

    /// Waits until all connections are returned and closed.
    pub async fn close(&self) {
        self.warm.close().await;
    }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
