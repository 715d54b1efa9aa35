//! The hashes of issued keys, for the filter of known keys in memory.

use super::{Store, StoreError};
use crate::model::key::KeyHash;

/// Keys that changed since a horizon.
#[derive(Debug)]
pub struct IssuedSince {
    /// Where the next query begins: the oldest transaction that was in progress during this one.
    pub horizon: String,
    /// Whether changes since the horizon were pruned, so that keys may be missing.
    pub pruned: bool,
    /// The hashes of the changed keys, at most as many as requested.
    pub hashes: Vec<KeyHash>,
}

impl Store {
    /// The oldest transaction in progress. Keys written by older ones are visible to later reads.
    pub async fn horizon(&self) -> Result<String, StoreError> {
        self.read(async |connection| {
            sqlx::query_scalar!(r#"select pg_snapshot_xmin(pg_current_snapshot())::text as "horizon!""#)
                .fetch_one(connection)
                .await
        })
        .await
    }

    /// The hashes of keys that are not revoked, after a hash, in byte order.
    pub async fn issued_hashes(&self, after: &[u8], limit: i64) -> Result<Vec<KeyHash>, StoreError> {
        let rows = self
            .read(async |connection| {
                sqlx::query_scalar!(
                    "select hash from api_keys where hash > $1 and revoked_at is null order by hash limit $2",
                    after,
                    limit,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        rows.into_iter().map(key_hash).collect()
    }

    /// The keys that were created or changed since `horizon`.
    pub async fn issued_since(&self, horizon: &str, limit: i64) -> Result<IssuedSince, StoreError> {
        let rows = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select now.horizon as "horizon!", now.pruned as "pruned!", changed.hash as "hash?"
                    from (
                        select pg_snapshot_xmin(pg_current_snapshot())::text as horizon,
                            coalesce($1::text::xid8 <= (select pruned_xid from gateway), false) as pruned
                    ) as now
                    left join (
                        select k.hash from (
                            select distinct subject from changes where xid >= $1::text::xid8 and kind = 'key'
                        ) as named
                        join api_keys k on k.uid = named.subject::uuid
                        limit $2
                    ) as changed on true"#,
                    horizon,
                    limit,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        let first = rows.first().ok_or(StoreError::Unreadable("snapshot"))?;
        let (horizon, pruned) = (first.horizon.clone(), first.pruned);
        let hashes = rows.into_iter().filter_map(|row| row.hash).map(key_hash).collect::<Result<_, _>>()?;
        Ok(IssuedSince { horizon, pruned, hashes })
    }
}

fn key_hash(stored: Vec<u8>) -> Result<KeyHash, StoreError> {
    stored.try_into().map(KeyHash).map_err(|_| StoreError::Unreadable("key hash"))
}
