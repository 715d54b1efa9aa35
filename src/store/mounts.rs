//! Mounts.

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::StoreError;
use super::columns::{joined, labels, raw};
use super::definitions::{Batch, RemovalBatch, Table, delete, encoded, select, sorted, upsert};
use super::tagged_rows::{RowTag, TaggedRow, required};
use super::write::{Log, Write, logged};
use crate::model::ids::{AgentRef, ConnectionId, ResourceUri, Slug};
use crate::model::json::raw_text;
use crate::model::mount::{Mount, MountEntry, MountState, MountStatus, NewMount, TreeId};
use crate::model::scope::Revision;

struct Row {
    name: String,
    uri: String,
    annotations: Option<String>,
    labels: Option<Vec<String>>,
    place: String,
    ages: String,
    /// The connection and the tree.
    ids: String,
    revision: i64,
    /// `None` in tagged rows, with the others.
    state: Option<String>,
    entries: Option<i64>,
    checked_at: Option<OffsetDateTime>,
    reason: Option<String>,
}

impl TryFrom<Row> for Mount {
    type Error = StoreError;

    fn try_from(row: Row) -> Result<Self, StoreError> {
        let unreadable = || StoreError::Unreadable("mount");
        let new = NewMount {
            name: Slug::parse(&row.name).map_err(|_| unreadable())?,
            uri: ResourceUri::parse(&row.uri).map_err(|_| unreadable())?,
            place: serde_json::from_str(&row.place).map_err(|_| unreadable())?,
            ages: serde_json::from_str(&row.ages).map_err(|_| unreadable())?,
            annotations: raw(row.annotations)?,
            labels: labels(row.labels.as_deref())?,
        };
        let (connection, tree) = row.ids.split_once(' ').ok_or_else(unreadable)?;
        let connection = ConnectionId(connection.parse().map_err(|_| unreadable())?);
        let tree = TreeId(tree.parse().map_err(|_| unreadable())?);
        let status = row.state.map(|state| {
            Ok::<_, StoreError>(MountStatus {
                state: MountState::parse(&state).ok_or_else(unreadable)?,
                entries: u64::try_from(row.entries.unwrap_or(0)).unwrap_or(0),
                checked_at: row.checked_at,
                reason: row.reason,
            })
        });
        Self::new(new, (connection, tree), Revision(row.revision), status.transpose()?)
            .map_err(|_| unreadable())
    }
}

impl TryFrom<TaggedRow> for Mount {
    type Error = StoreError;

    fn try_from(row: TaggedRow) -> Result<Self, StoreError> {
        Row {
            name: required(row.key)?,
            uri: required(row.name)?,
            annotations: row.annotations,
            labels: row.labels,
            place: required(row.json)?,
            ages: required(row.meta)?,
            ids: required(row.kind)?,
            revision: required(row.number)?,
            state: None,
            entries: None,
            checked_at: None,
            reason: None,
        }
        .try_into()
    }
}

/// A file of a mount, as it is stored.
#[derive(Debug, Clone)]
pub struct StoredEntry {
    /// What lists it.
    pub tree: TreeId,
    /// Its path relative to the tree, not percent-encoded.
    pub path: String,
    /// As it was found last.
    pub entry: MountEntry,
}

impl TryFrom<TaggedRow> for StoredEntry {
    type Error = StoreError;

    fn try_from(row: TaggedRow) -> Result<Self, StoreError> {
        let unreadable = || StoreError::Unreadable("file of a mount");
        let entry = MountEntry {
            size: row.floor.and_then(|size| u64::try_from(size).ok()),
            modified: required(row.last_modified)?,
            validator: required(row.hash)?.try_into().map_err(|_| unreadable())?,
            revision: Revision(required(row.number)?),
        };
        let tree = TreeId(required(row.kind)?.parse().map_err(|_| unreadable())?);
        Ok(Self { tree, path: required(row.key)?, entry })
    }
}

impl Table for Mount {
    const ROW_TAG: RowTag = RowTag::Mount;

    async fn read(
        connection: &mut PgConnection,
        agent: AgentRef,
        only: Option<&[String]>,
        _: impl Future<Output = ()> + Send,
    ) -> Result<Vec<Self>, StoreError> {
        let rows = select!(
            Row,
            (connection, agent, only),
            "select name, uri, annotations, nullif(labels, '{}') as labels, place, ages, \
             connection::text || ' ' || tree as \"ids!\", revision, state as \"state?\", \
             entries as \"entries?\", checked_at, reason from mounts",
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
            "select name from mounts where tenant = $1 and agent = $2 and name > $3 order by name limit $4",
            agent.tenant.0,
            agent.uid.0,
            after,
            limit,
        )
        .fetch_all(connection)
        .await?)
    }

    fn encode(new: &NewMount) -> Result<String, StoreError> {
        encoded(&new.place)
    }

    fn size(new: &NewMount) -> usize {
        new.uri.as_str().len()
            + raw_text(new.annotations.as_deref()).map_or(0, str::len)
            + joined(&new.labels).len()
    }

    async fn upsert(
        connection: &mut PgConnection,
        batch: &Batch<'_, Self>,
        log: &Log<'_>,
    ) -> Result<(), StoreError> {
        let names: Vec<_> = batch.rows.iter().map(|row| row.new.name.as_str()).collect();
        let uris: Vec<_> = batch.rows.iter().map(|row| row.new.uri.as_str()).collect();
        let slugs: Vec<_> = batch.rows.iter().map(|row| row.new.place.connection.as_str()).collect();
        let places: Vec<_> = batch.rows.iter().map(|row| row.json.as_str()).collect();
        let ages = batch.rows.iter().map(|row| encoded(&row.new.ages));
        let ages: Vec<_> = ages.collect::<Result<_, _>>()?;
        let annotations: Vec<_> =
            batch.rows.iter().map(|row| raw_text(row.new.annotations.as_deref())).collect();
        let labels: Vec<_> = batch.rows.iter().map(|row| joined(&row.new.labels)).collect();
        upsert!(
            (connection, batch, log),
            "wanted as (
                select n.*, c.uid as connection from unnest($16::text[], $17::text[], $18::text[], $19::text[],
                $20::text[], $21::text[], $22::text[]) as n (name, uri, slug, place, ages, annotations, labels)
                left join connections c on c.slug = n.slug
            ),
            gone as (
                insert into gone_trees (tenant, agent, tree)
                select m.tenant, m.agent, m.tree from mounts m join wanted w on w.name = m.name
                where m.tenant = $10 and m.agent = $11
                and (m.uri, m.connection, m.place) is distinct from (w.uri, w.connection, w.place)
            ),
            put as (
                insert into mounts (tenant, agent, labels, name, uri, connection, place, ages, annotations, revision)
                select $10, $11, string_to_array(labels, ' '), name, uri, connection, place, ages, annotations, $23
                from wanted
                on conflict (tenant, agent, name) do update set
                labels = excluded.labels, ages = excluded.ages, annotations = excluded.annotations,
                revision = excluded.revision,
                (uri, connection, place, tree, scanned, state, entries, checked_at, reason) = (
                    select excluded.uri, excluded.connection, excluded.place,
                    case when same then mounts.tree else excluded.tree end,
                    case when same then mounts.scanned else excluded.scanned end,
                    case when same then mounts.state else excluded.state end,
                    case when same then mounts.entries else excluded.entries end,
                    case when same then mounts.checked_at end,
                    case when same then mounts.reason end
                    from (select (mounts.uri, mounts.connection, mounts.place)
                    = (excluded.uri, excluded.connection, excluded.place) as same) as compared
                )
            )",
            &names as &[&str],
            &uris as &[&str],
            &slugs as &[&str],
            &places as &[&str],
            &ages,
            &annotations as &[Option<&str>],
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
            "delete from mounts where (tenant, agent, name) in (select $10::uuid, $11::uuid, unnest($12::text[]))
            returning tenant, agent, tree
            ),
            gone as (
                insert into gone_trees (tenant, agent, tree) select tenant, agent, tree from deleted"
        )
    }
}

impl Write {
    /// The mounts of an agent.
    pub async fn mounts(&mut self, agent: AgentRef) -> Result<Vec<Mount>, StoreError> {
        Mount::read(self.connection(), agent, None, std::future::ready(())).await
    }

    /// Number of mounts of an agent.
    pub async fn count_mounts(&mut self, agent: AgentRef) -> Result<i64, StoreError> {
        Ok(sqlx::query_scalar!(
            r#"select count(*) as "count!" from mounts where tenant = $1 and agent = $2"#,
            agent.tenant.0,
            agent.uid.0,
        )
        .fetch_one(self.connection())
        .await?)
    }

    /// Whether another mount of an agent has this URI.
    pub async fn has_mount_at(&mut self, agent: AgentRef, uri: &str, name: &str) -> Result<bool, StoreError> {
        Ok(sqlx::query_scalar!(
            r#"select exists (
                select from mounts where tenant = $1 and agent = $2 and uri = $3 and name <> $4
            ) as "any!""#,
            agent.tenant.0,
            agent.uid.0,
            uri,
            name,
        )
        .fetch_one(self.connection())
        .await?)
    }
}
