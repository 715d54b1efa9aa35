//! Definitions of any kind: written once over the statements of a [`Table`].

use std::borrow::Borrow;

use sqlx::PgConnection;
use time::OffsetDateTime;

use super::StoreError;
use super::batch::batches;
use super::snapshot::Snapshot;
use super::tagged_rows::TaggedRows;
use super::write::Write;
use crate::model::content::ContentHash;
use crate::model::definition::{DefinitionKind, Difference};
use crate::model::ids::AgentRef;
use crate::model::scope::{ChangeKind, Revision};
use crate::model::sources::{FailPoint, Sources};

/// The statements of a kind of definition.
pub trait Table: DefinitionKind {
    /// Reads the definitions of an agent in byte order of their keys: all, or those named. Where that takes several
    /// statements, `between` is awaited between them.
    fn read(
        connection: &mut PgConnection,
        agent: AgentRef,
        only: Option<&[String]>,
        between: impl Future<Output = ()> + Send,
    ) -> impl Future<Output = Result<Vec<Self>, StoreError>> + Send;

    /// Takes the definitions of this kind out of tagged rows, in byte order of their keys.
    fn of_rows(rows: &mut TaggedRows) -> Result<Vec<Self>, StoreError>;

    /// Reads at most `limit` keys after one of them, in byte order.
    fn keys_after(
        connection: &mut PgConnection,
        agent: AgentRef,
        after: &str,
        limit: i64,
    ) -> impl Future<Output = Result<Vec<String>, StoreError>> + Send;

    /// The members that are stored as one JSON text; empty if there are none.
    fn encode(new: &Self::New) -> Result<String, StoreError>;

    /// The size of the other members in bytes.
    fn size(new: &Self::New) -> usize;

    /// Inserts or replaces a batch of definitions. Their contents are stored already.
    fn upsert(
        write: &mut Write,
        agent: AgentRef,
        batch: &[NewRow<'_, Self>],
        revision: Revision,
        now: OffsetDateTime,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Deletes a batch of definitions.
    fn delete(
        write: &mut Write,
        agent: AgentRef,
        keys: &[&str],
    ) -> impl Future<Output = Result<(), StoreError>> + Send;

    /// Frees the contents of definitions that are about to be replaced or deleted, each given with its key.
    fn free(
        write: &mut Write,
        agent: AgentRef,
        freed: &[(&str, &[ContentHash])],
        now: OffsetDateTime,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        async move {
            let hashes: Vec<_> = freed.iter().flat_map(|(_, hashes)| hashes.iter().copied()).collect();
            write.orphan_contents(agent.tenant, agent.uid, &hashes, now).await
        }
    }
}

/// A definition to insert or replace.
#[derive(Debug)]
pub struct Put<'n, K: DefinitionKind> {
    /// The new definition.
    pub new: &'n K::New,
    /// The change that this is.
    pub change: ChangeKind,
    /// If it references other contents than before: those referenced before, none for a new definition.
    freed: Option<Vec<ContentHash>>,
}

impl<'n, K: DefinitionKind> Put<'n, K> {
    /// The write that replaces a stored definition, if any, by a new one; `None` if both are the same.
    pub fn replacing(old: Option<&K>, new: &'n K::New) -> Option<Self> {
        let Some(old) = old else { return Some(Self { new, change: K::ADDED, freed: Some(Vec::new()) }) };
        let Difference { change, contents } = old.difference(new)?;
        Some(Self { new, change, freed: contents.then(|| hashes(old)) })
    }
}

/// A definition to delete.
#[derive(Debug)]
pub struct Removal<'k> {
    /// Its key.
    pub key: &'k str,
    /// The contents it references.
    freed: Vec<ContentHash>,
}

impl<'k> Removal<'k> {
    /// The write that deletes a stored definition.
    pub fn of(old: &'k impl DefinitionKind) -> Self {
        Self { key: old.key().borrow(), freed: hashes(old) }
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
    /// Whether it references other contents than before.
    pub(super) renewed: bool,
}

impl<'n, K: Table> NewRow<'n, K> {
    fn of(put: &Put<'n, K>) -> Result<Self, StoreError> {
        Ok(Self { new: put.new, json: K::encode(put.new)?, renewed: put.freed.is_some() })
    }
}

impl Snapshot {
    /// The definitions of an agent in byte order of their keys: all, or those named. Tests may pause between two reads by
    /// way of `sources`.
    pub async fn definitions<K: Table>(
        &mut self,
        agent: AgentRef,
        only: Option<&[String]>,
        sources: &Sources,
    ) -> Result<Vec<K>, StoreError> {
        let between = sources.pause(FailPoint::SnapshotBetweenReads);
        K::read(self.connection(), agent, only, between).await
    }

    /// The definitions of an agent after a key, in byte order.
    pub async fn definitions_after<K: Table>(
        &mut self,
        agent: AgentRef,
        (after, limit): (&str, i64),
        sources: &Sources,
    ) -> Result<Vec<K>, StoreError> {
        let keys = K::keys_after(self.connection(), agent, after, limit).await?;
        self.definitions(agent, Some(&keys), sources).await
    }
}

impl Write {
    /// All definitions of an agent in this transaction, in byte order of their keys.
    pub async fn definitions<K: Table>(&mut self, agent: AgentRef) -> Result<Vec<K>, StoreError> {
        K::read(self.connection(), agent, None, async {}).await
    }

    /// Reads a definition in this transaction.
    pub async fn definition<K: Table>(
        &mut self,
        agent: AgentRef,
        key: &str,
    ) -> Result<Option<K>, StoreError> {
        let only = [key.to_owned()];
        Ok(K::read(self.connection(), agent, Some(&only), async {}).await?.pop())
    }

    /// Inserts or replaces definitions, each at most once.
    pub async fn put<K: Table>(
        &mut self,
        agent: AgentRef,
        puts: &[Put<'_, K>],
        revision: Revision,
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let renewed = puts.iter().filter_map(|put| Some((put.new, put.freed.as_deref()?)));
        let (renewed, mut freed): (Vec<_>, Vec<_>) =
            renewed.map(|(new, freed)| (new, (K::key_of(new).borrow(), freed))).unzip();
        // New definitions have no contents to free.
        freed.retain(|(_, hashes)| !hashes.is_empty());
        K::free(self, agent, &freed, now).await?;
        self.put_contents(agent.tenant, agent.uid, renewed.into_iter().flat_map(K::contents_of)).await?;
        let rows = puts.iter().map(NewRow::of).collect::<Result<Vec<_>, _>>()?;
        for batch in batches(&rows, |row| K::size(row.new) + row.json.len()) {
            K::upsert(self, agent, batch, revision, now).await?;
        }
        Ok(())
    }

    /// Deletes definitions.
    pub async fn delete<K: Table>(
        &mut self,
        agent: AgentRef,
        removals: &[Removal<'_>],
        now: OffsetDateTime,
    ) -> Result<(), StoreError> {
        let freed: Vec<_> = removals.iter().map(|removal| (removal.key, &removal.freed[..])).collect();
        K::free(self, agent, &freed, now).await?;
        for batch in batches(removals, |removal| removal.key.len()) {
            let keys: Vec<_> = batch.iter().map(|removal| removal.key).collect();
            K::delete(self, agent, &keys).await?;
        }
        Ok(())
    }
}

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
    parsed.sort_unstable_by(|one, other| one.key().cmp(other.key()));
    Ok(parsed)
}

/// Encodes members as JSON.
pub(super) fn encoded(members: &impl serde::Serialize) -> Result<String, StoreError> {
    serde_json::to_string(members).map_err(|_| StoreError::Unreadable("JSON"))
}
