//! Resources and their contents.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::snapshot::Snapshot;
use super::write::Write;
use super::{Store, StoreError};
use crate::model::ids::{AgentId, TenantId};
use crate::model::resource::{ContentHash, Definition, NewPart, NewResource, Part, PartKind, Resource};
use crate::model::scope::Revision;
use crate::model::sources::{Point, Sources};
use crate::model::uri::ResourceUri;

struct Row {
    uri: String,
    name: String,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    annotations: Option<String>,
    icons: Option<String>,
    meta: Option<String>,
    revision: i64,
    last_modified: OffsetDateTime,
}

struct PartRow {
    uri: String,
    part_uri: Option<String>,
    mime_type: Option<String>,
    kind: String,
    hash: Vec<u8>,
    size: i64,
}

fn uri(text: &str) -> Result<ResourceUri, StoreError> {
    ResourceUri::parse(text).map_err(|_| StoreError::Unreadable("URI"))
}

pub(super) fn hash(bytes: Vec<u8>) -> Result<ContentHash, StoreError> {
    bytes.try_into().map(ContentHash).map_err(|_| StoreError::Unreadable("content hash"))
}

/// JSON that is kept as it was sent.
pub(super) fn raw(json: Option<String>) -> Result<Option<Box<RawValue>>, StoreError> {
    json.map(RawValue::from_string).transpose().map_err(|_| StoreError::Unreadable("JSON"))
}

impl TryFrom<Row> for Resource {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            uri: uri(&row.uri)?,
            definition: Definition {
                name: row.name,
                title: row.title,
                description: row.description,
                mime_type: row.mime_type,
                annotations: raw(row.annotations)?,
                icons: raw(row.icons)?,
                meta: raw(row.meta)?,
            },
            parts: Vec::new(),
            revision: Revision(row.revision),
            last_modified: row.last_modified,
        })
    }
}

impl TryFrom<PartRow> for Part {
    type Error = StoreError;

    fn try_from(row: PartRow) -> Result<Self, StoreError> {
        Ok(Self {
            uri: row.part_uri.as_deref().map(uri).transpose()?,
            mime_type: row.mime_type,
            kind: match row.kind.as_str() {
                "text" => PartKind::Text,
                "blob" => PartKind::Blob,
                _ => return Err(StoreError::Unreadable("content kind")),
            },
            hash: hash(row.hash)?,
            size: u64::try_from(row.size).map_err(|_| StoreError::Unreadable("content size"))?,
        })
    }
}

/// Joins definitions and their parts, both in the order of their URIs.
fn join(definitions: Vec<Row>, parts: Vec<PartRow>) -> Result<Vec<Resource>, StoreError> {
    let mut parts = parts.into_iter().peekable();
    let mut resources = Vec::with_capacity(definitions.len());
    for row in definitions {
        let mut resource = Resource::try_from(row)?;
        while let Some(part) = parts.next_if(|part| part.uri == resource.uri.as_str()) {
            resource.parts.push(part.try_into()?);
        }
        resources.push(resource);
    }
    Ok(resources)
}

impl Snapshot {
    /// The resources of an agent in byte order of their URIs: all, or those named. `sources` may pause between the
    /// two reads that belong together.
    pub async fn resources(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        only: Option<&[String]>,
        sources: &Sources,
    ) -> Result<Vec<Resource>, StoreError> {
        let definitions = sqlx::query_as!(
            Row,
            "select uri, name, title, description, mime_type, annotations, icons, meta, revision, last_modified \
             from resources where tenant = $1 and agent = $2 and ($3::text[] is null or uri = any($3)) order by uri",
            tenant.0,
            agent.0,
            only,
        )
        .fetch_all(self.connection())
        .await?;
        sources.pause(Point::SnapshotBetweenReads).await;
        let parts = sqlx::query_as!(
            PartRow,
            "select uri, part_uri, mime_type, kind, hash, size from resource_contents \
             where tenant = $1 and agent = $2 and ($3::text[] is null or uri = any($3)) order by uri, ordinal",
            tenant.0,
            agent.0,
            only,
        )
        .fetch_all(self.connection())
        .await?;
        join(definitions, parts)
    }
}

impl Snapshot {
    /// URIs of an agent's resources after one of them, in byte order.
    pub async fn resource_uris(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        after: &str,
        limit: i64,
    ) -> Result<Vec<String>, StoreError> {
        Ok(sqlx::query_scalar!(
            "select uri from resources where tenant = $1 and agent = $2 and uri > $3 order by uri limit $4",
            tenant.0,
            agent.0,
            after,
            limit,
        )
        .fetch_all(self.connection())
        .await?)
    }
}

impl Store {
    /// The bytes behind these addresses; those that are purged are left out.
    pub async fn contents(
        &self,
        tenant: TenantId,
        agent: AgentId,
        hashes: &[ContentHash],
    ) -> Result<BTreeMap<ContentHash, Bytes>, StoreError> {
        let wanted: Vec<_> = hashes.iter().map(|hash| hash.0.to_vec()).collect();
        let rows = self
            .run(async |connection| {
                sqlx::query!(
                    "select hash, bytes from contents where tenant = $1 and agent = $2 and hash = any($3)",
                    tenant.0,
                    agent.0,
                    &wanted,
                )
                .fetch_all(connection)
                .await
            })
            .await?;
        rows.into_iter().map(|row| Ok((hash(row.hash)?, Bytes::from(row.bytes)))).collect()
    }
}

impl Write {
    /// A resource as this transaction sees it.
    pub async fn resource(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        uri: &ResourceUri,
    ) -> Result<Option<Resource>, StoreError> {
        let definitions = sqlx::query_as!(
            Row,
            "select uri, name, title, description, mime_type, annotations, icons, meta, revision, last_modified \
             from resources where tenant = $1 and agent = $2 and uri = $3",
            tenant.0,
            agent.0,
            uri.as_str(),
        )
        .fetch_all(self.connection())
        .await?;
        if definitions.is_empty() {
            return Ok(None);
        }
        let parts = sqlx::query_as!(
            PartRow,
            "select uri, part_uri, mime_type, kind, hash, size from resource_contents \
             where tenant = $1 and agent = $2 and uri = $3 order by ordinal",
            tenant.0,
            agent.0,
            uri.as_str(),
        )
        .fetch_all(self.connection())
        .await?;
        Ok(join(definitions, parts)?.pop())
    }

    /// Writes the definition of a resource, new or not.
    pub async fn put_definition(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        resource: &NewResource,
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let definition = &resource.definition;
        sqlx::query!(
            "insert into resources (tenant, agent, uri, name, title, description, mime_type, annotations, icons, \
             meta, source, revision, last_modified) \
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, 'inline', $11, $12) \
             on conflict (tenant, agent, uri) do update set name = excluded.name, title = excluded.title, \
             description = excluded.description, mime_type = excluded.mime_type, \
             annotations = excluded.annotations, icons = excluded.icons, meta = excluded.meta, \
             source = excluded.source, revision = excluded.revision, last_modified = excluded.last_modified",
            tenant.0,
            agent.0,
            resource.uri.as_str(),
            definition.name,
            definition.title,
            definition.description,
            definition.mime_type,
            definition.annotations.as_deref().map(RawValue::get),
            definition.icons.as_deref().map(RawValue::get),
            definition.meta.as_deref().map(RawValue::get),
            revision.0,
            now,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Replaces the contents of a resource.
    pub async fn put_contents(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        uri: &ResourceUri,
        parts: &[NewPart],
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        self.orphan_contents(tenant, agent, uri, now).await?;
        for new in parts {
            // The update locks a row that is there, so that the purge cannot take what is about to be named.
            sqlx::query!(
                "insert into contents (tenant, agent, hash, bytes) values ($1, $2, $3, $4) \
                 on conflict (tenant, agent, hash) do update set orphaned_at = null",
                tenant.0,
                agent.0,
                &new.part.hash.0[..],
                &new.bytes[..],
            )
            .execute(self.connection())
            .await?;
        }
        for (ordinal, NewPart { part, .. }) in (0_i32..).zip(parts) {
            sqlx::query!(
                "insert into resource_contents \
                 (tenant, agent, uri, ordinal, part_uri, mime_type, kind, hash, size) \
                 values ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
                tenant.0,
                agent.0,
                uri.as_str(),
                ordinal,
                part.uri.as_ref().map(ResourceUri::as_str),
                part.mime_type,
                part.kind.as_str(),
                &part.hash.0[..],
                i64::try_from(part.size).unwrap_or(i64::MAX),
            )
            .execute(self.connection())
            .await?;
        }
        Ok(())
    }

    /// Takes away what a resource names as its contents. The bytes stay until the purge finds nobody naming them.
    async fn orphan_contents(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        uri: &ResourceUri,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "with freed as (
                delete from resource_contents where tenant = $1 and agent = $2 and uri = $3 returning hash
            )
            update contents set orphaned_at = $4
            where tenant = $1 and agent = $2 and hash in (select hash from freed)",
            tenant.0,
            agent.0,
            uri.as_str(),
            now,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Notes that a resource changed, without new content.
    pub async fn touch_resource(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        uri: &ResourceUri,
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "update resources set revision = $4, last_modified = $5 \
             where tenant = $1 and agent = $2 and uri = $3",
            tenant.0,
            agent.0,
            uri.as_str(),
            revision.0,
            now,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Removes a resource.
    pub async fn delete_resource(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        uri: &ResourceUri,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        self.orphan_contents(tenant, agent, uri, now).await?;
        sqlx::query!(
            "delete from resources where tenant = $1 and agent = $2 and uri = $3",
            tenant.0,
            agent.0,
            uri.as_str(),
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }
}
