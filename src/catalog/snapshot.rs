//! Snapshots: all definitions of an agent in memory at one revision, patched with later changes; of a large agent, a part of
//! them. Callers are answered from a [`view`] of one.

mod cell;
mod content_revisions;
mod definitions;
mod labelled_map;
mod mounts;
mod partial;
mod patch;
mod skills;
#[cfg(test)]
mod tests;
mod trees;
pub mod view;

pub use self::cell::{AgentCell, LoadRequest};
use self::content_revisions::ContentRevisions;
use self::definitions::Definitions;
pub(super) use self::mounts::ListedFile;
pub use self::partial::{AgentPart, DueLoad};
use crate::model::agent::AgentDescription;
use crate::model::allocated::{behind_arc, texts};
use crate::model::definition::DefinitionKind;
use crate::model::kinds::{ByKind, Family, Member, by_kind};
use crate::model::scope::{Change, ChangeKind, Revision};

/// The definitions of an agent at one revision, or those of an [`AgentPart`]. What each read needs comes first, in one or two
/// lines of the processor's caches.
#[derive(Debug)]
#[repr(C)]
pub struct AgentSnapshot {
    /// Which timeline of the database it was read in: the same revision means something else in another.
    pub timeline: u64,
    /// The revision of the agent's scope.
    pub revision: Revision,
    /// Whether a definition has labels.
    has_labels: bool,
    /// The newest revisions that changed each list and the description.
    pub changed: ChangeRevisions,
    /// The description of the agent.
    pub description: AgentDescription,
    /// Its definitions, read through a [`view::View`].
    definitions: Definitions,
    /// The newest revisions that changed what URIs of templates answer.
    touched: ContentRevisions,
    /// Those at which the content of registered resources changed that comes from connections.
    touched_resources: ContentRevisions,
}

impl AgentSnapshot {
    /// One that was not patched: everything may have changed up to its revision.
    fn new(
        timeline: u64,
        revision: Revision,
        description: AgentDescription,
        definitions: Definitions,
    ) -> Self {
        Self {
            timeline,
            revision,
            has_labels: definitions.has_labels(),
            changed: ChangeRevisions::all_at(revision),
            description,
            definitions,
            touched: ContentRevisions::all_at(revision),
            touched_resources: ContentRevisions::all_at(revision),
        }
    }

    /// The memory that it takes.
    pub(super) fn memory(&self) -> usize {
        let AgentDescription { name, title, instructions, tools: _ } = &self.description;
        let optional = [title, instructions].map(Option::as_deref);
        behind_arc(size_of::<Self>())
            + texts([name.as_str()])
            + texts(optional.into_iter().flatten())
            + self.definitions.memory()
            + self.touched.memory()
            + self.touched_resources.memory()
    }
}

/// The newest revisions that changed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChangeRevisions {
    /// The description of the agent.
    pub description: Revision,
    /// What the list of each kind shows.
    pub lists: ByKind<Revisions>,
}

/// A revision for each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Revisions;

impl Family for Revisions {
    type Of<K: DefinitionKind> = Revision;
}

impl ChangeRevisions {
    fn all_at(revision: Revision) -> Self {
        Self { description: revision, lists: by_kind!(Revisions, _K => revision) }
    }

    fn after(self, changes: &[Change]) -> Self {
        let last = |of: fn(ChangeKind) -> bool, old| {
            changes.iter().rfind(|change| of(change.kind)).map_or(old, |change| change.revision)
        };
        Self {
            description: last(|kind| kind == ChangeKind::Agent, self.description),
            lists: by_kind!(Revisions, K => last(K::IS_RELISTED_BY, *K::of(&self.lists))),
        }
    }
}
