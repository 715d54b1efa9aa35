//! The definitions of an agent in memory, by kind.

use super::labelled_map::LabelledMap;
use super::trees::Trees;
use crate::catalog::template_set::Templates;
use crate::model::definition::DefinitionKind;
use crate::model::kinds::{ByKind, Family, Member, by_kind, each_kind};
use crate::store::agent_rows::Stored;
use crate::store::mounts::StoredEntry;

/// Definitions of every kind.
#[derive(Debug, Clone)]
pub(super) struct Definitions {
    pub(super) all: ByKind<InMemory>,
    /// The resource templates, indexed for matching.
    pub(super) templates: Templates,
    /// The files of the mounts.
    pub(super) trees: Trees,
}

/// Definitions in memory, by their keys.
#[derive(Debug, Clone)]
pub(super) struct InMemory;

impl Family for InMemory {
    type Of<K: DefinitionKind> = LabelledMap<K>;
}

impl Definitions {
    pub(super) fn new(mut stored: ByKind<Stored>, entries: Vec<StoredEntry>) -> Self {
        let all = by_kind!(InMemory, K => LabelledMap::new(std::mem::take(K::of_mut(&mut stored))));
        let trees = Trees::default().after(&all.mounts, &[], entries);
        Self::indexed(all, None, trees)
    }

    /// With the index of templates, unless these differ.
    pub(super) fn indexed(all: ByKind<InMemory>, templates: Option<Templates>, trees: Trees) -> Self {
        let templates = templates.unwrap_or_else(|| Templates::new(all.templates.values()));
        Self { all, templates, trees }
    }

    /// The number of definitions.
    pub(super) fn len(&self) -> usize {
        let mut len = 0;
        each_kind!(K => len += K::of(&self.all).len());
        len
    }

    /// Whether mounts or templates answer from connections.
    pub(super) fn answers_from_sources(&self) -> bool {
        self.all.mounts.len() > 0 || self.all.templates.values().any(|template| template.source.is_some())
    }

    pub(super) fn has_labels(&self) -> bool {
        let mut has_labels = false;
        each_kind!(K => has_labels |= K::of(&self.all).has_labels());
        has_labels
    }

    pub(super) fn memory(&self) -> usize {
        let mut memory = self.templates.memory() + self.trees.memory();
        each_kind!(K => memory += K::of(&self.all).memory());
        memory
    }
}
