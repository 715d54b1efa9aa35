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
}
