//! The hashes of issued keys, for the filter of known keys in memory.

use super::horizon::Horizon;
use super::{Store, StoreError};
use crate::model::key::KeyHash;

/// Keys that changed since a horizon.
#[derive(Debug)]
pub struct IssuedSince {
    /// Where the next query begins.
    pub horizon: Horizon,
    /// Whether changes since the horizon were pruned, so that keys may be missing.
    pub pruned: bool,
    /// The hashes of the changed keys, at most as many as requested.
    pub hashes: Vec<KeyHash>,
}

impl Store {
    /// The horizon of now: keys written by transactions that it does not contain are visible to later reads.
    pub async fn horizon(&self) -> Result<Horizon, StoreError> {
        let row = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select pg_current_snapshot()::text as "snapshot!", pg_is_in_recovery() as "in_recovery!""#
                )
                .fetch_one(connection)
                .await
            })
            .await?;
        Horizon::parse(&row.snapshot, row.in_recovery)
    }

    /// The hashes of keys that are not revoked, after a hash, in byte order.
    pub async fn issued_hashes(&self, after: &[u8], limit: i64) -> Result<Vec<KeyHash>, StoreError> {
        let rows = self
            .run_planned(async |connection| {
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
    pub async fn issued_since(&self, horizon: &Horizon, limit: i64) -> Result<IssuedSince, StoreError> {
        let rows = self
            .run_planned(async |connection| {
                sqlx::query!(
                    r#"select now.snapshot as "snapshot!", now.in_recovery as "in_recovery!",
                        now.pruned as "pruned!", changed.hash as "hash?"
                    from (
                        select pg_current_snapshot()::text as snapshot, pg_is_in_recovery() as in_recovery,
                            exists (
                                select from gateway where pruned_xid >= $1::text::xid8 or exists (
                                    select from unnest($2::text::xid8[]) as started
                                    where started <= pruned_xid
                                    and pg_visible_in_snapshot(started, pg_current_snapshot())
                                )
                            ) as pruned
                    ) as now
                    left join (
                        select k.hash from (
                            select distinct subject from changes
                            where (xid >= $1::text::xid8 or xid = any($2::text::xid8[])) and kind = 'key'
                        ) as named
                        join api_keys k on k.uid = named.subject::uuid
                        limit $3
                    ) as changed on true"#,
                    horizon.from(),
                    horizon.named(),
                    limit,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        let first = rows.first().ok_or(StoreError::Unreadable("snapshot"))?;
        let (horizon, pruned) = (Horizon::parse(&first.snapshot, first.in_recovery)?, first.pruned);
        let hashes = rows.into_iter().filter_map(|row| row.hash).map(key_hash).collect::<Result<_, _>>()?;
        Ok(IssuedSince { horizon, pruned, hashes })
    }
}

fn key_hash(stored: Vec<u8>) -> Result<KeyHash, StoreError> {
    stored.try_into().map(KeyHash).map_err(|_| StoreError::Unreadable("key hash"))
}
