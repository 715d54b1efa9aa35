//! Resource templates.

use std::collections::BTreeMap;

use sqlx::PgConnection;
use uri_template::UriTemplate;

use super::StoreError;
use super::columns::{Columns, PlaceColumns, hash, joined, labels, place, raw, size};
use super::completion_sources::{CompletionColumns, read};
use super::definitions::{Batch, RemovalBatch, Table, delete, encoded, select, sorted, upsert};
use super::tagged_rows::{RowTag, TaggedRow, required};
use super::write::{Log, Write, logged};
use crate::model::completion::{CompletionValues, Completions};
use crate::model::ids::AgentRef;
use crate::model::resource::Definition;
use crate::model::scope::Revision;
use crate::model::template::{NewTemplate, ResourceTemplate, placeholder};

struct Row {
    uri_template: String,
    name: String,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    annotations: Option<String>,
    icons: Option<String>,
    meta: Option<String>,
    labels: Option<Vec<String>>,
    completions: String,
    body: Vec<u8>,
    place: Option<String>,
    revision: i64,
}

impl TryFrom<TaggedRow> for ResourceTemplate {
    type Error = StoreError;

    fn try_from(row: TaggedRow) -> Result<Self, StoreError> {
        Row {
            uri_template: required(row.key)?,
            name: required(row.name)?,
            title: row.title,
            description: row.description,
            mime_type: row.mime_type,
            annotations: row.annotations,
            icons: row.icons,
            meta: row.meta,
            labels: row.labels,
            completions: required(row.json)?,
            body: required(row.hash)?,
            place: row.kind,
            revision: required(row.number)?,
        }
        .try_into()
    }
}

fn parsed(text: &str) -> Result<UriTemplate, StoreError> {
    UriTemplate::parse(text).map_err(|_| StoreError::Unreadable("URI template"))
}

impl TryFrom<Row> for ResourceTemplate {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let uri_template = parsed(&row.uri_template)?;
        let (mut completions, places) = read::<Completions>(&row.completions, row.revision)?;
        for (name, source) in places {
            if let Some(values) = completions.get_mut(&name).filter(|values| values.is_empty()) {
                *values = CompletionValues::Sourced { source };
            }
        }
        let body = hash(row.body)?;
        Ok(Self {
            uri_template,
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
            completions,
            body,
            // Without the placeholder, a gateway of an earlier release has replaced the template.
            source: match row.place {
                Some(json) if body == placeholder().hash => place(Some(&json))?,
                _ => None,
            },
            revision: Revision(row.revision),
        })
    }
}

impl Table for ResourceTemplate {
    const ROW_TAG: RowTag = RowTag::Template;

    async fn read(
        connection: &mut PgConnection,
        agent: AgentRef,
        only: Option<&[String]>,
        _: impl Future<Output = ()> + Send,
    ) -> Result<Vec<Self>, StoreError> {
        let rows = select!(
            Row,
            (connection, agent, only),
            "select uri_template, name, title, description, mime_type, annotations, icons, meta, \
             nullif(labels, '{}') as labels, completions || coalesce(' ' || completion_sources, '') as \"completions!\", body, connection::text || ' ' || place as place, revision \
             from templates",
            "(tenant, agent, uri_template) in (select $1::uuid, $2::uuid, unnest($3::text[]))"
        );
        sorted(rows)
    }

    async fn keys_after(
        connection: &mut PgConnection,
        agent: AgentRef,
        after: &str,
        limit: i64,
    ) -> Result<Vec<String>, StoreError> {
        Ok(sqlx::query_scalar!(
            "select uri_template from templates where tenant = $1 and agent = $2 and uri_template > $3 \
             order by uri_template limit $4",
            agent.tenant.0,
            agent.uid.0,
            after,
            limit,
        )
        .fetch_all(connection)
        .await?)
    }

    fn encode(new: &NewTemplate) -> Result<String, StoreError> {
        let listed: BTreeMap<_, _> =
            new.completions.iter().map(|(name, values)| (name, values.listed())).collect();
        encoded(&listed)
    }

    fn size(new: &NewTemplate) -> usize {
        let places = new.completions.values().filter_map(CompletionValues::source);
        size(&new.definition) + joined(&new.labels).len() + places.map(|place| place.memory()).sum::<usize>()
    }

    async fn upsert(
        connection: &mut PgConnection,
        batch: &Batch<'_, Self>,
        log: &Log<'_>,
    ) -> Result<(), StoreError> {
        let texts: Vec<_> = batch.rows.iter().map(|row| row.new.uri_template.as_str()).collect();
        let columns: Columns<'_> = batch.rows.iter().map(|row| &row.new.definition).collect();
        let labels: Vec<_> = batch.rows.iter().map(|row| joined(&row.new.labels)).collect();
        let completions: Vec<_> = batch.rows.iter().map(|row| row.json.as_str()).collect();
        let bodies: Vec<_> = batch.rows.iter().map(|row| &row.new.body.hash.0[..]).collect();
        let sourced = batch
            .rows
            .iter()
            .map(|row| row.new.completions.iter().map(|(name, values)| (name.as_str(), values)).collect());
        let sourced = CompletionColumns::of(connection, sourced.collect(), batch.revision).await?;
        let places = PlaceColumns::of(batch.rows.iter().map(|row| row.new.source.as_ref()))?;
        upsert!(
            (connection, batch, log),
            "put as (
                insert into templates
                (tenant, agent, labels, uri_template, name, title, description, mime_type, annotations, icons, meta,
                completions, body, place, connection, revision, completion_sources, completion_connections)
                select $10, $11, string_to_array(labels, ' '), uri_template, name, title, description, mime_type,
                annotations, icons, meta, completions, body, place, c.uid, $27, completion_sources,
                string_to_array(completion_connections, ' ')::uuid[] from unnest($16::text[], $17::text[],
                $18::text[], $19::text[], $20::text[], $21::text[], $22::text[], $23::text[], $24::text[],
                $25::bytea[], $26::text[], $28::text[], $29::text[], $30::text[], $31::text[]) as new (uri_template, name, title, description,
                mime_type, annotations, icons, meta, completions, body, labels, place, slug, completion_sources,
                completion_connections)
                left join connections c on c.slug = new.slug
                on conflict (tenant, agent, uri_template) do update set
                name = excluded.name, title = excluded.title, description = excluded.description,
                mime_type = excluded.mime_type, annotations = excluded.annotations, icons = excluded.icons,
                meta = excluded.meta, labels = excluded.labels, completions = excluded.completions,
                body = excluded.body, place = excluded.place, connection = excluded.connection,
                revision = excluded.revision, completion_sources = excluded.completion_sources,
                completion_connections = excluded.completion_connections
            )",
            &texts as &[&str],
            &columns.names as &[&str],
            &columns.titles as &[Option<&str>],
            &columns.descriptions as &[Option<&str>],
            &columns.mime_types as &[Option<&str>],
            &columns.annotations as &[Option<&str>],
            &columns.icons as &[Option<&str>],
            &columns.metas as &[Option<&str>],
            &completions as &[&str],
            &bodies as &[&[u8]],
            &labels,
            batch.revision.0,
            &places.texts as &[Option<String>],
            &places.connections as &[Option<&str>],
            &sourced.sources as &[Option<String>],
            &sourced.connections as &[Option<String>],
        )
    }

    async fn delete(
        connection: &mut PgConnection,
        batch: &RemovalBatch<'_>,
        log: &Log<'_>,
    ) -> Result<(), StoreError> {
        delete!(
            (connection, batch, log),
            "delete from templates
            where (tenant, agent, uri_template) in (select $10::uuid, $11::uuid, unnest($12::text[]))"
        )
    }
}

impl Write {
    /// All URI templates of an agent in this transaction, in byte order.
    pub async fn uri_templates(&mut self, agent: AgentRef) -> Result<Vec<UriTemplate>, StoreError> {
        let texts = sqlx::query_scalar!(
            "select uri_template from templates where tenant = $1 and agent = $2 order by uri_template",
            agent.tenant.0,
            agent.uid.0,
        )
        .fetch_all(self.connection())
        .await?;
        texts.iter().map(|text| parsed(text)).collect()
    }
}
