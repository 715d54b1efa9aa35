//! Rows of PostgreSQL.
//!
//! A statement runs as a sub-query of a read-only transaction, which is rolled back. The server writes the rows as JSON or as
//! text, so that values of all types are written as it writes them. Parameters are sent as text, which the server reads
//! as values of the types that it inferred.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;
use futures_util::stream::{self, BoxStream};
use futures_util::{StreamExt, TryStreamExt};
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, to_sql_checked};
use tokio_postgres::{Row, SimpleQueryMessage};

use super::rows::Rows;
use super::session::{Server, Session};
use super::statement::Statement;
use crate::error::FetchError;
use crate::location::Format;
use crate::source::{Bounds, ChangeHint, Content};

/// How many sessions are kept open for later statements. The server closes them when they are idle.
const MAX_IDLE: usize = 4;

/// How often a connection that waits for notifications is proven alive, and how long connecting and the proof may take.
const PING_INTERVAL: Duration = Duration::from_secs(20);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Functions by which a statement could do what its transaction does not confine: signal backends, hold locks, run
/// statements of its own, connect elsewhere. Most end with the transaction or are refused by the server anyway.
const DENIED: [&str; 17] = [
    "connectby",
    "crosstab",
    "cursor_to_xml",
    "database_to_xml",
    "dblink",
    "lo_",
    "pg_advisory_",
    "pg_cancel_backend",
    "pg_logical_",
    "pg_notify",
    "pg_terminate_backend",
    "pg_try_advisory_",
    "query_to_xml",
    "schema_to_xml",
    "table_to_xml",
    "ts_rewrite",
    "ts_stat",
];

/// Whether a function may not be used by free statements.
pub(super) fn is_denied(identifier: &str) -> bool {
    DENIED.iter().any(|denied| identifier.starts_with(denied))
}

pub(super) struct Postgres {
    server: Arc<Server>,
    idle: Mutex<Vec<Session>>,
    notify_channel: Option<String>,
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Postgres").finish_non_exhaustive()
    }
}

/// The query of a statement in a format, and the names of the columns if the format shows them.
struct Query {
    statement: tokio_postgres::Statement,
    columns: Vec<String>,
}

impl Postgres {
    pub(super) fn new(server: Server, notify_channel: Option<String>) -> Self {
        Self { server: Arc::new(server), idle: Mutex::default(), notify_channel }
    }

    /// The rows of a statement.
    pub(super) async fn fetch(
        &self,
        statement: &Statement,
        parameters: &BTreeMap<String, String>,
        format: Format,
        Bounds { bytes, pace, .. }: Bounds<'_>,
    ) -> Result<Content, FetchError> {
        let session = self.begin().await?;
        session.allow(bytes, pace);
        let mut rows = Rows::new(format, bytes);
        let query = prepare(&session, statement, format, rows.limit()).await?;
        let values = statement.parameters().iter().map(|name| Text(parameters.get(name).map(String::as_str)));
        let values: Vec<_> = values.collect();
        let found = session.client.query_raw(&query.statement, &values).await;
        let found = found.map_err(|error| match error.code().map(SqlState::code) {
            // A parameter that is no value of its type names nothing.
            Some("22P02" | "22003" | "22007" | "22008" | "22021") if !values.is_empty() => {
                FetchError::NotFound
            }
            _ => session.failure(&error),
        })?;
        if format == Format::Csv {
            rows.header(query.columns.iter().map(String::as_str))?;
        }
        let mut found = std::pin::pin!(found);
        while let Some(row) = found.try_next().await.map_err(|error| session.failure(&error))? {
            write(&mut rows, &row, format)?;
        }
        let content = rows.finish()?;
        let is_reusable = is_built_in(&query.statement);
        drop(query);
        self.end(session, is_reusable).await;
        Ok(content)
    }

    /// Whether the database accepts a statement.
    pub(super) async fn check(&self, statement: &Statement, format: Format) -> Result<(), FetchError> {
        // Nothing of the statement is known without a session.
        let session = self.begin().await.map_err(|_| FetchError::Unreachable)?;
        prepare(&session, statement, format, 1).await?;
        Ok(())
    }

    /// A session in a read-only transaction.
    async fn begin(&self) -> Result<Session, FetchError> {
        const BEGIN: &str = "begin transaction read only";
        loop {
            // The guard ends before the wait.
            let idle = self.idle.lock().pop();
            let Some(session) = idle else { break };
            session.allow(0, None);
            // The server may have closed it.
            if !session.client.is_closed() && session.client.batch_execute(BEGIN).await.is_ok() {
                return Ok(session);
            }
        }
        let session = self.server.connect(None).await?;
        session.client.batch_execute(BEGIN).await.map_err(|error| session.failure(&error))?;
        Ok(session)
    }

    /// Ends the transaction and all that a statement may have left in the session, and keeps the session if it may be
    /// used again. After a failure none of this runs: the session is dropped, which ends all of it.
    async fn end(&self, session: Session, is_reusable: bool) {
        if !is_reusable || self.idle.lock().len() >= MAX_IDLE {
            return;
        }
        let client = &session.client;
        // Both are sent at once.
        let (rolled_back, discarded) =
            tokio::join!(client.batch_execute("rollback"), client.batch_execute("discard all"));
        if rolled_back.is_ok() && discarded.is_ok() {
            let mut idle = self.idle.lock();
            if idle.len() < MAX_IDLE {
                idle.push(session);
            }
        }
    }

    /// Notifications of the channel, if there is one.
    pub(super) fn watch(&self) -> Option<BoxStream<'static, ChangeHint>> {
        let channel = self.notify_channel.as_ref()?.replace('"', "\"\"");
        let listen = format!("listen \"{channel}\"");
        let server = Arc::clone(&self.server);
        let listening = async move {
            let (sender, receiver) = mpsc::channel(1);
            let session = timeout(PING_TIMEOUT, server.connect(Some(sender))).await.ok()?.ok()?;
            // It listens for longer than sessions may be idle.
            let setup = format!("set idle_session_timeout = 0; {listen}");
            timeout(PING_TIMEOUT, session.client.batch_execute(&setup)).await.ok()?.ok()?;
            Some(notifications(session, receiver))
        };
        Some(stream::once(listening).filter_map(std::future::ready).flatten().boxed())
    }
}

/// Hints from a session that listens, until it ends.
fn notifications(session: Session, receiver: mpsc::Receiver<()>) -> BoxStream<'static, ChangeHint> {
    let later = stream::unfold((session, receiver), |(session, mut receiver)| async move {
        loop {
            match timeout(PING_INTERVAL, receiver.recv()).await {
                Ok(Some(())) => {
                    session.allow(0, None);
                    return Some((ChangeHint::Everything, (session, receiver)));
                }
                Ok(None) => return None,
                Err(_) => {
                    session.allow(0, None);
                    let alive =
                        timeout(PING_TIMEOUT, session.client.simple_query("select 1")).await.ok()?.ok()?;
                    alive.iter().find(|message| matches!(message, SimpleQueryMessage::Row(_)))?;
                }
            }
        }
    });
    // What changed before it listened was not notified.
    stream::once(std::future::ready(ChangeHint::Everything)).chain(later).boxed()
}

/// Prepares the query that writes the rows of a statement in a format.
async fn prepare(
    session: &Session,
    statement: &Statement,
    format: Format,
    limit: u64,
) -> Result<Query, FetchError> {
    let rows = statement.sub_query('$');
    // Names that no statement has, so that they stand for no column.
    let text = match format {
        Format::Json => format!("select row_to_json(\"?row\")::text from {rows} \"?row\" limit {limit}"),
        Format::Text => format!("select \"?1\"::text from {rows} \"?row\"(\"?1\") limit {limit}"),
        Format::Csv | Format::Blob => format!("select * from {rows} \"?row\" limit {limit}"),
    };
    let prepared = session.client.prepare(&text).await.map_err(|error| session.failure(&error))?;
    let columns = prepared.columns();
    match format {
        Format::Json | Format::Text => return Ok(Query { statement: prepared, columns: Vec::new() }),
        Format::Blob => {
            let is_blob = columns.len() == 1 && columns.iter().all(|column| Raw::accepts(column.type_()));
            return if is_blob {
                Ok(Query { statement: prepared, columns: Vec::new() })
            } else {
                Err(FetchError::BadContent)
            };
        }
        Format::Csv => {}
    }
    if columns.is_empty() {
        return Err(FetchError::BadContent);
    }
    let names: Vec<_> = (1..=columns.len()).map(|number| format!("\"?{number}\"")).collect();
    let texts: Vec<_> = names.iter().map(|name| format!("{name}::text")).collect();
    let (texts, names) = (texts.join(", "), names.join(", "));
    let text = format!("select {texts} from {rows} \"?row\"({names}) limit {limit}");
    let written = session.client.prepare(&text).await.map_err(|error| session.failure(&error))?;
    Ok(Query { statement: written, columns: columns.iter().map(|column| column.name().to_owned()).collect() })
}

fn write(rows: &mut Rows, row: &Row, format: Format) -> Result<(), FetchError> {
    let text = |index| row.try_get::<_, Option<&str>>(index).map_err(|_| FetchError::BadContent);
    match format {
        Format::Json => rows.json(text(0)?.ok_or(FetchError::BadContent)?),
        Format::Text => rows.line(text(0)?),
        Format::Csv => rows.csv((0..row.len()).map(|index| Ok(text(index)?.map(Cow::Borrowed)))),
        Format::Blob => {
            let value = row.try_get::<_, Option<Raw<'_>>>(0).map_err(|_| FetchError::BadContent)?;
            rows.blob(value.map(|raw| raw.0))
        }
    }
}

/// Whether the client knows all types without statements of its own, which do not survive `discard all`.
fn is_built_in(statement: &tokio_postgres::Statement) -> bool {
    let columns = statement.columns().iter().map(tokio_postgres::Column::type_);
    statement.params().iter().chain(columns).all(|of| Type::from_oid(of.oid()).is_some())
}

/// A parameter, sent as text.
#[derive(Debug)]
struct Text<'a>(Option<&'a str>);

impl ToSql for Text<'_> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        let Some(text) = self.0 else { return Ok(IsNull::Yes) };
        out.extend_from_slice(text.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> tokio_postgres::types::Format {
        tokio_postgres::types::Format::Text
    }

    to_sql_checked!();
}

/// The bytes of a value that is bytes, or is sent as text.
struct Raw<'a>(&'a [u8]);

impl<'a> FromSql<'a> for Raw<'a> {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        // The version of the format stands before the text.
        let prefix = usize::from(*of == Type::JSONB);
        Ok(Self(raw.get(prefix..).unwrap_or_default()))
    }

    fn accepts(of: &Type) -> bool {
        let types =
            [Type::BYTEA, Type::TEXT, Type::VARCHAR, Type::BPCHAR, Type::NAME, Type::JSON, Type::JSONB];
        types.contains(of)
    }
}
