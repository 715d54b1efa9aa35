//! Prompts: rows and statements.

use std::borrow::Cow;

use sqlx::PgConnection;

use super::StoreError;
use super::columns::{hash, joined, labels, raw};
use super::completion_sources::{CompletionColumns, read};
use super::definitions::{Batch, RemovalBatch, Table, delete, encoded, select, sorted, upsert};
use super::tagged_rows::{RowTag, TaggedRow, required};
use super::write::{Log, Write, logged};
use crate::model::completion::CompletionValues;
use crate::model::ids::AgentRef;
use crate::model::json::raw_text;
use crate::model::prompt::{Argument, NewPrompt, Prompt, PromptDefinition, PromptName};
use crate::model::scope::Revision;

struct Row {
    name: String,
    title: Option<String>,
    description: Option<String>,
    icons: Option<String>,
    meta: Option<String>,
    labels: Option<Vec<String>>,
    arguments: String,
    messages: Vec<u8>,
    revision: i64,
}

impl TryFrom<Row> for Prompt {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let (mut arguments, mut places) = read::<Vec<Argument>>(&row.arguments, row.revision)?;
        for argument in arguments.iter_mut().filter(|argument| argument.completions.is_empty()) {
            if let Some(source) = places.remove(&argument.name) {
                argument.completions = CompletionValues::Sourced { source };
            }
        }
        Ok(Self {
            name: PromptName::parse(&row.name).map_err(|_| StoreError::Unreadable("prompt name"))?,
            definition: PromptDefinition {
                title: row.title,
                description: row.description,
                icons: raw(row.icons)?,
                meta: raw(row.meta)?,
            },
            labels: labels(row.labels.as_deref())?,
            arguments,
            messages: hash(row.messages)?,
            revision: Revision(row.revision),
        })
    }
}

impl TryFrom<TaggedRow> for Prompt {
    type Error = StoreError;

    fn try_from(row: TaggedRow) -> Result<Self, StoreError> {
        Row {
            name: required(row.key)?,
            title: row.title,
            description: row.description,
            icons: row.icons,
            meta: row.meta,
            labels: row.labels,
            arguments: required(row.json)?,
            messages: required(row.hash)?,
            revision: required(row.number)?,
        }
        .try_into()
    }
}

impl Table for Prompt {
    const ROW_TAG: RowTag = RowTag::Prompt;

    async fn read(
        connection: &mut PgConnection,
        agent: AgentRef,
        only: Option<&[String]>,
        _: impl Future<Output = ()> + Send,
    ) -> Result<Vec<Self>, StoreError> {
        let rows = select!(
            Row,
            (connection, agent, only),
            "select name, title, description, icons, meta, nullif(labels, '{}') as labels, arguments || coalesce(' ' || completion_sources, '') as \"arguments!\", messages, revision \
             from prompts",
            "(tenant, agent, name) in (select $1::uuid, $2::uuid, unnest($3::text[]))"
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
            "select name from prompts where tenant = $1 and agent = $2 and name > $3 order by name limit $4",
            agent.tenant.0,
            agent.uid.0,
            after,
            limit,
        )
        .fetch_all(connection)
        .await?)
    }

    fn encode(new: &NewPrompt) -> Result<String, StoreError> {
        let listed = new.arguments.iter().map(|argument| match argument.completions.source() {
            Some(_) => Cow::Owned(Argument { completions: CompletionValues::default(), ..argument.clone() }),
            None => Cow::Borrowed(argument),
        });
        encoded(&listed.collect::<Vec<_>>())
    }

    fn size(new: &NewPrompt) -> usize {
        let PromptDefinition { title, description, icons, meta } = &new.definition;
        let texts = [title, description].into_iter().flatten();
        let raws = [icons, meta].into_iter().flatten();
        let places = new.arguments.iter().filter_map(|argument| argument.completions.source());
        texts.map(String::len).sum::<usize>()
            + raws.map(|raw| raw.get().len()).sum::<usize>()
            + joined(&new.labels).len()
            + places.map(|place| place.memory()).sum::<usize>()
    }

    async fn upsert(
        connection: &mut PgConnection,
        batch: &Batch<'_, Self>,
        log: &Log<'_>,
    ) -> Result<(), StoreError> {
        let names: Vec<_> = batch.rows.iter().map(|row| row.new.name.as_str()).collect();
        let definitions: Vec<_> = batch.rows.iter().map(|row| &row.new.definition).collect();
        let titles: Vec<_> = definitions.iter().map(|of| of.title.as_deref()).collect();
        let descriptions: Vec<_> = definitions.iter().map(|of| of.description.as_deref()).collect();
        let icons: Vec<_> = definitions.iter().map(|of| raw_text(of.icons.as_deref())).collect();
        let metas: Vec<_> = definitions.iter().map(|of| raw_text(of.meta.as_deref())).collect();
        let labels: Vec<_> = batch.rows.iter().map(|row| joined(&row.new.labels)).collect();
        let arguments: Vec<_> = batch.rows.iter().map(|row| row.json.as_str()).collect();
        let messages: Vec<_> = batch.rows.iter().map(|row| &row.new.messages.hash.0[..]).collect();
        let sourced = batch.rows.iter().map(|row| {
            row.new.arguments.iter().map(|argument| (argument.name.as_str(), &argument.completions)).collect()
        });
        let sourced = CompletionColumns::of(connection, sourced.collect(), batch.revision).await?;
        upsert!(
            (connection, batch, log),
            "put as (
                insert into prompts
                (tenant, agent, labels, name, title, description, icons, meta, arguments, messages, revision,
                completion_sources, completion_connections)
                select $10, $11, string_to_array(labels, ' '), name, title, description, icons, meta, arguments,
                messages, $24, completion_sources, string_to_array(completion_connections, ' ')::uuid[] from unnest($16::text[], $17::text[], $18::text[], $19::text[], $20::text[],
                $21::text[], $22::bytea[], $23::text[], $25::text[], $26::text[])
                as new (name, title, description, icons, meta, arguments, messages, labels, completion_sources,
                completion_connections)
                on conflict (tenant, agent, name) do update set
                title = excluded.title, description = excluded.description, icons = excluded.icons,
                meta = excluded.meta, labels = excluded.labels, arguments = excluded.arguments,
                messages = excluded.messages, revision = excluded.revision,
                completion_sources = excluded.completion_sources,
                completion_connections = excluded.completion_connections
            )",
            &names as &[&str],
            &titles as &[Option<&str>],
            &descriptions as &[Option<&str>],
            &icons as &[Option<&str>],
            &metas as &[Option<&str>],
            &arguments as &[&str],
            &messages as &[&[u8]],
            &labels,
            batch.revision.0,
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
            "delete from prompts where (tenant, agent, name) in (select $10::uuid, $11::uuid, unnest($12::text[]))"
        )
    }
}

impl Write {
    /// Number of prompts of an agent.
    pub async fn count_prompts(&mut self, agent: AgentRef) -> Result<i64, StoreError> {
        Ok(sqlx::query_scalar!(
            r#"select count(*) as "count!" from prompts where tenant = $1 and agent = $2"#,
            agent.tenant.0,
            agent.uid.0,
        )
        .fetch_one(self.connection())
        .await?)
    }
}
