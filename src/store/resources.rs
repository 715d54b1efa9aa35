//! Resources and the references to their content.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::StoreError;
use super::batch::batches;
use super::columns::{Columns, hash, joined, labels, raw, size};
use super::definitions::{NewRow, Table, select, sorted};
use super::tagged_rows::{Source, TaggedRow, TaggedRows, set};
use super::write::Write;
use crate::model::content::ContentHash;
use crate::model::ids::{AgentRef, ResourceUri};
use crate::model::resource::{Definition, NewResource, Part, PartKind, Resource};
use crate::model::scope::Revision;

struct Row {
    uri: String,
    name: String,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    annotations: Option<String>,
    icons: Option<String>,
    meta: Option<String>,
    labels: Option<Vec<String>>,
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

impl TryFrom<TaggedRow> for Resource {
    type Error = StoreError;

    fn try_from(row: TaggedRow) -> Result<Self, StoreError> {
        let TaggedRow { title, description, mime_type, annotations, icons, meta, labels, .. } = row;
        let (uri, name) = (set(row.key)?, set(row.name)?);
        let (revision, last_modified) = (set(row.number)?, set(row.last_modified)?);
        Row {
            uri,
            name,
            title,
            description,
            mime_type,
            annotations,
            icons,
            meta,
            labels,
            revision,
            last_modified,
        }
        .try_into()
    }
}

impl TryFrom<TaggedRow> for PartRow {
    type Error = StoreError;

    fn try_from(row: TaggedRow) -> Result<Self, StoreError> {
        Ok(Self {
            uri: set(row.key)?,
            ordinal: set(row.ordinal)?,
            part_uri: row.name,
            mime_type: row.mime_type,
            kind: set(row.kind)?,
            hash: set(row.hash)?,
            size: set(row.number)?,
        })
    }
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
            labels: labels(row.labels.as_deref())?,
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

/// Adds the parts to resources in byte order of their URIs.
fn join(mut resources: Vec<Resource>, mut parts: Vec<PartRow>) -> Result<Vec<Resource>, StoreError> {
    parts.sort_unstable_by(|one, other| (&one.uri, one.ordinal).cmp(&(&other.uri, other.ordinal)));
    let mut parts = parts.into_iter().peekable();
    for resource in &mut resources {
        while let Some(part) = parts.next_if(|part| part.uri == resource.uri.as_str()) {
            resource.parts.push(part.try_into()?);
        }
    }
    Ok(resources)
}

impl Table for Resource {
    async fn read(
        connection: &mut PgConnection,
        agent: AgentRef,
        only: Option<&[String]>,
        between: impl Future<Output = ()> + Send,
    ) -> Result<Vec<Self>, StoreError> {
        let rows = select!(
            Row,
            (&mut *connection, agent, only),
            "select uri, name, title, description, mime_type, annotations, icons, meta, \
             nullif(labels, '{}') as labels, revision, last_modified \
             from resources",
            "(tenant, agent, uri) in (select $1::uuid, $2::uuid, unnest($3::text[]))"
        );
        if only.is_some() && rows.is_empty() {
            return Ok(Vec::new());
        }
        between.await;
        let parts = select!(
            PartRow,
            (connection, agent, only),
            "select uri, ordinal, part_uri, mime_type, kind, hash, size from resource_contents",
            "(tenant, agent, uri) in (select $1::uuid, $2::uuid, unnest($3::text[]))"
        );
        join(sorted(rows)?, parts)
    }

    fn of_rows(rows: &mut TaggedRows) -> Result<Vec<Self>, StoreError> {
        let parts = rows.take(Source::Part).into_iter().map(PartRow::try_from);
        join(sorted(rows.take(Source::Resource))?, parts.collect::<Result<_, _>>()?)
    }

    async fn keys_after(
        connection: &mut PgConnection,
        agent: AgentRef,
        after: &str,
        limit: i64,
    ) -> Result<Vec<String>, StoreError> {
        Ok(sqlx::query_scalar!(
            "select uri from resources where tenant = $1 and agent = $2 and uri > $3 order by uri limit $4",
            agent.tenant.0,
            agent.uid.0,
            after,
            limit,
        )
        .fetch_all(connection)
        .await?)
    }

    fn encode(_: &NewResource) -> Result<String, StoreError> {
        Ok(String::new())
    }

    fn size(new: &NewResource) -> usize {
        size(&new.definition) + joined(&new.labels).len()
    }

    async fn upsert(
        write: &mut Write,
        agent: AgentRef,
        batch: &[NewRow<'_, Self>],
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let uris: Vec<_> = batch.iter().map(|row| row.new.uri.as_str()).collect();
        let columns: Columns<'_> = batch.iter().map(|row| &row.new.definition).collect();
        let labels: Vec<_> = batch.iter().map(|row| joined(&row.new.labels)).collect();
        sqlx::query!(
            "insert into resources \
             (tenant, agent, labels, uri, name, title, description, mime_type, annotations, icons, meta, source, \
              revision, last_modified) \
             select $1, $2, string_to_array(labels, ' '), uri, name, title, description, mime_type, annotations, icons, \
             meta, 'inline', $12, $13 from unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], \
             $8::text[], $9::text[], $10::text[], $11::text[]) as new (uri, name, title, description, mime_type, \
             annotations, icons, meta, labels) \
             on conflict (tenant, agent, uri) do update set \
             name = excluded.name, title = excluded.title, description = excluded.description, \
             mime_type = excluded.mime_type, annotations = excluded.annotations, icons = excluded.icons, \
             meta = excluded.meta, labels = excluded.labels, source = excluded.source, revision = excluded.revision, \
             last_modified = excluded.last_modified",
            agent.tenant.0,
            agent.uid.0,
            &uris as &[&str],
            &columns.names as &[&str],
            &columns.titles as &[Option<&str>],
            &columns.descriptions as &[Option<&str>],
            &columns.mime_types as &[Option<&str>],
            &columns.annotations as &[Option<&str>],
            &columns.icons as &[Option<&str>],
            &columns.metas as &[Option<&str>],
            &labels,
            revision.0,
            now,
        )
        .execute(write.connection())
        .await?;
        let renewed = batch.iter().filter(|row| row.renewed);
        write.put_parts(agent, renewed.flat_map(|row| numbered(row.new)).collect()).await
    }

    async fn delete(write: &mut Write, agent: AgentRef, keys: &[&str]) -> Result<(), StoreError> {
        sqlx::query!(
            "delete from resources where (tenant, agent, uri) in (select $1::uuid, $2::uuid, unnest($3::text[]))",
            agent.tenant.0,
            agent.uid.0,
            keys as &[&str],
        )
        .execute(write.connection())
        .await?;
        Ok(())
    }

    /// Deletes the references together with marking the contents.
    async fn free(
        write: &mut Write,
        agent: AgentRef,
        freed: &[(&str, &[ContentHash])],
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        for batch in batches(freed, |(uri, freed)| uri.len() + size_of_val(*freed)) {
            let uris: Vec<_> = batch.iter().map(|(uri, _)| *uri).collect();
            let hashes: Vec<_> = batch.iter().flat_map(|(_, freed)| *freed).map(|hash| &hash.0[..]).collect();
            // The purge deletes the bytes once nothing references them.
            sqlx::query!(
                "with freed as (
                    delete from resource_contents
                    where (tenant, agent, uri) in (select $1::uuid, $2::uuid, unnest($3::text[]))
                )
                update contents set orphaned_at = $5
                where (tenant, agent, hash) in (select $1::uuid, $2::uuid, unnest($4::bytea[]))",
                agent.tenant.0,
                agent.uid.0,
                &uris as &[&str],
                &hashes as &[&[u8]],
                now,
            )
            .execute(write.connection())
            .await?;
        }
        Ok(())
    }
}

impl Write {
    /// Inserts the content references of resources that have none.
    async fn put_parts(&mut self, agent: AgentRef, parts: Vec<(i32, &str, &Part)>) -> Result<(), StoreError> {
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
                agent.tenant.0,
                agent.uid.0,
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

    /// Records that a resource changed, without new content.
    pub async fn touch_resource(
        &mut self,
        agent: AgentRef,
        uri: &ResourceUri,
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        sqlx::query!(
            "update resources set revision = $4, last_modified = $5 \
             where tenant = $1 and agent = $2 and uri = $3",
            agent.tenant.0,
            agent.uid.0,
            uri.as_str(),
            revision.0,
            now,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }
}

/// The parts of a resource, each with its ordinal and the resource's URI.
fn numbered(resource: &NewResource) -> impl Iterator<Item = (i32, &str, &Part)> {
    (0..).zip(&resource.parts).map(|(ordinal, new)| (ordinal, resource.uri.as_str(), &new.part))
}
