//! Rows of several tables that one statement returns, each tagged with the table it is from.

use std::collections::BTreeMap;

use time::OffsetDateTime;

use super::StoreError;
use super::snapshot::Head;
use crate::model::agent::AgentDescription;
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

/// Rows by their source.
#[derive(Debug, Default)]
pub struct TaggedRows(BTreeMap<i32, Vec<TaggedRow>>);

impl Extend<TaggedRow> for TaggedRows {
    fn extend<I: IntoIterator<Item = TaggedRow>>(&mut self, rows: I) {
        for row in rows {
            self.0.entry(row.source).or_default().push(row);
        }
    }
}

impl TaggedRows {
    /// Whether there are no rows.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes the rows of a source.
    pub(super) fn take(&mut self, source: Source) -> Vec<TaggedRow> {
        self.0.remove(&(source as i32)).unwrap_or_default()
    }

    /// Removes the revision of the locked head; `None` if there is no head.
    pub(super) fn take_locked(&mut self) -> Result<Option<Revision>, StoreError> {
        self.take(Source::LockedHead).pop().map(|row| Ok(Revision(set(row.number)?))).transpose()
    }

    /// Removes the agent's row; `None` if the agent does not exist.
    pub(super) fn take_agent(&mut self) -> Result<Option<(Head, AgentDescription)>, StoreError> {
        let Some(row) = self.take(Source::Agent).pop() else { return Ok(None) };
        let head = Head { revision: Revision(set(row.number)?), floor: Revision(set(row.floor)?) };
        let TaggedRow { name, title, description: instructions, labels: tools, .. } = row;
        let tools = ToolSets::from_texts(&tools.unwrap_or_default());
        Ok(Some((head, AgentDescription { name: set(name)?, title, instructions, tools })))
    }

    /// Removes the changes, in order.
    pub(super) fn take_changes(&mut self) -> Result<Vec<Change>, StoreError> {
        let mut rows = self.take(Source::Change);
        rows.sort_unstable_by_key(|row| (row.number, row.ordinal));
        let change = |row: TaggedRow| {
            let kind = ChangeKind::parse(&set(row.kind)?);
            Ok(Change { revision: Revision(set(row.number)?), kind, subject: set(row.key)? })
        };
        rows.into_iter().map(change).collect()
    }
}
