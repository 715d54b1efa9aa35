//! Prompts.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::StoreError;
use super::batch::batches;
use super::definition::{hash, raw, text};
use super::snapshot::Snapshot;
use super::write::{Put, Write};
use crate::model::ids::{AgentId, TenantId};
use crate::model::prompt::{NewPrompt, Prompt, PromptDefinition, PromptName};
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

async fn read(
    connection: &mut PgConnection,
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
    .fetch_all(connection)
    .await?;
    rows.into_iter().map(Prompt::try_from).collect()
}

impl Snapshot {
    /// The prompts of an agent in byte order of their names: all, or those named.
    pub async fn prompts(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        only: Option<&[String]>,
    ) -> Result<Vec<Prompt>, StoreError> {
        read(self.connection(), tenant, agent, only).await
    }

    /// The names of an agent's prompts after one of them, in byte order.
    pub async fn prompt_names(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        after: &str,
        limit: i64,
    ) -> Result<Vec<String>, StoreError> {
        Ok(sqlx::query_scalar!(
            "select name from prompts where tenant = $1 and agent = $2 and name > $3 order by name limit $4",
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
    /// The prompts of an agent as this transaction sees them, in byte order of their names: all, or those named.
    pub async fn prompts(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        only: Option<&[String]>,
    ) -> Result<Vec<Prompt>, StoreError> {
        read(self.connection(), tenant, agent, only).await
    }

    /// How many prompts an agent has.
    pub async fn count_prompts(&mut self, tenant: TenantId, agent: AgentId) -> Result<i64, StoreError> {
        Ok(sqlx::query_scalar!(
            r#"select count(*) as "count!" from prompts where tenant = $1 and agent = $2"#,
            tenant.0,
            agent.0,
        )
        .fetch_one(self.connection())
        .await?)
    }

    /// Adds or replaces prompts, each once.
    pub async fn put_prompts(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        prompts: &[Put<'_, NewPrompt>],
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let renewed: Vec<_> = prompts.iter().filter(|put| put.contents).map(|put| put.new).collect();
        let names: Vec<_> = renewed.iter().map(|new| new.name.as_str()).collect();
        self.orphan_messages(tenant, agent, &names, now).await?;
        let messages = renewed.iter().map(|new| (new.messages.hash, &new.messages.bytes));
        self.put_contents(tenant, agent, messages).await?;
        let mut rows = Vec::with_capacity(prompts.len());
        for Put { new, .. } in prompts {
            let arguments = serde_json::to_string(&new.arguments);
            rows.push((*new, arguments.map_err(|_| StoreError::Unreadable("prompt arguments"))?));
        }
        for batch in batches(&rows, |(new, arguments)| size(&new.definition) + arguments.len()) {
            self.put_prompt_rows(tenant, agent, batch, revision).await?;
        }
        Ok(())
    }

    /// Writes prompts, each with its arguments as JSON.
    async fn put_prompt_rows(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        rows: &[(&NewPrompt, String)],
        revision: Revision,
    ) -> Result<(), StoreError> {
        let names: Vec<_> = rows.iter().map(|(new, _)| new.name.as_str()).collect();
        let definitions: Vec<_> = rows.iter().map(|(new, _)| &new.definition).collect();
        let titles: Vec<_> = definitions.iter().map(|of| of.title.as_deref()).collect();
        let descriptions: Vec<_> = definitions.iter().map(|of| of.description.as_deref()).collect();
        let icons: Vec<_> = definitions.iter().map(|of| text(of.icons.as_deref())).collect();
        let metas: Vec<_> = definitions.iter().map(|of| text(of.meta.as_deref())).collect();
        let arguments: Vec<_> = rows.iter().map(|(_, arguments)| arguments.as_str()).collect();
        let messages: Vec<_> = rows.iter().map(|(new, _)| &new.messages.hash.0[..]).collect();
        sqlx::query!(
            "insert into prompts \
             (tenant, agent, name, title, description, icons, meta, arguments, messages, revision) \
             select $1, $2, new.*, $10 from unnest($3::text[], $4::text[], $5::text[], $6::text[], $7::text[], \
             $8::text[], $9::bytea[]) as new \
             on conflict (tenant, agent, name) do update set \
             title = excluded.title, description = excluded.description, icons = excluded.icons, \
             meta = excluded.meta, arguments = excluded.arguments, messages = excluded.messages, \
             revision = excluded.revision",
            tenant.0,
            agent.0,
            &names as &[&str],
            &titles as &[Option<&str>],
            &descriptions as &[Option<&str>],
            &icons as &[Option<&str>],
            &metas as &[Option<&str>],
            &arguments as &[&str],
            &messages as &[&[u8]],
            revision.0,
        )
        .execute(self.connection())
        .await?;
        Ok(())
    }

    /// Notes that messages are about to be named no more. The bytes stay until the purge finds nobody naming them.
    async fn orphan_messages(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        names: &[&str],
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        for batch in batches(names, |name| name.len()) {
            sqlx::query!(
                "update contents set orphaned_at = $4 where tenant = $1 and agent = $2 and hash in (
                    select messages from prompts where tenant = $1 and agent = $2 and name = any($3)
                )",
                tenant.0,
                agent.0,
                batch as &[&str],
                now,
            )
            .execute(self.connection())
            .await?;
        }
        Ok(())
    }

    /// Removes prompts.
    pub async fn delete_prompts(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        names: &[&str],
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        self.orphan_messages(tenant, agent, names, now).await?;
        for batch in batches(names, |name| name.len()) {
            sqlx::query!(
                "delete from prompts where tenant = $1 and agent = $2 and name = any($3)",
                tenant.0,
                agent.0,
                batch as &[&str],
            )
            .execute(self.connection())
            .await?;
        }
        Ok(())
    }
}

/// How many bytes a definition has.
fn size(definition: &PromptDefinition) -> usize {
    let texts = [&definition.title, &definition.description].into_iter().flatten();
    let raws = [&definition.icons, &definition.meta].into_iter().flatten();
    texts.map(String::len).sum::<usize>() + raws.map(|raw| raw.get().len()).sum::<usize>()
}
