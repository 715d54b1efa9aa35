//! The outbox: audit rows written in the transactions of changes, and moved into the log exactly once.

use std::collections::{BTreeSet, HashSet};

use sqlx::{Executor, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{AppendError, AuditLog, copy, ledger, raise};
use crate::model::audit::chain::{Batch, ChainPosition};
use crate::model::audit::encoding::VERSION;
use crate::model::audit::ledger::MissingRows;
use crate::store::StoreError;

/// A row of the outbox.
#[derive(Debug)]
pub struct OutboxRow {
    /// Id, ordered by time.
    pub id: Uuid,
    /// The encoded event, without its position in a chain.
    pub event: Vec<u8>,
}

/// Result of moving rows.
#[derive(Debug)]
pub enum Moved {
    /// Number of rows moved, and the end of the chain after them.
    Done(usize, ChainPosition),
    /// The commit failed: the end of the chain must be read before anything else is appended.
    InDoubt,
}

impl AuditLog {
    /// Moves at most `most` rows from the outbox, of any replica, to the end of a chain. Rows that another
    /// replica is moving are skipped.
    ///
    /// # Errors
    /// If nothing was moved.
    pub async fn move_outbox(&mut self, chain: ChainPosition, most: i64) -> Result<Moved, AppendError> {
        let mut committing = false;
        let moved = self.try_move(chain, most, &mut committing).await;
        match moved {
            Err(AppendError::Store(_)) if committing => Ok(Moved::InDoubt),
            moved => moved,
        }
    }

    /// Reads the oldest row of the outbox that no other replica is moving.
    pub async fn first_of_outbox(&mut self) -> Result<Option<OutboxRow>, StoreError> {
        self.with(async |connection| {
            let row = sqlx::query_as!(
                OutboxRow,
                "select id, event from audit_outbox where version <= $1 order by id limit 1 for update skip locked",
                VERSION,
            );
            Ok(row.fetch_optional(connection).await?)
        })
        .await
    }

    /// Deletes a row that the log rejects from the outbox and quarantines it. Returns whether it was in the
    /// outbox.
    pub async fn quarantine_outbox(
        &mut self,
        id: Uuid,
        row: MissingRows,
        at: OffsetDateTime,
    ) -> Result<bool, AppendError> {
        let signer = self.signer.clone();
        self.with(async |connection| {
            connection.execute("begin").await?;
            let deleted = sqlx::query!("delete from audit_outbox where id = $1", id);
            let found = deleted.execute(&mut *connection).await?.rows_affected() == 1;
            if found {
                ledger::quarantine(connection, signer.as_ref(), row, at).await?;
            }
            connection.execute("commit").await?;
            Ok(found)
        })
        .await
    }

    async fn try_move(
        &mut self,
        chain: ChainPosition,
        most: i64,
        committing: &mut bool,
    ) -> Result<Moved, AppendError> {
        loop {
            let days = self.days.clone();
            let attempt =
                self.with(async |connection| take(connection, chain, most, &days, committing).await);
            match attempt.await? {
                MoveAttempt::Moved(count, chain) => return Ok(Moved::Done(count, chain)),
                MoveAttempt::Unprepared(days) => self.prepare(&days).await?,
            }
        }
    }
}

/// Result of one attempt to move rows.
enum MoveAttempt {
    Moved(usize, ChainPosition),
    /// Rolled back because the partitions of these days may be missing.
    Unprepared(BTreeSet<i32>),
}

async fn take(
    connection: &mut PgConnection,
    chain: ChainPosition,
    most: i64,
    prepared: &HashSet<i32>,
    committing: &mut bool,
) -> Result<MoveAttempt, AppendError> {
    connection.execute("begin").await?;
    let mut rows = sqlx::query!(
        "delete from audit_outbox where id in (
            select id from audit_outbox where version <= $1 order by id limit $2 for update skip locked
        ) returning id, event",
        VERSION,
        most,
    )
    .fetch_all(&mut *connection)
    .await?;
    rows.sort_unstable_by_key(|row| row.id);
    let mut batch = Batch::after(chain);
    for row in &rows {
        batch.push(&row.event);
    }
    let unprepared = !batch.days.iter().all(|day| prepared.contains(day));
    if unprepared || batch.is_empty() {
        connection.execute("rollback").await?;
        return Ok(if unprepared {
            MoveAttempt::Unprepared(batch.days)
        } else {
            MoveAttempt::Moved(0, chain)
        });
    }
    if !raise(connection, batch.before, batch.after).await? {
        return Err(AppendError::Foreign(batch.after, chain.seq));
    }
    copy(connection, &batch.rows).await?;
    *committing = true;
    connection.execute("commit").await?;
    Ok(MoveAttempt::Moved(rows.len(), batch.after))
}
