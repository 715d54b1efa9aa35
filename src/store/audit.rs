//! Writing the audit log on a dedicated connection: rows are appended to their chain together with the
//! chain's head.

pub mod entry;
pub mod ledger;
pub mod outbox;
pub mod partitions;
pub mod query;
pub mod scan;
mod window;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, PgConnection};
use uuid::Uuid;

use super::undelayed::{Relay, undelayed};
use super::{SessionSettings, Store, StoreError, millis};
use crate::model::audit::chain::{Batch, ChainPosition};
use crate::model::audit::digest::Digest;
use crate::model::audit::signature::Signer;

/// Header and trailer of a binary `COPY`.
const COPY_HEAD: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
const COPY_TAIL: &[u8] = b"\xff\xff";
/// Size of one `COPY` message, in bytes.
const COPY_PIECE: usize = 1 << 20;
/// Timeout of opening and of closing a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// A dedicated connection to the audit log, independent of the pool.
#[derive(Debug)]
pub struct AuditLog {
    options: PgConnectOptions,
    connection: Option<Connected>,
    /// Days whose partition is known to exist.
    days: HashSet<i32>,
    deadline: Duration,
    /// Signs ledger entries.
    signer: Option<Arc<Signer>>,
}

/// An open connection.
#[derive(Debug)]
struct Connected {
    connection: PgConnection,
    relay: Option<Relay>,
}

/// Why rows were not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The database failed, or it is not known whether the transaction committed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The chain does not end where its writer left it.
    #[error("audit chain {} ends at row {}, expected row {}: it was modified by another writer", .0.id, .0.seq, .1)]
    Foreign(ChainPosition, i64),
}

impl AppendError {
    /// Whether a row was rejected as invalid data (SQLSTATE class 22).
    pub fn is_data_exception(&self) -> bool {
        matches!(self, Self::Store(error) if error.is_data_exception())
    }
}

impl From<sqlx::Error> for AppendError {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl Store {
    /// The audit log of this database. `signer` signs ledger entries. Each operation must complete within
    /// `deadline`.
    pub fn audit_log(&self, deadline: Duration, signer: Option<Arc<Signer>>) -> AuditLog {
        let options = (*self.pool.connect_options()).clone();
        AuditLog { options, connection: None, days: HashSet::new(), deadline, signer }
    }

    /// The audit log on a connection of the tables' owner, the only role that may drop partitions. Not through a pooler:
    /// dropping them takes a session lock.
    pub fn owned_audit_log(&self, deadline: Duration, signer: Option<Arc<Signer>>) -> AuditLog {
        let log = self.audit_log(deadline, signer);
        AuditLog { options: self.owner.as_ref().unwrap_or(&self.listen).clone(), ..log }
    }
}

impl AuditLog {
    /// Runs an operation on the connection. If it fails, the connection is dropped, which rolls back its
    /// transaction unless the commit was already sent.
    async fn with<T, E: From<StoreError>>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, E>,
    ) -> Result<T, E> {
        let (kept, options, deadline) = (self.connection.take(), self.options.clone(), self.deadline);
        let working = async {
            let mut connected = match kept {
                Some(connected) => connected,
                None => connect(&options, deadline).await?,
            };
            let done = work(&mut connected.connection).await?;
            Ok::<_, E>((connected, done))
        };
        let late = |_| Err(StoreError::Timeout.into());
        let (connected, done) = tokio::time::timeout(deadline, working).await.unwrap_or_else(late)?;
        self.connection = Some(connected);
        Ok(done)
    }

    /// Appends rows to their chain, in one transaction with its head. Succeeds without effect if the rows are
    /// in the log already, after a commit whose response was lost.
    ///
    /// # Errors
    /// [`AppendError::Foreign`] if the chain does not end where the batch begins.
    pub async fn append(&mut self, batch: &Batch) -> Result<(), AppendError> {
        self.prepare(&batch.days).await?;
        let outcome = self
            .with(async |connection| {
                connection.execute("begin").await?;
                let fits = raise(connection, batch.before, batch.after).await?;
                if fits {
                    copy(connection, &batch.rows).await?;
                }
                connection.execute(if fits { "commit" } else { "rollback" }).await?;
                Ok::<_, AppendError>(fits)
            })
            .await?;
        if outcome { Ok(()) } else { self.look_up(batch).await }
    }

    /// Checks whether the last row of a batch is in the log or quarantined, with the same number and hash.
    async fn look_up(&mut self, batch: &Batch) -> Result<(), AppendError> {
        let (id, seq) = (batch.after.id, batch.after.seq);
        let (first, last) = (batch.days.first(), batch.days.last());
        let found = self
            .with(async |connection| {
                // Without statistics of a new partition its index would not be used.
                connection.execute("begin read only; set local enable_seqscan = off").await?;
                let found = sqlx::query_scalar!(
                    r#"select exists (
                        select from audit_log where chain = $1 and seq = $2 and hash = $3
                        and at >= timestamptz '2000-01-01 00:00Z' + $4::integer * interval '24 hours'
                        and at < timestamptz '2000-01-01 00:00Z' + ($5::integer + 1) * interval '24 hours'
                    ) or exists (
                        select from audit_chains
                        where chain = $1 and kind = 'quarantined' and last = $2 and head = $3
                    ) as "found!""#,
                    id,
                    seq,
                    &batch.after.head.0[..],
                    first.copied(),
                    last.copied(),
                );
                let found = found.fetch_one(&mut *connection).await?;
                connection.execute("commit").await?;
                Ok::<_, StoreError>(found)
            })
            .await?;
        if found {
            return Ok(());
        }
        let head = self.head(id).await?.unwrap_or(ChainPosition::new(id));
        Err(AppendError::Foreign(head, batch.before.seq))
    }

    /// Reads the end of a chain; `None` if it was never opened. Waits for a concurrent transaction that moves
    /// it.
    pub async fn head(&mut self, chain: Uuid) -> Result<Option<ChainPosition>, StoreError> {
        self.with(async |connection| head(connection, chain).await).await
    }

    /// Closes the connection; the next operation opens another.
    pub async fn close(&mut self) {
        let Some(Connected { connection, relay }) = self.connection.take() else { return };
        let closed = async {
            connection.close().await?;
            if let Some(mut relay) = relay {
                relay.ended().await;
            }
            Ok::<_, sqlx::Error>(())
        };
        // If the database is unreachable, closing fails, and the connection is dropped.
        let _ = tokio::time::timeout(CONNECT, closed).await;
    }
}

async fn connect(options: &PgConnectOptions, deadline: Duration) -> Result<Connected, StoreError> {
    let connected = async {
        let (options, relay) = undelayed(options).await?;
        Ok::<_, sqlx::Error>((options.connect().await?, relay))
    };
    let (mut connection, relay) =
        tokio::time::timeout(CONNECT, connected).await.map_err(|_| StoreError::Timeout)??;
    let timeout = millis(deadline);
    let settings = SessionSettings { statement: timeout.clone(), lock: timeout.clone(), idle: timeout };
    settings.set(&mut connection).await?;
    Ok(Connected { connection, relay })
}

/// Moves the head of a chain from `before` to `after`; returns false if the head is not at `before`.
async fn raise(
    connection: &mut PgConnection,
    before: ChainPosition,
    after: ChainPosition,
) -> Result<bool, StoreError> {
    let raised = sqlx::query!(
        "update audit_heads set seq = $2, hash = $3, at = now() where chain = $1 and seq = $4 and hash = $5",
        after.id,
        after.seq,
        &after.head.0[..],
        before.seq,
        &before.head.0[..],
    )
    .execute(connection)
    .await?;
    Ok(raised.rows_affected() == 1)
}

async fn head(connection: &mut PgConnection, chain: Uuid) -> Result<Option<ChainPosition>, StoreError> {
    let row = sqlx::query!("select seq, hash from audit_heads where chain = $1 for update", chain)
        .fetch_optional(connection)
        .await?;
    let read = |hash: &[u8]| Digest::read(hash).ok_or(StoreError::Unreadable("audit hash"));
    row.map(|row| Ok(ChainPosition { id: chain, seq: row.seq, head: read(&row.hash)? })).transpose()
}

async fn copy(connection: &mut PgConnection, rows: &[u8]) -> Result<(), StoreError> {
    let mut copy = connection.copy_in_raw("copy audit_log from stdin (format binary)").await?;
    copy.send(COPY_HEAD).await?;
    for piece in rows.chunks(COPY_PIECE) {
        copy.send(piece).await?;
    }
    copy.send(COPY_TAIL).await?;
    copy.finish().await?;
    Ok(())
}
