//! Resources and the references to their content.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::StoreError;
use super::columns::{Columns, PlaceColumns, hash, joined, labels, place, raw, size};
use super::definitions::{Batch, NewRow, RemovalBatch, Table, delete, select, sorted, upsert};
use super::tagged_rows::{RowTag, TaggedRow, required};
use super::write::{Log, Write, logged};
use crate::model::ids::{AgentRef, ResourceUri};
use crate::model::json::raw_text;
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
    place: Option<String>,
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
    meta: Option<String>,
}

impl TryFrom<TaggedRow> for Resource {
    type Error = StoreError;

    fn try_from(row: TaggedRow) -> Result<Self, StoreError> {
        let TaggedRow {
            title, description, mime_type, annotations, icons, meta, labels, json: place, ..
        } = row;
        let (uri, name) = (required(row.key)?, required(row.name)?);
        let (revision, last_modified) = (required(row.number)?, required(row.last_modified)?);
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
            place,
            revision,
            last_modified,
        }
        .try_into()
    }
}

/// A reference to the content of a resource, as it is stored.
#[derive(Debug)]
pub(super) struct StoredPart {
    /// The URI of the resource.
    of: String,
    /// Its place among the contents of the resource.
    ordinal: i32,
    part: Part,
}

impl TryFrom<TaggedRow> for StoredPart {
    type Error = StoreError;

    fn try_from(row: TaggedRow) -> Result<Self, StoreError> {
        PartRow {
            uri: required(row.key)?,
            ordinal: required(row.ordinal)?,
            part_uri: row.name,
            mime_type: row.mime_type,
            kind: required(row.kind)?,
            hash: required(row.hash)?,
            size: required(row.number)?,
            meta: row.meta,
        }
        .try_into()
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
            source: place(row.place.as_deref())?,
            revision: Revision(row.revision),
            last_modified: row.last_modified,
        })
    }
}

impl TryFrom<PartRow> for StoredPart {
    type Error = StoreError;

    fn try_from(row: PartRow) -> Result<Self, StoreError> {
        let part = Part {
            uri: row.part_uri.as_deref().map(uri).transpose()?,
            mime_type: row.mime_type,
            kind: match row.kind.as_str() {
                "text" => PartKind::Text,
                "blob" => PartKind::Blob,
                _ => return Err(StoreError::Unreadable("content kind")),
            },
            hash: hash(row.hash)?,
            size: u64::try_from(row.size).map_err(|_| StoreError::Unreadable("content size"))?,
            meta: raw(row.meta)?,
        };
        Ok(Self { of: row.uri, ordinal: row.ordinal, part })
    }
}

/// Adds the parts to resources in byte order of their URIs.
pub(super) fn join(resources: &mut [Resource], mut parts: Vec<StoredPart>) {
    parts.sort_unstable_by(|one, other| (&one.of, one.ordinal).cmp(&(&other.of, other.ordinal)));
    let mut parts = parts.into_iter().peekable();
    for resource in resources {
        while let Some(StoredPart { part, .. }) = parts.next_if(|part| part.of == resource.uri.as_str()) {
            resource.parts.push(part);
        }
    }
}

impl Table for Resource {
    const ROW_TAG: RowTag = RowTag::Resource;

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
             nullif(labels, '{}') as labels, case source when 'connection' then connection::text || ' ' || place end as place, revision, \
             last_modified from resources",
            "(tenant, agent, uri) in (select $1::uuid, $2::uuid, unnest($3::text[]))"
        );
        if only.is_some() && rows.is_empty() {
            return Ok(Vec::new());
        }
        between.await;
        let parts = select!(
            PartRow,
            (connection, agent, only),
            "select uri, ordinal, part_uri, mime_type, kind, hash, size, meta from resource_contents",
            "(tenant, agent, uri) in (select $1::uuid, $2::uuid, unnest($3::text[]))"
        );
        let mut resources = sorted(rows)?;
        join(&mut resources, parts.into_iter().map(TryInto::try_into).collect::<Result<_, _>>()?);
        Ok(resources)
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
        let metas = new.parts.iter().filter_map(|new| raw_text(new.part.meta.as_deref()));
        size(&new.definition) + joined(&new.labels).len() + metas.map(str::len).sum::<usize>()
    }

    async fn upsert(
        connection: &mut PgConnection,
        batch: &Batch<'_, Self>,
        log: &Log<'_>,
    ) -> Result<(), StoreError> {
        let uris: Vec<_> = batch.rows.iter().map(|row| row.new.uri.as_str()).collect();
        let columns: Columns<'_> = batch.rows.iter().map(|row| &row.new.definition).collect();
        let labels: Vec<_> = batch.rows.iter().map(|row| joined(&row.new.labels)).collect();
        let places = PlaceColumns::of(batch.rows.iter().map(|row| row.new.source.as_ref()))?;
        let Parts { uris: part_of, ordinals, part_uris, mime_types, kinds, hashes, sizes, metas } =
            batch.rows.iter().filter(|row| row.renewed.is_some()).flat_map(|row| numbered(row.new)).collect();
        let (lost_of, lost): (Vec<_>, Vec<_>) = batch.rows.iter().flat_map(lost_parts).unzip();
        upsert!(
            (connection, batch, log),
            "put as (
                insert into resources
                (tenant, agent, labels, uri, name, title, description, mime_type, annotations, icons, meta, source,
                place, connection, revision, last_modified)
                select $10, $11, string_to_array(labels, ' '), uri, name, title, description, mime_type, annotations,
                icons, meta, case when place is null then 'inline' else 'connection' end, place, c.uid, $35, $15
                from unnest($16::text[], $17::text[], $18::text[], $19::text[], $20::text[], $21::text[],
                $22::text[], $23::text[], $24::text[], $36::text[], $37::text[]) as new (uri, name, title,
                description, mime_type, annotations, icons, meta, labels, place, slug)
                left join connections c on c.slug = new.slug
                on conflict (tenant, agent, uri) do update set
                name = excluded.name, title = excluded.title, description = excluded.description,
                mime_type = excluded.mime_type, annotations = excluded.annotations, icons = excluded.icons,
                meta = excluded.meta, labels = excluded.labels, source = excluded.source, place = excluded.place, connection = excluded.connection,
                revision = excluded.revision, last_modified = excluded.last_modified
            ),
            lost as (
                delete from resource_contents where (tenant, agent, uri, ordinal) in (
                    select $10::uuid, $11::uuid, unnest($33::text[]), unnest($34::integer[])
                )
            ),
            parts as (
                insert into resource_contents
                (tenant, agent, uri, ordinal, part_uri, mime_type, kind, hash, size, meta)
                select $10, $11, new.* from unnest($25::text[], $26::integer[], $27::text[], $28::text[], $29::text[],
                $30::bytea[], $31::bigint[], $32::text[]) as new
                on conflict (tenant, agent, uri, ordinal) do update set
                part_uri = excluded.part_uri, mime_type = excluded.mime_type, kind = excluded.kind,
                hash = excluded.hash, size = excluded.size, meta = excluded.meta
            )",
            &uris as &[&str],
            &columns.names as &[&str],
            &columns.titles as &[Option<&str>],
            &columns.descriptions as &[Option<&str>],
            &columns.mime_types as &[Option<&str>],
            &columns.annotations as &[Option<&str>],
            &columns.icons as &[Option<&str>],
            &columns.metas as &[Option<&str>],
            &labels,
            &part_of as &[&str],
            &ordinals,
            &part_uris as &[Option<&str>],
            &mime_types as &[Option<&str>],
            &kinds as &[&str],
            &hashes as &[&[u8]],
            &sizes,
            &metas as &[Option<&str>],
            &lost_of as &[&str],
            &lost,
            batch.revision.0,
            &places.texts as &[Option<String>],
            &places.connections as &[Option<&str>],
        )
    }

    async fn delete(
        connection: &mut PgConnection,
        batch: &RemovalBatch<'_>,
        log: &Log<'_>,
    ) -> Result<(), StoreError> {
        // With the references to their contents.
        delete!(
            (connection, batch, log),
            "delete from resources where (tenant, agent, uri) in (select $10::uuid, $11::uuid, unnest($12::text[]))"
        )
    }
}

impl Write {
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

/// Parts of resources as one array per column.
#[derive(Default)]
struct Parts<'p> {
    uris: Vec<&'p str>,
    ordinals: Vec<i32>,
    part_uris: Vec<Option<&'p str>>,
    mime_types: Vec<Option<&'p str>>,
    kinds: Vec<&'static str>,
    hashes: Vec<&'p [u8]>,
    sizes: Vec<i64>,
    metas: Vec<Option<&'p str>>,
}

impl<'p> FromIterator<(i32, &'p str, &'p Part)> for Parts<'p> {
    fn from_iter<I: IntoIterator<Item = (i32, &'p str, &'p Part)>>(parts: I) -> Self {
        let mut columns = Self::default();
        for (ordinal, uri, part) in parts {
            columns.uris.push(uri);
            columns.ordinals.push(ordinal);
            columns.part_uris.push(part.uri.as_ref().map(ResourceUri::as_str));
            columns.mime_types.push(part.mime_type.as_deref());
            columns.kinds.push(part.kind.as_str());
            columns.hashes.push(&part.hash.0);
            columns.sizes.push(i64::try_from(part.size).unwrap_or(i64::MAX));
            columns.metas.push(raw_text(part.meta.as_deref()));
        }
        columns
    }
}

/// The ordinals of the parts that a resource has no longer, with its URI.
fn lost_parts<'r>(row: &NewRow<'r, Resource>) -> impl Iterator<Item = (&'r str, i32)> {
    let uri = row.new.uri.as_str();
    let lost = row.new.parts.len()..row.renewed.unwrap_or(0);
    lost.filter_map(move |ordinal| Some((uri, i32::try_from(ordinal).ok()?)))
}

/// The parts of a resource, each with its ordinal and the resource's URI.
fn numbered(resource: &NewResource) -> impl Iterator<Item = (i32, &str, &Part)> {
    (0..).zip(&resource.parts).map(|(ordinal, new)| (ordinal, resource.uri.as_str(), &new.part))
}
