//! Prompts.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::StoreError;
use super::batch::batches;
use super::definition::{hash, raw, text};
use super::snapshot::Snapshot;
use super::write::{Put, Removal, Write};
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

/// Reads all prompts, or those named, in byte order.
async fn read(
    connection: &mut PgConnection,
    tenant: TenantId,
    agent: AgentId,
    only: Option<&[String]>,
) -> Result<Vec<Prompt>, StoreError> {
    let rows = match only {
        None => {
            sqlx::query_as!(
                Row,
                "select name, title, description, icons, meta, arguments, messages, revision \
                 from prompts where tenant = $1 and agent = $2",
                tenant.0,
                agent.0,
            )
            .fetch_all(connection)
            .await?
        }
        Some(keys) => {
            sqlx::query_as!(
                Row,
                "select name, title, description, icons, meta, arguments, messages, revision \
                 from prompts where tenant = $1 and agent = $2 and name = any($3)",
                tenant.0,
                agent.0,
                keys,
            )
            .fetch_all(connection)
            .await?
        }
    };
    // Sorted here: sorting in SQL could make the database read all rows of the agent.
    let mut read = rows.into_iter().map(Prompt::try_from).collect::<Result<Vec<_>, _>>()?;
    read.sort_unstable_by(|one, other| one.name.cmp(&other.name));
    Ok(read)
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
    /// The prompts of an agent in this transaction, in byte order of their names: all, or those named.
    pub async fn prompts(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        only: Option<&[String]>,
    ) -> Result<Vec<Prompt>, StoreError> {
        read(self.connection(), tenant, agent, only).await
    }

    /// Number of prompts of an agent.
    pub async fn count_prompts(&mut self, tenant: TenantId, agent: AgentId) -> Result<i64, StoreError> {
        Ok(sqlx::query_scalar!(
            r#"select count(*) as "count!" from prompts where tenant = $1 and agent = $2"#,
            tenant.0,
            agent.0,
        )
        .fetch_one(self.connection())
        .await?)
    }

    /// Inserts or replaces prompts, each at most once.
    pub async fn put_prompts(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        prompts: &[Put<'_, NewPrompt>],
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let (renewed, freed): (Vec<_>, Vec<_>) =
            prompts.iter().filter_map(|put| Some((&put.new.messages, put.freed.as_deref()?))).unzip();
        self.orphan_contents(tenant, agent, &freed.concat(), now).await?;
        self.put_contents(tenant, agent, renewed.iter().map(|new| (new.hash, &new.bytes))).await?;
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

    /// Deletes prompts.
    pub async fn delete_prompts(
        &mut self,
        tenant: TenantId,
        agent: AgentId,
        prompts: &[Removal<'_>],
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let freed: Vec<_> = prompts.iter().flat_map(|removal| removal.freed.iter().copied()).collect();
        self.orphan_contents(tenant, agent, &freed, now).await?;
        for batch in batches(prompts, |removal| removal.key.len()) {
            let keys: Vec<_> = batch.iter().map(|removal| removal.key).collect();
            sqlx::query!(
                "delete from prompts where tenant = $1 and agent = $2 and name = any($3)",
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

/// Size of a definition in bytes.
fn size(definition: &PromptDefinition) -> usize {
    let texts = [&definition.title, &definition.description].into_iter().flatten();
    let raws = [&definition.icons, &definition.meta].into_iter().flatten();
    texts.map(String::len).sum::<usize>() + raws.map(|raw| raw.get().len()).sum::<usize>()
}
