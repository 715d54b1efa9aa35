//! Rows of several tables that one statement returns, each tagged with the table it is from.

use futures_util::{Stream, TryStreamExt};
use time::OffsetDateTime;

use super::StoreError;
use super::agent_state::{AgentState, Stored};
use super::definitions::sort;
use super::mounts::StoredEntry;
use super::resources::{StoredPart, join};
use super::snapshot::Head;
use crate::model::agent::AgentDescription;
use crate::model::kinds::{ByKind, Member, each_kind};
use crate::model::scope::{Change, ChangeKind, Revision};
use crate::model::tool::ToolSets;

/// The tag of a row, as it is written in the statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The agent with the head of its scope.
    Agent = 0,
    /// A change.
    Change = 1,
    /// A resource.
    Resource = 2,
    /// A reference to the content of a resource.
    Part = 3,
    /// A resource template.
    Template = 4,
    /// A prompt.
    Prompt = 5,
    /// The head of the agent's scope, as it is locked.
    LockedHead = 6,
    /// A skill.
    Skill = 7,
    /// A mount.
    Mount = 8,
    /// A file of a mount.
    Entry = 9,
}

impl Source {
    const ALL: [Self; 10] = [
        Self::Agent,
        Self::Change,
        Self::Resource,
        Self::Part,
        Self::Template,
        Self::Prompt,
        Self::LockedHead,
        Self::Skill,
        Self::Mount,
        Self::Entry,
    ];

    /// The source with a tag.
    fn of(tag: i32) -> Result<Self, StoreError> {
        let source = usize::try_from(tag).ok().and_then(|tag| Self::ALL.get(tag).copied());
        source.ok_or(StoreError::Unreadable("tag of a row"))
    }
}

/// A row of any of the tables. Which columns are set depends on its [`Source`].
#[derive(Debug)]
pub(super) struct TaggedRow {
    pub(super) source: i32,
    /// The URI, URI template, name or subject.
    pub(super) key: Option<String>,
    pub(super) name: Option<String>,
    pub(super) title: Option<String>,
    pub(super) description: Option<String>,
    pub(super) mime_type: Option<String>,
    pub(super) annotations: Option<String>,
    pub(super) icons: Option<String>,
    pub(super) meta: Option<String>,
    /// The labels of a definition or the tools of an agent; `None` if there are none.
    pub(super) labels: Option<Vec<String>>,
    /// Members that are stored as one JSON text.
    pub(super) json: Option<String>,
    /// The kind of a change or content, the place of a template's content, or the connection and the tree of a mount.
    pub(super) kind: Option<String>,
    pub(super) hash: Option<Vec<u8>>,
    pub(super) ordinal: Option<i32>,
    /// A revision, or the size of a content.
    pub(super) number: Option<i64>,
    /// The floor of the agent's scope, or the size of a file of a mount.
    pub(super) floor: Option<i64>,
    pub(super) last_modified: Option<OffsetDateTime>,
}

/// The value of a column that the source of its row always sets.
pub(super) fn set<T>(column: Option<T>) -> Result<T, StoreError> {
    column.ok_or(StoreError::Unreadable("null"))
}

/// The rows of an agent, parsed as they arrive: a large agent is in memory once, not as rows beside what they stand for.
#[derive(Debug, Default)]
pub(super) struct AgentRows {
    agent: Option<(Head, AgentDescription)>,
    locked: Option<Revision>,
    changes: Vec<(Option<i32>, Change)>,
    definitions: ByKind<Stored>,
    parts: Vec<StoredPart>,
    entries: Vec<StoredEntry>,
}

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

    fn add(&mut self, row: TaggedRow) -> Result<(), StoreError> {
        match Source::of(row.source)? {
            Source::Agent => {
                let head = Head { revision: Revision(set(row.number)?), floor: Revision(set(row.floor)?) };
                let TaggedRow { name, title, description: instructions, labels: tools, .. } = row;
                let tools = ToolSets::from_texts(&tools.unwrap_or_default());
                self.agent = Some((head, AgentDescription { name: set(name)?, title, instructions, tools }));
            }
            Source::LockedHead => self.locked = Some(Revision(set(row.number)?)),
            Source::Change => {
                let (kind, revision) = (ChangeKind::parse(&set(row.kind)?), Revision(set(row.number)?));
                self.changes.push((row.ordinal, Change { revision, kind, subject: set(row.key)? }));
            }
            Source::Part => self.parts.push(row.try_into()?),
            Source::Entry => self.entries.push(row.try_into()?),
            Source::Resource => self.definitions.resources.push(row.try_into()?),
            Source::Template => self.definitions.templates.push(row.try_into()?),
            Source::Prompt => self.definitions.prompts.push(row.try_into()?),
            Source::Skill => self.definitions.skills.push(row.try_into()?),
            Source::Mount => self.definitions.mounts.push(row.try_into()?),
        }
        Ok(())
    }

    fn sort(&mut self) {
        self.changes.sort_unstable_by_key(|(ordinal, change)| (change.revision, *ordinal));
        each_kind!(K => sort(K::of_mut(&mut self.definitions)));
        join(&mut self.definitions.resources, std::mem::take(&mut self.parts));
    }

    /// The revision of the locked head, and that of the head as it was read; `None` if the agent does not exist.
    pub(super) fn revisions(&self) -> Option<(Revision, Revision)> {
        Some((self.locked?, self.agent.as_ref()?.0.revision))
    }

    /// The definitions, in byte order of their keys.
    pub(super) fn into_definitions(self) -> ByKind<Stored> {
        self.definitions
    }

    /// What the rows stand for; `None` if the agent does not exist.
    pub(super) fn into_state(self) -> Option<AgentState> {
        let Self { agent, changes, definitions, entries, .. } = self;
        let (head, description) = agent?;
        let changes = changes.into_iter().map(|(_, change)| change).collect();
        Some(AgentState { head, description, changes, definitions, entries })
    }
}
