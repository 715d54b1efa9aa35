//! All SQL. One database, tested for real: no repository traits.
//!
//! Reads are methods of [`Store`] or take the connection of a [`Snapshot`](snapshot::Snapshot); writes are methods of
//! [`Write`](write::Write), which holds the locks of the scopes it changes.

pub mod agents;
pub mod audit;
mod batch;
pub mod changes;
pub mod contents;
mod definition;
pub mod error;
pub mod gateway;
pub mod issued_keys;
pub mod keys;
mod lease;
pub mod look_up;
pub mod migrate;
pub mod prompts;
pub mod prune;
pub mod purge;
pub mod resources;
mod roles;
pub mod sessions;
pub mod snapshot;
pub mod templates;
pub mod tenants;
pub mod usage;
pub mod wakes;
pub mod write;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgConnection, PgPool};

pub use error::StoreError;

/// Why a text is no PostgreSQL URL.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct AddressError(sqlx::Error);

/// Where a database is, from its URL.
///
/// # Errors
/// Where the text does not have the form of a PostgreSQL URL.
pub fn address(url: &str) -> Result<PgConnectOptions, AddressError> {
    let options: PgConnectOptions = url.parse().map_err(AddressError)?;
    Ok(options.application_name("waggle"))
}

/// The host, the port and the name of a database, without user and password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabasePlace {
    /// Its host, or the directory of its socket.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Its name, which is that of the user where none is given.
    pub database: String,
}

impl std::fmt::Display for DatabasePlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port, database } = self;
        write!(f, "database {database} on {host}:{port}")
    }
}

/// The least for which a transaction may be left alone: none does as much between two statements.
const LEFT_ALONE: Duration = Duration::from_secs(5);

/// How long after the database has ended a statement its answer is waited for: then the network has lost it.
const LOST: Duration = Duration::from_secs(1);

/// How the pool is made.
#[derive(Debug, Clone)]
pub struct StoreOptions {
    /// Where the database is, for everything but LISTEN and migrations.
    pub connect: PgConnectOptions,
    /// Where LISTEN and session locks work: not through a transaction-mode pooler.
    pub listen: PgConnectOptions,
    /// As whom the tables are made and the audit log's partitions dropped, where that is another role than the one that
    /// runs the gateway and owns nothing.
    pub owner: Option<PgConnectOptions>,
    /// Most connections of the pool.
    pub max_connections: u32,
    /// How long a caller waits for a connection.
    pub acquire: Duration,
    /// How long a statement may run.
    pub statement: Duration,
    /// How long a statement may wait for a lock.
    pub lock: Duration,
}

/// The database.
#[derive(Debug, Clone)]
pub struct Store {
    pool: PgPool,
    listen: PgConnectOptions,
    owner: Option<PgConnectOptions>,
    /// How long a single statement is waited for.
    answers: Duration,
    key_look_ups: Arc<AtomicU64>,
    session: Session,
    /// Connections of the pool from before are not used again.
    retired: Arc<Mutex<Option<Instant>>>,
}

/// The time limits that PostgreSQL holds a connection to, in milliseconds.
#[derive(Debug, Clone)]
struct Session {
    statement: String,
    lock: String,
    idle: String,
}

impl Session {
    async fn set(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query!(
            "select set_config('statement_timeout', $1, false) as statement, \
             set_config('lock_timeout', $2, false) as lock, \
             set_config('idle_in_transaction_session_timeout', $3, false) as idle",
            self.statement,
            self.lock,
            self.idle,
        )
        .fetch_one(connection)
        .await
        .map(|_| ())
    }
}

impl Store {
    /// Makes the pool. Connects when first asked something.
    pub fn new(options: StoreOptions) -> Self {
        // One whose gateway the network lost keeps its locks no longer than others wait for them.
        let idle = millis(options.lock.max(LEFT_ALONE));
        let session = Session { statement: millis(options.statement), lock: millis(options.lock), idle };
        let of_pool = session.clone();
        let retired = Arc::new(Mutex::new(None::<Instant>));
        let before = Arc::clone(&retired);
        let answers = options.statement + LOST;
        let pool = PgPoolOptions::new()
            .max_connections(options.max_connections)
            .acquire_timeout(options.acquire)
            // A restarted database leaves dead connections behind; a failed statement closes its own, and the next
            // one opened is new. Asking each before use would cost a round trip a query.
            .test_before_acquire(false)
            .after_connect(move |connection, _| {
                let session = of_pool.clone();
                Box::pin(async move { session.set(connection).await })
            })
            .before_acquire(move |_, about| {
                let retired = before.lock().is_some_and(|at| about.age >= at.elapsed());
                Box::pin(async move { Ok(!retired) })
            })
            .connect_lazy_with(options.connect);
        let (listen, owner) = (options.listen, options.owner);
        Self { pool, listen, owner, answers, key_look_ups: Arc::default(), session, retired }
    }

    /// Where migrations are applied.
    pub fn place(&self) -> DatabasePlace {
        let options = self.owner.as_ref().unwrap_or(&self.listen);
        let host = options
            .get_socket()
            .map_or_else(|| options.get_host().to_owned(), |directory| directory.display().to_string());
        let database = options.get_database().unwrap_or_else(|| options.get_username()).to_owned();
        DatabasePlace { host, port: options.get_port(), database }
    }

    /// How many connections of the pool are in use, and how many are idle.
    pub fn connections(&self) -> (usize, usize) {
        let (all, idle) = (self.pool.size() as usize, self.pool.num_idle());
        (all.saturating_sub(idle), idle)
    }

    /// Has every connection of the pool that is open now closed instead of used again: it may lead to another server than
    /// new ones.
    pub fn retire_connections(&self) {
        *self.retired.lock() = Some(Instant::now());
    }

    /// Waits until every connection is given back and closed.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}

fn millis(duration: Duration) -> String {
    duration.as_millis().to_string()
}
