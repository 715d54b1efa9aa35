//! Mounts: trees of connections whose files are read and listed as resources of an agent.

mod status;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use content_source::{Place, PlaceText, SettingsError, Tree};
use file_tree::PathFilter;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::allocated::{allocated, behind_arc, texts};
use super::audit::digest::Digest;
use super::audit::fingerprint::{Fingerprint, Parts};
use super::content::ContentHash;
use super::definition::{DefinitionKind, Difference};
use super::fault::Fault;
use super::ids::{ConnectionId, ResourceUri, Slug};
use super::json::raw_text;
use super::label::Labels;
use super::place::{MAX_MILLIS, SourcePlace, SourceText};
use super::resource::{Definition, Part, PartKind, Resource};
use super::scope::{ChangeKind, Revision};

pub use self::status::{MountState, MountStatus};

/// What a compiled glob takes in memory: an estimate.
const GLOB_BYTES: usize = 4 << 10;

/// Identifies what a mount lists: another one for each place, each URI and each selection of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TreeId(pub i64);

/// Which files of a connection a mount has, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountPlace {
    /// The id of the connection.
    pub connection: String,
    /// The directory, percent-encoded; the root of the connection if it is empty.
    pub path: String,
    /// A branch, tag or commit, in place of the connection's.
    #[serde(rename = "ref", default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The globs of the files; all if there are none.
    pub include: Vec<String>,
    /// The globs of files that are left out.
    pub exclude: Vec<String>,
}

impl MountPlace {
    /// The directory, whose path `parse` validates.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] that names the member.
    fn tree(&self, parse: fn(PlaceText) -> Result<Place, SettingsError>) -> Result<Tree, Fault> {
        if !(self.path.is_empty() || self.path.ends_with('/')) {
            return Err(Fault::invalid_params("path must be empty or end in /: it is a directory"));
        }
        let place = parse(PlaceText {
            path: Some(self.path.clone()),
            reference: self.reference.clone(),
            ..PlaceText::default()
        });
        let place = place.map_err(|error| Fault::invalid_params(error.to_string()))?;
        if !place.variables().is_empty() {
            return Err(Fault::invalid_params("path of a mount has no variables"));
        }
        match place.resolve([]) {
            Ok(content_source::Location::Path { path, reference, .. }) => Ok(Tree { path, reference }),
            _ => Err(Fault::invalid_params("path is invalid")),
        }
    }

    fn filter(&self) -> Result<PathFilter, Fault> {
        PathFilter::new(&self.include, &self.exclude)
            .map_err(|(list, error)| Fault::invalid_params(format!("{list} {error}")))
    }
}

/// A registered mount.
#[derive(Debug, Clone)]
pub struct Mount {
    /// Its name.
    pub name: Slug,
    /// What the URIs of its files begin with.
    pub uri: ResourceUri,
    /// Which files it has.
    pub place: MountPlace,
    /// For how long content is answered without asking the source, and how much longer while it fails; in milliseconds.
    pub ages: Ages,
    /// Annotations of its files.
    pub annotations: Option<Box<RawValue>>,
    /// Labels of which a caller must have one to see it.
    pub labels: Labels,
    /// Its connection.
    pub connection: ConnectionId,
    /// Its directory.
    pub tree: Tree,
    /// Selects its files.
    pub filter: Arc<PathFilter>,
    /// What it lists.
    pub tree_id: TreeId,
    /// Its scans; `None` in memory, where they are not followed.
    pub status: Option<MountStatus>,
    /// The revision of the agent's scope that last changed it.
    pub revision: Revision,
}

/// How old content may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ages {
    /// As `ttlMs` of a source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u32>,
    /// As `staleMs` of a source.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stale_ms: Option<u32>,
}

/// A mount to be registered.
#[derive(Debug, Clone)]
pub struct NewMount {
    /// Its name.
    pub name: Slug,
    /// What the URIs of its files begin with.
    pub uri: ResourceUri,
    /// Which files it has.
    pub place: MountPlace,
    /// How old content may be.
    pub ages: Ages,
    /// Annotations of its files.
    pub annotations: Option<Box<RawValue>>,
    /// Labels of which a caller must have one to see it.
    pub labels: Labels,
}

/// A file of a mount, as it was found last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountEntry {
    /// Its size in bytes, if known.
    pub size: Option<u64>,
    /// When it changed, or was found changed.
    pub modified: OffsetDateTime,
    /// A digest of what proves that it is unchanged.
    pub validator: [u8; 16],
    /// The revision of the agent's scope that last changed it.
    pub revision: Revision,
}

impl NewMount {
    /// Validates a mount. Whether its connection exists and has trees is the caller's matter.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] that names the member.
    pub fn check(self) -> Result<Self, Fault> {
        let uri = self.uri.as_str();
        if uri.split_once(':').is_some_and(|(own, _)| own.eq_ignore_ascii_case(::skill::SCHEME)) {
            return Err(Fault::invalid_params("uri has the scheme skill, which only skills have"));
        }
        if !uri.ends_with('/') || uri.contains(['?', '#']) {
            return Err(Fault::invalid_params("uri must end in /, without a query or a fragment"));
        }
        for (member, millis) in [("ttlMs", self.ages.ttl_ms), ("staleMs", self.ages.stale_ms)] {
            if millis.is_some_and(|millis| millis > MAX_MILLIS) {
                return Err(Fault::invalid_params(format!("{member} must be at most {MAX_MILLIS}")));
            }
        }
        Slug::parse(&self.place.connection)
            .map_err(|_| Fault::unknown_connection("connection", &self.place.connection))?;
        self.place.tree(Place::new)?;
        self.place.filter()?;
        Ok(self)
    }
}

/// The name of the file with this encoded path. Nothing is decoded that is written as it is: lists have many files.
pub(super) fn name_of(suffix: &str) -> Option<Cow<'_, str>> {
    let name = suffix.rsplit_once('/').map_or(suffix, |(_, name)| name);
    if name.contains('%') { file_tree::decode(name).map(Cow::Owned) } else { Some(Cow::Borrowed(name)) }
}

impl Mount {
    /// A registered mount, with what is derived of its members.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] for members that are not those of a mount.
    pub fn new(
        NewMount { name, uri, place, ages, annotations, labels }: NewMount,
        (connection, tree_id): (ConnectionId, TreeId),
        revision: Revision,
        status: Option<MountStatus>,
    ) -> Result<Self, Fault> {
        let (tree, filter) = (place.tree(Place::of_stored)?, Arc::new(place.filter()?));
        Ok(Self {
            name,
            uri,
            place,
            ages,
            annotations,
            labels,
            connection,
            tree,
            filter,
            tree_id,
            status,
            revision,
        })
    }

    /// What stands after the mount's URI in a URI that begins with it, and the path of the file that it names; `None` for a
    /// URI that the mount does not answer.
    pub fn path_of<'u>(&self, uri: &'u str) -> Option<(&'u str, String)> {
        let suffix = uri.strip_prefix(self.uri.as_str())?;
        let path = file_tree::decode(suffix).filter(|path| self.filter.selects(path))?;
        Some((suffix, path))
    }

    /// The URI of the file with this encoded path; `None` if it would be too long, or if no file has such a path.
    pub fn uri_of(&self, suffix: &str) -> Option<ResourceUri> {
        file_tree::decode(suffix)?;
        self.uri.below(suffix).ok()
    }

    /// A file as a resource that is read from the connection: `suffix` is its encoded path. It has no MIME type of its own,
    /// so that the one of the source counts.
    pub fn resource(&self, suffix: &str, entry: Option<&MountEntry>) -> Option<Resource> {
        let (uri, source) = (self.uri_of(suffix)?, Arc::new(self.source(suffix)?));
        Some(Resource { source: Some(source), ..self.described(uri, suffix, entry)? })
    }

    /// A file as it is listed: `suffix` is its encoded path, `uri` its URI.
    pub fn listed(&self, uri: ResourceUri, suffix: &str, entry: &MountEntry) -> Option<Resource> {
        // Of the only part, the size is shown.
        let part = |size| Part {
            uri: None,
            mime_type: None,
            kind: PartKind::Blob,
            hash: ContentHash([0; 32]),
            size,
            meta: None,
        };
        let mut listed = self.described(uri, suffix, Some(entry))?;
        listed.parts = entry.size.map(part).into_iter().collect();
        // What is known without reading the file.
        listed.definition.mime_type = ::skill::mime_type_by_name(&listed.definition.name).map(str::to_owned);
        Some(listed)
    }

    /// What the path and the mount say of a file.
    fn described(&self, uri: ResourceUri, suffix: &str, entry: Option<&MountEntry>) -> Option<Resource> {
        let name = name_of(suffix)?.into_owned();
        Some(Resource {
            uri,
            definition: Definition {
                name,
                title: None,
                description: None,
                mime_type: None,
                annotations: self.annotations.clone(),
                icons: None,
                meta: None,
            },
            labels: self.labels.clone(),
            parts: Vec::new(),
            source: None,
            revision: entry.map_or(self.revision, |entry| entry.revision),
            last_modified: entry.map_or(OffsetDateTime::UNIX_EPOCH, |entry| entry.modified),
        })
    }

    fn source(&self, suffix: &str) -> Option<SourcePlace> {
        let text = SourceText {
            connection: self.place.connection.clone(),
            path: Some(format!("{}{suffix}", self.place.path)),
            query: BTreeMap::new(),
            reference: self.place.reference.clone(),
            statement: None,
            format: None,
            ttl_ms: self.ages.ttl_ms,
            stale_ms: self.ages.stale_ms,
        };
        let place = SourcePlace::of_file(text, &self.tree, &file_tree::decode(suffix)?)?;
        Some(place.stored(self.connection))
    }
}

impl DefinitionKind for Mount {
    type Key = Slug;
    type New = NewMount;

    const NAME: &'static str = "mount";
    const LIST: &'static str = "mounts";
    const KEY: &'static str = "name";
    const MAY_BE_ABSENT: bool = true;
    const ADDED: ChangeKind = ChangeKind::MountAdded;
    const REMOVED: ChangeKind = ChangeKind::MountRemoved;
    const IS_CHANGED_BY: fn(ChangeKind) -> bool = ChangeKind::is_of_mount;
    const IS_RELISTED_BY: fn(ChangeKind) -> bool = ChangeKind::is_of_mount;

    fn parse_key(text: &str) -> Result<Slug, Fault> {
        Slug::parse(text).map_err(|error| Fault::invalid_params(format!("name {error}")))
    }

    fn key(&self) -> &Slug {
        &self.name
    }

    fn key_of(new: &NewMount) -> &Slug {
        &new.name
    }

    fn labels(&self) -> &Labels {
        &self.labels
    }

    fn labels_of(new: &NewMount) -> &Labels {
        &new.labels
    }

    fn memory(&self) -> usize {
        let MountPlace { connection, path, reference, include, exclude } = &self.place;
        let globs = include.len() + exclude.len();
        behind_arc(size_of::<Self>())
            + behind_arc(self.name.as_str().len())
            + behind_arc(self.uri.as_str().len())
            + texts([connection.as_str(), path.as_str()].into_iter().chain(reference.as_deref())) * 2
            + texts(include.iter().chain(exclude).map(String::as_str))
            + allocated(globs * size_of::<String>())
            + globs * GLOB_BYTES
            + texts(raw_text(self.annotations.as_deref()))
            + self.labels.heap()
    }

    fn revision(&self) -> Revision {
        self.revision
    }

    fn contents(&self) -> Vec<(ContentHash, Option<usize>)> {
        Vec::new()
    }

    fn contents_of(_: &NewMount) -> impl Iterator<Item = (ContentHash, &bytes::Bytes)> {
        std::iter::empty()
    }

    fn difference(&self, new: &NewMount) -> Option<Difference> {
        let is_same = (&self.uri, &self.place, self.ages, &self.labels)
            == (&new.uri, &new.place, new.ages, &new.labels)
            && raw_text(self.annotations.as_deref()) == raw_text(new.annotations.as_deref());
        (!is_same).then_some(Difference { change: ChangeKind::MountDefined, contents: false })
    }

    /// What is below the URI is served by something else.
    fn further_changes(old: Option<&Self>, new: Option<&NewMount>) -> Vec<(ChangeKind, String)> {
        let (before, after) = (old.map(|old| &old.uri), new.map(|new| &new.uri));
        let moved = after.filter(|after| before != Some(after));
        before.into_iter().chain(moved).map(|uri| (ChangeKind::MountServed, uri.to_string())).collect()
    }
}

impl Fingerprint for Mount {
    fn fingerprint(&self) -> Digest {
        fingerprint(&self.uri, &self.place, self.ages, (self.annotations.as_deref(), &self.labels))
    }
}

impl Fingerprint for NewMount {
    fn fingerprint(&self) -> Digest {
        fingerprint(&self.uri, &self.place, self.ages, (self.annotations.as_deref(), &self.labels))
    }
}

fn fingerprint(
    uri: &ResourceUri,
    place: &MountPlace,
    ages: Ages,
    (annotations, labels): (Option<&RawValue>, &Labels),
) -> Digest {
    Parts::default()
        .part(uri.as_str())
        .json(place)
        .json(&ages)
        .unless_default(&annotations.map(RawValue::get))
        .unless_default(labels)
        .digest()
}

#[cfg(test)]
mod tests;
