//! What can go wrong in the database, sorted by what a caller can do about it.

use sqlx::error::DatabaseError;

use super::lease;

/// Why the database did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, is stopping, or has no time or room for us; later it may.
    #[error("the database is away: {0}")]
    Away(#[source] sqlx::Error),
    /// It did not answer in time.
    #[error("the database does not answer in time")]
    Late,
    /// It refused what should have been right: a bug.
    #[error("the database refused a statement: {0}")]
    Refused(#[source] sqlx::Error),
    /// The database's encoding cannot hold every text.
    #[error(
        "the database is encoded in {0}, which cannot hold every text; expected UTF8: create one with \
        \"create database … encoding 'UTF8' template template0\" and move the data there with pg_dump and pg_restore"
    )]
    Encoding(String),
    /// A row holds what this version cannot read.
    #[error("a stored {0} cannot be read")]
    Unreadable(&'static str),
    /// The schema could not be brought up to date.
    #[error("the schema could not be migrated: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
}

impl StoreError {
    /// Whether a statement names a table or a column that the schema does not have.
    pub fn is_other_schema(&self) -> bool {
        let Self::Refused(sqlx::Error::Database(error)) = self else { return false };
        error.code().is_some_and(|code| code == "42P01" || code == "42703")
    }

    /// For what is asked of a gateway that is going away.
    pub fn closed() -> Self {
        Self::Away(sqlx::Error::PoolClosed)
    }

    /// Whether the connection broke, so that the same question may be answered on another one.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Away(error) if lease::is_cut(error))
    }

    /// Whether the database refused a value as such (SQLSTATE class 22, data exception): it will refuse it again.
    pub fn is_data_exception(&self) -> bool {
        let Self::Refused(sqlx::Error::Database(error)) = self else { return false };
        error.code().is_some_and(|code| code.starts_with("22"))
    }
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        let away = match &error {
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::BeginFailed => true,
            sqlx::Error::Database(database) => is_away(database.as_ref()),
            _ => false,
        };
        if away { Self::Away(error) } else { Self::Refused(error) }
    }
}

/// Classes of SQLSTATE that say «not now»: connection exceptions, transaction rollback (deadlock, serialization), no
/// resources, lock not available, operator intervention (shutdown, cancelled by a timeout), read-only after a failover.
fn is_away(error: &dyn DatabaseError) -> bool {
    error.code().is_some_and(|code| {
        ["08", "40", "53", "57"].iter().any(|class| code.starts_with(class))
            || code == "55P03"
            || code == "25006"
    })
}
