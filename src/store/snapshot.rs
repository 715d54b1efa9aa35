//! One view of the database over several statements.

use sqlx::PgConnection;

use super::lease::Lease;
use super::{Store, StoreError};
use crate::model::scope::{Revision, Scope};

/// A `repeatable read, read only` transaction: what it reads belongs together.
#[derive(Debug)]
pub struct Snapshot {
    lease: Lease,
}

impl Store {
    /// Begins a snapshot. Its view is taken by the first statement.
    pub async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let lease = self.transaction("begin isolation level repeatable read, read only").await?;
        Ok(Snapshot { lease })
    }

    /// The present revisions of `scopes`; those without a head are left out.
    pub async fn heads(&self, scopes: &[Scope]) -> Result<Vec<(Scope, Revision)>, StoreError> {
        let uids: Vec<_> = scopes.iter().map(|scope| scope.0).collect();
        let rows = self
            .run(async |connection| {
                sqlx::query!("select scope, revision from heads where scope = any($1)", &uids)
                    .fetch_all(connection)
                    .await
            })
            .await?;
        Ok(rows.into_iter().map(|row| (Scope(row.scope), Revision(row.revision))).collect())
    }
}

impl Snapshot {
    /// The connection, for the reads of the other files.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.lease.connection()
    }

    /// The scope's revision and floor in this view; `None` where it has no head.
    pub async fn head(&mut self, scope: Scope) -> Result<Option<Head>, StoreError> {
        let row = sqlx::query!("select revision, floor from heads where scope = $1", scope.0)
            .fetch_optional(self.connection())
            .await?;
        Ok(row.map(|row| Head { revision: Revision(row.revision), floor: Revision(row.floor) }))
    }

    /// Ends the view; one that is dropped instead costs its connection.
    pub async fn end(self) -> Result<(), StoreError> {
        self.lease.settle("commit").await
    }
}

/// Where a scope stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Its newest revision.
    pub revision: Revision,
    /// Changes at or below it are pruned.
    pub floor: Revision,
}
