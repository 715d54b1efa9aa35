//! What a caller sees of mounts: their files as resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::trees::Files;
use super::view::View;
use crate::model::call::Page;
use crate::model::listed::{ListedResource, MountedFile, UriText};
use crate::model::mount::{Mount, MountEntry, TreeId};
use crate::model::resource::Resource;

/// A file that a mount lists.
#[derive(Debug)]
pub(in crate::catalog) struct ListedFile {
    /// The mount.
    pub(in crate::catalog) mount: Arc<Mount>,
    /// What stands after the mount's URI in that of the file.
    pub(in crate::catalog) suffix: Arc<str>,
}

impl View {
    /// The visible mounts.
    pub(in crate::catalog) fn mounts(&self) -> impl Iterator<Item = &Arc<Mount>> {
        self.map::<Mount>().values().filter(|mount| self.sees(mount.as_ref()))
    }

    fn files(&self, mount: &Mount) -> Option<&Files> {
        self.trees().get(mount.tree_id)
    }

    /// The files that a mount lists, by their encoded paths.
    pub(in crate::catalog) fn entries(
        &self,
        mount: &Mount,
    ) -> impl Iterator<Item = (&Arc<str>, &MountEntry)> {
        self.files(mount).into_iter().flat_map(|files| files.after(&mount.uri, None))
    }

    /// How many files a mount lists.
    pub(in crate::catalog) fn listed(&self, mount: &Mount) -> usize {
        self.files(mount).map_or(0, Files::len)
    }

    /// The mount with the longest URI that answers a URI, and what stands after its own.
    fn mount_around<'u>(&self, uri: &'u str) -> Option<(&Arc<Mount>, &'u str)> {
        let answering = self.mounts().filter_map(|mount| Some((mount, mount.path_of(uri)?.0)));
        answering.max_by_key(|(mount, _)| mount.uri.as_str().len())
    }

    /// The listed files that an older view lacks or has with other labels, and those that it has and this one lacks or has
    /// with other labels, with any labels. At most `most` of them and one more.
    pub(in crate::catalog) fn files_since(
        &self,
        older: &Self,
        most: usize,
    ) -> (Vec<ListedFile>, Vec<ListedFile>) {
        let empty = Files::default();
        // What a tree lists, and its URI, are the same in both; labels may differ.
        let before = older.map::<Mount>().values().map(|mount| (mount.tree_id, mount));
        let mut before: BTreeMap<_, _> = before.collect();
        let mut compared = Vec::new();
        for mount in self.map::<Mount>().values() {
            let is_same = before.get(&mount.tree_id).is_some_and(|old| old.labels == mount.labels);
            let old =
                if is_same { before.remove(&mount.tree_id).and_then(|_| older.files(mount)) } else { None };
            compared.push((mount, old.unwrap_or(&empty), self.files(mount).unwrap_or(&empty)));
        }
        for old in before.into_values() {
            compared.push((old, older.files(old).unwrap_or(&empty), &empty));
        }
        let changes = compared.into_iter().flat_map(|(mount, old, new)| {
            new.changed_since(old).map(move |(suffix, is_listed)| {
                (is_listed, ListedFile { mount: Arc::clone(mount), suffix: Arc::clone(suffix) })
            })
        });
        let (mut added, mut removed) = (Vec::new(), Vec::new());
        for (is_listed, file) in changes.take(most + 1) {
            if is_listed { &mut added } else { &mut removed }.push(file);
        }
        (added, removed)
    }

    /// A listed file as a resource, unless something else answers its URI or its mount is not visible.
    pub(in crate::catalog) fn listed_file(&self, tree: TreeId, suffix: &str) -> Option<Resource> {
        let mount = self.mounts().find(|mount| mount.tree_id == tree)?;
        let entry = self.files(mount)?.get(suffix)?;
        let uri = mount.uri_of(suffix)?;
        let is_answered = !self.is_answered_otherwise(&self.within(mount), uri.as_str());
        if is_answered { mount.listed(uri, suffix, entry) } else { None }
    }

    /// The file of a mount that has a URI, with the mount: one that is selected, whether it has been found or not. It is
    /// read from its connection.
    pub fn mounted(&self, uri: &str) -> Option<(&Arc<Mount>, Resource)> {
        if self.map::<Mount>().len() == 0 {
            return None;
        }
        let (mount, suffix) = self.mount_around(uri)?;
        Some((mount, self.file_of(mount, suffix)?))
    }

    /// The file of a mount with this encoded path.
    pub(super) fn file_of(&self, mount: &Mount, suffix: &str) -> Option<Resource> {
        let entry = self.files(mount).and_then(|files| files.get(suffix));
        mount.resource(suffix, entry)
    }

    /// At most `size` listed files of mounts, those after a URI, in byte order of their URIs. Without those that something
    /// else answers: a registered resource, or a mount with a longer URI. No resource is made of them.
    pub(super) fn mounted_after(&self, after: Option<&str>, size: usize) -> Page<ListedResource> {
        let mounts =
            self.mounts().filter_map(|mount| Some((mount, self.files(mount)?.after(&mount.uri, after))));
        let mut rests: Vec<_> =
            mounts.map(|(mount, files)| Rest { mount, within: self.within(mount), files }).collect();
        let others = self.map::<Resource>().len() > 0;
        // The next file of each mount, by its URI and the number of the mount.
        let mut next = BTreeMap::new();
        for (number, rest) in rests.iter_mut().enumerate() {
            next.extend(rest.next().map(|(uri, file)| ((uri, number), file)));
        }
        let mut page = Page { items: Vec::new(), more: false };
        let mut first = next.pop_first();
        while let Some(((uri, number), (suffix, entry))) = first {
            let Some(rest) = rests.get_mut(number) else { break };
            let following = rest.next().map(|(uri, file)| ((uri, number), file));
            // Mostly there is one mount, and nothing to merge with.
            first = if next.is_empty() {
                following
            } else {
                next.extend(following);
                next.pop_first()
            };
            if (others || !rest.within.is_empty())
                && self.is_answered_otherwise(&rest.within, &uri.to_string())
            {
                continue;
            }
            if page.items.len() == size {
                page.more = true;
                break;
            }
            page.items.push(ListedResource::File(MountedFile::new(rest.mount, suffix, entry)));
        }
        page
    }

    /// Whether something else than a mount answers the URI of a file that it lists: a registered resource, or one of the mounts
    /// `within` it.
    fn is_answered_otherwise(&self, within: &[&Arc<Mount>], uri: &str) -> bool {
        within.iter().any(|inner| inner.path_of(uri).is_some()) || self.resource(uri).is_some()
    }

    /// The visible mounts that have files of a mount in its place: those with a longer URI that begins with its own.
    fn within(&self, mount: &Mount) -> Vec<&Arc<Mount>> {
        let outer = mount.uri.as_str();
        let is_longer = |inner: &str| inner.len() > outer.len() && inner.starts_with(outer);
        self.mounts().filter(|inner| is_longer(inner.uri.as_str())).collect()
    }
}

/// The files of a mount that are not on a page yet.
struct Rest<'v, F> {
    mount: &'v Arc<Mount>,
    /// The mounts that have some of them in its place.
    within: Vec<&'v Arc<Mount>>,
    files: F,
}

impl<'v, F: Iterator<Item = (&'v Arc<str>, &'v MountEntry)>> Rest<'v, F> {
    /// The next file, with its URI.
    fn next(&mut self) -> Option<(UriText<'v>, (&'v Arc<str>, &'v MountEntry))> {
        let mount: &'v Mount = self.mount;
        let uri = &mount.uri;
        let file = self.files.find(|file| uri.has_below(file.0))?;
        Some((UriText(uri.as_str(), file.0), file))
    }
}
