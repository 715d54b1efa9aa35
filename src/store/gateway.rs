//! Settings shared by all replicas.

use super::{Store, StoreError};

impl Store {
    /// Reads the secret with which cursors are signed; stores `candidate` if there is none yet.
    pub async fn cursor_secret(&self, candidate: [u8; 32]) -> Result<Vec<u8>, StoreError> {
        self.run(async |connection| {
            sqlx::query!(
                "insert into gateway (cursor_secret) values ($1) on conflict do nothing",
                &candidate[..]
            )
            .execute(connection)
            .await
        })
        .await?;
        self.read(async |connection| {
            sqlx::query_scalar!("select cursor_secret from gateway").fetch_one(connection).await
        })
        .await
    }

    /// Renews the epoch after a restore from a dump, so that nothing that refers to what came after the dump counts as
    /// known, and forgets the transaction ids of the server that it comes from.
    pub async fn renew_epoch(&self) -> Result<(), StoreError> {
        self.run(async |connection| {
            sqlx::query!(
                "update gateway set epoch = gen_random_uuid(), pruned_xid = least(pruned_xid, pg_current_xact_id())"
            )
            .execute(connection)
            .await
        })
        .await?;
        Ok(())
    }
}
