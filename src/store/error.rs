//! Database errors, classified by what a caller can do about them.

use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use sqlx::error::DatabaseError;
use sqlx::migrate::MigrateError;
use sqlx::postgres::{PgDatabaseError, PgSeverity};

/// A failed database operation.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database is unreachable, shutting down, or out of resources; a retry may succeed.
    #[error("the database is unavailable: {}", Explained(.0))]
    Unavailable(#[source] sqlx::Error),
    /// No connection of the pool was free in time; with why none can be opened, if that is so. Nothing was sent.
    #[error("the database is unavailable: no connection within database.acquire_seconds: {}", explain_exhaustion(.0.as_deref()))]
    NoConnection(Option<Arc<str>>),
    /// The database refuses the role, or does not exist: someone must change its settings or those of the gateway.
    #[error("the database refuses access: {}", Explained(.0))]
    Denied(#[source] sqlx::Error),
    /// The database did not answer in time.
    #[error("the database did not answer in time")]
    Timeout,
    /// The database rejected a statement that should be valid: a bug.
    #[error("the database rejected a statement: {}", Explained(.0))]
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
    /// Another replica holds the lock of migrations for longer than they may take.
    #[error(
        "another replica has been migrating the database for {} minutes; see its log, or end its session: \
         pg_locks has the advisory lock",
        .0.as_secs() / 60
    )]
    Migrating(Duration),
    /// A migration of the schema failed.
    #[error("migrating the schema failed: {}", ExplainedMigration(.0))]
    Migrate(MigrateError),
}

impl StoreError {
    /// Whether a statement refers to a table or column that does not exist.
    pub fn is_schema_mismatch(&self) -> bool {
        let Self::Rejected(sqlx::Error::Database(error)) = self else { return false };
        error.code().is_some_and(|code| code == "42P01" || code == "42703")
    }

    /// Whether a retry may succeed without a change of settings.
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Self::Unavailable(_) | Self::NoConnection(_))
    }

    /// The error of a gateway that is shutting down.
    pub fn closed() -> Self {
        Self::Unavailable(sqlx::Error::PoolClosed)
    }

    /// Whether the connection was lost, so that a retry on another connection may succeed.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, Self::Unavailable(error) if is_connection_lost(error))
    }

    /// Whether another statement is likely to fail as well: the database is unreachable, does not answer, or has no
    /// connection left.
    pub fn is_outage(&self) -> bool {
        self.is_unavailable() || matches!(self, Self::Timeout)
    }

    /// Whether the statement may have been committed: it was sent, or may have been, and no answer arrived.
    pub fn may_have_committed(&self) -> bool {
        matches!(self, Self::Timeout) || self.is_disconnected()
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
        if matches!(error, sqlx::Error::PoolTimedOut) {
            return Self::NoConnection(None);
        }
        if is_unavailable(&error) {
            Self::Unavailable(error)
        } else if error.as_database_error().is_some_and(is_denial) {
            Self::Denied(error)
        } else {
            Self::Rejected(error)
        }
    }
}

impl From<MigrateError> for StoreError {
    /// A migration that a temporary condition interrupted is applied again, as any other statement.
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Execute(cause) | MigrateError::ExecuteMigration(cause, _)
                if is_unavailable(&cause) =>
            {
                Self::Unavailable(cause)
            }
            error => Self::Migrate(error),
        }
    }
}

/// An error with what to do about it. Without the position in the source of PostgreSQL that sqlx appends, which looks like
/// one in a statement.
pub(super) struct Explained<'e>(pub(super) &'e sqlx::Error);

impl fmt::Display for Explained<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            sqlx::Error::Database(error) => error.message().fmt(f)?,
            sqlx::Error::Io(error) => error.fmt(f)?,
            error => error.fmt(f)?,
        }
        remedy(self.0).map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

/// Why no connection was free: the error of opening one, or else that all are in use.
fn explain_exhaustion(cause: Option<&str>) -> &str {
    cause.unwrap_or("all are in use; raise database.max_connections, or see which statements are slow")
}

/// A failed migration, whose cause may be a missing right.
struct ExplainedMigration<'e>(&'e MigrateError);

impl fmt::Display for ExplainedMigration<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            MigrateError::Execute(error) if remedy(error).is_some() => Explained(error).fmt(f),
            MigrateError::ExecuteMigration(error, version) if remedy(error).is_some() => {
                write!(f, "migration {version}: {}", Explained(error))
            }
            error => error.fmt(f),
        }
    }
}

/// What to do about an error that settings or operation of the database cause.
fn remedy(error: &sqlx::Error) -> Option<&'static str> {
    Some(match error {
        sqlx::Error::Database(error) => return of_state(&error.code()?),
        sqlx::Error::Io(error) => return of_connection(error),
        sqlx::Error::Tls(_) => {
            "set sslmode in the URL as the server requires, and sslrootcert to the authority of its certificate"
        }
        _ => return None,
    })
}

/// Of a class of SQLSTATE.
fn of_state(code: &str) -> Option<&'static str> {
    Some(match (code.get(..2)?, code) {
        ("08", _) => "the server or a pooler ended the connection; see its log",
        ("28", _) => {
            "check the user and the password in the URL and the server's pg_hba.conf; where it requires TLS, add \
             sslmode=require to the URL"
        }
        ("3D", _) => {
            "create it with \"create database NAME encoding 'UTF8' template template0\", or correct its name in the URL"
        }
        (_, "42501") => {
            "make the role the owner of its database and schema, or set database.owner_url to a role that is"
        }
        (_, "53300") => {
            "raise max_connections of the server, or lower database.max_connections of the gateways"
        }
        ("53", _) => "the server lacks memory, disk or another resource; see its log",
        (_, "57P03") => "the server is starting or stopping; try again",
        (_, "57P01" | "57P02") => "the server is stopping, or an administrator ended the connection",
        (_, READ_ONLY) => {
            "the server is a standby, and the URL must name the primary; or default_transaction_read_only is set for \
             the role, the database or the server: unset it"
        }
        (_, "55000") => "if the database accepts no connections: alter database NAME allow_connections true",
        ("58", _) => "the server cannot use its files; see its log",
        _ => return None,
    })
}

/// Of an error of the network.
fn of_connection(error: &io::Error) -> Option<&'static str> {
    Some(match error.kind() {
        ErrorKind::ConnectionRefused => {
            "check the host and the port in the URL, and that PostgreSQL runs and listens there"
        }
        ErrorKind::TimedOut | ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            "check the host in the URL, the network and its firewalls"
        }
        ErrorKind::NotFound => "check the directory of the socket in the URL, and that PostgreSQL runs",
        ErrorKind::PermissionDenied => "let the user of this process use the socket",
        // The standard library has no kind for it.
        _ if error.to_string().starts_with("failed to lookup address information") => {
            "check the host in the URL, and the name server"
        }
        _ => return None,
    })
}

/// SQLSTATE of a write in a session that is read-only.
const READ_ONLY: &str = "25006";

/// SQLSTATE classes of missing access: invalid authorization, a database that does not exist, insufficient privilege.
fn is_denial(error: &(dyn DatabaseError + 'static)) -> bool {
    error.code().is_some_and(|code| code.starts_with("28") || code.starts_with("3D") || code == "42501")
}

/// Whether a retry may succeed without a change of settings.
fn is_unavailable(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        sqlx::Error::Database(error) => is_temporary(error.as_ref()),
        _ => false,
    }
}

/// SQLSTATE classes of temporary conditions: connection exceptions, transaction rollback (deadlock,
/// serialization), insufficient resources, operator intervention (shutdown, statement timeout), system error; a database
/// that accepts no connections, lock not available, read-only after a failover.
fn is_temporary(error: &dyn DatabaseError) -> bool {
    error.code().is_some_and(|code| {
        ["08", "40", "53", "57", "58"].iter().any(|class| code.starts_with(class))
            || ["55000", "55P03", READ_ONLY].contains(&code.as_ref())
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

/// Whether the connection can be used after an error: the server responded, and has not closed it. A session that began
/// while writes were refused by default refuses them after that has changed.
pub(super) fn is_connection_usable(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::RowNotFound => true,
        sqlx::Error::Database(database) => {
            let severity = database.try_downcast_ref::<PgDatabaseError>().map(PgDatabaseError::severity);
            !matches!(severity, Some(PgSeverity::Fatal | PgSeverity::Panic))
                && !is_connection_lost(error)
                && database.code().as_deref() != Some(READ_ONLY)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::error::Error;
    use std::fmt;
    use std::io;

    use sqlx::error::{DatabaseError, ErrorKind};

    use super::{StoreError, is_connection_usable};

    /// An error of a server with this SQLSTATE.
    #[derive(Debug)]
    struct State(&'static str);

    impl fmt::Display for State {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
        }
    }

    impl Error for State {}

    impl DatabaseError for State {
        fn message(&self) -> &str {
            self.0
        }

        fn code(&self) -> Option<Cow<'_, str>> {
            Some(self.0.into())
        }

        fn as_error(&self) -> &(dyn Error + Send + Sync + 'static) {
            self
        }

        fn as_error_mut(&mut self) -> &mut (dyn Error + Send + Sync + 'static) {
            self
        }

        fn into_error(self: Box<Self>) -> Box<dyn Error + Send + Sync + 'static> {
            self
        }

        fn kind(&self) -> ErrorKind {
            ErrorKind::Other
        }
    }

    #[test]
    fn sqlstate_says_what_kind_of_error_it_is_and_whether_the_session_is_used_again() {
        for (state, kind, usable) in [
            ("08006", "unavailable", true),
            ("22001", "rejected", true),
            ("25006", "unavailable", false),
            ("28P01", "denied", true),
            ("3D000", "denied", true),
            ("40001", "unavailable", true),
            ("42501", "denied", true),
            ("42601", "rejected", true),
            ("53300", "unavailable", true),
            ("55000", "unavailable", true),
            ("55006", "rejected", true),
            ("55P03", "unavailable", true),
            ("57014", "unavailable", true),
            ("57P03", "unavailable", false),
            ("58030", "unavailable", true),
            ("58P01", "unavailable", true),
        ] {
            let error = sqlx::Error::Database(Box::new(State(state)));
            assert_eq!(is_connection_usable(&error), usable, "{state}");
            let found = match StoreError::from(error) {
                StoreError::Unavailable(_) => "unavailable",
                StoreError::Denied(_) => "denied",
                StoreError::Rejected(_) => "rejected",
                _ => "another",
            };
            assert_eq!(found, kind, "{state}");
        }
    }

    #[test]
    fn errors_of_connections_say_what_to_do() {
        let lookup = "failed to lookup address information: Name or service not known";
        for (error, remedy) in [
            (sqlx::Error::Io(io::Error::other(lookup)), "check the host in the URL, and the name server"),
            (sqlx::Error::Io(io::ErrorKind::TimedOut.into()), "the network and its firewalls"),
            (sqlx::Error::Tls("the server does not support it".into()), "set sslmode in the URL"),
            (sqlx::Error::PoolTimedOut, "database.max_connections"),
        ] {
            let text = StoreError::from(error).to_string();
            assert!(text.starts_with("the database is unavailable: ") && text.contains(remedy), "{text}");
        }
    }
}
