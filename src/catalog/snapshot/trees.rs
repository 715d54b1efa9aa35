//! The files of an agent's mounts, in byte order of their URIs.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use super::labelled_map::LabelledMap;
use crate::model::allocated::behind_arc;
use crate::model::ids::ResourceUri;
use crate::model::mount::{Mount, MountEntry, TreeId};
use crate::model::scope::Change;
use crate::store::mounts::StoredEntry;

/// The memory of a file in a map: its place in a node, which is half full.
const ENTRY: usize = 2 * size_of::<(Arc<str>, MountEntry)>();

/// The files that a mount lists, keyed by the part of their URI that follows the URI of the mount.
#[derive(Debug, Clone, Default)]
pub(super) struct Files {
    by_suffix: OrdMap<Arc<str>, MountEntry>,
    memory: usize,
}

impl Files {
    fn insert(&mut self, suffix: String, entry: MountEntry) {
        let memory = behind_arc(suffix.len()) + ENTRY;
        if self.by_suffix.insert(suffix.into(), entry).is_none() {
            self.memory += memory;
        }
    }

    fn remove(&mut self, suffix: &str) {
        if self.by_suffix.remove(suffix).is_some() {
            self.memory -= behind_arc(suffix.len()) + ENTRY;
        }
    }

    /// A file.
    pub(super) fn get(&self, suffix: &str) -> Option<&MountEntry> {
        self.by_suffix.get(suffix)
    }

    /// The files that an older map lacks, each with `true`, and those that it alone has, with `false`. What both share is
    /// not compared.
    pub(super) fn changed_since<'f>(
        &'f self,
        older: &'f Self,
    ) -> impl Iterator<Item = (&'f Arc<str>, bool)> + use<'f> {
        older.by_suffix.diff(&self.by_suffix).filter_map(|item| match item {
            DiffItem::Add(suffix, _) => Some((suffix, true)),
            DiffItem::Remove(suffix, _) => Some((suffix, false)),
            DiffItem::Update { .. } => None,
        })
    }

    /// The number of files.
    pub(super) fn len(&self) -> usize {
        self.by_suffix.len()
    }

    /// The files whose URI is greater than `after`, in order; all if it is `None`. `prefix` is the URI of the mount.
    pub(super) fn after<'f>(
        &'f self,
        prefix: &ResourceUri,
        after: Option<&str>,
    ) -> impl Iterator<Item = (&'f Arc<str>, &'f MountEntry)> + use<'f> {
        let prefix = prefix.as_str();
        let from = match after {
            Some(after) if after.starts_with(prefix) => Some(Bound::Excluded(&after[prefix.len()..])),
            // After everything with the prefix.
            Some(after) if after > prefix => None,
            _ => Some(Bound::Unbounded),
        };
        let range = from.map(|from| self.by_suffix.range::<_, str>((from, Bound::Unbounded)));
        range.into_iter().flatten()
    }
}

/// The files of all mounts.
#[derive(Debug, Clone, Default)]
pub(super) struct Trees(Arc<BTreeMap<TreeId, Files>>);

impl Trees {
    /// The files of a tree; `None` if it lists none.
    pub(super) fn get(&self, tree: TreeId) -> Option<&Files> {
        self.0.get(&tree)
    }

    /// The memory that they take.
    pub(super) fn memory(&self) -> usize {
        self.0.values().map(|files| behind_arc(size_of::<Files>()) + files.memory).sum()
    }

    /// A copy with `changes` applied: the files that they name are removed, those in `now`, which still exist, inserted, and
    /// trees without a mount dropped.
    pub(super) fn after(
        &self,
        mounts: &LabelledMap<Mount>,
        changes: &[Change],
        now: Vec<StoredEntry>,
    ) -> Self {
        let live: BTreeSet<_> = mounts.values().map(|mount| mount.tree_id).collect();
        let of_entries = changes.iter().filter(|change| change.kind.is_of_entry());
        let mut of_entries = of_entries.peekable();
        if of_entries.peek().is_none() && now.is_empty() && self.0.keys().all(|tree| live.contains(tree)) {
            return self.clone();
        }
        let mut trees = BTreeMap::clone(&self.0);
        trees.retain(|tree, _| live.contains(tree));
        for change in of_entries {
            let Some((name, uri)) = change.subject.split_once(' ') else { continue };
            let Some(mount) = mounts.get(name) else { continue };
            let suffix = uri.strip_prefix(mount.uri.as_str());
            if let (Some(suffix), Some(files)) = (suffix, trees.get_mut(&mount.tree_id)) {
                files.remove(suffix);
            }
        }
        for StoredEntry { tree, path, entry } in now {
            // Skips files of a tree that no mount has any more.
            if live.contains(&tree) {
                trees.entry(tree).or_default().insert(file_tree::encode(&path), entry);
            }
        }
        Self(Arc::new(trees))
    }
}
