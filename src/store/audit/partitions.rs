//! The partitions of the log, a day each: made before they are needed, dropped whole when they are old.

use std::collections::BTreeSet;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, Executor, PgConnection};
use time::{Date, OffsetDateTime};
use uuid::Uuid;

use super::{AuditLog, ledger};
use crate::model::audit::chain::{Chain, Digest};
use crate::model::audit::ledger::{Cutoff, Entry};
use crate::model::audit::signature::Signer;
use crate::store::StoreError;

/// Where days are counted from.
const FIRST: Date = time::macros::date!(2000 - 01 - 01);
/// The lock of whoever drops partitions, among the database's advisory locks.
const LOCK: i64 = 0x7761_6767_6c65_0005;
/// Gaps that are entered at once.
const GAPS: usize = 1_000;

/// The day of a time, counted from the first of 2000 in UTC.
pub fn day_of(at: OffsetDateTime) -> i32 {
    at.to_offset(time::UtcOffset::UTC).to_julian_day() - FIRST.to_julian_day()
}

/// Rows that follow each other and are to be dropped.
struct Gap {
    first: i64,
    before: Digest,
    last: Chain,
}

impl AuditLog {
    /// Makes the partitions of these days that are not known to be there.
    pub async fn prepare(&mut self, days: &BTreeSet<i32>) -> Result<(), StoreError> {
        let missing: Vec<_> = days.iter().copied().filter(|day| !self.days.contains(day)).collect();
        for day in missing {
            self.with(async |connection| make(connection, day).await).await?;
            self.days.insert(day);
        }
        Ok(())
    }

    /// Drops the partitions whose rows are older than `retain_days`, the oldest first, after it is entered which rows of
    /// which chains that takes away. A partition stays, with all newer ones, while it has rows of a chain that was opened
    /// less than `retain_days` ago, which came late.
    pub async fn drop_old(&mut self, retain_days: i32, at: OffsetDateTime) -> Result<Dropped, StoreError> {
        let cutoff = Cutoff { day: day_of(at).saturating_sub(retain_days), retain_days };
        let drops = Drops { cutoff, at, signer: self.signer.clone() };
        let dropped = self.with(async |connection| drops.run(connection).await).await?;
        self.days.retain(|known| *known >= cutoff.day);
        Ok(dropped)
    }
}

/// What became of old partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dropped {
    /// So many were dropped; none where another replica is at it.
    Done(usize),
    /// They are kept: entries are signed, and this gateway has no key to sign that it dropped rows.
    Unsigned,
}

async fn make(connection: &mut PgConnection, day: i32) -> Result<(), StoreError> {
    sqlx::query!(r#"select audit_make_partition(date '2000-01-01' + $1::integer) as "made: ()""#, day)
        .fetch_one(connection)
        .await?;
    Ok(())
}

/// What is dropped now, and who signs it.
struct Drops {
    cutoff: Cutoff,
    at: OffsetDateTime,
    signer: Option<Arc<Signer>>,
}

impl Drops {
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
                if self.is_young(connection, &name).await? {
                    break;
                }
                self.enter_gaps(connection, &name, day).await?;
            }
            detach(connection, &name).await?;
            connection.execute(AssertSqlSafe(format!("drop table if exists {name}"))).await?;
            dropped += 1;
        }
        Ok(Dropped::Done(dropped))
    }

    /// Whether a partition has rows of a chain that was opened less than the retention ago.
    async fn is_young(&self, connection: &mut PgConnection, name: &str) -> Result<bool, StoreError> {
        let statement = format!(
            "select exists (
                select from audit_chains c where c.kind = 'opened' and c.at > $1 - make_interval(days => $2)
                and exists (select from {name} r where r.chain = c.chain)
            )"
        );
        let young = sqlx::query_scalar(AssertSqlSafe(statement)).bind(self.at).bind(self.cutoff.retain_days);
        Ok(young.fetch_one(connection).await?)
    }

    /// Enters which rows the partition of a day takes away: runs without a break, each with the hashes at both ends.
    async fn enter_gaps(
        &self,
        connection: &mut PgConnection,
        name: &str,
        day: i32,
    ) -> Result<(), StoreError> {
        // No more is claimed than is done: partitions of later days may remain, should this break off.
        let cutoff = Cutoff { day: day.saturating_add(1), ..self.cutoff };
        let mut after = (Uuid::nil(), 0_i64);
        loop {
            connection.execute("begin").await?;
            let mut ledger = ledger::lock(connection, self.signer.as_ref(), self.at).await?;
            let gaps = gaps(connection, name, after).await?;
            for Gap { first, before, last } in &gaps {
                let entry = Entry::Dropped { first: *first, before: *before, last: *last, cutoff };
                ledger.enter(connection, self.at, last.id, entry).await?;
            }
            connection.execute("commit").await?;
            match gaps.last() {
                Some(gap) if gaps.len() == GAPS => after = (gap.last.id, gap.last.seq),
                _ => return Ok(()),
            }
        }
    }
}

/// The partition of a day.
struct Partition {
    /// Made by the log itself: letters, digits and underscores.
    name: String,
    day: i32,
    /// Whether it is part of the log still.
    attached: bool,
}

/// The partitions of days before `day`, the oldest first.
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
        // It broke off the last time.
        Some(true) => "finalize",
    };
    let statement = format!("alter table audit_log detach partition {name} {how}");
    connection.execute(AssertSqlSafe(statement)).await?;
    Ok(())
}

async fn gaps(connection: &mut PgConnection, name: &str, after: (Uuid, i64)) -> Result<Vec<Gap>, StoreError> {
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
    let limit = i64::try_from(GAPS).unwrap_or(i64::MAX);
    let rows: Vec<Row> = sqlx::query_as(AssertSqlSafe(statement))
        .bind(after.0)
        .bind(after.1)
        .bind(limit)
        .fetch_all(connection)
        .await?;
    let hash = |bytes: &[u8]| Digest::read(bytes).ok_or(StoreError::Unreadable("audit hash"));
    rows.into_iter()
        .map(|(id, first, before, seq, head)| {
            Ok(Gap { first, before: hash(&before)?, last: Chain { id, seq, head: hash(&head)? } })
        })
        .collect()
}
