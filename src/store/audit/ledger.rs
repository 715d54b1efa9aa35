//! The chain of chains: that one begins or ends is an entry in it.

use std::sync::Arc;

use sqlx::{Executor, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{AppendError, AuditLog, head, raise};
use crate::model::audit::chain::{Chain, Digest};
use crate::model::audit::ledger::{Columns, Entry, Missing, Record, VERSION};
use crate::model::audit::signature::{PublicKey, Purpose, Signer};
use crate::store::StoreError;

/// Under this id stands how far the chain of chains goes.
const LEDGER: Uuid = Uuid::nil();

impl AuditLog {
    /// Begins a chain, unless it has begun.
    pub async fn open_chain(&mut self, chain: Uuid, at: OffsetDateTime) -> Result<(), StoreError> {
        let signer = self.signer.clone();
        self.with(async |connection| {
            connection.execute("begin").await?;
            let mut ledger = lock(connection, signer.as_ref(), at).await?;
            let new = sqlx::query!(
                "insert into audit_heads (chain, seq, hash, at) values ($1, 0, $2, $3) on conflict do nothing",
                chain,
                &Digest::NONE.0[..],
                at,
            )
            .execute(&mut *connection)
            .await?;
            if new.rows_affected() == 1 {
                ledger.enter(connection, at, chain, Entry::Opened).await?;
            }
            connection.execute("commit").await?;
            Ok(())
        })
        .await
    }

    /// Ends a chain whose process ended in order, where that process left it, unless it has ended. Where the database
    /// says that it goes elsewhere, verification finds so.
    pub async fn close_chain(&mut self, last: Chain, at: OffsetDateTime) -> Result<(), StoreError> {
        self.end_chain(last.id, at, |_| Entry::Closed(last)).await
    }

    /// Ends a chain whose process is no more, or left it, where it stands, unless it has ended.
    pub async fn interrupt_chain(&mut self, chain: Uuid, at: OffsetDateTime) -> Result<(), StoreError> {
        self.end_chain(chain, at, Entry::Interrupted).await
    }

    async fn end_chain(
        &mut self,
        chain: Uuid,
        at: OffsetDateTime,
        entry: impl FnOnce(Chain) -> Entry,
    ) -> Result<(), StoreError> {
        let signer = self.signer.clone();
        self.with(async |connection| {
            connection.execute("begin").await?;
            let mut ledger = lock(connection, signer.as_ref(), at).await?;
            let ended = sqlx::query_scalar!(
                r#"select exists (
                    select from audit_chains where chain = $1 and kind in ('closed', 'interrupted')
                ) as "ended!""#,
                chain
            )
            .fetch_one(&mut *connection)
            .await?;
            if let Some(end) = head(connection, chain).await?.filter(|_| !ended) {
                ledger.enter(connection, at, chain, entry(end)).await?;
            }
            connection.execute("commit").await?;
            Ok(())
        })
        .await
    }

    /// Moves a chain past a row that the database refuses, and enters that it is quarantined. Does nothing where that
    /// was done before.
    ///
    /// # Errors
    /// [`AppendError::Foreign`] where the chain stands elsewhere.
    pub async fn quarantine(&mut self, row: Missing, at: OffsetDateTime) -> Result<(), AppendError> {
        let signer = self.signer.clone();
        self.with(async |connection| {
            connection.execute("begin").await?;
            quarantine(connection, signer.as_ref(), row, at).await?;
            connection.execute("commit").await?;
            Ok(())
        })
        .await
    }

    /// Enters that a spill file was corrupt, and moves the chain to where the file says that it stood behind the
    /// corruption. Answers how many rows are missing for it; none where that was entered before.
    pub async fn enter_damage(
        &mut self,
        chain: Uuid,
        state: Option<Chain>,
        at: OffsetDateTime,
    ) -> Result<i64, StoreError> {
        let signer = self.signer.clone();
        self.with(async |connection| {
            connection.execute("begin").await?;
            let mut ledger = lock(connection, signer.as_ref(), at).await?;
            let missing = match head(connection, chain).await? {
                Some(before) => {
                    let after = state.filter(|state| state.seq > before.seq).unwrap_or(before);
                    damage(connection, &mut ledger, Missing { before, after }, at).await?
                }
                None => 0,
            };
            connection.execute("commit").await?;
            Ok(missing)
        })
        .await
    }
}

/// Moves a chain past a row and enters that it is quarantined, in the transaction of the caller.
pub(super) async fn quarantine(
    connection: &mut PgConnection,
    signer: Option<&Arc<Signer>>,
    row: Missing,
    at: OffsetDateTime,
) -> Result<(), AppendError> {
    let Missing { before, after } = row;
    let mut ledger = lock(connection, signer, at).await?;
    if is_missing(connection, "quarantined", after).await? {
        return Ok(());
    }
    if !raise(connection, before, after).await? {
        let found = head(connection, after.id).await?.unwrap_or(Chain::new(after.id));
        return Err(AppendError::Foreign(found, before.seq));
    }
    Ok(ledger.enter(connection, at, after.id, Entry::Quarantined(row)).await?)
}

async fn damage(
    connection: &mut PgConnection,
    ledger: &mut Ledger,
    rows: Missing,
    at: OffsetDateTime,
) -> Result<i64, StoreError> {
    let Missing { before, after } = rows;
    if is_missing(connection, "damaged", after).await? {
        return Ok(0);
    }
    if after != before {
        raise(connection, before, after).await?;
    }
    ledger.enter(connection, at, after.id, Entry::Damaged(rows)).await?;
    Ok(after.seq - before.seq)
}

/// Whether an entry says of rows up to this one that they are missing.
async fn is_missing(connection: &mut PgConnection, kind: &str, last: Chain) -> Result<bool, StoreError> {
    let entered = sqlx::query_scalar!(
        r#"select exists (
            select from audit_chains where chain = $1 and kind = $2 and last = $3 and head = $4
        ) as "entered!""#,
        last.id,
        kind,
        last.seq,
        &last.head.0[..],
    );
    Ok(entered.fetch_one(connection).await?)
}

/// The chain of chains, to which nobody else adds until the transaction ends.
pub(super) struct Ledger {
    at: Chain,
    signer: Option<Arc<Signer>>,
}

/// Locks the chain of chains. A key that is to sign entries is entered first, if it is not yet.
pub(super) async fn lock(
    connection: &mut PgConnection,
    signer: Option<&Arc<Signer>>,
    at: OffsetDateTime,
) -> Result<Ledger, StoreError> {
    let head = head(connection, LEDGER).await?.ok_or(StoreError::Unreadable("audit head"))?;
    let mut ledger = Ledger { at: head, signer: signer.map(Arc::clone) };
    if let Some(signer) = signer
        && !is_entered(connection, &signer.public()).await?
    {
        let mut author = signer.public();
        for key in signer.replaced() {
            if is_entered(connection, &key).await? {
                author = key;
                break;
            }
        }
        let record = ledger.next(at, LEDGER, Entry::Key(signer.public()), Some(author));
        ledger.append(connection, &record).await?;
    }
    Ok(ledger)
}

impl Ledger {
    /// Adds an entry, signed where the gateway has a key.
    pub(super) async fn enter(
        &mut self,
        connection: &mut PgConnection,
        at: OffsetDateTime,
        chain: Uuid,
        entry: Entry,
    ) -> Result<(), StoreError> {
        let signer = self.signer.as_ref().map(|signer| signer.public());
        let record = self.next(at, chain, entry, signer);
        self.append(connection, &record).await
    }

    fn next(&self, at: OffsetDateTime, chain: Uuid, entry: Entry, signer: Option<PublicKey>) -> Record {
        Record { number: self.at.seq + 1, previous: self.at.head, at, chain, entry, signer }
    }

    async fn append(&mut self, connection: &mut PgConnection, record: &Record) -> Result<(), StoreError> {
        let Columns { first, before, last: (last, head), cutoff, key } = record.columns();
        let hash = record.hash();
        let sign = |author: &PublicKey| self.signer.as_ref()?.sign_as(author, Purpose::Entry, &hash);
        let signature = record.signer.as_ref().and_then(sign);
        sqlx::query!(
            "with entered as (
                insert into audit_chains (version, number, previous, at, kind, chain, first, before, last, head,
                    cutoff, retain_days, key, signer, hash, signature)
                values ($12, $1, $2, $3, $4, $5, $6, $7, $8, $9, date '2000-01-01' + $13::integer, $14, $15, $16, $10,
                    $17)
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
            VERSION,
            cutoff.map(|cutoff| cutoff.day),
            cutoff.map(|cutoff| cutoff.retain_days),
            key.as_ref().map(|key| &key.0[..]),
            record.signer.as_ref().map(|key| &key.0[..]),
            signature.as_ref().map(|signature| &signature.0[..]),
        )
        .execute(connection)
        .await?;
        self.at = Chain { id: LEDGER, seq: record.number, head: hash };
        Ok(())
    }
}

async fn is_entered(connection: &mut PgConnection, key: &PublicKey) -> Result<bool, StoreError> {
    let entered = sqlx::query_scalar!(
        r#"select exists (select from audit_chains where key = $1) as "entered!""#,
        &key.0[..]
    );
    Ok(entered.fetch_one(connection).await?)
}

/// Whether entries of the chain of chains are signed.
pub(super) async fn is_signed(connection: &mut PgConnection) -> Result<bool, StoreError> {
    let signed =
        sqlx::query_scalar!(r#"select exists (select from audit_chains where key is not null) as "signed!""#);
    Ok(signed.fetch_one(connection).await?)
}
