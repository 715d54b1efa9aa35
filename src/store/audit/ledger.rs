//! The chain of chains: that one begins or ends is an entry in it.

use sqlx::{Executor, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{AuditLog, head};
use crate::model::audit::chain::{Chain, Digest};
use crate::model::audit::ledger::{Entry, Record};
use crate::store::StoreError;

/// Under this id stands how far the chain of chains goes.
const LEDGER: Uuid = Uuid::nil();

impl AuditLog {
    /// Begins a chain, unless it has begun.
    pub async fn open_chain(&mut self, chain: Uuid, at: OffsetDateTime) -> Result<(), StoreError> {
        self.with(async |connection| {
            connection.execute("begin").await?;
            let mut ledger = lock(connection).await?;
            let new = sqlx::query!(
                "insert into audit_heads (chain, seq, hash, at) values ($1, 0, $2, $3) on conflict do nothing",
                chain,
                &Digest::NONE.0[..],
                at,
            )
            .execute(&mut *connection)
            .await?;
            if new.rows_affected() == 1 {
                enter(connection, &mut ledger, at, chain, Entry::Opened).await?;
            }
            connection.execute("commit").await?;
            Ok(())
        })
        .await
    }

    /// Ends a chain where it stands, unless it has ended: in order, or because its process is no more.
    pub async fn end_chain(
        &mut self,
        chain: Uuid,
        at: OffsetDateTime,
        in_order: bool,
    ) -> Result<(), StoreError> {
        self.with(async |connection| {
            connection.execute("begin").await?;
            let mut ledger = lock(connection).await?;
            let ended = sqlx::query_scalar!(
                r#"select exists (
                    select from audit_chains where chain = $1 and kind in ('closed', 'interrupted')
                ) as "ended!""#,
                chain
            )
            .fetch_one(&mut *connection)
            .await?;
            if let Some(end) = head(connection, chain).await?.filter(|_| !ended) {
                let entry = if in_order { Entry::Closed(end) } else { Entry::Interrupted(end) };
                enter(connection, &mut ledger, at, chain, entry).await?;
            }
            connection.execute("commit").await?;
            Ok(())
        })
        .await
    }
}

/// How far the chain of chains goes; nobody else adds to it until the transaction ends.
pub(super) async fn lock(connection: &mut PgConnection) -> Result<Chain, StoreError> {
    head(connection, LEDGER).await?.ok_or(StoreError::Unreadable("audit head"))
}

/// Adds an entry to the chain of chains, which is locked.
pub(super) async fn enter(
    connection: &mut PgConnection,
    ledger: &mut Chain,
    at: OffsetDateTime,
    chain: Uuid,
    entry: Entry,
) -> Result<(), StoreError> {
    let record = Record { number: ledger.seq + 1, previous: ledger.head, at, chain, entry };
    let (first, before, last, head) = record.columns();
    let hash = record.hash();
    sqlx::query!(
        "with entered as (
            insert into audit_chains (number, previous, at, kind, chain, first, before, last, head, hash)
            values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        )
        update audit_heads set seq = $1, hash = $10, at = $3 where chain = $11",
        record.number,
        &record.previous.0[..],
        record.at,
        record.entry.kind(),
        record.chain,
        first,
        before.as_ref().map(|hash| &hash.0[..]),
        last,
        &head.0[..],
        &hash.0[..],
        LEDGER,
    )
    .execute(connection)
    .await?;
    *ledger = Chain { id: LEDGER, seq: record.number, head: hash };
    Ok(())
}
