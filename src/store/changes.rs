//! The `changes` table: the changes of one scope after a revision, and of all scopes since a transaction.

use sqlx::{ConnectOptions, PgConnection};
use time::OffsetDateTime;
use uuid::Uuid;

use super::horizon::Horizon;
use super::snapshot::Snapshot;
use super::{Store, StoreError};
use crate::model::audience::Audience;
use crate::model::label::{CallerLabels, Label};
use crate::model::scope::{Change, ChangeKind, Head, Revision, Scope};
use crate::model::scope_changes::ScopeChanges;

/// Result of a sweep.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// Where the next sweep begins.
    pub horizon: Horizon,
    /// The newest revision of each scope written since the previous sweep; of all scopes, if some of those
    /// changes have been pruned.
    pub heads: Vec<(Scope, Revision)>,
    /// Identifies the server, database and table of revisions.
    pub server: String,
    /// The epoch of the gateway.
    pub epoch: Option<Uuid>,
    /// The database's clock, read between sending the query and receiving its result.
    pub now: OffsetDateTime,
}

impl Snapshot {
    /// The changes of a scope after a revision that concern callers with these labels, at most `limit`, in order.
    pub async fn changes_for(
        &mut self,
        caller: &CallerLabels,
        scope: Scope,
        after: Revision,
        limit: usize,
    ) -> Result<Vec<Change>, StoreError> {
        let labels = own_labels(caller);
        let rows = sqlx::query!(
            "select revision, kind, subject from changes \
             where scope = $1 and revision > $2 and ($4::text[] is null or audience is null or audience && $4) \
             order by revision, ordinal limit $3",
            scope.0,
            after.0,
            i64::try_from(limit).unwrap_or(i64::MAX),
            labels.as_deref() as Option<&[&str]>,
        )
        .fetch_all(self.connection())
        .await?;
        let change = |revision, kind: &str, subject| Change {
            revision: Revision(revision),
            kind: ChangeKind::parse(kind),
            subject,
        };
        Ok(rows.into_iter().map(|row| change(row.revision, &row.kind, row.subject)).collect())
    }

    /// Whether changes of a scope after a revision were pruned that concerned callers with these labels.
    pub async fn pruned_for(
        &mut self,
        caller: &CallerLabels,
        scope: Scope,
        after: Revision,
    ) -> Result<bool, StoreError> {
        let labels = own_labels(caller);
        sqlx::query_scalar!(
            r#"select floor > $2 and (
                $3::text[] is null or coalesce(everybody_floor, floor) > $2 or exists (
                    select from pruned_labels p where p.scope = heads.scope and p.label = any($3) and p.revision > $2
                )
            ) as "pruned!" from heads where scope = $1"#,
            scope.0,
            after.0,
            labels.as_deref() as Option<&[&str]>,
        )
        .fetch_optional(self.connection())
        .await
        .map(|pruned| pruned.unwrap_or(true))
        .map_err(Into::into)
    }
}

/// The labels of a caller; `None` if it sees everything.
fn own_labels(caller: &CallerLabels) -> Option<Vec<&str>> {
    match caller {
        CallerLabels::Everything => None,
        CallerLabels::These(labels) => Some(labels.iter().map(Label::as_str).collect()),
    }
}

impl Store {
    /// Reads a scope's head and its changes after a revision with their audiences, at most `limit`, in order; `None` if
    /// it has no head.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn changes_after(
        &self,
        scope: Scope,
        after: Revision,
        limit: usize,
    ) -> Result<Option<ScopeChanges>, StoreError> {
        self.read(async |connection| read_changes(connection, scope, after, limit).await).await
    }

    /// The callers whom the changes of a scope after a revision concern, up to `until`.
    ///
    /// # Errors
    /// If the database does not answer.
    pub async fn audience_of_changes(
        &self,
        scope: Scope,
        (after, until): (Revision, Revision),
    ) -> Result<Audience, StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select coalesce(bool_or(audience is null), true) as "everybody!",
                        array(
                            select distinct label from changes, unnest(audience) as label
                            where scope = $1 and revision > $2 and revision <= $3
                        ) as "labels!"
                    from changes where scope = $1 and revision > $2 and revision <= $3"#,
                    scope.0,
                    after.0,
                    until.0,
                )
                .fetch_one(connection)
                .await
            })
            .await?;
        Ok(audience((!row.everybody).then_some(row.labels)))
    }
}

/// Parses a stored audience. Labels of a form that no caller can have match no caller.
pub(super) fn audience(stored: Option<Vec<String>>) -> Audience {
    let labels = |texts: Vec<String>| texts.iter().filter_map(|text| Label::parse(text).ok()).collect();
    stored.map_or(Audience::Everybody, |texts| Audience::Labels(labels(texts)))
}

async fn read_changes(
    connection: &mut PgConnection,
    scope: Scope,
    after: Revision,
    limit: usize,
) -> Result<Option<ScopeChanges>, sqlx::Error> {
    // One statement, and so one snapshot.
    let rows = sqlx::query!(
        r#"select h.revision as head, h.floor, c.revision as "revision?", c.kind as "kind?", c.subject as "subject?",
            c.audience as "audience?", c.at as "at?"
        from heads h left join lateral (
            select revision, ordinal, kind, subject, audience, at from changes
            where scope = h.scope and revision > $2 order by revision, ordinal limit $3
        ) c on true
        where h.scope = $1 order by c.revision, c.ordinal"#,
        scope.0,
        after.0,
        i64::try_from(limit).unwrap_or(i64::MAX),
    )
    .fetch_all(connection)
    .await?;
    let Some(first) = rows.first() else { return Ok(None) };
    let head = Head { revision: Revision(first.head), floor: Revision(first.floor) };
    let oldest = rows.iter().filter_map(|row| row.at).min();
    let changes = rows.into_iter().filter_map(|row| {
        let (revision, kind) = (Revision(row.revision?), ChangeKind::parse(&row.kind?));
        Some((Change { revision, kind, subject: row.subject? }, audience(row.audience)))
    });
    Ok(Some(ScopeChanges { head, changes: changes.collect(), oldest }))
}

/// A dedicated connection for sweeps.
#[derive(Debug)]
pub struct SweepConnection {
    pub(super) connection: PgConnection,
}

impl Store {
    /// Opens a connection for sweeps outside the pool, so that an unreachable database is detected at once;
    /// the pool would retry.
    pub async fn sweep_connection(&self) -> Result<SweepConnection, StoreError> {
        let mut connection = self.pool.connect_options().connect().await?;
        self.session.set(&mut connection).await?;
        Ok(SweepConnection { connection })
    }
}

impl SweepConnection {
    /// Reads the revisions written since `horizon`. The first sweep has no horizon and returns no revisions,
    /// since nothing is in memory yet.
    ///
    /// Rows are found that were not visible to the previous sweep: those of the transactions that were in
    /// progress then, however late they commit, and of all that began later. If changes of one of these have been
    /// pruned, all heads are returned; a transaction that is still in progress has committed nothing that could be.
    pub async fn sweep(&mut self, horizon: Option<&Horizon>) -> Result<Sweep, StoreError> {
        let rows = sqlx::query!(
            r#"with now as materialized (
                        select pg_current_snapshot()::text as snapshot,
                            pg_is_in_recovery() as in_recovery,
                            waggle_timeline() as server,
                            (select epoch from gateway) as epoch,
                            clock_timestamp() as now
                    )
                    select now.snapshot as "snapshot!", now.in_recovery as "in_recovery!", now.server as "server!",
                        now.epoch as "epoch?", now.now as "now!", recent.scope as "scope?",
                        recent.revision as "revision?"
                    from now
                    left join (
                        (
                            select scope, max(revision) as revision from changes
                            where xid >= $1::text::xid8 or xid = any($2::text::xid8[])
                            group by scope
                        )
                        union all
                        (
                            select scope, revision from heads where exists (
                                select from gateway where pruned_xid >= $1::text::xid8 or exists (
                                    select from unnest($2::text::xid8[]) as started
                                    where started <= pruned_xid
                                    and pg_visible_in_snapshot(started, pg_current_snapshot())
                                )
                            )
                        )
                    ) as recent on true"#,
            horizon.map(Horizon::from),
            horizon.map(Horizon::named),
        )
        .fetch_all(&mut self.connection)
        .await?;
        let heads =
            rows.iter().filter_map(|row| Some((Scope(row.scope?), Revision(row.revision?)))).collect();
        let first = rows.into_iter().next().ok_or(StoreError::Unreadable("snapshot"))?;
        let horizon = Horizon::parse(&first.snapshot, first.in_recovery)?;
        Ok(Sweep { horizon, heads, server: first.server, epoch: first.epoch, now: first.now })
    }

    /// Reads the current revisions of scopes; scopes without a head are omitted.
    pub async fn heads(&mut self, scopes: &[Scope]) -> Result<Vec<(Scope, Revision)>, StoreError> {
        let uids: Vec<_> = scopes.iter().map(|scope| scope.0).collect();
        let rows = sqlx::query!("select scope, revision from heads where scope = any($1)", &uids)
            .fetch_all(&mut self.connection)
            .await?;
        Ok(rows.into_iter().map(|row| (Scope(row.scope), Revision(row.revision))).collect())
    }

    /// Renews the epoch, unless another replica has renewed it since it was `known`. Replicas sweep the new
    /// timeline from its beginning, so that changes pruned before do not matter.
    pub async fn renew_epoch(&mut self, known: Option<Uuid>) -> Result<(), StoreError> {
        sqlx::query!(
            "update gateway set epoch = gen_random_uuid(), pruned_xid = least(pruned_xid, pg_current_xact_id()) \
             where epoch is not distinct from $1",
            known,
        )
        .execute(&mut self.connection)
        .await?;
        Ok(())
    }
}
