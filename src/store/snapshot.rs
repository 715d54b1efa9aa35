//! One view of the database over several statements.

use sqlx::{PgConnection, Postgres, Transaction};

use super::{Store, StoreError};
use crate::model::scope::{Revision, Scope};

/// A `repeatable read, read only` transaction: what it reads belongs together.
#[derive(Debug)]
pub struct Snapshot {
    tx: Transaction<'static, Postgres>,
}

impl Store {
    /// Begins a snapshot. Its view is taken by the first statement.
    pub async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let tx = self.pool.begin_with("begin isolation level repeatable read, read only").await?;
        Ok(Snapshot { tx })
    }

    /// The present revisions of `scopes`; those without a head are left out.
    pub async fn heads(&self, scopes: &[Scope]) -> Result<Vec<(Scope, Revision)>, StoreError> {
        let uids: Vec<_> = scopes.iter().map(|scope| scope.0).collect();
        let rows = sqlx::query!("select scope, revision from heads where scope = any($1)", &uids)
            .fetch_all(&self.pool)
            .await?;
        Ok(rows.into_iter().map(|row| (Scope(row.scope), Revision(row.revision))).collect())
    }
}

impl Snapshot {
    /// The connection, for the reads of the other files.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    /// The scope's revision and floor in this view; `None` where it has no head.
    pub async fn head(&mut self, scope: Scope) -> Result<Option<Head>, StoreError> {
        let row = sqlx::query!("select revision, floor from heads where scope = $1", scope.0)
            .fetch_optional(self.connection())
            .await?;
        Ok(row.map(|row| Head { revision: Revision(row.revision), floor: Revision(row.floor) }))
    }

    /// Ends the view. Nothing was written, so a failure here loses nothing.
    pub async fn end(self) -> Result<(), StoreError> {
        Ok(self.tx.commit().await?)
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
