//! Prunes old changes in small batches: of each scope the oldest revisions first, each as a whole, and none
//! that is newer than one that remains.

use std::time::Duration;

use uuid::Uuid;

use super::pooled_connection::{BEGIN_PLANNED, PooledConnection};
use super::{Store, StoreError};

/// Key of the advisory lock held while pruning.
const LOCK: i64 = 0x7761_6767_6c65_0003;
/// Maximum number of old changes examined per batch.
const EXAMINED_CHANGES: i64 = 10_000;
/// Maximum number of scopes per batch; writes to these scopes wait for the batch.
const SCOPES_PER_BATCH: i64 = 500;
/// Maximum number of changes deleted per scope and batch, except for a single larger revision; fewer of each where
/// there are many, so that a batch deletes at most [`EXAMINED_CHANGES`].
const CHANGES_PER_SCOPE: i64 = 500;
/// Maximum number of labels per scope whose newest pruned change is remembered; the change of another label counts as
/// one of everybody.
const LABELS_PER_SCOPE: i64 = 1_000;

impl Store {
    /// Deletes a batch of the changes written longer than `retain` ago, by the database's clock, or renews the
    /// transaction ids of a batch restored from another server. Returns whether there may be more; false if another
    /// replica is pruning.
    pub async fn prune(&self, retain: Duration) -> Result<bool, StoreError> {
        let retain = retain.as_secs_f64();
        let mut tx = self.transaction(BEGIN_PLANNED).await?;
        let alone = sqlx::query_scalar!(r#"select pg_try_advisory_xact_lock($1) as "locked!""#, LOCK)
            .fetch_one(tx.connection())
            .await?;
        // Alone in its transaction, whose id it assigns.
        let more = alone
            && (renew_foreign_ids(&mut tx).await?
                || prune_scopes(&mut tx, retain).await?
                || prune_orphans(&mut tx, retain).await?);
        tx.end("commit").await?;
        Ok(more)
    }
}

/// Gives a batch of the changes that were restored from another server the id of this transaction, and the mark of what
/// was pruned. A visible row with an id that this server has not assigned yet can only come from another one. Until the
/// ids catch up, each sweep would find it, and with the mark all heads.
async fn renew_foreign_ids(tx: &mut PooledConnection) -> Result<bool, StoreError> {
    let renewed = sqlx::query_scalar!(
        r#"with ahead as (
            select scope, revision, ordinal from changes
            where xid >= pg_snapshot_xmax(pg_current_snapshot()) order by xid limit $1
        ),
        renewed as (
            update changes c set xid = pg_current_xact_id() from ahead
            where c.scope = ahead.scope and c.revision = ahead.revision and c.ordinal = ahead.ordinal
            returning c.scope
        ),
        noted as (
            update gateway set pruned_xid = pg_current_xact_id()
            where pruned_xid >= pg_snapshot_xmax(pg_current_snapshot()) returning singleton
        )
        select exists (select from renewed) or exists (select from noted) as "renewed!""#,
        EXAMINED_CHANGES,
    )
    .fetch_one(tx.connection())
    .await?;
    if renewed {
        tracing::info!("renewed transaction ids that were restored from another server");
    }
    Ok(renewed)
}

/// Prunes the changes of some scopes. Returns whether any were deleted.
async fn prune_scopes(tx: &mut PooledConnection, retain: f64) -> Result<bool, StoreError> {
    let scopes = lock_scopes(tx, retain).await?;
    if scopes.is_empty() {
        return Ok(false);
    }
    let pruned = delete_changes(tx, &scopes, retain).await?;
    bound_labels(tx, &scopes).await?;
    Ok(pruned)
}

/// Locks scopes with old changes, so that no revision is added before the floor is raised. Locked scopes are skipped.
async fn lock_scopes(tx: &mut PooledConnection, retain: f64) -> Result<Vec<Uuid>, StoreError> {
    // One by one, since a join would scan all heads for them.
    let scopes = sqlx::query_scalar!(
        "select h.scope from (
            select distinct scope from (
                select scope from changes where at < now() - make_interval(secs => $1) order by at limit $2
            ) as old order by scope limit $3
        ) as chosen cross join lateral (
            select scope from heads where heads.scope = chosen.scope for no key update skip locked
        ) as h",
        retain,
        EXAMINED_CHANGES,
        SCOPES_PER_BATCH,
    )
    .fetch_all(tx.connection())
    .await?;
    Ok(scopes)
}

/// Raises the floors of locked scopes and deletes the changes below. Returns whether there were any.
async fn delete_changes(tx: &mut PooledConnection, scopes: &[Uuid], retain: f64) -> Result<bool, StoreError> {
    let per_scope = EXAMINED_CHANGES / i64::try_from(scopes.len()).unwrap_or(i64::MAX).max(1);
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
            update heads set floor = wanted.raised, everybody_floor = coalesce(
                (
                    select max(c.revision) from changes c
                    where c.scope = wanted.scope and c.revision <= wanted.raised and c.audience is null
                ),
                heads.everybody_floor,
                wanted.floor
            )
            from wanted where heads.scope = wanted.scope and wanted.raised > wanted.floor
            returning heads.scope, heads.floor
        ),
        gone as (
            delete from changes using floors
            where changes.scope = floors.scope and changes.revision <= floors.floor
            returning changes.scope, changes.revision, changes.xid, changes.audience
        ),
        labels as (
            insert into pruned_labels (scope, label, revision)
            select gone.scope, label, max(gone.revision) from gone, unnest(gone.audience) as label
            group by gone.scope, label
            on conflict (scope, label) do update set revision = excluded.revision
        ),
        newest as (select xid from gone order by xid desc limit 1),
        noted as (update gateway set pruned_xid = greatest(pruned_xid, newest.xid) from newest)
        select exists (select from gone) as "pruned!""#,
        scopes,
        retain,
        per_scope.min(CHANGES_PER_SCOPE),
    )
    .fetch_one(tx.connection())
    .await?;
    Ok(pruned)
}

/// Forgets the labels of locked scopes beyond [`LABELS_PER_SCOPE`], those pruned longest ago: their changes count as ones
/// of everybody.
async fn bound_labels(tx: &mut PooledConnection, scopes: &[Uuid]) -> Result<(), StoreError> {
    sqlx::query!(
        "with old as (
            delete from pruned_labels using unnest($1::uuid[]) as chosen(scope) cross join lateral (
                select p.label from pruned_labels p where p.scope = chosen.scope
                order by p.revision desc, p.label offset $2
            ) as o
            where pruned_labels.scope = chosen.scope and pruned_labels.label = o.label
            returning pruned_labels.scope, pruned_labels.revision
        ),
        newest as (select scope, max(revision) as revision from old group by scope)
        update heads set everybody_floor = greatest(everybody_floor, newest.revision)
        from newest where heads.scope = newest.scope",
        scopes,
        LABELS_PER_SCOPE,
    )
    .execute(tx.connection())
    .await?;
    Ok(())
}

/// Deletes old changes of scopes that do not exist any more.
async fn prune_orphans(tx: &mut PooledConnection, retain: f64) -> Result<bool, StoreError> {
    let gone = sqlx::query!(
        "delete from changes using (
            select scope, revision, ordinal from changes
            where at < now() - make_interval(secs => $1) order by at limit $2
        ) as old
        where changes.scope = old.scope and changes.revision = old.revision and changes.ordinal = old.ordinal
        and not exists (select from heads where heads.scope = old.scope)",
        retain,
        EXAMINED_CHANGES,
    )
    .execute(tx.connection())
    .await?;
    Ok(gone.rows_affected() > 0)
}
