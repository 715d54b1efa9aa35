//! Definitions of one kind by their keys, and by their labels, so that a page of what a caller sees costs the same however
//! much is hidden from it.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;

use crate::model::call::Page;
use crate::model::definition::DefinitionKind;
use crate::model::label::{CallerLabels, Label};

type ByKey<K> = OrdMap<<K as DefinitionKind>::Key, Arc<K>>;

/// Definitions of one kind, in byte order of their keys.
#[derive(Debug, Clone)]
pub(super) struct LabelledMap<K: DefinitionKind> {
    all: ByKey<K>,
    /// `None` as long as no definition has labels.
    index: Option<LabelIndex<K>>,
    memory: usize,
}

/// Definitions by what makes them visible.
#[derive(Debug, Clone)]
struct LabelIndex<K: DefinitionKind> {
    unlabelled: ByKey<K>,
    /// Those of each label, at least one.
    by_label: OrdMap<Label, ByKey<K>>,
}

/// The memory of an entry in a map: its place in a node of sixteen, which is half full.
const fn entry<T>() -> usize {
    2 * size_of::<T>()
}

/// The memory of a label: its entry, and the first node of its map.
const fn label<K: DefinitionKind>() -> usize {
    entry::<(Label, ByKey<K>)>() + 16 * size_of::<(K::Key, Arc<K>)>()
}

impl<K: DefinitionKind> LabelledMap<K> {
    /// The definitions of these rows.
    pub(super) fn new(rows: Vec<K>) -> Self {
        let mut map = Self { all: OrdMap::new(), index: None, memory: 0 };
        for row in rows {
            map.insert(row);
        }
        map
    }

    /// The memory that it takes.
    pub(super) fn memory(&self) -> usize {
        self.memory
    }

    /// The number of definitions.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// All definitions, with any labels.
    pub(super) fn values(&self) -> impl Iterator<Item = &Arc<K>> {
        self.all.values()
    }

    /// The definition of a key, with any labels.
    pub(super) fn get(&self, key: &str) -> Option<&Arc<K>> {
        self.all.get(key)
    }

    /// The last definition whose key is at most this one, with any labels.
    pub(super) fn at_or_before(&self, key: &str) -> Option<&Arc<K>> {
        self.all.get_prev(key).map(|(_, definition)| definition)
    }

    /// Whether a definition has labels.
    pub(super) fn has_labels(&self) -> bool {
        self.index.is_some()
    }

    /// Whether a definition has this label.
    pub(super) fn has_label(&self, label: &Label) -> bool {
        self.index.as_ref().is_some_and(|index| index.by_label.contains_key(label))
    }

    /// The definitions that were added or replaced since an older map, and the keys of those that were removed. Compares
    /// the keys of those only that are not the same in memory.
    pub(super) fn changed_since(&self, older: Option<&Self>) -> (Vec<Arc<K>>, Vec<K::Key>) {
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        let mut before = older.into_iter().flat_map(Self::values).peekable();
        for definition in self.values() {
            if before.next_if(|old| Arc::ptr_eq(old, definition)).is_some() {
                continue;
            }
            while let Some(old) = before.next_if(|old| old.key() < definition.key()) {
                removed.push(old.key().clone());
            }
            let same = before.next_if(|old| old.key() == definition.key());
            if same.is_none_or(|same| same.revision() != definition.revision()) {
                added.push(Arc::clone(definition));
            }
        }
        removed.extend(before.map(|old| old.key().clone()));
        (added, removed)
    }

    /// Adds a definition, in the place of the one with its key.
    pub(super) fn insert(&mut self, definition: K) {
        let definition = Arc::new(definition);
        if self.index.is_none() && !definition.labels().is_empty() {
            // Shares its nodes with `all` until either changes.
            self.memory += self.all.len() * entry::<(K::Key, Arc<K>)>();
            self.index = Some(LabelIndex { unlabelled: self.all.clone(), by_label: OrdMap::new() });
        }
        let replaced = self.all.insert(definition.key().clone(), Arc::clone(&definition));
        self.memory += definition.memory() + entry::<(K::Key, Arc<K>)>();
        self.forget(replaced);
        if let Some(index) = &mut self.index {
            self.memory += index.insert(&definition);
        }
        self.drop_unused_index();
    }

    /// Removes the definition of a key.
    pub(super) fn remove(&mut self, key: &str) {
        let removed = self.all.remove(key);
        self.forget(removed);
        self.drop_unused_index();
    }

    /// Accounts for a definition that is no longer in `all`.
    fn forget(&mut self, removed: Option<Arc<K>>) {
        let Some(removed) = removed else { return };
        self.memory -= removed.memory() + entry::<(K::Key, Arc<K>)>();
        if let Some(index) = &mut self.index {
            self.memory -= index.remove(&removed);
        }
    }

    fn drop_unused_index(&mut self) {
        if let Some(index) = self.index.take_if(|index| index.by_label.is_empty()) {
            self.memory -= index.unlabelled.len() * entry::<(K::Key, Arc<K>)>();
        }
    }

    /// At most `size` definitions that a caller with these labels sees, those after a key.
    pub(super) fn page(&self, labels: &CallerLabels, after: Option<&str>, size: usize) -> Page<Arc<K>> {
        let range = (after.map_or(Bound::Unbounded, Bound::Excluded), Bound::Unbounded);
        match (&self.index, labels) {
            (Some(index), CallerLabels::These(own)) => {
                let labelled = own.iter().filter_map(|label| index.by_label.get(label));
                first(merged(std::iter::once(&index.unlabelled).chain(labelled), range), size)
            }
            (None, _) | (_, CallerLabels::Everything) => {
                first(self.all.range::<_, str>(range).map(|(_, definition)| definition), size)
            }
        }
    }
}

impl<K: DefinitionKind> LabelIndex<K> {
    /// Adds a definition; returns the memory of its entries.
    fn insert(&mut self, definition: &Arc<K>) -> usize {
        let mut memory = 0;
        let mut add = |map: &mut ByKey<K>| {
            map.insert(definition.key().clone(), Arc::clone(definition));
            memory += entry::<(K::Key, Arc<K>)>();
        };
        if definition.labels().is_empty() {
            add(&mut self.unlabelled);
        }
        for label in definition.labels().iter() {
            add(self.by_label.entry(label.clone()).or_default());
        }
        let new = definition
            .labels()
            .iter()
            .filter(|label| self.by_label.get(*label).is_some_and(|map| map.len() == 1));
        memory + new.count() * self::label::<K>()
    }

    /// Removes a definition; returns the memory that its entries took.
    fn remove(&mut self, definition: &K) -> usize {
        let key: &str = definition.key().borrow();
        let removed = |map: &mut ByKey<K>| map.remove(key).map_or(0, |_| entry::<(K::Key, Arc<K>)>());
        if definition.labels().is_empty() {
            return removed(&mut self.unlabelled);
        }
        let mut memory = 0;
        for label in definition.labels().iter() {
            let Some(map) = self.by_label.get_mut(label) else { continue };
            memory += removed(map);
            if map.is_empty() {
                self.by_label.remove(label);
                memory += self::label::<K>();
            }
        }
        memory
    }
}

/// The first definitions, and whether there are more.
fn first<'m, K: DefinitionKind>(mut rest: impl Iterator<Item = &'m Arc<K>>, size: usize) -> Page<Arc<K>> {
    let items = rest.by_ref().take(size).cloned().collect();
    Page { items, more: rest.next().is_some() }
}

/// The definitions of several maps in byte order of their keys, each once.
fn merged<'m, K: DefinitionKind>(
    maps: impl Iterator<Item = &'m ByKey<K>>,
    range: (Bound<&str>, Bound<&str>),
) -> impl Iterator<Item = &'m Arc<K>> {
    let mut rests: Vec<_> = maps.map(|map| map.range::<_, str>(range)).collect();
    // The next definition of each map, by its key and the number of the map.
    let mut next: BTreeMap<(&'m K::Key, usize), &'m Arc<K>> = BTreeMap::new();
    for (number, rest) in rests.iter_mut().enumerate() {
        next.extend(rest.next().map(|(key, definition)| ((key, number), definition)));
    }
    let mut last = None;
    std::iter::from_fn(move || {
        loop {
            let ((key, number), definition) = next.pop_first()?;
            let following = rests.get_mut(number)?.next();
            next.extend(following.map(|(key, definition)| ((key, number), definition)));
            if last.replace(key) != Some(key) {
                return Some(definition);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use time::OffsetDateTime;

    use super::LabelledMap;
    use crate::model::ids::ResourceUri;
    use crate::model::label::{CallerLabels, Labels};
    use crate::model::resource::{Definition, Resource};
    use crate::model::scope::Revision;

    fn labels(texts: &[String]) -> Labels {
        Labels::parse(texts.iter().map(String::as_str)).unwrap()
    }

    fn resource(uri: &str, texts: &[String]) -> Resource {
        Resource {
            uri: ResourceUri::parse(uri).unwrap(),
            definition: Definition {
                name: String::new(),
                title: None,
                description: None,
                mime_type: None,
                annotations: None,
                icons: None,
                meta: None,
            },
            labels: labels(texts),
            parts: Vec::new(),
            source: None,
            revision: Revision(1),
            last_modified: OffsetDateTime::UNIX_EPOCH,
        }
    }

    proptest! {
        #[test]
        fn pages_are_those_of_a_filter_over_everything(
            writes in prop::collection::vec(("x:[a-f]", prop::option::of(prop::collection::vec("[a-c]", 0..3))), 0..40),
            own in prop::option::of(prop::collection::vec("[a-d]", 0..3)),
            after in prop::option::of("x:[a-g]"),
            size in 1_usize..4,
            kept in 0_usize..40,
        ) {
            let own = own.map_or(CallerLabels::Everything, |own| CallerLabels::These(labels(&own)));
            let (mut map, mut model) = (LabelledMap::new(Vec::new()), BTreeMap::new());
            let mut older = map.clone();
            for (number, (uri, written)) in writes.iter().enumerate() {
                if number == kept {
                    older = map.clone();
                }
                if let Some(texts) = written {
                    map.insert(Resource { revision: Revision(i64::try_from(number).unwrap()), ..resource(uri, texts) });
                    model.insert(uri.clone(), labels(texts));
                } else {
                    map.remove(uri);
                    model.remove(uri);
                }
            }
            if kept >= writes.len() {
                older = map.clone();
            }
            let seen = model.iter().filter(|(uri, labels)| after.as_ref().is_none_or(|after| *uri > after) && own.sees(labels));
            let seen: Vec<_> = seen.map(|(uri, _)| uri.clone()).collect();
            let page = map.page(&own, after.as_deref(), size);
            let found: Vec<_> = page.items.iter().map(|found| found.uri.to_string()).collect();
            prop_assert_eq!(&found[..], &seen[..seen.len().min(size)]);
            prop_assert_eq!(page.more, seen.len() > size);
            prop_assert_eq!(map.has_labels(), model.values().any(|labels| !labels.is_empty()));
            // Changes since an older map make the one out of the other.
            let (added, removed) = map.changed_since(Some(&older));
            let mut patched = older.clone();
            for uri in &removed {
                patched.remove(uri.as_str());
            }
            for added in &added {
                patched.insert((**added).clone());
            }
            let state = |map: &LabelledMap<Resource>| {
                map.values().map(|kept| (kept.uri.clone(), kept.labels.clone(), kept.revision)).collect::<Vec<_>>()
            };
            prop_assert_eq!(state(&patched), state(&map));
            prop_assert!(added.len() + removed.len() <= writes.len().saturating_sub(kept));
            // What was counted is given back.
            let again = LabelledMap::new(map.values().map(|kept| (**kept).clone()).collect());
            prop_assert_eq!(map.memory(), again.memory());
            for uri in model.keys() {
                map.remove(uri);
            }
            prop_assert_eq!(map.memory(), 0);
        }
    }
}
