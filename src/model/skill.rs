//! Skills: folders of files with a `SKILL.md`, whose files are read like resources.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use ::skill::{FilePath, MARKDOWN, SKILL_MD, SkillPath, mime_type as mime_type_of};
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::allocated::{allocated, behind_arc, texts};
use super::audit::digest::Digest;
use super::audit::fingerprint::{Fingerprint, Parts};
use super::content::ContentHash;
use super::definition::{DefinitionKind, Difference};
use super::fault::Fault;
use super::ids::{MAX_URI_BYTES, ResourceUri};
use super::label::Labels;
use super::resource::{Definition, NewPart, Part, PartKind, Resource};
use super::scope::{ChangeKind, Revision};

/// How the URIs of skills and their files begin.
pub const SKILL_URIS: &str = "skill://";

/// The URI of a skill's folder with a slash at its end, such as `skill://acme/refunds/`. In the order of these texts a skill
/// stands directly before what is in its folder.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SkillRoot(Arc<str>);

impl SkillRoot {
    /// The root of the skill of a path.
    pub fn of(path: &SkillPath) -> Self {
        Self(path.root_uri().into())
    }

    /// Parses a stored root.
    pub fn parse(text: &str) -> Option<Self> {
        let is_root = text.starts_with(SKILL_URIS) && text.ends_with('/') && ResourceUri::parse(text).is_ok();
        is_root.then(|| Self(text.into()))
    }

    /// The root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The path of the skill, such as `acme/refunds`.
    pub fn path(&self) -> String {
        let encoded = self.0.strip_prefix(SKILL_URIS).unwrap_or(&self.0);
        percent_decode_str(encoded.trim_end_matches('/')).decode_utf8_lossy().into_owned()
    }

    /// The URI of a file of the skill.
    fn file(&self, path: &FilePath) -> Option<ResourceUri> {
        ResourceUri::parse(&format!("{}{}", self.0, path.uri_path())).ok()
    }

    /// The roots that a skill would have whose folder contains this root or URI.
    pub fn around(uri: &str) -> impl Iterator<Item = &str> {
        let folder = uri.strip_suffix('/').unwrap_or(uri);
        folder.match_indices('/').map(|(end, _)| &folder[..=end]).filter(|root| root.len() > SKILL_URIS.len())
    }

    /// Whether the skill's folder is, or contains, what has this URI.
    pub fn contains(&self, uri: &str) -> bool {
        uri.starts_with(&*self.0) || self.0.strip_suffix('/') == Some(uri)
    }
}

impl Borrow<str> for SkillRoot {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SkillRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A file of a registered skill.
#[derive(Debug, Clone)]
pub struct SkillFile {
    /// Its path in the skill.
    pub path: String,
    /// Its content, with its MIME type.
    pub part: Part,
    /// As it is read.
    pub resource: Arc<Resource>,
}

/// A registered skill.
#[derive(Debug, Clone)]
pub struct Skill {
    /// The URI of its folder.
    pub root: SkillRoot,
    /// The frontmatter of `SKILL.md`, a JSON object.
    pub frontmatter: Box<RawValue>,
    /// Labels of which a caller must have one to see it.
    pub labels: Labels,
    /// `SKILL.md`.
    pub skill_md: Arc<Resource>,
    /// Its files with `SKILL.md`, in byte order of their URIs.
    pub files: Vec<SkillFile>,
    /// The revision of the agent's scope that last changed it.
    pub revision: Revision,
}

/// A file of a skill to be registered.
#[derive(Debug, Clone, PartialEq)]
pub struct NewSkillFile {
    /// Its path in the skill.
    pub path: FilePath,
    /// Its content, with its MIME type; without the bytes if they are stored already.
    pub content: NewPart,
    /// Whether the content is stored already.
    pub is_stored: bool,
}

/// A skill to be registered.
#[derive(Debug, Clone)]
pub struct NewSkill {
    /// The URI of its folder.
    pub root: SkillRoot,
    /// The frontmatter of `SKILL.md`, a JSON object.
    pub frontmatter: Box<RawValue>,
    /// Labels of which a caller must have one to see it.
    pub labels: Labels,
    /// Its files with `SKILL.md`, in byte order of their URIs.
    pub files: Vec<NewSkillFile>,
}

/// What a list shows of the frontmatter.
#[derive(Deserialize)]
struct Summary {
    name: String,
    description: String,
}

impl Skill {
    /// The skill of stored values; `None` if they are not those of a skill.
    pub fn new(
        (root, frontmatter, labels): (SkillRoot, Box<RawValue>, Labels),
        files: Vec<(FilePath, Part)>,
        (revision, last_modified): (Revision, OffsetDateTime),
    ) -> Option<Self> {
        let Summary { name, description } = serde_json::from_str(frontmatter.get()).ok()?;
        let file = |(path, part): (FilePath, Part)| {
            let is_skill_md = path.as_str() == SKILL_MD;
            let definition = Definition {
                name: if is_skill_md { name.clone() } else { last_segment(path.as_str()).to_owned() },
                title: None,
                description: is_skill_md.then(|| description.clone()),
                mime_type: part.mime_type.clone(),
                annotations: None,
                icons: None,
                meta: None,
            };
            let resource = Resource {
                uri: root.file(&path)?,
                definition,
                labels: labels.clone(),
                parts: vec![Part { mime_type: None, ..part.clone() }],
                source: None,
                revision,
                last_modified,
            };
            Some(SkillFile { path: path.to_string(), part, resource: Arc::new(resource) })
        };
        let files: Vec<_> = files.into_iter().map(file).collect::<Option<_>>()?;
        let skill_md = files.iter().find(|file| file.path == SKILL_MD)?;
        let skill_md = Arc::clone(&skill_md.resource);
        Some(Self { root, frontmatter, labels, skill_md, files, revision })
    }

    /// The file of a URI.
    pub fn file(&self, uri: &str) -> Option<&SkillFile> {
        let found = self.files.binary_search_by(|file| file.resource.uri.as_str().cmp(uri));
        self.files.get(found.ok()?)
    }
}

impl NewSkillFile {
    /// A file with its bytes; its MIME type is that of its name if none is given.
    pub fn new(path: FilePath, mime_type: Option<String>, bytes: Bytes) -> Self {
        // By the bytes alone: clients verify them, and what is text is read as text.
        let kind = PartKind::of(None, &bytes);
        let named = || mime_type_of(path.as_str(), kind == PartKind::Text).to_owned();
        let mime_type =
            if path.as_str() == SKILL_MD { MARKDOWN.to_owned() } else { mime_type.unwrap_or_else(named) };
        let content = NewPart::new(None, Some(mime_type), kind, bytes);
        Self { path, content, is_stored: false }
    }

    /// A file of a registered skill as it is.
    pub fn stored(file: &SkillFile) -> Option<Self> {
        let path = FilePath::parse(&file.path).ok()?;
        Some(Self {
            path,
            content: NewPart { part: file.part.clone(), bytes: Bytes::new() },
            is_stored: true,
        })
    }
}

impl NewSkill {
    /// The skill with these files, in any order.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] if the URI of a file is too long.
    pub fn new(
        root: SkillRoot,
        frontmatter: Box<RawValue>,
        labels: Labels,
        mut files: Vec<NewSkillFile>,
    ) -> Result<Self, Fault> {
        files.sort_by_cached_key(|file| file.path.uri_path());
        if files.iter().any(|file| root.file(&file.path).is_none()) {
            return Err(Fault::invalid_params(format!(
                "the URI of a file is longer than {MAX_URI_BYTES} bytes"
            )));
        }
        Ok(Self { root, frontmatter, labels, files })
    }

    /// The URIs of the files, in their order; `None` for one that is longer than a URI may be.
    pub fn uris(&self) -> impl Iterator<Item = Option<ResourceUri>> {
        self.files.iter().map(|file| self.root.file(&file.path))
    }
}

fn last_segment(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

impl DefinitionKind for Skill {
    type Key = SkillRoot;
    type New = NewSkill;

    const NAME: &'static str = "skill";
    const LIST: &'static str = "skills";
    const KEY: &'static str = "path";
    const MAY_BE_ABSENT: bool = true;
    const ADDED: ChangeKind = ChangeKind::SkillAdded;
    const REMOVED: ChangeKind = ChangeKind::SkillRemoved;
    const IS_CHANGED_BY: fn(ChangeKind) -> bool = ChangeKind::is_of_skill;
    // A list shows digests.
    const IS_RELISTED_BY: fn(ChangeKind) -> bool = ChangeKind::is_of_skill;

    fn parse_key(text: &str) -> Result<SkillRoot, Fault> {
        let path = SkillPath::parse(text).map_err(|error| Fault::invalid_params(format!("path {error}")))?;
        Ok(SkillRoot::of(&path))
    }

    fn key(&self) -> &SkillRoot {
        &self.root
    }

    fn key_of(new: &NewSkill) -> &SkillRoot {
        &new.root
    }

    fn labels(&self) -> &Labels {
        &self.labels
    }

    fn labels_of(new: &NewSkill) -> &Labels {
        &new.labels
    }

    fn memory(&self) -> usize {
        let file = |file: &SkillFile| {
            texts([file.path.as_str()])
                + texts(file.part.mime_type.as_deref())
                + file.resource.memory()
                + behind_arc(0)
        };
        behind_arc(size_of::<Self>())
            + behind_arc(self.root.as_str().len())
            + texts([self.frontmatter.get()])
            + self.labels.heap()
            + allocated(self.files.capacity() * size_of::<SkillFile>())
            + self.files.iter().map(file).sum::<usize>()
    }

    fn revision(&self) -> Revision {
        self.revision
    }

    fn contents(&self) -> Vec<(ContentHash, Option<usize>)> {
        let size = |part: &Part| usize::try_from(part.size).unwrap_or(usize::MAX);
        self.files.iter().map(|file| (file.part.hash, Some(size(&file.part)))).collect()
    }

    fn contents_of(new: &NewSkill) -> impl Iterator<Item = (ContentHash, &Bytes)> {
        let sent = new.files.iter().filter(|file| !file.is_stored);
        sent.map(|file| (file.content.part.hash, &file.content.bytes))
    }

    fn kept(new: &NewSkill) -> Vec<ContentHash> {
        let stored = new.files.iter().filter(|file| file.is_stored);
        stored.map(|file| file.content.part.hash).collect()
    }

    fn difference(&self, new: &NewSkill) -> Option<Difference> {
        let old = self.files.iter().map(|file| (file.path.as_str(), &file.part));
        let contents = !old.eq(new.files.iter().map(|file| (file.path.as_str(), &file.content.part)));
        let same = self.labels == new.labels && self.frontmatter.get() == new.frontmatter.get();
        (contents || !same).then_some(Difference { change: ChangeKind::SkillChanged, contents })
    }

    fn further_changes(old: Option<&Self>, new: Option<&NewSkill>) -> Vec<(ChangeKind, String)> {
        let relabelled = matches!((old, new), (Some(old), Some(new)) if old.labels != new.labels);
        let before = |path: &str| old?.files.iter().find(|file| file.path == path).map(|file| &file.part);
        let after = |path: &str| new?.files.iter().any(|file| file.path.as_str() == path).then_some(());
        let put = new.into_iter().flat_map(|new| new.files.iter().zip(new.uris()));
        let put =
            put.filter(|(file, _)| relabelled || before(file.path.as_str()) != Some(&file.content.part));
        let put = put.filter_map(|(_, uri)| uri);
        let removed = old.into_iter().flat_map(|old| &old.files).filter(|file| after(&file.path).is_none());
        let removed = removed.map(|file| file.resource.uri.clone());
        put.chain(removed).map(|uri| (ChangeKind::SkillFile, uri.to_string())).collect()
    }

    fn places(&self) -> usize {
        self.files.len()
    }

    fn places_of(new: &NewSkill) -> usize {
        new.files.len()
    }
}

impl Fingerprint for Skill {
    fn fingerprint(&self) -> Digest {
        let files = self.files.iter().map(|file| (file.path.as_str(), &file.part));
        fingerprint(&self.root, files, &self.labels)
    }
}

impl Fingerprint for NewSkill {
    fn fingerprint(&self) -> Digest {
        let files = self.files.iter().map(|file| (file.path.as_str(), &file.content.part));
        fingerprint(&self.root, files, &self.labels)
    }
}

fn fingerprint<'a>(
    root: &SkillRoot,
    files: impl Iterator<Item = (&'a str, &'a Part)>,
    labels: &Labels,
) -> Digest {
    let add = |known: Parts, (path, part): (&str, &Part)| {
        known.part(path).part(part.mime_type.as_deref().unwrap_or_default()).part(part.hash.0)
    };
    files.fold(Parts::default().part(root.as_str()), add).unless_default(labels).digest()
}
