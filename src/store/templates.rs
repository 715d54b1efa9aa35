//! Resource templates.

use sqlx::PgConnection;
use time::OffsetDateTime;
use uri_template::UriTemplate;

use super::StoreError;
use super::batch::batches;
use super::definition::{Columns, hash, raw, size};
use super::snapshot::Snapshot;
use super::write::{Put, Removal, Write};
use crate::model::ids::{AgentId, TenantId};
use crate::model::resource::Definition;
use crate::model::scope::Revision;
use crate::model::template::{NewTemplate, ResourceTemplate};

struct Row {
    uri_template: String,
    name: String,
    title: Option<String>,
    description: Option<String>,
    mime_type: Option<String>,
    annotations: Option<String>,
    icons: Option<String>,
    meta: Option<String>,
    completions: String,
    body: Vec<u8>,
    revision: i64,
}

fn parsed(text: &str) -> Result<UriTemplate, StoreError> {
    UriTemplate::parse(text).map_err(|_| StoreError::Unreadable("URI template"))
}

impl TryFrom<Row> for ResourceTemplate {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let uri_template = parsed(&row.uri_template)?;
        let completions =
            serde_json::from_str(&row.completions).map_err(|_| StoreError::Unreadable("completions"))?;
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
            completions,
            body: hash(row.body)?,
            revision: Revision(row.revision),
        })
    }
}

/// Reads all templates, or those named, in byte order.
async fn read(
    connection: &mut PgConnection,
    tenant: TenantId,
    agent: AgentId,
    only: Option<&[String]>,
) -> Result<Vec<ResourceTemplate>, StoreError> {
    let rows = match only {
        None => {
            sqlx::query_as!(
                Row,
                "select uri_template, name, title, description, mime_type, annotations, icons, meta, completions, body, \
                 revision \
                 from templates where tenant = $1 and agent = $2",
                tenant.0,
                agent.0,
            )
            .fetch_all(connection)
            .await?
        }
        Some(keys) => {
            sqlx::query_as!(
                Row,
                "select uri_template, name, title, description, mime_type, annotations, icons, meta, completions, body, \
                 revision \
                 from templates where tenant = $1 and agent = $2 and uri_template = any($3)",
                tenant.0,
                agent.0,
                keys,
            )
            .fetch_all(connection)
            .await?
        }
    };
    // Sorted here: sorting in SQL could make the database read all rows of the agent.
    let mut read = rows.into_iter().map(ResourceTemplate::try_from).collect::<Result<Vec<_>, _>>()?;
    read.sort_unstable_by(|one, other| one.uri_template.cmp(&other.uri_template));
    Ok(read)
}

impl Snapshot {
    /// The templates of an agent in byte order: all, or those named.
    pub async fn templates(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        only: Option<&[String]>,
    ) -> Result<Vec<ResourceTemplate>, StoreError> {
        read(self.connection(), tenant, agent, only).await
    }

    /// The URI templates of an agent after one of them, in byte order.
    pub async fn uri_templates(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        after: &str,
        limit: i64,
    ) -> Result<Vec<String>, StoreError> {
        Ok(sqlx::query_scalar!(
            "select uri_template from templates where tenant = $1 and agent = $2 and uri_template > $3 \
             order by uri_template limit $4",
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
    /// The templates of an agent in this transaction, in byte order: all, or those named.
    pub async fn templates(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        only: Option<&[String]>,
    ) -> Result<Vec<ResourceTemplate>, StoreError> {
        read(self.connection(), tenant, agent, only).await
    }

    /// All URI templates of an agent in this transaction, in byte order.
    pub async fn uri_templates(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
    ) -> Result<Vec<UriTemplate>, StoreError> {
        let texts = sqlx::query_scalar!(
            "select uri_template from templates where tenant = $1 and agent = $2 order by uri_template",
            tenant.0,
            agent.0,
        )
        .fetch_all(self.connection())
        .await?;
        texts.iter().map(|text| parsed(text)).collect()
    }

    /// Inserts or replaces templates, each at most once.
    pub async fn put_templates(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        templates: &[Put<'_, NewTemplate>],
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let (renewed, freed): (Vec<_>, Vec<_>) =
            templates.iter().filter_map(|put| Some((&put.new.body, put.freed.as_deref()?))).unzip();
        self.orphan_contents(tenant, agent, &freed.concat(), now).await?;
        self.put_contents(tenant, agent, renewed.iter().map(|new| (new.hash, &new.bytes))).await?;
        let mut rows = Vec::with_capacity(templates.len());
        for Put { new, .. } in templates {
            let completions = serde_json::to_string(&new.completions);
            rows.push((*new, completions.map_err(|_| StoreError::Unreadable("completions"))?));
        }
        for batch in batches(&rows, |(new, completions)| size(&new.definition) + completions.len()) {
            self.put_template_rows(tenant, agent, batch, revision).await?;
        }
        Ok(())
    }

    /// Writes templates, each with its completions as JSON.
    async fn put_template_rows(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        rows: &[(&NewTemplate, String)],
        revision: Revision,
    ) -> Result<(), StoreError> {
        let texts: Vec<_> = rows.iter().map(|(new, _)| new.uri_template.as_str()).collect();
        let columns: Columns<'_> = rows.iter().map(|(new, _)| &new.definition).collect();
        let completions: Vec<_> = rows.iter().map(|(_, completions)| completions.as_str()).collect();
        let bodies: Vec<_> = rows.iter().map(|(new, _)| &new.body.hash.0[..]).collect();
        sqlx::query!(
            "insert into templates \
             (tenant, agent, uri_template, name, title, description, mime_type, annotations, icons, meta, \
              completions, body, revision) \
             select $1, $2, new.*, $13 from unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], \
             $8::text[], $9::text[], $10::text[], $11::text[], $12::bytea[]) as new \
             on conflict (tenant, agent, uri_template) do update set \
             name = excluded.name, title = excluded.title, description = excluded.description, \
             mime_type = excluded.mime_type, annotations = excluded.annotations, icons = excluded.icons, \
             meta = excluded.meta, completions = excluded.completions, body = excluded.body, \
             revision = excluded.revision",
            tenant.0,
            agent.0,
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
            revision.0,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Deletes templates.
    pub async fn delete_templates(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        templates: &[Removal<'_>],
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let freed: Vec<_> = templates.iter().flat_map(|removal| removal.freed.iter().copied()).collect();
        self.orphan_contents(tenant, agent, &freed, now).await?;
        for batch in batches(templates, |removal| removal.key.len()) {
            let keys: Vec<_> = batch.iter().map(|removal| removal.key).collect();
            sqlx::query!(
                "delete from templates where tenant = $1 and agent = $2 and uri_template = any($3)",
                tenant.0,
                agent.0,
                &keys as &[&str],
            )
            .execute(self.connection())
            .await?;
        }
        Ok(())
    }
}
