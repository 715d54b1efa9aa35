//! Content: immutable bytes addressed by their SHA-256 hash, referenced by resources, templates and prompts.

use std::collections::BTreeMap;

use bytes::Bytes;
use sqlx::PgConnection;

use super::columns::hash;
use super::snapshot::Snapshot;
use super::{Store, StoreError};
use crate::model::content::ContentHash;
use crate::model::ids::{AgentId, TenantId};

async fn read(
    connection: &mut PgConnection,
    tenant: TenantId,
    agent: AgentId,
    hashes: &[ContentHash],
) -> Result<Vec<(Vec<u8>, Vec<u8>)>, sqlx::Error> {
    let wanted: Vec<_> = hashes.iter().map(|hash| &hash.0[..]).collect();
    let rows = sqlx::query!(
        "select hash, bytes from contents \
         where (tenant, agent, hash) in (select $1::uuid, $2::uuid, unnest($3::bytea[]))",
        tenant.0,
        agent.0,
        &wanted as &[&[u8]],
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.hash, row.bytes)).collect())
}

fn addressed(rows: Vec<(Vec<u8>, Vec<u8>)>) -> Result<BTreeMap<ContentHash, Bytes>, StoreError> {
    rows.into_iter().map(|(address, bytes)| Ok((hash(address)?, Bytes::from(bytes)))).collect()
}

impl Store {
    /// Reads the bytes with these hashes; purged ones are omitted.
    pub async fn contents(
        &self,
        tenant: TenantId,
        agent: AgentId,
        hashes: &[ContentHash],
    ) -> Result<BTreeMap<ContentHash, Bytes>, StoreError> {
        addressed(self.read(async |connection| read(connection, tenant, agent, hashes).await).await?)
    }
}

impl Store {
    /// Reads at most `most` bytes from the beginning of the contents with these hashes; purged ones are omitted.
    pub async fn content_prefixes(
        &self,
        tenant: TenantId,
        agent: AgentId,
        hashes: &[ContentHash],
        most: usize,
    ) -> Result<BTreeMap<ContentHash, Bytes>, StoreError> {
        let wanted: Vec<_> = hashes.iter().map(|hash| &hash.0[..]).collect();
        let most = i32::try_from(most).unwrap_or(i32::MAX);
        let rows = self
            .read(async |connection| {
                sqlx::query!(
                    r#"select hash, substring(bytes from 1 for $4) as "bytes!" from contents
                    where (tenant, agent, hash) in (select $1::uuid, $2::uuid, unnest($3::bytea[]))"#,
                    tenant.0,
                    agent.0,
                    &wanted as &[&[u8]],
                    most,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        addressed(rows.into_iter().map(|row| (row.hash, row.bytes)).collect())
    }
}

impl Snapshot {
    /// Reads the bytes with these hashes in this snapshot.
    pub async fn contents(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        hashes: &[ContentHash],
    ) -> Result<BTreeMap<ContentHash, Bytes>, StoreError> {
        addressed(read(self.connection(), tenant, agent, hashes).await?)
    }

    /// The sizes in bytes of the content with these hashes.
    pub async fn content_sizes(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        hashes: &[ContentHash],
    ) -> Result<BTreeMap<ContentHash, usize>, StoreError> {
        let wanted: Vec<_> = hashes.iter().map(|hash| &hash.0[..]).collect();
        let rows = sqlx::query!(
            r#"select hash, octet_length(bytes) as "size!" from contents
            where (tenant, agent, hash) in (select $1::uuid, $2::uuid, unnest($3::bytea[]))"#,
            tenant.0,
            agent.0,
            &wanted as &[&[u8]],
        )
        .fetch_all(self.connection())
        .await?;
        rows.into_iter().map(|row| Ok((hash(row.hash)?, usize::try_from(row.size).unwrap_or(0)))).collect()
    }
}
