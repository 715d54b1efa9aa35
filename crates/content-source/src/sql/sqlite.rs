//! Rows of a SQLite file, opened read-only for each statement.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, OpenFlags, Row, params_from_iter};
use serde::de::IgnoredAny;

use super::rows::Rows;
use super::statement::Statement;
use crate::blocking::{CancelOnDrop, blocking};
use crate::error::FetchError;
use crate::kind::SourceContext;
use crate::location::Format;
use crate::paths;
use crate::source::{Bounds, Content};

/// How long a statement may run. The caller has a deadline of its own.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a statement waits for a writer.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// After how many instructions it is checked whether a statement is still wanted.
const CHECK_INTERVAL: i32 = 1000;

/// The smallest limit of values: the schema is read with it, too.
const MIN_VALUE_BYTES: u64 = 1024 * 1024;

/// No temporary files, and 256 MiB for all statements of the process together: SQLite counts what it allocates for the process
/// alone, not for a connection or a statement.
const SETUP: &str = "pragma hard_heap_limit = 268435456; pragma temp_store = memory; pragma mmap_size = 0; \
    pragma query_only = on; pragma trusted_schema = off; pragma cell_size_check = on;";

pub(super) struct Sqlite {
    path: PathBuf,
    context: Arc<SourceContext>,
}

/// The statements of the process, which share its memory limit.
static STATEMENTS: Statements = Statements(Mutex::new(Counts { running: 0, begun: 0 }));

/// Counts statements, to tell which one had all memory for itself.
struct Statements(Mutex<Counts>);

struct Counts {
    running: usize,
    begun: u64,
}

/// A statement that runs, until dropped.
struct Running<'s> {
    statements: &'s Statements,
    /// Whether no other ran when it began.
    began_alone: bool,
    /// How many had begun then, itself included.
    number: u64,
}

impl Statements {
    fn begin(&self) -> Running<'_> {
        let mut counts = self.0.lock();
        counts.running += 1;
        counts.begun += 1;
        Running { statements: self, began_alone: counts.running == 1, number: counts.begun }
    }
}

impl Running<'_> {
    /// Whether no other statement has run since it began.
    fn is_alone(&self) -> bool {
        self.began_alone && self.statements.0.lock().begun == self.number
    }

    /// What an error of the statement means.
    fn failure(&self, error: &rusqlite::Error) -> FetchError {
        match error.sqlite_error_code() {
            // Others may use most of the memory.
            Some(ErrorCode::OutOfMemory) if !self.is_alone() => FetchError::Busy,
            Some(ErrorCode::OperationInterrupted) => FetchError::Timeout,
            Some(ErrorCode::TooBig | ErrorCode::OutOfMemory) => FetchError::TooLarge,
            Some(ErrorCode::AuthorizationForStatementDenied | ErrorCode::ReadOnly) => FetchError::NotAllowed,
            Some(ErrorCode::PermissionDenied | ErrorCode::CannotOpen) => FetchError::Denied,
            Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => FetchError::BadContent,
            // Those of statements have no code of their own.
            Some(ErrorCode::Unknown | ErrorCode::TypeMismatch) | None => FetchError::Rejected,
            Some(_) => FetchError::Status { retry_after: None },
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.statements.0.lock().running -= 1;
    }
}

/// What a statement is run with.
struct Run {
    query: String,
    parameters: Vec<Option<String>>,
    format: Format,
}

impl Sqlite {
    pub(super) fn new(path: PathBuf, context: Arc<SourceContext>) -> Self {
        Self { path, context }
    }

    /// The rows of a statement.
    pub(super) async fn fetch(
        &self,
        statement: &Statement,
        parameters: &BTreeMap<String, String>,
        format: Format,
        Bounds { bytes, pace, .. }: Bounds<'_>,
    ) -> Result<Content, FetchError> {
        let rows = Rows::new(format, bytes);
        let query = format!("select * from {} limit {}", statement.sub_query('?'), rows.limit());
        let parameters = statement.parameters().iter().map(|name| parameters.get(name).cloned()).collect();
        let run = Run { query, parameters, format };
        let run = move |connection: &Connection, running: &Running<'_>| run.run(connection, running, rows);
        let content = self.with_connection(bytes, run).await?;
        // How much it is, is not known before.
        if let Some(pace) = pace {
            pace.take(content.bytes.len()).await;
        }
        Ok(content)
    }

    /// Whether the database accepts a statement.
    pub(super) async fn check(&self, statement: &Statement, format: Format) -> Result<(), FetchError> {
        let query = format!("select * from {}", statement.sub_query('?'));
        let checked = self.with_connection(0, move |connection, running| {
            Ok(match connection.prepare(&query) {
                Ok(prepared) if format == Format::Blob && prepared.column_count() != 1 => {
                    Err(FetchError::BadContent)
                }
                Ok(_) => Ok(()),
                // Found out by the first statement: the file is opened without reading it.
                Err(error) => Err(match running.failure(&error) {
                    FetchError::BadContent => FetchError::Unreachable,
                    failure => failure,
                }),
            })
        });
        // Nothing of the statement is known without the file.
        checked.await.unwrap_or(Err(FetchError::Unreachable))
    }

    async fn with_connection<T: Send + 'static>(
        &self,
        bytes: u64,
        work: impl FnOnce(&Connection, &Running<'_>) -> Result<T, FetchError> + Send + 'static,
    ) -> Result<T, FetchError> {
        let (path, context) = (self.path.clone(), Arc::clone(&self.context));
        let cancel = CancelOnDrop::default();
        let is_cancelled = cancel.flag();
        blocking(move || {
            let path = paths::resolve_own(&path, &context)?;
            if !std::fs::metadata(&path).is_ok_and(|found| found.is_file()) {
                return Err(FetchError::Unreachable);
            }
            let running = STATEMENTS.begin();
            let connection = open(&path, bytes, is_cancelled).map_err(|error| running.failure(&error))?;
            work(&connection, &running)
        })
        .await
    }
}

fn open(path: &std::path::Path, bytes: u64, is_cancelled: Arc<AtomicBool>) -> rusqlite::Result<Connection> {
    // The path has no symbolic links; one that is made from now on is not followed.
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | OpenFlags::SQLITE_OPEN_EXRESCODE;
    let deadline = Instant::now() + STATEMENT_TIMEOUT;
    let is_over = move || is_cancelled.load(Ordering::Relaxed) || Instant::now() > deadline;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
    connection.execute_batch(SETUP)?;
    let bytes = i32::try_from(bytes.max(MIN_VALUE_BYTES)).unwrap_or(i32::MAX);
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, bytes)?;
    connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
    connection.set_limit(Limit::SQLITE_LIMIT_WORKER_THREADS, 0)?;
    connection.set_limit(Limit::SQLITE_LIMIT_EXPR_DEPTH, 200)?;
    // The time of matching is exponential in the wildcards, and not interrupted.
    connection.set_limit(Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 128)?;
    connection.progress_handler(CHECK_INTERVAL, Some(is_over))?;
    connection.authorizer(Some(authorize))?;
    Ok(connection)
}

/// Reads, and calls functions that have no effect.
fn authorize(context: AuthContext<'_>) -> Authorization {
    match context.action {
        AuthAction::Select | AuthAction::Read { .. } | AuthAction::Recursive => Authorization::Allow,
        AuthAction::Function { function_name } => match function_name.to_ascii_lowercase().as_str() {
            "load_extension" | "fts3_tokenizer" | "readfile" | "writefile" | "edit" => Authorization::Deny,
            _ => Authorization::Allow,
        },
        _ => Authorization::Deny,
    }
}

impl Run {
    fn run(
        self,
        connection: &Connection,
        running: &Running<'_>,
        mut rows: Rows,
    ) -> Result<Content, FetchError> {
        let fail = |error: rusqlite::Error| running.failure(&error);
        let mut statement = connection.prepare(&self.query).map_err(fail)?;
        let columns: Vec<Column> = statement.columns().iter().map(Column::new).collect();
        if self.format == Format::Blob && columns.len() != 1 {
            return Err(FetchError::BadContent);
        }
        if self.format == Format::Csv {
            rows.header(columns.iter().map(|column| column.name.as_str()))?;
        }
        let mut found = statement.query(params_from_iter(&self.parameters)).map_err(fail)?;
        while let Some(row) = found.next().map_err(fail)? {
            write(&mut rows, row, &columns, self.format)?;
        }
        rows.finish()
    }
}

struct Column {
    name: String,
    is_bool: bool,
    is_json: bool,
}

impl Column {
    fn new(column: &rusqlite::Column<'_>) -> Self {
        let is = |names: &[&str]| {
            column.decl_type().is_some_and(|of| names.iter().any(|name| of.eq_ignore_ascii_case(name)))
        };
        Self { name: column.name().to_owned(), is_bool: is(&["bool", "boolean"]), is_json: is(&["json"]) }
    }
}

fn write(rows: &mut Rows, row: &Row<'_>, columns: &[Column], format: Format) -> Result<(), FetchError> {
    let value = |index| row.get_ref(index).map_err(|_| FetchError::BadContent);
    match format {
        Format::Json => {
            let mut object = String::from("{");
            for (index, column) in columns.iter().enumerate() {
                if index > 0 {
                    object.push(',');
                }
                object.push_str(&serde_json::Value::from(column.name.as_str()).to_string());
                object.push(':');
                object.push_str(&json(value(index)?, column)?);
                rows.check_with(object.len())?;
            }
            object.push('}');
            rows.json(&object)
        }
        Format::Csv => rows.csv((0..columns.len()).map(|index| text(value(index)?))),
        Format::Text => rows.line(text(value(0)?)?.as_deref()),
        Format::Blob => match value(0)? {
            ValueRef::Blob(bytes) | ValueRef::Text(bytes) => rows.blob(Some(bytes)),
            other => rows.blob(text(other)?.as_deref().map(str::as_bytes)),
        },
    }
}

/// A value as text: bytes in hexadecimal, as PostgreSQL writes them.
fn text(value: ValueRef<'_>) -> Result<Option<Cow<'_, str>>, FetchError> {
    Ok(Some(match value {
        ValueRef::Null => return Ok(None),
        ValueRef::Integer(number) => Cow::Owned(number.to_string()),
        ValueRef::Real(number) => Cow::Owned(format!("{number:?}")),
        ValueRef::Text(bytes) => {
            Cow::Borrowed(std::str::from_utf8(bytes).map_err(|_| FetchError::BadContent)?)
        }
        ValueRef::Blob(bytes) => {
            let mut hex = String::from("\\x");
            for byte in bytes {
                for digit in [byte >> 4, byte & 15] {
                    hex.extend(char::from_digit(u32::from(digit), 16));
                }
            }
            Cow::Owned(hex)
        }
    }))
}

/// A value in JSON, by the declared type of its column where SQLite has no such type.
fn json(value: ValueRef<'_>, column: &Column) -> Result<String, FetchError> {
    Ok(match value {
        ValueRef::Null => "null".to_owned(),
        ValueRef::Integer(number @ (0 | 1)) if column.is_bool => (number == 1).to_string(),
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) => serde_json::Value::from(number).to_string(),
        ValueRef::Text(_) | ValueRef::Blob(_) => {
            let text = text(value)?.unwrap_or_default();
            let is_json = column.is_json && serde_json::from_str::<IgnoredAny>(&text).is_ok();
            if is_json { text.into_owned() } else { serde_json::Value::from(text).to_string() }
        }
    })
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;
    use rusqlite::ffi;

    use super::{Counts, Statements};
    use crate::error::FetchError;

    #[test]
    fn memory_that_others_use_is_not_the_size_of_a_statement() {
        let statements = Statements(Mutex::new(Counts { running: 0, begun: 0 }));
        let fails_with =
            |code| rusqlite::Error::SqliteFailure(ffi::Error::new(code), Some("out of memory".into()));
        let (memory, size) = (fails_with(ffi::SQLITE_NOMEM), fails_with(ffi::SQLITE_TOOBIG));
        let first = statements.begin();
        assert_eq!(first.failure(&memory), FetchError::TooLarge);
        let second = statements.begin();
        assert_eq!([&first, &second].map(|of| of.failure(&memory)), [FetchError::Busy; 2]);
        assert_eq!([&first, &second].map(|of| of.failure(&size)), [FetchError::TooLarge; 2]);
        // The first had less memory meanwhile.
        drop(second);
        assert_eq!(first.failure(&memory), FetchError::Busy);
        drop(first);
        assert_eq!(statements.begin().failure(&memory), FetchError::TooLarge);
    }
}
