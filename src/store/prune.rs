//! Takes old changes away, in small steps: of each scope the oldest revisions first, each whole, and never one that is
//! younger than one that stays.

use std::time::Duration;

use super::lease::Lease;
use super::{Store, StoreError};

/// Names the lock of whoever prunes among the database's advisory locks.
const LOCK: i64 = 0x7761_6767_6c65_0003;
/// Old changes that one step looks at.
const LOOK: i64 = 10_000;
/// Scopes of one step: while it lasts, who writes to them waits.
const SCOPES: i64 = 50;
/// Changes of one scope that one step takes away, but for a single revision that has more.
const CHANGES: i64 = 500;

impl Store {
    /// Takes away some of the changes that were written longer than `retain` ago, by the database's clock; answers
    /// whether there may be more. Where another replica is at it, there is nothing to do.
    pub async fn prune(&self, retain: Duration) -> Result<bool, StoreError> {
        let retain = retain.as_secs_f64();
        let mut tx = self.transaction("begin").await?;
        let alone = sqlx::query_scalar!(r#"select pg_try_advisory_xact_lock($1) as "locked!""#, LOCK)
            .fetch_one(tx.connection())
            .await?;
        let pruned = alone && (prune_scopes(&mut tx, retain).await? | prune_orphans(&mut tx, retain).await?);
        tx.settle("commit").await?;
        Ok(pruned)
    }
}

/// Raises the floors of some scopes, and takes away what is below.
async fn prune_scopes(tx: &mut Lease, retain: f64) -> Result<bool, StoreError> {
    // Locked, so that no revision comes between the look and the floor. Nobody is waited for.
    let scopes = sqlx::query_scalar!(
        "select scope from heads where scope in (
            select scope from (
                select scope from changes where at < now() - make_interval(secs => $1) order by at limit $2
            ) as old
        ) order by scope limit $3 for no key update skip locked",
        retain,
        LOOK,
        SCOPES,
    )
    .fetch_all(tx.connection())
    .await?;
    if scopes.is_empty() {
        return Ok(false);
    }
    let pruned = sqlx::query_scalar!(
        r#"with old as (
            select h.scope, h.revision, h.floor,
                (
                    select min(c.revision) from changes c
                    where c.scope = h.scope and c.at >= now() - make_interval(secs => $2)
                ) as kept,
                (select min(c.revision) from changes c where c.scope = h.scope) as oldest,
                (
                    select c.revision from changes c where c.scope = h.scope
                    order by c.revision, c.ordinal offset $3 limit 1
                ) as beyond
            from heads h where h.scope = any($1)
        ),
        wanted as (
            select scope, floor, least(
                coalesce(kept - 1, revision),
                case when beyond is not null then greatest(beyond - 1, oldest) end
            ) as raised
            from old
        ),
        floors as (
            update heads set floor = wanted.raised from wanted
            where heads.scope = wanted.scope and wanted.raised > wanted.floor
            returning heads.scope, heads.floor
        ),
        gone as (
            delete from changes using floors
            where changes.scope = floors.scope and changes.revision <= floors.floor
            returning changes.xid
        ),
        newest as (select xid from gone order by xid desc limit 1),
        noted as (update gateway set pruned_xid = greatest(pruned_xid, newest.xid) from newest)
        select exists (select from gone) as "pruned!""#,
        &scopes,
        retain,
        CHANGES,
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(pruned)
}

/// Takes away old changes of scopes that are gone.
async fn prune_orphans(tx: &mut Lease, retain: f64) -> Result<bool, StoreError> {
    let gone = sqlx::query!(
        "delete from changes using (
            select scope, revision, ordinal from changes
            where at < now() - make_interval(secs => $1) order by at limit $2
        ) as old
        where changes.scope = old.scope and changes.revision = old.revision and changes.ordinal = old.ordinal
        and not exists (select from heads where heads.scope = old.scope)",
        retain,
        LOOK,
    )
    .execute(tx.connection())
    .await?;
    Ok(gone.rows_affected() > 0)
}
