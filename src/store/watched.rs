//! What was found last of watched content, which is elsewhere.

use time::OffsetDateTime;

use super::columns::hash;
use super::write::Write;
use super::{Store, StoreError};
use crate::model::content::ContentHash;
use crate::model::ids::AgentRef;
use crate::model::variant::Variant;

/// What was found last of some content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundDigest {
    /// Its digest.
    pub digest: ContentHash,
    /// Raised by each write.
    pub fence: i64,
}

impl Store {
    /// Reads what was found last of some content.
    pub async fn found(&self, agent: AgentRef, variant: &Variant) -> Result<Option<FoundDigest>, StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query!(
                    "select digest, fence from watched where tenant = $1 and agent = $2 and uri = $3",
                    agent.tenant.0,
                    agent.uid.0,
                    variant.to_string(),
                )
                .fetch_optional(connection)
                .await
            })
            .await?;
        row.map(|row| Ok(FoundDigest { digest: hash(row.digest)?, fence: row.fence })).transpose()
    }

    /// Forgets what was found before a time.
    pub async fn forget_found(&self, before: OffsetDateTime) -> Result<(), StoreError> {
        self.run(async |connection| {
            sqlx::query!("delete from watched where found_at < $1", before).execute(connection).await
        })
        .await?;
        Ok(())
    }
}

impl Write {
    /// Records what was found of some content, unless another replica recorded something since `known` was read.
    /// Returns whether it was recorded.
    pub async fn record_found(
        &mut self,
        (agent, variant): (AgentRef, &Variant),
        known: Option<FoundDigest>,
        digest: ContentHash,
        now: OffsetDateTime,
    ) -> Result<bool, StoreError> {
        let recorded = sqlx::query!(
            "insert into watched (tenant, agent, uri, digest, fence, found_at)
            values ($1, $2, $3, $4, $5::bigint + 1, $6)
            on conflict (tenant, agent, uri) do update
            set digest = excluded.digest, fence = excluded.fence, found_at = excluded.found_at
            where watched.fence = $5",
            agent.tenant.0,
            agent.uid.0,
            variant.to_string(),
            &digest.0[..],
            known.map_or(0, |known| known.fence),
            now,
        )
        .execute(self.connection())
        .await?;
        Ok(recorded.rows_affected() > 0)
    }
}
