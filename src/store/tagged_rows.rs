//! Rows of several tables that one statement returns, each tagged with the table it is from.

use time::OffsetDateTime;

use super::StoreError;

/// The tag of a row, as it is written in the statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowTag {
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

impl RowTag {
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

    /// The tag with a number.
    pub(super) fn of(number: i32) -> Result<Self, StoreError> {
        let tag = Self::ALL.into_iter().find(|tag| *tag as i32 == number);
        tag.ok_or(StoreError::Unreadable("tag of a row"))
    }
}

/// A row of any of the tables. Which columns are set depends on its [`RowTag`].
#[derive(Debug, Default)]
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
    /// The labels of a definition or the tools of an agent, `None` if there are none; the audience of a change, `None` if it
    /// concerns everybody.
    pub(super) labels: Option<Vec<String>>,
    /// Members that are stored as one JSON text.
    pub(super) json: Option<String>,
    /// The kind of a change or content, the place of a template's content, or the connection and the tree of a mount.
    pub(super) kind: Option<String>,
    pub(super) hash: Option<Vec<u8>>,
    /// The place of a change or a content among others; of an agent, 1 if it is known to have had no
    /// other definitions than resources.
    pub(super) ordinal: Option<i32>,
    /// A revision, or the size of a content.
    pub(super) number: Option<i64>,
    /// The floor of the agent's scope, or the size of a file of a mount.
    pub(super) floor: Option<i64>,
    /// When a resource was modified last, or a change was made.
    pub(super) last_modified: Option<OffsetDateTime>,
    /// The bytes of a content that is read with its agent.
    pub(super) bytes: Option<Vec<u8>>,
}

/// The value of a column that the tag of its row always sets.
pub(super) fn required<T>(column: Option<T>) -> Result<T, StoreError> {
    column.ok_or(StoreError::Unreadable("null"))
}
