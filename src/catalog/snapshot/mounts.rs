//! What a caller sees of mounts: their files as resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::trees::Files;
use super::view::View;
use crate::model::call::Page;
use crate::model::mount::{Mount, MountEntry};
use crate::model::resource::Resource;

impl View {
    /// The visible mounts.
    fn mounts(&self) -> impl Iterator<Item = &Arc<Mount>> {
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

    /// Whether a mount answers the URI of a file that it lists: neither a registered resource does, nor a mount with a longer
    /// URI. That the file is selected is known.
    fn is_answered_by(&self, mount: &Mount, uri: &str) -> bool {
        let is_longer = |other: &&Arc<Mount>| other.uri.as_str().len() > mount.uri.as_str().len();
        let mut longer = self.mounts().filter(is_longer);
        !longer.any(|other| other.path_of(uri).is_some()) && self.resource(uri).is_none()
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
        mount.resource(suffix, entry, true)
    }

    /// At most `size` listed files of mounts, those after a URI, in byte order of their URIs. Without those that something
    /// else answers: a registered resource, or a mount with a longer URI.
    pub(super) fn mounted_after(&self, after: Option<&str>, size: usize) -> Page<Resource> {
        let mut rests: Vec<_> = self
            .mounts()
            .filter_map(|mount| Some((mount, self.files(mount)?.after(&mount.uri, after))))
            .collect();
        // The next file of each mount, by its URI and the number of the mount.
        let mut next: BTreeMap<(String, usize), (&Arc<str>, &MountEntry)> = BTreeMap::new();
        for (number, (mount, rest)) in rests.iter_mut().enumerate() {
            next.extend(rest.next().map(|found| ((format!("{}{}", mount.uri, found.0), number), found)));
        }
        let mut page = Page { items: Vec::new(), more: false };
        while let Some(((uri, number), (suffix, entry))) = next.pop_first() {
            let Some((mount, rest)) = rests.get_mut(number) else { break };
            next.extend(rest.next().map(|found| ((format!("{}{}", mount.uri, found.0), number), found)));
            if !self.is_answered_by(mount, &uri) {
                continue;
            }
            if page.items.len() == size {
                page.more = true;
                break;
            }
            page.items.extend(mount.resource(suffix, Some(entry), false).map(Arc::new));
        }
        page
    }
}
