//! Resources as they are listed: registered ones, and files of mounts, of which a list makes no resource.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use time::OffsetDateTime;

use super::mount::{Mount, MountEntry, name_of};
use super::resource::Resource;

/// A resource of a list.
#[derive(Debug, Clone)]
pub enum ListedResource {
    /// A registered one.
    Registered(Arc<Resource>),
    /// A file of a mount.
    File(MountedFile),
}

/// A file that a mount lists.
#[derive(Debug, Clone)]
pub struct MountedFile {
    /// The mount.
    pub mount: Arc<Mount>,
    /// What stands after the mount's URI in that of the file: its encoded path.
    pub suffix: Arc<str>,
    /// Its size in bytes, if known.
    pub size: Option<u64>,
    /// When it changed, or was found changed.
    pub modified: OffsetDateTime,
}

impl MountedFile {
    /// A file of a mount as it was found last.
    pub fn new(mount: &Arc<Mount>, suffix: &Arc<str>, entry: &MountEntry) -> Self {
        let (mount, suffix) = (Arc::clone(mount), Arc::clone(suffix));
        Self { mount, suffix, size: entry.size, modified: entry.modified }
    }

    /// Its name, decoded.
    pub fn name(&self) -> Cow<'_, str> {
        name_of(&self.suffix).unwrap_or(Cow::Borrowed(&self.suffix))
    }
}

impl ListedResource {
    /// Its URI.
    pub fn uri(&self) -> UriText<'_> {
        match self {
            Self::Registered(resource) => UriText(resource.uri.as_str(), ""),
            Self::File(file) => UriText(file.mount.uri.as_str(), &file.suffix),
        }
    }
}

/// A URI in two parts that follow each other.
#[derive(Debug, Clone, Copy)]
pub struct UriText<'u>(pub &'u str, pub &'u str);

impl UriText<'_> {
    fn bytes(&self) -> impl Iterator<Item = u8> {
        self.0.bytes().chain(self.1.bytes())
    }
}

impl fmt::Display for UriText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)?;
        f.write_str(self.1)
    }
}

impl Ord for UriText<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self(one, ""), Self(other, "")) => one.cmp(other),
            // Of one mount.
            (Self(base, one), Self(same, other)) if base == same => one.cmp(other),
            _ => self.bytes().cmp(other.bytes()),
        }
    }
}

impl PartialOrd for UriText<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for UriText<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for UriText<'_> {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::UriText;

    proptest! {
        #[test]
        fn two_parts_are_compared_as_their_whole(parts in proptest::array::uniform4("[a/]{0,3}")) {
            let [a, b, c, d] = &parts;
            let (one, other) = (UriText(a, b), UriText(c, d));
            prop_assert_eq!(one.cmp(&other), one.to_string().cmp(&other.to_string()));
            prop_assert_eq!(one == other, one.to_string() == other.to_string());
        }
    }
}
