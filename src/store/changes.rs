//! The log of changes: what happened to a scope after a revision, and to any scope since a moment.

use super::snapshot::Snapshot;
use super::{Store, StoreError};
use crate::model::scope::{Change, ChangeKind, Revision, Scope};

/// What a sweep found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sweep {
    /// Where the next sweep begins: the oldest transaction that was unfinished during this one.
    pub horizon: String,
    /// The newest revision of each scope written since the horizon of the sweep before; of every scope, where some of
    /// what was written since is pruned already.
    pub heads: Vec<(Scope, Revision)>,
}

impl Snapshot {
    /// The changes of a scope after a revision, at most `limit`, in their order.
    pub async fn changes_after(
        &mut self,
        scope: Scope,
        after: Revision,
        limit: usize,
    ) -> Result<Vec<Change>, StoreError> {
        let rows = sqlx::query!(
            "select revision, kind, subject from changes \
             where scope = $1 and revision > $2 order by revision, ordinal limit $3",
            scope.0,
            after.0,
            i64::try_from(limit).unwrap_or(i64::MAX),
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
}

impl Store {
    /// The revisions written since `horizon` (the first sweep has none and finds nothing: nothing is held yet).
    ///
    /// Rows of a transaction that was unfinished at the last sweep have an `xid` at or above its horizon, however
    /// late they commit, so none escapes. What is found twice is known already and costs nothing. Who has not swept for
    /// so long that changes were pruned meanwhile is told of all heads.
    pub async fn sweep(&self, horizon: Option<&str>) -> Result<Sweep, StoreError> {
        // A transaction, though it is one statement: one that meets a dead connection takes another.
        let mut view = self.transaction("begin read only").await?;
        let rows = sqlx::query!(
            r#"select now.horizon as "horizon!", recent.scope as "scope?", recent.revision as "revision?"
                    from (select pg_snapshot_xmin(pg_current_snapshot())::text as horizon) as now
                    left join (
                        (
                            select scope, max(revision) as revision from changes
                            where xid >= $1::text::xid8
                            group by scope
                        )
                        union all
                        (
                            select scope, revision from heads
                            where $1::text::xid8 <= (select pruned_xid from gateway)
                        )
                    ) as recent on true"#,
            horizon,
        )
        .fetch_all(view.connection())
        .await?;
        view.settle("commit").await?;
        let heads =
            rows.iter().filter_map(|row| Some((Scope(row.scope?), Revision(row.revision?)))).collect();
        let horizon = rows.into_iter().next().ok_or(StoreError::Unreadable("snapshot"))?.horizon;
        Ok(Sweep { horizon, heads })
    }
}
