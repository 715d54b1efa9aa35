//! The state of an agent in one statement, and so of one snapshot: its description, the head of its scope, and its
//! definitions, or those that changed since a revision; with the contents of a resource that is read at once, if there is one.
//!
//! A statement is a union of tagged rows. Returning one JSON document instead takes several times as long.

use super::agent_rows::{AgentRows, AgentState, Found, Stored};
use super::definitions::Table;
use super::tagged_rows::{RowTag, TaggedRow};
use super::write::Write;
use super::{Store, StoreError};
use crate::model::definition::DefinitionKind;
use crate::model::ids::{AgentRef, ResourceUri};
use crate::model::kinds::ByKind;
use crate::model::mount::Mount;
use crate::model::prompt::Prompt;
use crate::model::resource::Resource;
use crate::model::scope::{ChangeKind, Revision, Scope};
use crate::model::skill::Skill;
use crate::model::system::{FailPoint, System};
use crate::model::template::ResourceTemplate;

/// The maximum size of the first content that is read with the agent; the nth has this divided by n. Everybody who waits for
/// the agent waits for them.
const MAX_FIRST_READ_BYTES: i64 = 64 * 1024;

/// Selects the rows of an agent: `$1` is its tenant, `$2` the agent. `$recent` defines a table of changes, `$changes`
/// selects from it; `$bytes` are those that come with a part; the others are conditions on the rows of each table.
///
/// Most of what a small agent takes is the start of each branch of the union, whether it returns rows or not. Bytes are
/// therefore a column of the parts: a branch of their own takes twice the time of that column.
macro_rules! agent_rows {
    (
        ($recent:literal, $changes:literal),
        ($resources:literal, $parts:literal, $templates:literal, $prompts:literal, $skills:literal,
         $mounts:literal, $entries:literal, $bytes:literal),
        $($argument:expr),* $(,)?
    ) => {
        sqlx::query_as!(
            TaggedRow,
            $recent + "select 0 as \"source!\", null::text as key, a.name, a.title, a.instructions as description, \
             null::text as mime_type, null::text as annotations, null::text as icons, null::text as meta, \
             nullif(a.tools, '{}') as labels, null::text as json, null::text as kind, null::bytea as hash, a.only_resources::integer as ordinal, \
             h.revision as number, h.floor, null::timestamptz as last_modified, null::bytea as bytes \
             from heads h join agents a on a.uid = h.scope \
             where h.scope = $2 and a.tenant = $1 and a.deleted_at is null" + $changes
            + " union all (select 2, d.uri, d.name, d.title, d.description, d.mime_type, d.annotations, d.icons, \
             d.meta, nullif(d.labels, '{}'), case d.source when 'connection' then d.connection::text || ' ' || \
             (select k.kind from connections k where k.uid = d.connection) || ' ' || d.place end, null, null, null, \
             d.revision, null, d.last_modified, null from resources d where " + $resources
            + ") union all (select 3, d.uri, d.part_uri, null, null, d.mime_type, null, null, \
             d.meta, null, null, d.kind, d.hash, d.ordinal, d.size, null, null, " + $bytes
            + " from resource_contents d where " + $parts
            + ") union all (select 4, d.uri_template, d.name, d.title, d.description, d.mime_type, d.annotations, d.icons, \
             d.meta, nullif(d.labels, '{}'), d.completions || coalesce(' ' || d.completion_sources, ''), d.connection::text || ' ' || d.place, d.body, null, d.revision, null, null, null \
             from templates d where " + $templates
            + ") union all (select 5, d.name, null, d.title, d.description, null, null, d.icons, \
             d.meta, nullif(d.labels, '{}'), d.arguments || coalesce(' ' || d.completion_sources, ''), null, d.messages, null, d.revision, null, null, null \
             from prompts d where " + $prompts
            + ") union all (select 7, d.root, null, null, d.frontmatter, null, null, null, \
             null, nullif(d.labels, '{}'), d.files, null, null, null, d.revision, null, d.last_modified, null \
             from skills d where " + $skills
            + ") union all (select 8, d.name, d.uri, null, null, null, d.annotations, null, \
             d.ages, nullif(d.labels, '{}'), d.place, d.connection::text || ' ' || d.tree, null, null, \
             d.revision, null, null, null from mounts d where " + $mounts
            + ") union all (select 9, d.path, null, null, null, null, null, null, null, null, null, d.tree::text, \
             d.validator, null, d.revision, d.size, d.modified, null from mount_entries d where " + $entries + ")",
            $($argument),*
        )
    };
}

/// Selects rows of an agent that is loaded, with the contents of the resource `$3`, the nth up to the size `$4` / n. The
/// others are as in `agent_rows`.
macro_rules! loaded_rows {
    ($recent:literal, ($agent:ident, $read:expr),
     ($resources:literal, $parts:literal, $templates:literal, $prompts:literal, $skills:literal,
      $mounts:literal, $entries:literal) $(, $argument:expr)? $(,)?) => {
        agent_rows!(
            ($recent, ""),
            (
                $resources,
                $parts,
                $templates,
                $prompts,
                $skills,
                $mounts,
                $entries,
                "case when d.uri = $3::text and d.size <= $4::bigint / (d.ordinal + 1) and (select r.labels \
                 from resources r where (r.tenant, r.agent, r.uri) = (d.tenant, d.agent, d.uri)) = '{}' \
                 then (select c.bytes from contents c where (c.tenant, c.agent, c.hash) = (d.tenant, d.agent, d.hash)) \
                 end"
            ),
            $agent.tenant.0,
            $agent.uid.0,
            $read.map(ResourceUri::as_str),
            MAX_FIRST_READ_BYTES,
            $($argument,)?
        )
    };
}

/// What of an agent is read.
#[derive(Debug, Clone, Copy)]
pub struct AgentRead<'a> {
    /// Whether the agent is expected to have only resources: they are read first, for a fifth less of the database's time; the
    /// others follow if it has some.
    pub only_resources: bool,
    /// A resource that is read as soon as the agent is in memory: its contents come with the agent, the nth of them if it has
    /// at most 64 KiB / n, so less than 512 KiB in all; none if the resource has labels: those of the caller are not
    /// checked here.
    pub uri: Option<&'a ResourceUri>,
    /// The maximum number of rows of each table: an agent with more is not read.
    pub most: Option<usize>,
}

impl Store {
    /// Reads an agent with all of its definitions; `None` if it does not exist.
    pub async fn agent_state(
        &self,
        agent: AgentRef,
        read: AgentRead<'_>,
        system: &System,
    ) -> Result<Option<Found>, StoreError> {
        let first = || system.pause(FailPoint::SnapshotBetweenReads);
        let limit = read.most.map(|most| i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1));
        if read.only_resources {
            let rows = self.read(async |connection| {
                let rows = loaded_rows!(
                    "",
                    (agent, read.uri),
                    (
                        "d.tenant = $1 and d.agent = $2 limit $5",
                        "d.tenant = $1 and d.agent = $2 limit $5",
                        "false",
                        "false",
                        "false",
                        "false",
                        "false"
                    ),
                    limit,
                );
                AgentRows::collect(rows.fetch(connection), first()).await
            });
            let rows = rows.await??;
            if rows.are_complete_with_resources() || rows.exceed(read.most) {
                return Ok(rows.into_found(read.most));
            }
        }
        let rows = self.read(async |connection| {
            let rows = loaded_rows!(
                "",
                (agent, read.uri),
                (
                    "d.tenant = $1 and d.agent = $2 limit $5",
                    "d.tenant = $1 and d.agent = $2 limit $5",
                    "d.tenant = $1 and d.agent = $2 limit $5",
                    "d.tenant = $1 and d.agent = $2 limit $5",
                    "d.tenant = $1 and d.agent = $2 limit $5",
                    "d.tenant = $1 and d.agent = $2 limit $5",
                    "d.tenant = $1 and d.agent = $2 and d.tree in (select m.tree from mounts m \
                     where m.tenant = $1 and m.agent = $2) limit $5"
                ),
                limit,
            );
            AgentRows::collect(rows.fetch(connection), first()).await
        });
        Ok(rows.await??.into_found(read.most))
    }

    /// Reads an agent with the definitions that may answer a URI, without the files that its mounts list: its resource, the
    /// template with this text, and unless everybody sees the resource, the skill around it and all templates and mounts.
    /// Contents come with the resource as in [`AgentRead::uri`]. `None` if the agent does not exist.
    pub async fn partial_agent_state(
        &self,
        agent: AgentRef,
        uri: Option<&ResourceUri>,
        system: &System,
    ) -> Result<Option<AgentState>, StoreError> {
        let rows = self.read(async |connection| {
            let rows = loaded_rows!(
                "with answering as materialized (select from resources r where (r.tenant, r.agent, r.uri) = ($1, $2, $3::text) \
                 and r.labels = '{}') ",
                (agent, uri),
                (
                    "(d.tenant, d.agent, d.uri) = ($1, $2, $3::text)",
                    "(d.tenant, d.agent, d.uri) = ($1, $2, $3::text)",
                    "d.tenant = $1 and d.agent = $2 and $3::text is not null \
                     and (d.uri_template = $3::text or not exists (select from answering))",
                    "false",
                    "d.tenant = $1 and d.agent = $2 and not exists (select from answering) and d.root = \
                     (select max(s.root) from skills s where s.tenant = $1 and s.agent = $2 and s.root <= $3::text)",
                    "d.tenant = $1 and d.agent = $2 and $3::text is not null and not exists (select from answering)",
                    "false"
                ),
            );
            AgentRows::collect(rows.fetch(connection), system.pause(FailPoint::SnapshotBetweenReads)).await
        });
        Ok(rows.await??.into_state())
    }

    /// Reads an agent with its changes after a revision, at most `limit`, and the definitions that they concern; `None` if it
    /// does not exist.
    pub async fn agent_state_after(
        &self,
        agent: AgentRef,
        after: Revision,
        limit: usize,
        system: &System,
    ) -> Result<Option<AgentState>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows = self
            .read(async |connection| {
                // Whole keys from a subquery that is not flattened, so that each of them is looked up: the database expects
                // few rows of an agent and would rather read all of them.
                let rows = agent_rows!(
                    (
                        "with recent as materialized (select revision, ordinal, kind, subject, audience, at from changes \
                         where scope = $2 and revision > $3 order by revision, ordinal limit $4) ",
                        " union all select 1, c.subject, null, null, null, null, null, null, null, c.audience, null, c.kind, \
                         null, c.ordinal, c.revision, null, c.at, null from recent c"
                    ),
                    (
                        "(d.tenant, d.agent, d.uri) in (select $1::uuid, $2::uuid, c.subject from recent c \
                         where c.kind = any($5) offset 0)",
                        "(d.tenant, d.agent, d.uri) in (select $1::uuid, $2::uuid, c.subject from recent c \
                         where c.kind = any($5) offset 0)",
                        "(d.tenant, d.agent, d.uri_template) in (select $1::uuid, $2::uuid, c.subject from recent c \
                         where c.kind = any($6) offset 0)",
                        "(d.tenant, d.agent, d.name) in (select $1::uuid, $2::uuid, c.subject from recent c \
                         where c.kind = any($7) offset 0)",
                        "(d.tenant, d.agent, d.root) in (select $1::uuid, $2::uuid, c.subject from recent c \
                         where c.kind = any($8) offset 0)",
                        "(d.tenant, d.agent, d.name) in (select $1::uuid, $2::uuid, c.subject from recent c \
                         where c.kind = any($9) offset 0)",
                        "(d.tenant, d.agent, d.revision) in (select $1::uuid, $2::uuid, c.revision from recent c \
                         where c.kind = any($10) offset 0)",
                        "null"
                    ),
                    agent.tenant.0,
                    agent.uid.0,
                    after.0,
                    limit,
                    &kinds_of::<Resource>() as &[&str],
                    &kinds_of::<ResourceTemplate>() as &[&str],
                    &kinds_of::<Prompt>() as &[&str],
                    &kinds_of::<Skill>() as &[&str],
                    &kinds_of::<Mount>() as &[&str],
                    &kinds(concerns_entries) as &[&str],
                );
                AgentRows::collect(rows.fetch(connection), system.pause(FailPoint::SnapshotBetweenReads)).await
            })
            .await??;
        Ok(rows.into_state())
    }
}

/// As `agent_rows`, and locks the agent's head.
macro_rules! locked_rows {
    ($conditions:tt, $($argument:expr),* $(,)?) => {
        agent_rows!(
            (
                "with locked as materialized (select revision from heads where scope = $2 for no key update) ",
                " union all select 6, null, null, null, null, null, null, null, null, null, null, null, null, null, \
                 l.revision, null, null, null from locked l"
            ),
            $conditions,
            $($argument),*
        )
    };
}

impl Write {
    /// Locks an agent's scope and reads one of its definitions. Returns the revision that this write gives the scope, and
    /// the definition if it exists; `None` if the agent does not exist.
    pub async fn lock_definition<K: Table>(
        &mut self,
        agent: AgentRef,
        key: &str,
    ) -> Result<Option<(Revision, Option<K>)>, StoreError> {
        let Some((next, mut definitions)) = self.lock_agent(agent, Some((K::ROW_TAG, key))).await? else {
            return Ok(None);
        };
        Ok(Some((next, K::of_mut(&mut definitions).pop())))
    }

    /// As [`lock_definition`](Self::lock_definition), with all definitions.
    pub async fn lock_definitions(
        &mut self,
        agent: AgentRef,
    ) -> Result<Option<(Revision, ByKind<Stored>)>, StoreError> {
        self.lock_agent(agent, None).await
    }

    /// Locks an agent's scope and reads its definitions: all, or one.
    ///
    /// A statement reads what was committed when it began, and then waits for the lock. If a revision was committed in
    /// between, the rows are read again under the lock.
    async fn lock_agent(
        &mut self,
        agent: AgentRef,
        only: Option<(RowTag, &str)>,
    ) -> Result<Option<(Revision, ByKind<Stored>)>, StoreError> {
        let was_clean = self.is_clean();
        loop {
            let nothing = std::future::ready(());
            let rows = match only {
                None => {
                    let rows = locked_rows!(
                        (
                            "d.tenant = $1 and d.agent = $2",
                            "d.tenant = $1 and d.agent = $2",
                            "d.tenant = $1 and d.agent = $2",
                            "d.tenant = $1 and d.agent = $2",
                            "d.tenant = $1 and d.agent = $2",
                            "d.tenant = $1 and d.agent = $2",
                            "false",
                            "null"
                        ),
                        agent.tenant.0,
                        agent.uid.0,
                    );
                    AgentRows::collect(rows.fetch(self.connection()), nothing).await??
                }
                Some((source, key)) => {
                    let rows = locked_rows!(
                        (
                            "$4::integer = 2 and (d.tenant, d.agent, d.uri) = ($1, $2, $3::text)",
                            "$4::integer = 2 and (d.tenant, d.agent, d.uri) = ($1, $2, $3::text)",
                            "$4::integer = 4 and (d.tenant, d.agent, d.uri_template) = ($1, $2, $3::text)",
                            "$4::integer = 5 and (d.tenant, d.agent, d.name) = ($1, $2, $3::text)",
                            "$4::integer = 7 and (d.tenant, d.agent, d.root) = ($1, $2, $3::text)",
                            "$4::integer = 8 and (d.tenant, d.agent, d.name) = ($1, $2, $3::text)",
                            "false",
                            "null"
                        ),
                        agent.tenant.0,
                        agent.uid.0,
                        key,
                        source as i32,
                    );
                    AgentRows::collect(rows.fetch(self.connection()), nothing).await??
                }
            };
            let Some((locked, read)) = rows.revisions() else { return Ok(None) };
            if read == locked {
                let next = Revision(locked.0 + 1);
                self.add_locked(Scope::from(agent.uid), next);
                if was_clean {
                    self.set_clean();
                }
                return Ok(Some((next, rows.into_definitions())));
            }
        }
    }
}

/// The kinds of changes that concern a kind of definition.
fn kinds_of<K: DefinitionKind>() -> Vec<&'static str> {
    kinds(K::IS_CHANGED_BY)
}

/// Whether a change concerns files of mounts.
fn concerns_entries(kind: ChangeKind) -> bool {
    kind.is_of_entry() || kind == ChangeKind::ResourceTouched
}

fn kinds(is_of: fn(ChangeKind) -> bool) -> Vec<&'static str> {
    ChangeKind::ALL.iter().filter(|kind| is_of(**kind)).map(|kind| kind.as_str()).collect()
}
