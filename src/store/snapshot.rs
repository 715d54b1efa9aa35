//! A consistent view of the database over several statements.

use sqlx::PgConnection;

use super::pooled_connection::PooledConnection;
use super::{Store, StoreError};
use crate::model::scope::{Head, Revision, Scope};

/// A `repeatable read, read only` transaction.
#[derive(Debug)]
pub struct Snapshot {
    pooled: PooledConnection,
}

impl Store {
    /// Begins a snapshot, which is taken by its first statement.
    pub async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let pooled = self.transaction("begin isolation level repeatable read, read only").await?;
        Ok(Snapshot { pooled })
    }

    /// Reads the current revisions of scopes; scopes without a head are omitted.
    pub async fn heads(&self, scopes: &[Scope]) -> Result<Vec<(Scope, Revision)>, StoreError> {
        let uids: Vec<_> = scopes.iter().map(|scope| scope.0).collect();
        let rows = self
            .read(async |connection| {
                sqlx::query!("select scope, revision from heads where scope = any($1)", &uids)
                    .fetch_all(connection)
                    .await
            })
            .await?;
        Ok(rows.into_iter().map(|row| (Scope(row.scope), Revision(row.revision))).collect())
    }
}

impl Snapshot {
    /// The connection, for reads in other files.
    pub(super) fn connection(&mut self) -> &mut PgConnection {
        self.pooled.connection()
    }

    /// Reads the scope's revision and floor; `None` if it has no head.
    pub async fn head(&mut self, scope: Scope) -> Result<Option<Head>, StoreError> {
        let row = sqlx::query!("select revision, floor from heads where scope = $1", scope.0)
            .fetch_optional(self.connection())
            .await?;
        Ok(row.map(|row| Head { revision: Revision(row.revision), floor: Revision(row.floor) }))
    }

    /// Ends the snapshot. Dropping it instead closes its connection.
    pub async fn end(self) -> Result<(), StoreError> {
        self.pooled.end("commit").await
    }
}
