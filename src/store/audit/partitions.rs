//! The daily partitions of the audit log: created in advance and dropped when expired.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, Executor, PgConnection};
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::{AuditLog, ledger};
use crate::model::audit::chain::ChainPosition;
use crate::model::audit::digest::Digest;
use crate::model::audit::ledger::{Cutoff, EntryKind};
use crate::model::audit::signature::Signer;
use crate::store::StoreError;

/// The first day of the encoding's epoch.
const FIRST: Date = time::macros::date!(2000 - 01 - 01);
/// Advisory lock held while partitions are dropped.
const LOCK: i64 = 0x7761_6767_6c65_0005;
/// Maximum number of runs recorded per transaction.
const RUNS_PER_TRANSACTION: usize = 1_000;

/// The day of a time, counted from 2000-01-01 UTC.
pub fn day_of(at: OffsetDateTime) -> i32 {
    at.to_offset(time::UtcOffset::UTC).to_julian_day() - FIRST.to_julian_day()
}

/// A range of consecutive rows to be dropped.
struct DroppedRun {
    first: i64,
    before: Digest,
    last: ChainPosition,
}

impl AuditLog {
    /// Creates the partitions of days that are not known to exist.
    pub async fn prepare(&mut self, days: &BTreeSet<i32>) -> Result<(), StoreError> {
        let missing: Vec<_> = days.iter().copied().filter(|day| !self.days.contains(day)).collect();
        for day in missing {
            self.with(async |connection| make(connection, day).await).await?;
            self.days.insert(day);
        }
        Ok(())
    }

    /// Drops the partitions whose rows are older than `retain_days`, oldest first, after recording in the
    /// ledger which rows are dropped. A partition is kept, with all newer ones, while it has late rows of a
    /// chain that was opened less than `retain_days` ago.
    pub async fn drop_old(&mut self, retain_days: i32, at: OffsetDateTime) -> Result<Dropped, StoreError> {
        let cutoff = Cutoff { day: day_of(at).saturating_sub(retain_days), retain_days };
        let drop = PartitionDrop { cutoff, at, signer: self.signer.clone() };
        let dropped = self.with(async |connection| drop.run(connection).await).await?;
        self.days.retain(|known| *known >= cutoff.day);
        Ok(dropped)
    }
}

/// Result of dropping partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// Number of partitions dropped; 0 if another replica is dropping them.
    Done(usize),
    /// None dropped: ledger entries are signed, and this gateway has no signing key.
    Unsigned,
}

async fn make(connection: &mut PgConnection, day: i32) -> Result<(), StoreError> {
    sqlx::query!(r#"select audit_make_partition(date '2000-01-01' + $1::integer) as "made: ()""#, day)
        .fetch_one(connection)
        .await?;
    Ok(())
}

/// Parameters of a run.
struct PartitionDrop {
    cutoff: Cutoff,
    at: OffsetDateTime,
    signer: Option<Arc<Signer>>,
}

impl PartitionDrop {
    async fn run(&self, connection: &mut PgConnection) -> Result<Dropped, StoreError> {
        let alone = sqlx::query_scalar!(r#"select pg_try_advisory_lock($1) as "locked!""#, LOCK)
            .fetch_one(&mut *connection)
            .await?;
        if !alone {
            return Ok(Dropped::Done(0));
        }
        let dropped = self.drop_all(connection).await?;
        sqlx::query!("select pg_advisory_unlock($1)", LOCK).fetch_one(connection).await?;
        Ok(dropped)
    }

    async fn drop_all(&self, connection: &mut PgConnection) -> Result<Dropped, StoreError> {
        let mut dropped = 0;
        for Partition { name, day, attached } in partitions(connection, self.cutoff.day).await? {
            if attached {
                if self.signer.is_none() && ledger::is_signed(connection).await? {
                    return Ok(Dropped::Unsigned);
                }
                if self.has_young_chain(connection, &name).await? {
                    break;
                }
                self.record_runs(connection, &name, day).await?;
            }
            detach(connection, &name).await?;
            connection.execute(AssertSqlSafe(format!("drop table if exists {name}"))).await?;
            dropped += 1;
        }
        Ok(Dropped::Done(dropped))
    }

    /// Whether a partition has rows of a chain that was opened less than the retention ago.
    async fn has_young_chain(&self, connection: &mut PgConnection, name: &str) -> Result<bool, StoreError> {
        let statement = format!(
            "select exists (
                select from audit_chains c where c.kind = 'opened' and c.at > $1 - make_interval(days => $2)
                and exists (select from {name} r where r.chain = c.chain)
            )"
        );
        let young = sqlx::query_scalar(AssertSqlSafe(statement)).bind(self.at).bind(self.cutoff.retain_days);
        Ok(young.fetch_one(connection).await?)
    }

    /// Records the rows of a partition as dropped: runs of consecutive rows, each with the hashes at both
    /// ends.
    async fn record_runs(
        &self,
        connection: &mut PgConnection,
        name: &str,
        day: i32,
    ) -> Result<(), StoreError> {
        // The cutoff of this partition only: later ones may remain if the run is interrupted.
        let cutoff = Cutoff { day: day.saturating_add(1), ..self.cutoff };
        let mut after = (Uuid::nil(), 0_i64);
        loop {
            connection.execute("begin").await?;
            let mut ledger = ledger::lock(connection, self.signer.as_ref(), self.at).await?;
            let runs = runs(connection, name, after).await?;
            for DroppedRun { first, before, last } in &runs {
                let kind = EntryKind::Dropped { first: *first, before: *before, last: *last, cutoff };
                ledger.enter(connection, self.at, last.id, kind).await?;
            }
            connection.execute("commit").await?;
            match runs.last() {
                Some(run) if runs.len() == RUNS_PER_TRANSACTION => after = (run.last.id, run.last.seq),
                _ => return Ok(()),
            }
        }
    }
}

/// A partition of the log.
struct Partition {
    /// Generated name, of letters, digits and underscores.
    name: String,
    day: i32,
    /// Whether it is still attached to the log.
    attached: bool,
}

/// The partitions of days before `day`, oldest first.
async fn partitions(connection: &mut PgConnection, day: i32) -> Result<Vec<Partition>, StoreError> {
    let rows = sqlx::query!(
        r#"select c.relname::text as "name!",
            to_date(substr(c.relname, 11), 'YYYYMMDD') - date '2000-01-01' as "day!", i.inhrelid is not null and not i.inhdetachpending as "attached!"
        from pg_class c left join pg_inherits i on i.inhrelid = c.oid
        where c.relnamespace = (select relnamespace from pg_class where oid = 'audit_log'::regclass)
        and c.relkind = 'r' and c.relname ~ '^audit_log_[0-9]{8}$'
        and substr(c.relname, 11) < to_char(date '2000-01-01' + $1::integer, 'YYYYMMDD')
        order by c.relname"#,
        day
    )
    .fetch_all(connection)
    .await?;
    let partitions = rows.into_iter();
    Ok(partitions.map(|row| Partition { name: row.name, day: row.day, attached: row.attached }).collect())
}

async fn detach(connection: &mut PgConnection, name: &str) -> Result<(), StoreError> {
    let pending = sqlx::query_scalar!(
        "select inhdetachpending from pg_inherits where inhrelid = to_regclass($1)",
        name
    )
    .fetch_optional(&mut *connection)
    .await?;
    let how = match pending {
        None => return Ok(()),
        Some(false) => "concurrently",
        // A previous run was interrupted.
        Some(true) => "finalize",
    };
    let statement = format!("alter table audit_log detach partition {name} {how}");
    connection.execute(AssertSqlSafe(statement)).await?;
    Ok(())
}

async fn runs(
    connection: &mut PgConnection,
    name: &str,
    after: (Uuid, i64),
) -> Result<Vec<DroppedRun>, StoreError> {
    type Row = (Uuid, i64, Vec<u8>, i64, Vec<u8>);
    let statement = format!(
        "with placed as (
            select chain, seq, previous, hash, seq - row_number() over (partition by chain order by seq) as run
            from {name} where (chain, seq) > ($1, $2)
        ),
        runs as (select chain, min(seq) as first, max(seq) as last from placed group by chain, run)
        select r.chain, r.first, f.previous, r.last, l.hash
        from runs r
        join {name} f on f.chain = r.chain and f.seq = r.first
        join {name} l on l.chain = r.chain and l.seq = r.last
        where not exists (
            select from audit_chains c
            where c.kind = 'dropped' and c.chain = r.chain and c.first = r.first and c.last = r.last
        )
        order by r.chain, r.first limit $3"
    );
    let limit = i64::try_from(RUNS_PER_TRANSACTION).unwrap_or(i64::MAX);
    let rows: Vec<Row> = sqlx::query_as(AssertSqlSafe(statement))
        .bind(after.0)
        .bind(after.1)
        .bind(limit)
        .fetch_all(connection)
        .await?;
    let hash = |bytes: &[u8]| Digest::read(bytes).ok_or(StoreError::Unreadable("audit hash"));
    rows.into_iter()
        .map(|(id, first, before, seq, head)| {
            Ok(DroppedRun {
                first,
                before: hash(&before)?,
                last: ChainPosition { id, seq, head: hash(&head)? },
            })
        })
        .collect()
}
