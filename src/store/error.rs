//! Database errors, classified by what a caller can do about them.

use sqlx::error::DatabaseError;

/// A failed database operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database is unreachable, shutting down, or out of resources; a retry may succeed.
    #[error("the database is unavailable: {0}")]
    Unavailable(#[source] sqlx::Error),
    /// The database did not answer in time.
    #[error("the database did not answer in time")]
    Timeout,
    /// The database rejected a statement that should be valid: a bug.
    #[error("the database rejected a statement: {0}")]
    Rejected(#[source] sqlx::Error),
    /// The encoding of the database is not UTF-8.
    #[error(
        "the database is encoded in {0}, which cannot hold every text; expected UTF8: create one with \
        \"create database … encoding 'UTF8' template template0\" and move the data there with pg_dump and pg_restore"
    )]
    Encoding(String),
    /// A row has a value that this version cannot read.
    #[error("unreadable stored value: {0}")]
    Unreadable(&'static str),
    /// A migration of the schema failed.
    #[error("migrating the schema failed: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

impl StoreError {
    /// Whether a statement refers to a table or column that does not exist.
    pub fn is_schema_mismatch(&self) -> bool {
        let Self::Rejected(sqlx::Error::Database(error)) = self else { return false };
        error.code().is_some_and(|code| code == "42P01" || code == "42703")
    }

    /// The error of a gateway that is shutting down.
    pub fn closed() -> Self {
        Self::Unavailable(sqlx::Error::PoolClosed)
    }

    /// Whether the connection was lost, so that a retry on another connection may succeed.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Unavailable(error) if is_connection_lost(error))
    }

    /// Whether the database kept a row because other rows refer to it.
    pub fn is_foreign_key_violation(&self) -> bool {
        let Self::Rejected(sqlx::Error::Database(error)) = self else { return false };
        error.is_foreign_key_violation()
    }

    /// Whether the database rejected a value (SQLSTATE class 22, data exception), so that a retry would fail
    /// again.
    pub fn is_data_exception(&self) -> bool {
        let Self::Rejected(sqlx::Error::Database(error)) = self else { return false };
        error.code().is_some_and(|code| code.starts_with("22"))
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let unavailable = match &error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed => true,
            sqlx::Error::Database(database) => is_temporary(database.as_ref()),
            _ => false,
        };
        if unavailable { Self::Unavailable(error) } else { Self::Rejected(error) }
    }
}

/// SQLSTATE classes of temporary conditions: connection exceptions, transaction rollback (deadlock,
/// serialization), insufficient resources, lock not available, operator intervention (shutdown, statement
/// timeout), read-only after a failover.
fn is_temporary(error: &dyn DatabaseError) -> bool {
    error.code().is_some_and(|code| {
        ["08", "40", "53", "57"].iter().any(|class| code.starts_with(class))
            || code == "55P03"
            || code == "25006"
    })
}

/// Whether an error means that the connection is lost.
pub(super) fn is_connection_lost(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(database) => database.code().is_some_and(|code| code.starts_with("57P")),
        _ => false,
    }
}
