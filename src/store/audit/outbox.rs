//! The outbox: what changes say of themselves in their own transactions, moved into the log exactly once.

use std::collections::{BTreeSet, HashSet};

use sqlx::{Executor, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::{AppendError, AuditLog, copy, ledger, raise};
use crate::model::audit::chain::{Batch, Chain};
use crate::model::audit::encoding::VERSION;
use crate::model::audit::ledger::Missing;
use crate::store::StoreError;

/// What a change says of itself: an encoded event under a uid of its own.
#[derive(Debug)]
pub struct OutboxRow {
    /// Ordered by time.
    pub id: Uuid,
    /// Everything of a row but its place in a chain.
    pub event: Vec<u8>,
}

/// What became of an attempt to move rows.
#[derive(Debug)]
pub enum Moved {
    /// So many were moved, and the chain stands here now.
    Done(usize, Chain),
    /// The commit broke off: whether they were is to be found out before anything else is added to the chain.
    InDoubt,
}

impl AuditLog {
    /// Moves at most so many rows from the outbox to the end of a chain, those of replicas that are no more included.
    /// Rows that another replica is moving are left to it.
    ///
    /// # Errors
    /// When nothing was moved.
    pub async fn move_outbox(&mut self, chain: Chain, most: i64) -> Result<Moved, AppendError> {
        let mut committing = false;
        let moved = self.try_move(chain, most, &mut committing).await;
        match moved {
            Err(AppendError::Store(_)) if committing => Ok(Moved::InDoubt),
            moved => moved,
        }
    }

    /// The oldest row of the outbox that no other replica is moving, which stays there.
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

    /// Takes a row that the log refuses out of the outbox, and quarantines it. Answers whether it was there.
    pub async fn quarantine_outbox(
        &mut self,
        id: Uuid,
        row: Missing,
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
        chain: Chain,
        most: i64,
        committing: &mut bool,
    ) -> Result<Moved, AppendError> {
        loop {
            let days = self.days.clone();
            let taken = self.with(async |connection| take(connection, chain, most, &days, committing).await);
            match taken.await? {
                Taken::Moved(count, chain) => return Ok(Moved::Done(count, chain)),
                Taken::Unprepared(days) => self.prepare(&days).await?,
            }
        }
    }
}

/// What became of the rows that were taken.
enum Taken {
    Moved(usize, Chain),
    /// They were given back, since the partitions of these days may be missing.
    Unprepared(BTreeSet<i32>),
}

async fn take(
    connection: &mut PgConnection,
    chain: Chain,
    most: i64,
    prepared: &HashSet<i32>,
    committing: &mut bool,
) -> Result<Taken, AppendError> {
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
        return Ok(if unprepared { Taken::Unprepared(batch.days) } else { Taken::Moved(0, chain) });
    }
    if !raise(connection, batch.before, batch.after).await? {
        return Err(AppendError::Foreign(batch.after, chain.seq));
    }
    copy(connection, &batch.rows).await?;
    *committing = true;
    connection.execute("commit").await?;
    Ok(Taken::Moved(rows.len(), batch.after))
}
