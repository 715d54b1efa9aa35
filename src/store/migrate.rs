//! Brings the schema up to date, one replica at a time.

use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::{ConnectOptions, Connection, Executor, PgConnection};

use super::{Store, StoreError, roles};

/// Names the lock among the database's advisory locks.
const LOCK: i64 = 0x7761_6767_6c65_0001;
/// How often the lock is asked for. Asked for, never waited on: a waiter holds a snapshot, and `create index
/// concurrently` of the replica that has the lock would wait for the waiter.
const POLL: Duration = Duration::from_millis(50);
/// The longest that the database may take to answer what is quickly answered: a network that swallows packets would hold
/// the start for good.
const ANSWERS: Duration = Duration::from_secs(5);
/// The longest that all migrations may take.
const MIGRATES: Duration = Duration::from_mins(10);

/// SQLSTATE of a table that does not exist.
const UNDEFINED_TABLE: &str = "42P01";

/// A migration of this version of the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaMigration {
    /// Its number.
    pub version: i64,
    /// Its name.
    pub name: String,
}

/// The schema of the database beside the one that this version of the program knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaStatus {
    /// The migrations that the database lacks.
    pub missing: Vec<SchemaMigration>,
    /// The newest migration of the database; `None` where it has none.
    pub applied: Option<i64>,
    /// The newest migration of this version.
    pub known: i64,
}

impl SchemaStatus {
    /// Whether a newer version of the program has migrated the database.
    pub fn is_newer(&self) -> bool {
        self.applied > Some(self.known)
    }

    async fn read(migrator: &Migrator, connection: &mut PgConnection) -> Result<Self, StoreError> {
        let listed = connection.list_applied_migrations(&migrator.table_name);
        let listed = tokio::time::timeout(ANSWERS, listed).await.map_err(|_| StoreError::Late)?;
        let applied: Vec<i64> = match listed {
            Ok(applied) => applied.into_iter().map(|migration| migration.version).collect(),
            Err(MigrateError::Execute(sqlx::Error::Database(error)))
                if error.code().as_deref() == Some(UNDEFINED_TABLE) =>
            {
                Vec::new()
            }
            Err(error) => return Err(error.into()),
        };
        let missing = migrator.iter().filter(|known| !applied.contains(&known.version));
        Ok(Self {
            missing: missing
                .map(|known| SchemaMigration { version: known.version, name: known.description.to_string() })
                .collect(),
            known: migrator.iter().map(|known| known.version).max().unwrap_or_default(),
            applied: applied.into_iter().max(),
        })
    }
}

fn migrator() -> Migrator {
    let mut migrator = sqlx::migrate!();
    migrator.set_ignore_missing(true).set_locking(false);
    migrator
}

impl Store {
    /// Reads which migrations the database lacks, and changes nothing.
    ///
    /// # Errors
    /// When the database is away or refuses.
    pub async fn schema(&self) -> Result<SchemaStatus, StoreError> {
        let mut connection = self.owner_connection().await?;
        let status = SchemaStatus::read(&migrator(), &mut connection).await?;
        answered(connection.close()).await?;
        Ok(status)
    }

    async fn owner_connection(&self) -> Result<PgConnection, StoreError> {
        answered(self.owner.as_ref().unwrap_or(&self.listen).connect()).await
    }

    /// Applies the migrations that are missing. A newer schema than this version knows is left as it is, so that
    /// an old replica runs beside a new one. Returns the status before: what it lacked was applied.
    ///
    /// # Errors
    /// When the database is not encoded in UTF-8, is away, another replica holds the lock for longer than `wait`, or a
    /// migration fails.
    pub async fn migrate(&self, wait: Duration) -> Result<SchemaStatus, StoreError> {
        let mut connection = self.owner_connection().await?;
        check_encoding(&mut connection).await?;
        let deadline = tokio::time::Instant::now() + wait;
        while !try_lock(&mut connection).await? {
            if tokio::time::Instant::now() >= deadline {
                return Err(StoreError::Late);
            }
            tokio::time::sleep(POLL).await;
        }
        let migrator = migrator();
        let before = SchemaStatus::read(&migrator, &mut connection).await?;
        // The library creates its table where there is one already, of which PostgreSQL sends a notice.
        answered(connection.execute("set client_min_messages to warning")).await?;
        let migrating = migrator.run_direct(None, &mut connection, false);
        tokio::time::timeout(MIGRATES, migrating).await.map_err(|_| StoreError::Late)??;
        if self.owner.is_some() {
            roles::grant(&mut connection, self.listen.get_username()).await?;
        }
        // Closing the connection gives the lock back.
        answered(connection.close()).await?;
        Ok(before)
    }
}

/// Refuses a database that cannot hold every text: a row that it refuses later would be missing in the audit log.
async fn check_encoding(connection: &mut PgConnection) -> Result<(), StoreError> {
    let encoding = sqlx::query_scalar!(r#"select current_setting('server_encoding') as "encoding!""#);
    let encoding = answered(encoding.fetch_one(connection)).await?;
    if encoding == "UTF8" { Ok(()) } else { Err(StoreError::Encoding(encoding)) }
}

async fn try_lock(connection: &mut PgConnection) -> Result<bool, StoreError> {
    let locked = sqlx::query_scalar!(r#"select pg_try_advisory_lock($1) as "locked!""#, LOCK);
    answered(locked.fetch_one(connection)).await
}

/// An answer in time; one that does not come is a database that is away.
async fn answered<T>(answer: impl Future<Output = sqlx::Result<T>>) -> Result<T, StoreError> {
    let late = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    Ok(tokio::time::timeout(ANSWERS, answer).await.map_err(late)??)
}
