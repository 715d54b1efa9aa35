//! Resources and the references to their content.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::StoreError;
use super::batch::batches;
use super::definition::{Columns, hash, raw, size};
use super::snapshot::Snapshot;
use super::write::{Put, Removal, Write};
use crate::model::ids::{AgentId, TenantId};
use crate::model::resource::{ContentHash, Definition, NewResource, Part, PartKind, Resource};
use crate::model::scope::Revision;
use crate::model::sources::{FailPoint, Sources};
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
    ordinal: i32,
    part_uri: Option<String>,
    mime_type: Option<String>,
    kind: String,
    hash: Vec<u8>,
    size: i64,
}

fn uri(text: &str) -> Result<ResourceUri, StoreError> {
    ResourceUri::parse(text).map_err(|_| StoreError::Unreadable("URI"))
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

/// Joins definitions and their parts, both ordered by URI.
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

/// Reads the resources of an agent in byte order of their URIs. `between` is awaited between the two reads.
async fn all(
    connection: &mut PgConnection,
    tenant: TenantId,
    agent: AgentId,
    between: impl Future<Output = ()>,
) -> Result<Vec<Resource>, StoreError> {
    let definitions = sqlx::query_as!(
        Row,
        "select uri, name, title, description, mime_type, annotations, icons, meta, revision, last_modified \
         from resources where tenant = $1 and agent = $2 order by uri",
        tenant.0,
        agent.0,
    )
    .fetch_all(&mut *connection)
    .await?;
    between.await;
    let parts = sqlx::query_as!(
        PartRow,
        "select uri, ordinal, part_uri, mime_type, kind, hash, size from resource_contents \
         where tenant = $1 and agent = $2 order by uri, ordinal",
        tenant.0,
        agent.0,
    )
    .fetch_all(connection)
    .await?;
    join(definitions, parts)
}

/// Like [`all`], for the named resources.
async fn named(
    connection: &mut PgConnection,
    tenant: TenantId,
    agent: AgentId,
    uris: &[String],
    between: impl Future<Output = ()>,
) -> Result<Vec<Resource>, StoreError> {
    // Sorted here: sorting in SQL could make the database read all rows of the agent.
    let mut definitions = sqlx::query_as!(
        Row,
        "select uri, name, title, description, mime_type, annotations, icons, meta, revision, last_modified \
         from resources where tenant = $1 and agent = $2 and uri = any($3)",
        tenant.0,
        agent.0,
        uris,
    )
    .fetch_all(&mut *connection)
    .await?;
    if definitions.is_empty() {
        return Ok(Vec::new());
    }
    between.await;
    let mut parts = sqlx::query_as!(
        PartRow,
        "select uri, ordinal, part_uri, mime_type, kind, hash, size from resource_contents \
         where tenant = $1 and agent = $2 and uri = any($3)",
        tenant.0,
        agent.0,
        uris,
    )
    .fetch_all(connection)
    .await?;
    definitions.sort_unstable_by(|one, other| one.uri.cmp(&other.uri));
    parts.sort_unstable_by(|one, other| (&one.uri, one.ordinal).cmp(&(&other.uri, other.ordinal)));
    join(definitions, parts)
}

impl Snapshot {
    /// The resources of an agent in byte order of their URIs: all, or those named. Tests may pause between
    /// the two reads by way of `sources`.
    pub async fn resources(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        only: Option<&[String]>,
        sources: &Sources,
    ) -> Result<Vec<Resource>, StoreError> {
        let between = sources.pause(FailPoint::SnapshotBetweenReads);
        match only {
            Some(uris) => named(self.connection(), tenant, agent, uris, between).await,
            None => all(self.connection(), tenant, agent, between).await,
        }
    }

    /// The URIs of an agent's resources after one of them, in byte order.
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

impl Write {
    /// The resources of an agent in this transaction, in byte order of their URIs.
    pub async fn resources(&mut self, tenant: TenantId, agent: AgentId) -> Result<Vec<Resource>, StoreError> {
        all(self.connection(), tenant, agent, async {}).await
    }

    /// Reads a resource in this transaction.
    pub async fn resource(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        uri: &ResourceUri,
    ) -> Result<Option<Resource>, StoreError> {
        let uri = [uri.as_str().to_owned()];
        Ok(named(self.connection(), tenant, agent, &uri, async {}).await?.pop())
    }

    /// Inserts or replaces resources, each at most once.
    pub async fn put_resources(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        resources: &[Put<'_, NewResource>],
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        for batch in batches(resources, |put| size(&put.new.definition)) {
            self.put_definitions(tenant, agent, batch, revision, now).await?;
        }
        let mut renewed = Vec::new();
        let mut replaced = Vec::new();
        for Put { new, freed } in resources {
            if let Some(freed) = freed {
                renewed.push(*new);
                replaced.push((new.uri.as_str(), &freed[..]));
            }
        }
        // New resources have no references to delete.
        replaced.retain(|(_, freed)| !freed.is_empty());
        self.free_parts(tenant, agent, &replaced, now).await?;
        let parts = renewed.iter().flat_map(|new| &new.parts);
        self.put_contents(tenant, agent, parts.map(|new| (new.part.hash, &new.bytes))).await?;
        self.put_parts(tenant, agent, &renewed).await
    }

    async fn put_definitions(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        resources: &[Put<'_, NewResource>],
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let uris: Vec<_> = resources.iter().map(|put| put.new.uri.as_str()).collect();
        let columns: Columns<'_> = resources.iter().map(|put| &put.new.definition).collect();
        sqlx::query!(
            "insert into resources \
             (tenant, agent, uri, name, title, description, mime_type, annotations, icons, meta, source, revision, \
              last_modified) \
             select $1, $2, new.*, 'inline', $11, $12 from unnest($3::text[], $4::text[], $5::text[], $6::text[], \
             $7::text[], $8::text[], $9::text[], $10::text[]) as new \
             on conflict (tenant, agent, uri) do update set \
             name = excluded.name, title = excluded.title, description = excluded.description, \
             mime_type = excluded.mime_type, annotations = excluded.annotations, icons = excluded.icons, \
             meta = excluded.meta, source = excluded.source, revision = excluded.revision, \
             last_modified = excluded.last_modified",
            tenant.0,
            agent.0,
            &uris as &[&str],
            &columns.names as &[&str],
            &columns.titles as &[Option<&str>],
            &columns.descriptions as &[Option<&str>],
            &columns.mime_types as &[Option<&str>],
            &columns.annotations as &[Option<&str>],
            &columns.icons as &[Option<&str>],
            &columns.metas as &[Option<&str>],
            revision.0,
            now,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Inserts the content references of resources that have none.
    async fn put_parts(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        resources: &[&NewResource],
    ) -> Result<(), StoreError> {
        let parts: Vec<_> = resources.iter().flat_map(|new| numbered(new)).collect();
        for batch in batches(&parts, |(_, uri, part)| {
            uri.len() + part.uri.as_ref().map_or(0, |uri| uri.as_str().len())
        }) {
            let uris: Vec<_> = batch.iter().map(|(_, uri, _)| *uri).collect();
            let ordinals: Vec<_> = batch.iter().map(|(ordinal, ..)| *ordinal).collect();
            let part_uris: Vec<_> =
                batch.iter().map(|(.., part)| part.uri.as_ref().map(ResourceUri::as_str)).collect();
            let mime_types: Vec<_> = batch.iter().map(|(.., part)| part.mime_type.as_deref()).collect();
            let kinds: Vec<_> = batch.iter().map(|(.., part)| part.kind.as_str()).collect();
            let hashes: Vec<_> = batch.iter().map(|(.., part)| &part.hash.0[..]).collect();
            let sizes: Vec<_> =
                batch.iter().map(|(.., part)| i64::try_from(part.size).unwrap_or(i64::MAX)).collect();
            sqlx::query!(
                "insert into resource_contents \
                 (tenant, agent, uri, ordinal, part_uri, mime_type, kind, hash, size) \
                 select $1, $2, new.* from unnest($3::text[], $4::integer[], $5::text[], $6::text[], $7::text[], \
                 $8::bytea[], $9::bigint[]) as new",
                tenant.0,
                agent.0,
                &uris as &[&str],
                &ordinals,
                &part_uris as &[Option<&str>],
                &mime_types as &[Option<&str>],
                &kinds as &[&str],
                &hashes as &[&[u8]],
                &sizes,
            )
            .execute(self.connection())
            .await?;
        }
        Ok(())
    }

    /// Deletes the content references of resources: each URI with the hashes of its content.
    async fn free_parts(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        named: &[(&str, &[ContentHash])],
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        for batch in batches(named, |(uri, freed)| uri.len() + size_of_val(*freed)) {
            let uris: Vec<_> = batch.iter().map(|(uri, _)| *uri).collect();
            let hashes: Vec<_> = batch.iter().flat_map(|(_, freed)| *freed).map(|hash| &hash.0[..]).collect();
            // The purge deletes the bytes once nothing references them.
            sqlx::query!(
                "with freed as (
                    delete from resource_contents where tenant = $1 and agent = $2 and uri = any($3)
                )
                update contents set orphaned_at = $5 where tenant = $1 and agent = $2 and hash = any($4)",
                tenant.0,
                agent.0,
                &uris as &[&str],
                &hashes as &[&[u8]],
                now,
            )
            .execute(self.connection())
            .await?;
        }
        Ok(())
    }

    /// Records that a resource changed, without new content.
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

    /// Deletes resources.
    pub async fn delete_resources(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        resources: &[Removal<'_>],
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let named: Vec<_> = resources.iter().map(|removal| (removal.key, &removal.freed[..])).collect();
        self.free_parts(tenant, agent, &named, now).await?;
        for batch in batches(resources, |removal| removal.key.len()) {
            let uris: Vec<_> = batch.iter().map(|removal| removal.key).collect();
            sqlx::query!(
                "delete from resources where tenant = $1 and agent = $2 and uri = any($3)",
                tenant.0,
                agent.0,
                &uris as &[&str],
            )
            .execute(self.connection())
            .await?;
        }
        Ok(())
    }
}

/// The parts of a resource, each with its ordinal and the resource's URI.
fn numbered(resource: &NewResource) -> impl Iterator<Item = (i32, &str, &Part)> {
    (0..).zip(&resource.parts).map(|(ordinal, new)| (ordinal, resource.uri.as_str(), &new.part))
}
