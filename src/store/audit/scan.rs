//! Reads the whole log for verification, ordered by chain and row, as a stream from one snapshot.

use std::time::Duration;

use futures_util::StreamExt;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::audit::chain::ChainPosition;
use crate::model::audit::digest::Digest;
use crate::model::audit::encoding;
use crate::store::StoreError;

/// Maximum time without data; the database sorts before it sends the first row.
const READ_TIMEOUT: Duration = Duration::from_mins(10);
/// Length of the header of a binary `COPY`.
const HEAD: usize = 19;

/// A snapshot of the log.
#[derive(Debug)]
pub struct AuditScan {
    connection: PgConnection,
}

impl AuditScan {
    /// Begins a snapshot.
    pub async fn begin(options: &PgConnectOptions) -> Result<Self, StoreError> {
        let mut connection = options.connect().await?;
        connection.execute("set statement_timeout = 0").await?;
        // Sorts in memory if possible.
        connection.execute("set work_mem = '64MB'").await?;
        connection.execute("begin isolation level repeatable read, read only").await?;
        Ok(Self { connection })
    }

    /// The time of the database.
    pub async fn now(&mut self) -> Result<OffsetDateTime, StoreError> {
        let now = sqlx::query_scalar!(r#"select now() as "now!""#);
        Ok(now.fetch_one(&mut self.connection).await?)
    }

    /// The ends of all chains; the nil chain is the ledger.
    pub async fn heads(&mut self) -> Result<Vec<ChainPosition>, StoreError> {
        let rows = sqlx::query!("select chain, seq, hash from audit_heads order by chain")
            .fetch_all(&mut self.connection)
            .await?;
        let read = |hash: &[u8]| Digest::read(hash).ok_or(StoreError::Unreadable("audit hash"));
        rows.into_iter()
            .map(|row| Ok(ChainPosition { id: row.chain, seq: row.seq, head: read(&row.hash)? }))
            .collect()
    }

    /// Calls `each` with the columns of each ledger entry.
    pub async fn ledger(&mut self, each: impl FnMut(&[u8])) -> Result<(), StoreError> {
        let statement = "copy (
            select version, number, previous, at, kind, chain, first, before, last, head, cutoff, retain_days, key,
                signer, hash, signature
            from audit_chains order by number
        ) to stdout (format binary)";
        self.copy(statement, each).await
    }

    /// Calls `each` with the columns of each row, ordered by chain and number.
    pub async fn rows(&mut self, each: impl FnMut(&[u8])) -> Result<(), StoreError> {
        let statement = "copy (
            select version, chain, seq, previous, at, request, trace, tenant, agent, slug, principal,
                principal_kind, key, client, client_name, client_version, protocol, session, method, subject,
                outcome, status, micros, bytes_in, bytes_out, revision, before, after, hash
            from audit_log order by chain, seq
        ) to stdout (format binary)";
        self.copy(statement, each).await
    }

    /// Number of rows in the outbox, and the first of them.
    pub async fn outbox(&mut self) -> Result<(i64, Option<Uuid>), StoreError> {
        let row = sqlx::query!(
            r#"select count(*) as "count!", (select id from audit_outbox order by id limit 1) as "first?"
            from audit_outbox"#
        )
        .fetch_one(&mut self.connection)
        .await?;
        Ok((row.count, row.first))
    }

    /// Ends the snapshot.
    pub async fn end(self) -> Result<(), StoreError> {
        Ok(self.connection.close().await?)
    }

    async fn copy(&mut self, statement: &str, mut each: impl FnMut(&[u8])) -> Result<(), StoreError> {
        let mut stream = self.connection.copy_out_raw(statement).await?;
        let mut bytes = Vec::new();
        let mut headed = false;
        loop {
            let piece =
                tokio::time::timeout(READ_TIMEOUT, stream.next()).await.map_err(|_| StoreError::Timeout)?;
            let Some(piece) = piece else { return Ok(()) };
            bytes.extend_from_slice(&piece?);
            if !headed {
                if bytes.len() < HEAD {
                    continue;
                }
                bytes.drain(..HEAD);
                headed = true;
            }
            let mut rest = bytes.as_slice();
            while let Some((fields, others)) = tuple(rest) {
                each(fields);
                rest = others;
            }
            let left = rest.len();
            bytes.drain(..bytes.len() - left);
        }
    }
}

/// Splits off the fields of the first row; `None` if it is incomplete or the end of the data.
fn tuple(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (count, fields) = bytes.split_first_chunk::<2>()?;
    let count = i16::from_be_bytes(*count);
    let mut rest = fields;
    if count < 0 {
        return None;
    }
    for _ in 0..count {
        (_, rest) = encoding::split(rest)?;
    }
    Some((&fields[..fields.len() - rest.len()], rest))
}
