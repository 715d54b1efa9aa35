//! The whole log as it stands, row by row in the order of its chains, for whoever verifies it: one view of the database,
//! read as a stream.

use std::time::Duration;

use futures_util::StreamExt;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection, Executor, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use crate::model::audit::chain::{Chain, Digest};
use crate::model::audit::encoding;
use crate::store::StoreError;

/// How long nothing may come of the stream; the database sorts before the first row.
const PATIENCE: Duration = Duration::from_mins(10);
/// What stands before the first row of a binary copy.
const HEAD: usize = 19;

/// A view of the log.
#[derive(Debug)]
pub struct Scan {
    connection: PgConnection,
}

impl Scan {
    /// Takes a view of the log of this database.
    pub async fn begin(options: &PgConnectOptions) -> Result<Self, StoreError> {
        let mut connection = options.connect().await?;
        connection.execute("set statement_timeout = 0").await?;
        // Sorted in memory as far as it goes, by the indices else.
        connection.execute("set work_mem = '64MB'").await?;
        connection.execute("begin isolation level repeatable read, read only").await?;
        Ok(Self { connection })
    }

    /// The time of the database.
    pub async fn now(&mut self) -> Result<OffsetDateTime, StoreError> {
        let now = sqlx::query_scalar!(r#"select now() as "now!""#);
        Ok(now.fetch_one(&mut self.connection).await?)
    }

    /// How far each chain goes; the nil chain is the chain of chains.
    pub async fn heads(&mut self) -> Result<Vec<Chain>, StoreError> {
        let rows = sqlx::query!("select chain, seq, hash from audit_heads order by chain")
            .fetch_all(&mut self.connection)
            .await?;
        let read = |hash: &[u8]| Digest::read(hash).ok_or(StoreError::Unreadable("audit hash"));
        rows.into_iter()
            .map(|row| Ok(Chain { id: row.chain, seq: row.seq, head: read(&row.hash)? }))
            .collect()
    }

    /// Hands over the fields of each entry of the chain of chains.
    pub async fn ledger(&mut self, each: impl FnMut(&[u8])) -> Result<(), StoreError> {
        let statement = "copy (
            select version, number, previous, at, kind, chain, first, before, last, head, cutoff, retain_days, key,
                signer, hash, signature
            from audit_chains order by number
        ) to stdout (format binary)";
        self.copy(statement, each).await
    }

    /// Hands over the fields of each row, chain by chain in their order.
    pub async fn rows(&mut self, each: impl FnMut(&[u8])) -> Result<(), StoreError> {
        let statement = "copy (
            select version, chain, seq, previous, at, request, trace, tenant, agent, slug, principal,
                principal_kind, key, client, client_name, client_version, protocol, session, method, subject,
                outcome, status, micros, bytes_in, bytes_out, revision, before, after, hash
            from audit_log order by chain, seq
        ) to stdout (format binary)";
        self.copy(statement, each).await
    }

    /// How many rows wait in the outbox, and the first of them.
    pub async fn outbox(&mut self) -> Result<(i64, Option<Uuid>), StoreError> {
        let row = sqlx::query!(
            r#"select count(*) as "count!", (select id from audit_outbox order by id limit 1) as "first?"
            from audit_outbox"#
        )
        .fetch_one(&mut self.connection)
        .await?;
        Ok((row.count, row.first))
    }

    /// Ends the view.
    pub async fn end(self) -> Result<(), StoreError> {
        Ok(self.connection.close().await?)
    }

    async fn copy(&mut self, statement: &str, mut each: impl FnMut(&[u8])) -> Result<(), StoreError> {
        let mut stream = self.connection.copy_out_raw(statement).await?;
        let mut bytes = Vec::new();
        let mut headed = false;
        loop {
            let piece = tokio::time::timeout(PATIENCE, stream.next()).await.map_err(|_| StoreError::Late)?;
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

/// The fields of the first row of some, and what follows it; `None` where it is not whole, or the end.
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
