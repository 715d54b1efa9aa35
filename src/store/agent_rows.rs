//! What the rows of an agent stand for: its description, its definitions, and the files of its mounts.

use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use time::OffsetDateTime;

use super::StoreError;
use super::changes::audience;
use super::columns::hash;
use super::definitions::sort;
use super::mounts::StoredEntry;
use super::resources::{StoredPart, join};
use super::tagged_rows::{RowTag, TaggedRow, required};
use crate::model::agent::AgentDescription;
use crate::model::audience::Audience;
use crate::model::content::ContentHash;
use crate::model::definition::DefinitionKind;
use crate::model::kinds::{ByKind, Family, Member, each_kind};
use crate::model::scope::{Change, ChangeKind, Head, Revision};
use crate::model::tool::ToolSets;

/// An agent, and definitions of it.
#[derive(Debug)]
pub struct AgentState {
    /// The head of its scope.
    pub head: Head,
    /// Its description.
    pub description: AgentDescription,
    /// Whether it is known to have never had definitions of other kinds than resources.
    pub only_resources: bool,
    /// The changes after the revision that was asked for, in order.
    pub changes: Vec<Change>,
    /// Whom each of them concerns, and when it was made, by the database's clock.
    pub audiences: Vec<(Audience, OffsetDateTime)>,
    /// Its definitions in byte order of their keys: all, or those that the changes concern and that still exist.
    pub definitions: ByKind<Stored>,
    /// The files of its mounts: all, or those that the changes concern and that are still there.
    pub entries: Vec<StoredEntry>,
    /// The contents of the resource that was asked for, if they came with the agent.
    pub contents: Vec<(ContentHash, Bytes)>,
}

/// An agent that was read with a limit.
#[derive(Debug)]
pub enum Found {
    /// All of it.
    Whole(Box<AgentState>),
    /// It has more rows than the limit.
    TooLarge,
}

/// Registered definitions, in byte order of their keys.
#[derive(Debug)]
pub struct Stored;

impl Family for Stored {
    type Of<K: DefinitionKind> = Vec<K>;
}

/// The rows of an agent, parsed as they arrive: a large agent is in memory once, not as rows beside what they stand for.
#[derive(Debug, Default)]
pub(super) struct AgentRows {
    agent: Option<(Head, AgentDescription)>,
    /// Whether the agent is known to have never had definitions of other kinds than resources.
    only_resources: bool,
    locked: Option<Revision>,
    changes: Vec<StoredChange>,
    definitions: ByKind<Stored>,
    parts: Vec<StoredPart>,
    /// How many there were, once they are joined to their resources.
    part_count: usize,
    entries: Vec<StoredEntry>,
    contents: Vec<(ContentHash, Bytes)>,
}

/// A change, with its place among those of its revision, its audience, and when it was made.
type StoredChange = (Option<i32>, Change, (Audience, OffsetDateTime));

impl AgentRows {
    /// Collects the rows of a statement; `first` is awaited after the first one, by when the statement has its snapshot.
    ///
    /// # Errors
    /// Of the database; [`StoreError::Unreadable`] for a row that cannot be parsed.
    pub(super) async fn collect(
        mut rows: impl Stream<Item = Result<TaggedRow, sqlx::Error>> + Unpin,
        first: impl Future<Output = ()>,
    ) -> Result<Result<Self, StoreError>, sqlx::Error> {
        let mut collected = Self::default();
        let mut next = rows.try_next().await?;
        if next.is_some() {
            first.await;
        }
        while let Some(row) = next {
            if let Err(error) = collected.add(row) {
                return Ok(Err(error));
            }
            next = rows.try_next().await?;
        }
        collected.sort();
        Ok(Ok(collected))
    }

    fn add(&mut self, mut row: TaggedRow) -> Result<(), StoreError> {
        match RowTag::of(row.source)? {
            RowTag::Agent => {
                let head =
                    Head { revision: Revision(required(row.number)?), floor: Revision(required(row.floor)?) };
                let TaggedRow { name, title, description: instructions, labels: tools, .. } = row;
                let tools = ToolSets::from_texts(&tools.unwrap_or_default());
                self.only_resources = row.ordinal == Some(1);
                self.agent =
                    Some((head, AgentDescription { name: required(name)?, title, instructions, tools }));
            }
            RowTag::LockedHead => self.locked = Some(Revision(required(row.number)?)),
            RowTag::Change => {
                let (kind, revision) =
                    (ChangeKind::parse(&required(row.kind)?), Revision(required(row.number)?));
                let change = Change { revision, kind, subject: required(row.key)? };
                self.changes.push((
                    row.ordinal,
                    change,
                    (audience(row.labels), required(row.last_modified)?),
                ));
            }
            RowTag::Part => {
                if let (Some(bytes), Some(of)) = (row.bytes.take(), &row.hash) {
                    self.contents.push((hash(of.clone())?, bytes.into()));
                }
                self.parts.push(row.try_into()?);
            }
            RowTag::Entry => self.entries.push(row.try_into()?),
            RowTag::Resource => self.definitions.resources.push(row.try_into()?),
            RowTag::Template => self.definitions.templates.push(row.try_into()?),
            RowTag::Prompt => self.definitions.prompts.push(row.try_into()?),
            RowTag::Skill => self.definitions.skills.push(row.try_into()?),
            RowTag::Mount => self.definitions.mounts.push(row.try_into()?),
        }
        Ok(())
    }

    fn sort(&mut self) {
        self.changes.sort_unstable_by_key(|(ordinal, change, _)| (change.revision, *ordinal));
        each_kind!(K => sort(K::of_mut(&mut self.definitions)));
        self.part_count = self.parts.len();
        join(&mut self.definitions.resources, std::mem::take(&mut self.parts));
    }

    /// Whether a read of the resources alone has read all of the agent.
    pub(super) fn are_complete_with_resources(&self) -> bool {
        self.only_resources || self.agent.is_none()
    }

    /// The revision of the locked head, and that of the head as it was read; `None` if the agent does not exist.
    pub(super) fn revisions(&self) -> Option<(Revision, Revision)> {
        Some((self.locked?, self.agent.as_ref()?.0.revision))
    }

    /// The definitions, in byte order of their keys.
    pub(super) fn into_definitions(self) -> ByKind<Stored> {
        self.definitions
    }

    /// As [`into_state`](Self::into_state), unless there are more than `most` rows of a table.
    pub(super) fn into_found(self, most: Option<usize>) -> Option<Found> {
        if self.exceed(most) {
            return Some(Found::TooLarge);
        }
        self.into_state().map(|state| Found::Whole(Box::new(state)))
    }

    /// Whether there are more than `most` rows of a table.
    pub(super) fn exceed(&self, most: Option<usize>) -> bool {
        let most = most.unwrap_or(usize::MAX);
        let mut are_more = self.part_count > most || self.entries.len() > most;
        each_kind!(K => are_more |= K::of(&self.definitions).len() > most);
        are_more
    }

    /// What the rows stand for; `None` if the agent does not exist.
    pub(super) fn into_state(self) -> Option<AgentState> {
        let Self { agent, only_resources, changes, definitions, entries, contents, .. } = self;
        let (head, description) = agent?;
        let (changes, audiences) =
            changes.into_iter().map(|(_, change, audience)| (change, audience)).unzip();
        Some(AgentState {
            head,
            description,
            only_resources,
            changes,
            audiences,
            definitions,
            entries,
            contents,
        })
    }
}
