//! Prompts.

use super::StoreError;
use super::resources::{hash, raw};
use super::snapshot::Snapshot;
use crate::model::ids::{AgentId, TenantId};
use crate::model::prompt::{Prompt, PromptDefinition, PromptName};
use crate::model::scope::Revision;

struct Row {
    name: String,
    title: Option<String>,
    description: Option<String>,
    icons: Option<String>,
    meta: Option<String>,
    arguments: String,
    messages: Vec<u8>,
    revision: i64,
}

impl TryFrom<Row> for Prompt {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        Ok(Self {
            name: PromptName::parse(&row.name).map_err(|_| StoreError::Unreadable("prompt name"))?,
            definition: PromptDefinition {
                title: row.title,
                description: row.description,
                icons: raw(row.icons)?,
                meta: raw(row.meta)?,
            },
            arguments: serde_json::from_str(&row.arguments)
                .map_err(|_| StoreError::Unreadable("prompt arguments"))?,
            messages: hash(row.messages)?,
            revision: Revision(row.revision),
        })
    }
}

impl Snapshot {
    /// The prompts of an agent in byte order of their names: all, or those named.
    pub async fn prompts(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        only: Option<&[String]>,
    ) -> Result<Vec<Prompt>, StoreError> {
        let rows = sqlx::query_as!(
            Row,
            "select name, title, description, icons, meta, arguments, messages, revision from prompts \
             where tenant = $1 and agent = $2 and ($3::text[] is null or name = any($3)) order by name",
            tenant.0,
            agent.0,
            only,
        )
        .fetch_all(self.connection())
        .await?;
        rows.into_iter().map(Prompt::try_from).collect()
    }
}
