//! Definitions of any kind: written once over the statements of a [`Table`].

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use sqlx::PgConnection;
use time::OffsetDateTime;

use super::StoreError;
use super::batch::batches;
use super::snapshot::Snapshot;
use super::tagged_rows::RowTag;
use super::write::{Log, Write};
use crate::model::audience::Audience;
use crate::model::content::ContentHash;
use crate::model::definition::{DefinitionKind, Difference};
use crate::model::fault::Fault;
use crate::model::ids::AgentRef;
use crate::model::kinds::Member;
use crate::model::scope::{ChangeKind, Revision};
use crate::model::system::{FailPoint, System};

/// The bytes of a reference to content in a statement, without the content.
const REFERENCE_BYTES: usize = 128;

/// The statements of a kind of definition.
pub trait Table: Member {
    /// The tag of its rows.
    const ROW_TAG: RowTag;

    /// Reads the definitions of an agent in byte order of their keys: all, or those named. Where that takes several
    /// statements, `between` is awaited between them.
    fn read(
        connection: &mut PgConnection,
        agent: AgentRef,
        only: Option<&[String]>,
        between: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = Result<Vec<Self>, StoreError>> + Send;

    /// Reads at most `limit` keys after one of them, in byte order.
    fn keys_after(
        connection: &mut PgConnection,
        agent: AgentRef,
        after: &str,
        limit: i64,
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// How many of these keys, in order, a page may have: less than all where so many definitions would be too large.
    fn fitting(
        _: &mut PgConnection,
        _: AgentRef,
        keys: &[String],
    ) -> impl Future<Output = Result<usize, StoreError>> + Send {
        std::future::ready(Ok(keys.len()))
    }

    /// The members that are stored as one JSON text; empty if there are none.
    fn encode(new: &Self::New) -> Result<String, StoreError>;

    /// The size of the other members in bytes.
    fn size(new: &Self::New) -> usize;

    /// Inserts or replaces a batch of definitions with their contents, and logs the changes of `log`.
    fn upsert(
        connection: &mut PgConnection,
        batch: &Batch<'_, Self>,
        log: &Log<'_>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Deletes definitions, frees their contents, and logs the changes of `log`.
    fn delete(
        connection: &mut PgConnection,
        batch: &RemovalBatch<'_>,
        log: &Log<'_>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// A definition to insert or replace.
#[derive(Debug)]
pub struct Put<'n, K: DefinitionKind> {
    /// The new definition.
    pub new: &'n K::New,
    /// The change that this is.
    pub change: ChangeKind,
    /// The callers whom it concerns.
    pub audience: Audience,
    /// If it references other contents than before: those referenced before, none for a new definition.
    freed: Option<Vec<ContentHash>>,
}

impl<'n, K: DefinitionKind> Put<'n, K> {
    /// The write that replaces a stored definition, if any, by a new one; `None` if both are the same.
    pub fn replacing(old: Option<&K>, new: &'n K::New) -> Option<Self> {
        let audience = Audience::of_change(old.map(K::labels), Some(K::labels_of(new)));
        let Some(old) = old else {
            return Some(Self { new, change: K::ADDED, audience, freed: Some(Vec::new()) });
        };
        let Difference { change, contents } = old.difference(new)?;
        let freed = || {
            let kept = K::kept(new);
            hashes(old).into_iter().filter(|hash| !kept.contains(hash)).collect()
        };
        Some(Self { new, change, audience, freed: contents.then(freed) })
    }
}

/// A definition to delete.
#[derive(Debug)]
pub struct Removal<'k> {
    /// Its key.
    pub key: &'k str,
    /// The callers whom the removal concerns.
    pub audience: Audience,
    /// The contents it references.
    freed: Vec<ContentHash>,
}

impl<'k> Removal<'k> {
    /// The write that deletes a stored definition.
    pub fn of(old: &'k impl DefinitionKind) -> Self {
        Self { key: old.key().borrow(), audience: Audience::of(old.labels()), freed: hashes(old) }
    }
}

fn hashes(old: &impl DefinitionKind) -> Vec<ContentHash> {
    old.contents().into_iter().map(|(hash, _)| hash).collect()
}

/// A definition as a row.
#[derive(Debug)]
pub struct NewRow<'n, K: DefinitionKind> {
    /// The definition.
    pub(super) new: &'n K::New,
    /// Its members that are stored as JSON.
    pub(super) json: String,
    /// If it references other contents than before: how many it referenced before.
    pub(super) renewed: Option<usize>,
}

impl<'n, K: Table> NewRow<'n, K> {
    fn of(put: &Put<'n, K>) -> Result<Self, StoreError> {
        Ok(Self { new: put.new, json: K::encode(put.new)?, renewed: put.freed.as_ref().map(Vec::len) })
    }

    /// The contents that it newly references.
    fn contents(&self) -> impl Iterator<Item = (ContentHash, &'n Bytes)> {
        self.renewed.iter().flat_map(|_| K::contents_of(self.new))
    }

    /// Its size in a statement in bytes.
    fn size(&self) -> usize {
        let contents = self.contents().map(|(_, bytes)| REFERENCE_BYTES + bytes.len());
        K::size(self.new) + self.json.len() + contents.sum::<usize>()
    }
}

/// Definitions to insert or replace in one statement.
#[derive(Debug)]
pub struct Batch<'n, K: DefinitionKind> {
    pub(super) agent: AgentRef,
    pub(super) rows: &'n [NewRow<'n, K>],
    /// The contents that they newly reference, each hash once: a statement must not update a row twice.
    pub(super) contents: BTreeMap<ContentHash, &'n Bytes>,
    /// The contents that they do not reference any more.
    pub(super) freed: &'n [&'n [u8]],
    pub(super) revision: Revision,
    pub(super) now: OffsetDateTime,
}

/// Definitions to delete in one statement.
#[derive(Debug)]
pub struct RemovalBatch<'k> {
    pub(super) agent: AgentRef,
    pub(super) keys: Vec<&'k str>,
    /// The contents that they reference.
    pub(super) freed: Vec<&'k [u8]>,
    pub(super) now: OffsetDateTime,
}

impl Snapshot {
    /// The definitions of an agent in byte order of their keys: all, or those named. Tests may pause between two reads by
    /// way of `system`.
    pub async fn definitions<K: Table>(
        &mut self,
        agent: AgentRef,
        only: Option<&[String]>,
        system: &System,
    ) -> Result<Vec<K>, StoreError> {
        let between = system.pause(FailPoint::SnapshotBetweenReads);
        K::read(self.connection(), agent, only, between).await
    }

    /// At most `limit` definitions of an agent after a key, in byte order, and whether there are more: fewer where so many
    /// would be too large.
    pub async fn definitions_after<K: Table>(
        &mut self,
        agent: AgentRef,
        (after, limit): (&str, i64),
        system: &System,
    ) -> Result<(Vec<K>, bool), StoreError> {
        let mut keys = K::keys_after(self.connection(), agent, after, limit.saturating_add(1)).await?;
        let found = keys.len();
        keys.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        let fitting = K::fitting(self.connection(), agent, &keys).await?;
        keys.truncate(fitting.max(1));
        let has_more = keys.len() < found;
        Ok((self.definitions(agent, Some(&keys), system).await?, has_more))
    }
}

impl Write {
    /// Inserts or replaces definitions, each at most once. The changes recorded before are logged by the same statement.
    ///
    /// # Errors
    /// As [`log`](Self::log).
    pub async fn put<K: Table>(
        &mut self,
        agent: AgentRef,
        puts: &[Put<'_, K>],
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), Fault> {
        let rows = puts.iter().map(NewRow::of).collect::<Result<Vec<_>, _>>()?;
        let kept: BTreeSet<_> = rows.iter().flat_map(|row| row.contents().map(|(hash, _)| hash)).collect();
        let freed = puts.iter().flat_map(|put| put.freed.iter().flatten());
        let freed: Vec<_> = freed.filter(|hash| !kept.contains(*hash)).map(|hash| &hash.0[..]).collect();
        let mut freed = &freed[..];
        self.add_bytes(rows.iter().map(NewRow::size).sum());
        for batch in batches(&rows, NewRow::size) {
            let contents = batch.iter().flat_map(NewRow::contents).collect();
            let freed = std::mem::take(&mut freed);
            let (connection, log) = self.log_with()?;
            K::upsert(connection, &Batch { agent, rows: batch, contents, freed, revision, now }, &log)
                .await?;
        }
        Ok(())
    }

    /// Deletes definitions. The changes recorded before are logged by the same statement.
    ///
    /// # Errors
    /// As [`log`](Self::log).
    pub async fn delete<K: Table>(
        &mut self,
        agent: AgentRef,
        removals: &[Removal<'_>],
        now: OffsetDateTime,
    ) -> Result<(), Fault> {
        for batch in batches(removals, |removal| removal.key.len() + size_of_val(&removal.freed[..])) {
            let keys = batch.iter().map(|removal| removal.key).collect();
            let freed = batch.iter().flat_map(|removal| &removal.freed).map(|hash| &hash.0[..]).collect();
            let (connection, log) = self.log_with()?;
            K::delete(connection, &RemovalBatch { agent, keys, freed, now }, &log).await?;
        }
        Ok(())
    }
}

/// Writes a batch of definitions with their contents: `$10` is the tenant, `$11` the agent and `$15` the time; `$table`
/// are the table expressions that write the definitions, whose own parameters begin at `$16`.
macro_rules! upsert {
    (($connection:expr, $batch:expr, $log:expr), $table:literal, $($argument:expr),* $(,)?) => {{
        let (hashes, bytes): (Vec<_>, Vec<_>) =
            $batch.contents.iter().map(|(hash, bytes)| (&hash.0[..], &bytes[..])).unzip();
        // The update of an existing content locks it, so that the purge cannot delete it before it is referenced. The
        // purge deletes freed contents once nothing references them.
        logged!(
            [
                "stored as (
                    insert into contents (tenant, agent, hash, bytes)
                    select $10, $11, new.* from unnest($12::bytea[], $13::bytea[]) as new
                    on conflict (tenant, agent, hash) do update set orphaned_at = null
                ),
                freed as (
                    update contents set orphaned_at = $15
                    where (tenant, agent, hash) in (select $10::uuid, $11::uuid, unnest($14::bytea[]))
                ), ",
                $table,
                ", "
            ],
            $log,
            $batch.agent.tenant.0,
            $batch.agent.uid.0,
            &hashes as &[&[u8]],
            &bytes as &[&[u8]],
            $batch.freed as &[&[u8]],
            $batch.now,
            $($argument),*
        )
        .execute($connection)
        .await?;
        Ok(())
    }};
}
pub(super) use upsert;

/// Deletes a batch of definitions: `$10` is the tenant, `$11` the agent, `$12` the keys.
macro_rules! delete {
    (($connection:expr, $batch:expr, $log:expr), $deleted:literal) => {{
        logged!(
            [
                "deleted as (",
                $deleted,
                "),
                freed as (
                    update contents set orphaned_at = $14
                    where (tenant, agent, hash) in (select $10::uuid, $11::uuid, unnest($13::bytea[]))
                ), "
            ],
            $log,
            $batch.agent.tenant.0,
            $batch.agent.uid.0,
            &$batch.keys as &[&str],
            &$batch.freed as &[&[u8]],
            $batch.now,
        )
        .execute($connection)
        .await?;
        Ok(())
    }};
}
pub(super) use delete;

/// Reads the rows of all definitions of an agent, or those that a condition selects by their keys.
macro_rules! select {
    ($row:ident, ($connection:expr, $agent:expr, $only:expr), $from:literal, $named:literal) => {
        match $only {
            None => {
                sqlx::query_as!(
                    $row,
                    $from + " where tenant = $1 and agent = $2",
                    $agent.tenant.0,
                    $agent.uid.0
                )
                .fetch_all($connection)
                .await?
            }
            Some(keys) => {
                sqlx::query_as!($row, $from + " where " + $named, $agent.tenant.0, $agent.uid.0, keys)
                    .fetch_all($connection)
                    .await?
            }
        }
    };
}
pub(super) use select;

/// Parses rows and sorts them by key: sorting in SQL could make the database read all rows of the agent.
pub(super) fn sorted<K: DefinitionKind>(
    rows: Vec<impl TryInto<K, Error = StoreError>>,
) -> Result<Vec<K>, StoreError> {
    let mut parsed = rows.into_iter().map(TryInto::try_into).collect::<Result<Vec<K>, _>>()?;
    sort(&mut parsed);
    Ok(parsed)
}

/// Sorts definitions in byte order of their keys.
pub(super) fn sort<K: DefinitionKind>(definitions: &mut [K]) {
    definitions.sort_unstable_by(|one, other| one.key().cmp(other.key()));
}

/// Encodes members as JSON.
pub(super) fn encoded(members: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(members).map_err(|_| StoreError::Unreadable("JSON"))
}
