//! Applies the schema migrations, one replica at a time.

use std::time::Duration;

use sqlx::migrate::{Migrate, MigrateError, Migrator};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};

use super::{Store, StoreError, roles};

/// Key of the advisory lock held during migrations.
const LOCK: i64 = 0x7761_6767_6c65_0001;
/// Interval between attempts to acquire the lock. Waiting for it would hold a snapshot, for which `create
/// index concurrently` of the migrating replica would wait.
const POLL: Duration = Duration::from_millis(50);
/// Timeout of statements that complete quickly, for networks that drop packets.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a start waits for another replica before it logs that: each start holds the lock for a moment.
const LOG_AFTER: Duration = Duration::from_secs(1);
/// Timeout of all migrations together, also of those of another replica.
const MIGRATION_TIMEOUT: Duration = Duration::from_mins(10);

/// How long a migration waits for a lock before it lets those go on that wait behind it: a dump of the database, which
/// holds locks for hours, would otherwise stop every replica.
const LOCK_TIMEOUT: &str = "set lock_timeout = '1s'";
/// Without a transaction, such as `create index concurrently`, which waits for other transactions while none waits for it.
const NO_LOCK_TIMEOUT: &str = "set lock_timeout = 0";
/// Without limits on time, of which PostgreSQL knows that of transactions from version 17 on.
const UNLIMITED_SESSION: &str = "set client_min_messages to warning; set statement_timeout = 0; \
    select set_config(name, '0', false) from pg_settings where name = 'transaction_timeout'";
/// The pause after that, in which they go on.
const LOCK_RETRY: Duration = Duration::from_secs(1);

/// SQLSTATE of an undefined table.
const UNDEFINED_TABLE: &str = "42P01";
/// SQLSTATE of an elapsed `lock_timeout`.
const LOCK_NOT_AVAILABLE: &str = "55P03";

/// A migration known to this version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaMigration {
    /// Number of the migration.
    pub version: i64,
    /// Name of the migration.
    pub name: String,
}

/// The schema of the database compared with the one that this version expects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaStatus {
    /// Migrations that are not applied.
    pub missing: Vec<SchemaMigration>,
    /// The newest applied migration, if any.
    pub applied: Option<i64>,
    /// The newest migration known to this version.
    pub known: i64,
}

impl SchemaStatus {
    /// Whether a newer version has migrated the database.
    pub fn is_newer(&self) -> bool {
        self.applied > Some(self.known)
    }

    async fn read(migrator: &Migrator, connection: &mut PgConnection) -> Result<Self, StoreError> {
        let listed = connection.list_applied_migrations(&migrator.table_name);
        let listed = tokio::time::timeout(RESPONSE_TIMEOUT, listed).await.map_err(|_| StoreError::Timeout)?;
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
    /// Reads which migrations are missing, without applying them.
    ///
    /// # Errors
    /// [`StoreError`] if the database cannot be read.
    pub async fn schema(&self) -> Result<SchemaStatus, StoreError> {
        let mut connection = self.owner_connection().await?;
        let status = SchemaStatus::read(&migrator(), &mut connection).await?;
        in_time(connection.close()).await?;
        Ok(status)
    }

    async fn owner_connection(&self) -> Result<PgConnection, StoreError> {
        in_time(self.owner.as_ref().unwrap_or(&self.listen).connect()).await
    }

    /// Applies the missing migrations. A newer schema is left unchanged, so that an old replica can run
    /// beside a new one. Returns the status before the migration.
    ///
    /// # Errors
    /// If the database is not encoded in UTF-8 or is unavailable, another replica holds the lock for longer
    /// than migrations may take, or a migration fails.
    pub async fn migrate(&self) -> Result<SchemaStatus, StoreError> {
        let mut connection = self.owner_connection().await?;
        check_encoding(&mut connection).await?;
        let began = tokio::time::Instant::now();
        let mut logged = false;
        while !try_lock(&mut connection).await? {
            let waited = began.elapsed();
            if waited >= MIGRATION_TIMEOUT {
                return Err(StoreError::Migrating(MIGRATION_TIMEOUT));
            }
            if waited >= LOG_AFTER && !logged {
                tracing::info!(
                    wait_seconds = MIGRATION_TIMEOUT.as_secs(),
                    "another replica migrates the database; waiting for it"
                );
                logged = true;
            }
            tokio::time::sleep(POLL).await;
        }
        let migrator = migrator();
        let before = SchemaStatus::read(&migrator, &mut connection).await?;
        // sqlx creates its table if it does not exist, for which PostgreSQL sends a notice if it does. A role or database may
        // limit the time of statements, which would end the creation of a large index in each attempt.
        in_time(connection.execute(UNLIMITED_SESSION)).await?;
        let migrating = apply(&migrator, &before, &mut connection);
        tokio::time::timeout(MIGRATION_TIMEOUT, migrating).await.map_err(|_| StoreError::Timeout)??;
        if self.owner.is_some() {
            roles::grant(&mut connection, self.listen.get_username()).await?;
        }
        // Closing the connection releases the lock.
        in_time(connection.close()).await?;
        Ok(before)
    }
}

/// Applies the missing migrations one after another, each again while it gets no lock in time.
async fn apply(
    migrator: &Migrator,
    before: &SchemaStatus,
    connection: &mut PgConnection,
) -> Result<(), StoreError> {
    for SchemaMigration { version, .. } in &before.missing {
        let alone = migrator.iter().find(|known| known.version == *version && known.no_tx);
        in_time(connection.execute(if alone.is_some() { NO_LOCK_TIMEOUT } else { LOCK_TIMEOUT })).await?;
        if let Some(index) = alone.and_then(|migration| concurrent_index(migration.sql.as_str())) {
            // An attempt that ended in the middle left it behind, invalid or not yet recorded as applied.
            connection.execute(AssertSqlSafe(format!("drop index concurrently if exists {index}"))).await?;
        }
        while let Err(error) = migrator.run_direct(Some(*version), connection, false).await {
            if !is_lock_timeout(&error) {
                let error = StoreError::from(error);
                if error.is_unavailable() {
                    tracing::warn!(migration = version, %error, "migration interrupted");
                }
                return Err(error);
            }
            tracing::warn!(migration = version, "migration waits for a lock; retrying");
            tokio::time::sleep(LOCK_RETRY).await;
        }
    }
    // Compares those that were applied before with the ones that this version knows.
    Ok(migrator.run_direct(None, connection, false).await?)
}

/// The index that a migration without a transaction creates.
fn concurrent_index(sql: &str) -> Option<&str> {
    sql.split_whitespace().skip_while(|word| *word != "concurrently").nth(1)
}

fn is_lock_timeout(error: &MigrateError) -> bool {
    let (MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _)) = error else {
        return false;
    };
    error.as_database_error().is_some_and(|error| error.code().as_deref() == Some(LOCK_NOT_AVAILABLE))
}

/// Rejects a database that is not UTF-8: it could later reject rows of the audit log.
async fn check_encoding(connection: &mut PgConnection) -> Result<(), StoreError> {
    let encoding = sqlx::query_scalar!(r#"select current_setting('server_encoding') as "encoding!""#);
    let encoding = in_time(encoding.fetch_one(connection)).await?;
    if encoding == "UTF8" { Ok(()) } else { Err(StoreError::Encoding(encoding)) }
}

async fn try_lock(connection: &mut PgConnection) -> Result<bool, StoreError> {
    let locked = sqlx::query_scalar!(r#"select pg_try_advisory_lock($1) as "locked!""#, LOCK);
    in_time(locked.fetch_one(connection)).await
}

/// Applies the timeout; an elapsed timeout is reported as an unavailable database.
pub(super) async fn in_time<T>(answer: impl Future<Output = sqlx::Result<T>>) -> Result<T, StoreError> {
    let late = |_| sqlx::Error::Io(std::io::ErrorKind::TimedOut.into());
    Ok(tokio::time::timeout(RESPONSE_TIMEOUT, answer).await.map_err(late)??)
}
