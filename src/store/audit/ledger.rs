//! Writing the ledger, in which each opened and ended chain has an entry.

use std::sync::Arc;

use sqlx::{Executor, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{AppendError, AuditLog, head, raise};
use crate::model::audit::chain::ChainPosition;
use crate::model::audit::digest::Digest;
use crate::model::audit::ledger::{EntryColumns, EntryKind, LedgerEntry, MissingRows, VERSION};
use crate::model::audit::signature::{PublicKey, SignaturePurpose, Signer};
use crate::store::StoreError;

/// The id under which the head of the ledger is stored.
const LEDGER: Uuid = Uuid::nil();

impl AuditLog {
    /// Opens a chain, unless it is open.
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
                ledger.enter(connection, at, chain, EntryKind::Opened).await?;
            }
            connection.execute("commit").await?;
            Ok(())
        })
        .await
    }

    /// Ends the chain of a process that shut down, at the row where that process left it, unless it was
    /// ended. If the recorded head differs, verification reports it.
    pub async fn close_chain(&mut self, last: ChainPosition, at: OffsetDateTime) -> Result<(), StoreError> {
        self.end_chain(last.id, at, |_| EntryKind::Closed(last)).await
    }

    /// Ends the chain of a terminated process, or one that was abandoned, at its recorded head, unless it was
    /// ended.
    pub async fn interrupt_chain(&mut self, chain: Uuid, at: OffsetDateTime) -> Result<(), StoreError> {
        self.end_chain(chain, at, EntryKind::Interrupted).await
    }

    async fn end_chain(
        &mut self,
        chain: Uuid,
        at: OffsetDateTime,
        kind: impl FnOnce(ChainPosition) -> EntryKind,
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
                ledger.enter(connection, at, chain, kind(end)).await?;
            }
            connection.execute("commit").await?;
            Ok(())
        })
        .await
    }

    /// Skips a row that the database rejects, and records that it is quarantined. Has no effect if this was
    /// done before.
    ///
    /// # Errors
    /// [`AppendError::Foreign`] if the chain does not end before the row.
    pub async fn quarantine(&mut self, row: MissingRows, at: OffsetDateTime) -> Result<(), AppendError> {
        let signer = self.signer.clone();
        self.with(async |connection| {
            connection.execute("begin").await?;
            quarantine(connection, signer.as_ref(), row, at).await?;
            connection.execute("commit").await?;
            Ok(())
        })
        .await
    }

    /// Records that a spill file was corrupt, and moves the chain to its state after the corruption. Returns
    /// the number of rows lost; 0 if the damage was recorded before.
    pub async fn enter_damage(
        &mut self,
        chain: Uuid,
        state: Option<ChainPosition>,
        at: OffsetDateTime,
    ) -> Result<i64, StoreError> {
        let signer = self.signer.clone();
        self.with(async |connection| {
            connection.execute("begin").await?;
            let mut ledger = lock(connection, signer.as_ref(), at).await?;
            let missing = match head(connection, chain).await? {
                Some(before) => {
                    let after = state.filter(|state| state.seq > before.seq).unwrap_or(before);
                    damage(connection, &mut ledger, MissingRows { before, after }, at).await?
                }
                None => 0,
            };
            connection.execute("commit").await?;
            Ok(missing)
        })
        .await
    }
}

/// Skips a row and records that it is quarantined, in the caller's transaction.
pub(super) async fn quarantine(
    connection: &mut PgConnection,
    signer: Option<&Arc<Signer>>,
    row: MissingRows,
    at: OffsetDateTime,
) -> Result<(), AppendError> {
    let MissingRows { before, after } = row;
    let mut ledger = lock(connection, signer, at).await?;
    if is_missing(connection, "quarantined", after).await? {
        return Ok(());
    }
    if !raise(connection, before, after).await? {
        let found = head(connection, after.id).await?.unwrap_or(ChainPosition::new(after.id));
        return Err(AppendError::Foreign(found, before.seq));
    }
    Ok(ledger.enter(connection, at, after.id, EntryKind::Quarantined(row)).await?)
}

async fn damage(
    connection: &mut PgConnection,
    ledger: &mut LockedLedger,
    rows: MissingRows,
    at: OffsetDateTime,
) -> Result<i64, StoreError> {
    let MissingRows { before, after } = rows;
    if is_missing(connection, "damaged", after).await? {
        return Ok(0);
    }
    if after != before {
        raise(connection, before, after).await?;
    }
    ledger.enter(connection, at, after.id, EntryKind::Damaged(rows)).await?;
    Ok(after.seq - before.seq)
}

/// Whether an entry of this kind declares rows up to `last` missing.
async fn is_missing(
    connection: &mut PgConnection,
    kind: &str,
    last: ChainPosition,
) -> Result<bool, StoreError> {
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

/// The locked ledger, to which no other transaction adds until this one ends.
pub(super) struct LockedLedger {
    at: ChainPosition,
    signer: Option<Arc<Signer>>,
}

/// Locks the ledger. If the signing key has no entry yet, adds one.
pub(super) async fn lock(
    connection: &mut PgConnection,
    signer: Option<&Arc<Signer>>,
    at: OffsetDateTime,
) -> Result<LockedLedger, StoreError> {
    let head = head(connection, LEDGER).await?.ok_or(StoreError::Unreadable("audit head"))?;
    let mut ledger = LockedLedger { at: head, signer: signer.map(Arc::clone) };
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
        let entry = ledger.next(at, LEDGER, EntryKind::Key(signer.public()), Some(author));
        ledger.append(connection, &entry).await?;
    }
    Ok(ledger)
}

impl LockedLedger {
    /// Adds an entry, signed if the gateway has a key.
    pub(super) async fn enter(
        &mut self,
        connection: &mut PgConnection,
        at: OffsetDateTime,
        chain: Uuid,
        kind: EntryKind,
    ) -> Result<(), StoreError> {
        let signer = self.signer.as_ref().map(|signer| signer.public());
        let entry = self.next(at, chain, kind, signer);
        self.append(connection, &entry).await
    }

    fn next(
        &self,
        at: OffsetDateTime,
        chain: Uuid,
        kind: EntryKind,
        signer: Option<PublicKey>,
    ) -> LedgerEntry {
        LedgerEntry { number: self.at.seq + 1, previous: self.at.head, at, chain, kind, signer }
    }

    async fn append(&mut self, connection: &mut PgConnection, entry: &LedgerEntry) -> Result<(), StoreError> {
        let EntryColumns { first, before, last: (last, head), cutoff, key } = entry.columns();
        let hash = entry.hash();
        let sign = |author: &PublicKey| self.signer.as_ref()?.sign_as(author, SignaturePurpose::Entry, &hash);
        let signature = entry.signer.as_ref().and_then(sign);
        sqlx::query!(
            "with entered as (
                insert into audit_chains (version, number, previous, at, kind, chain, first, before, last, head,
                    cutoff, retain_days, key, signer, hash, signature)
                values ($12, $1, $2, $3, $4, $5, $6, $7, $8, $9, date '2000-01-01' + $13::integer, $14, $15, $16, $10,
                    $17)
            )
            update audit_heads set seq = $1, hash = $10, at = $3 where chain = $11",
            entry.number,
            &entry.previous.0[..],
            entry.at,
            entry.kind.as_str(),
            entry.chain,
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
            entry.signer.as_ref().map(|key| &key.0[..]),
            signature.as_ref().map(|signature| &signature.0[..]),
        )
        .execute(connection)
        .await?;
        self.at = ChainPosition { id: LEDGER, seq: entry.number, head: hash };
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

/// Whether ledger entries are signed.
pub(super) async fn is_signed(connection: &mut PgConnection) -> Result<bool, StoreError> {
    let signed =
        sqlx::query_scalar!(r#"select exists (select from audit_chains where key is not null) as "signed!""#);
    Ok(signed.fetch_one(connection).await?)
}
