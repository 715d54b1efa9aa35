//! Skills, with their files as one JSON text.

use ::skill::FilePath;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::StoreError;
use super::columns::{joined, labels};
use super::definitions::{Batch, RemovalBatch, Table, delete, encoded, select, sorted, upsert};
use super::tagged_rows::{RowTag, TaggedRow, required};
use super::write::{Log, Write, logged};
use crate::model::content::ContentHash;
use crate::model::ids::AgentRef;
use crate::model::resource::{Part, PartKind};
use crate::model::scope::Revision;
use crate::model::skill::{NewSkill, Skill, SkillRoot};

/// The maximum size of the lists of files on a page of skills, except for a single larger one.
const PAGE_BYTES: i64 = 2 << 20;

struct Row {
    root: String,
    frontmatter: String,
    files: String,
    labels: Option<Vec<String>>,
    revision: i64,
    last_modified: OffsetDateTime,
}

/// A file as it is stored.
#[derive(Serialize, Deserialize)]
struct StoredFile {
    path: String,
    #[serde(rename = "type")]
    mime_type: Option<String>,
    text: bool,
    hash: String,
    size: u64,
}

impl StoredFile {
    fn part(self) -> Option<(FilePath, Part)> {
        let part = Part {
            uri: None,
            mime_type: self.mime_type,
            kind: if self.text { PartKind::Text } else { PartKind::Blob },
            hash: ContentHash::parse(&self.hash)?,
            size: self.size,
            meta: None,
        };
        Some((FilePath::parse(&self.path).ok()?, part))
    }
}

impl TryFrom<Row> for Skill {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let unreadable = || StoreError::Unreadable("skill");
        let files: Vec<StoredFile> = serde_json::from_str(&row.files).map_err(|_| unreadable())?;
        let files = files.into_iter().map(StoredFile::part).collect::<Option<_>>();
        let root = SkillRoot::parse(&row.root).ok_or_else(unreadable)?;
        let frontmatter = RawValue::from_string(row.frontmatter).map_err(|_| unreadable())?;
        let labels = labels(row.labels.as_deref())?;
        let written = (Revision(row.revision), row.last_modified);
        Skill::new((root, frontmatter, labels), files.ok_or_else(unreadable)?, written).ok_or_else(unreadable)
    }
}

impl TryFrom<TaggedRow> for Skill {
    type Error = StoreError;

    fn try_from(row: TaggedRow) -> Result<Self, StoreError> {
        Row {
            root: required(row.key)?,
            frontmatter: required(row.description)?,
            files: required(row.json)?,
            labels: row.labels,
            revision: required(row.number)?,
            last_modified: required(row.last_modified)?,
        }
        .try_into()
    }
}

impl Table for Skill {
    const ROW_TAG: RowTag = RowTag::Skill;

    async fn read(
        connection: &mut PgConnection,
        agent: AgentRef,
        only: Option<&[String]>,
        _: impl Future<Output = ()> + Send,
    ) -> Result<Vec<Self>, StoreError> {
        let rows = select!(
            Row,
            (connection, agent, only),
            "select root, frontmatter, files, nullif(labels, '{}') as labels, revision, last_modified from skills",
            "(tenant, agent, root) in (select $1::uuid, $2::uuid, unnest($3::text[]))"
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
            "select root from skills where tenant = $1 and agent = $2 and root > $3 order by root limit $4",
            agent.tenant.0,
            agent.uid.0,
            after,
            limit,
        )
        .fetch_all(connection)
        .await?)
    }

    async fn fitting(
        connection: &mut PgConnection,
        agent: AgentRef,
        keys: &[String],
    ) -> Result<usize, StoreError> {
        let fitting = sqlx::query_scalar!(
            r#"select count(*) as "fitting!" from (
                select sum(octet_length(files)) over (order by root) as bytes from skills
                where (tenant, agent, root) in (select $1::uuid, $2::uuid, unnest($3::text[]))
            ) listed where bytes <= $4"#,
            agent.tenant.0,
            agent.uid.0,
            keys,
            PAGE_BYTES,
        )
        .fetch_one(connection)
        .await?;
        Ok(usize::try_from(fitting).unwrap_or(usize::MAX))
    }

    fn encode(new: &NewSkill) -> Result<String, StoreError> {
        let files = new.files.iter().map(|file| StoredFile {
            path: file.path.to_string(),
            mime_type: file.content.part.mime_type.clone(),
            text: file.content.part.kind == PartKind::Text,
            hash: file.content.part.hash.to_string(),
            size: file.content.part.size,
        });
        encoded(&files.collect::<Vec<_>>())
    }

    fn size(new: &NewSkill) -> usize {
        new.frontmatter.get().len() + joined(&new.labels).len()
    }

    async fn upsert(
        connection: &mut PgConnection,
        batch: &Batch<'_, Self>,
        log: &Log<'_>,
    ) -> Result<(), StoreError> {
        let roots: Vec<_> = batch.rows.iter().map(|row| row.new.root.as_str()).collect();
        let frontmatters: Vec<_> = batch.rows.iter().map(|row| row.new.frontmatter.get()).collect();
        let files: Vec<_> = batch.rows.iter().map(|row| row.json.as_str()).collect();
        let hashes: Vec<_> = batch.rows.iter().map(|row| hashes(row.new)).collect();
        let labels: Vec<_> = batch.rows.iter().map(|row| joined(&row.new.labels)).collect();
        upsert!(
            (connection, batch, log),
            "put as (
                insert into skills
                (tenant, agent, labels, root, frontmatter, files, hashes, revision, last_modified)
                select $10, $11, string_to_array(labels, ' '), root, frontmatter, files,
                array(select decode(hash, 'hex') from unnest(string_to_array(hashes, ' ')) as each (hash)), $21, $15
                from unnest($16::text[], $17::text[], $18::text[], $19::text[], $20::text[])
                as new (root, frontmatter, files, hashes, labels)
                on conflict (tenant, agent, root) do update set
                frontmatter = excluded.frontmatter, files = excluded.files, hashes = excluded.hashes,
                labels = excluded.labels, revision = excluded.revision, last_modified = excluded.last_modified
            )",
            &roots as &[&str],
            &frontmatters as &[&str],
            &files as &[&str],
            &hashes,
            &labels,
            batch.revision.0,
        )
    }

    async fn delete(
        connection: &mut PgConnection,
        batch: &RemovalBatch<'_>,
        log: &Log<'_>,
    ) -> Result<(), StoreError> {
        delete!(
            (connection, batch, log),
            "delete from skills where (tenant, agent, root) in (select $10::uuid, $11::uuid, unnest($12::text[]))"
        )
    }
}

/// The hashes of a skill's contents as one text, since an array of arrays cannot be unnested by rows.
fn hashes(new: &NewSkill) -> String {
    let hashes = new.files.iter().map(|file| file.content.part.hash.to_string());
    hashes.collect::<Vec<_>>().join(" ")
}

impl Write {
    /// Whether an agent has a skill with one of these roots, or at or below `folder`, which has no slash at its end.
    pub async fn has_skill(
        &mut self,
        agent: AgentRef,
        roots: &[&str],
        folder: &str,
    ) -> Result<bool, StoreError> {
        // A range ends with the character after the slash.
        Ok(sqlx::query_scalar!(
            r#"select exists (
                select from skills where (tenant, agent, root) in (select $1::uuid, $2::uuid, unnest($3::text[]))
            ) or exists (
                select from skills where tenant = $1 and agent = $2 and root >= $4 || '/' and root < $4 || '0'
            ) as "any!""#,
            agent.tenant.0,
            agent.uid.0,
            roots as &[&str],
            folder,
        )
        .fetch_one(self.connection())
        .await?)
    }

    /// Whether an agent has a resource with one of these URIs, or below `folder`, which has no slash at its end.
    pub async fn has_resource(
        &mut self,
        agent: AgentRef,
        uris: &[&str],
        folder: &str,
    ) -> Result<bool, StoreError> {
        Ok(sqlx::query_scalar!(
            r#"select exists (
                select from resources
                where (tenant, agent, uri) in (select $1::uuid, $2::uuid, unnest($3::text[]))
            ) or exists (
                select from resources where tenant = $1 and agent = $2 and uri >= $4 || '/' and uri < $4 || '0'
            ) as "any!""#,
            agent.tenant.0,
            agent.uid.0,
            uris as &[&str],
            folder,
        )
        .fetch_one(self.connection())
        .await?)
    }
}
