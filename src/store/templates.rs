//! Resource templates.

use super::StoreError;
use super::resources::{hash, raw};
use super::snapshot::Snapshot;
use crate::model::ids::{AgentId, TenantId};
use crate::model::resource::Definition;
use crate::model::scope::Revision;
use crate::model::template::ResourceTemplate;
use crate::model::uri_template::UriTemplate;

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

impl TryFrom<Row> for ResourceTemplate {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let uri_template =
            UriTemplate::parse(&row.uri_template).map_err(|_| StoreError::Unreadable("URI template"))?;
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

impl Snapshot {
    /// The templates of an agent in byte order: all, or those named.
    pub async fn templates(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        only: Option<&[String]>,
    ) -> Result<Vec<ResourceTemplate>, StoreError> {
        let rows = sqlx::query_as!(
            Row,
            "select uri_template, name, title, description, mime_type, annotations, icons, meta, completions, body, \
             revision from templates \
             where tenant = $1 and agent = $2 and ($3::text[] is null or uri_template = any($3)) \
             order by uri_template",
            tenant.0,
            agent.0,
            only,
        )
        .fetch_all(self.connection())
        .await?;
        rows.into_iter().map(ResourceTemplate::try_from).collect()
    }
}
