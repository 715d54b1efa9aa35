//! Resources: their definitions, as listed by MCP, and the parts of their content.

use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use time::OffsetDateTime;

use super::allocated::{allocated, behind_arc, texts};
use super::audit::digest::Digest;
use super::audit::fingerprint::{Fingerprint, Parts};
use super::content::ContentHash;
use super::definition::{DefinitionKind, Difference};
use super::fault::Fault;
use super::ids::ResourceUri;
use super::json::raw_text;
use super::label::Labels;
use super::place::SourcePlace;
use super::scope::{ChangeKind, Revision};

/// The MIME type of a directory.
pub const DIRECTORY: &str = "inode/directory";

/// How a part is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    /// As text; the bytes are UTF-8.
    Text,
    /// Base64-encoded.
    Blob,
}

impl PartKind {
    /// Text if both the MIME type, if any, and the bytes allow it. Bytes in a character set other than UTF-8
    /// are sent as a blob.
    pub fn of(mime_type: Option<&str>, bytes: &[u8]) -> Self {
        let textual = mime_type.and_then(parse_mime).is_none_or(|mime| is_textual(&mime) && is_utf8(&mime));
        if textual && is_text(bytes) { Self::Text } else { Self::Blob }
    }

    /// The kind of bytes that replace others without a change of the MIME type: text remains text if the
    /// bytes allow it.
    #[must_use]
    pub fn replacing(self, mime_type: Option<&str>, bytes: &[u8]) -> Self {
        match self {
            Self::Text
                if is_text(bytes) && mime_type.and_then(parse_mime).is_none_or(|mime| is_utf8(&mime)) =>
            {
                Self::Text
            }
            _ => Self::of(mime_type, bytes),
        }
    }

    /// The stored value, which is also the name of the member.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Blob => "blob",
        }
    }
}

/// Parses a MIME type; white space is allowed around semicolons (RFC 9110, section 5.6.6).
pub fn parse_mime(text: &str) -> Option<mime::Mime> {
    let parsed = text.parse().ok();
    parsed.or_else(|| text.split(';').map(str::trim).collect::<Vec<_>>().join(";").parse().ok())
}

/// Whether a MIME type denotes text, by its type, subtype or suffix.
fn is_textual(mime: &mime::Mime) -> bool {
    const SUBTYPES: [&str; 21] = [
        "ecmascript",
        "graphql",
        "javascript",
        "json",
        "json5",
        "jsonl",
        "ndjson",
        "rtf",
        "sql",
        "toml",
        "typescript",
        "x-javascript",
        "x-json",
        "x-jsonl",
        "x-ndjson",
        "x-sh",
        "x-sql",
        "x-toml",
        "x-typescript",
        "x-yaml",
        "yaml",
    ];
    let (kind, subtype) = (mime.type_(), mime.subtype());
    kind == mime::TEXT
        || subtype == "xml"
        || SUBTYPES.contains(&subtype.as_str())
        || (kind == "message" && subtype == "rfc822")
        || matches!(mime.suffix().map(|suffix| suffix.as_str()), Some("json" | "xml" | "yaml"))
}

/// Whether the character set, if given, is UTF-8 or a subset of it.
fn is_utf8(mime: &mime::Mime) -> bool {
    let known = ["utf-8", "utf8", "us-ascii", "ascii"];
    let charset = mime.get_param(mime::CHARSET);
    charset.is_none_or(|charset| known.iter().any(|known| charset.as_str().eq_ignore_ascii_case(known)))
}

/// Whether bytes can be stored and sent as text.
fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

/// A part of a resource's content, without its bytes.
#[derive(Debug, Clone)]
pub struct Part {
    /// URI of the part, if it differs from the resource's.
    pub uri: Option<ResourceUri>,
    /// MIME type of the part, if given.
    pub mime_type: Option<String>,
    /// How it is sent.
    pub kind: PartKind,
    /// Hash of its bytes.
    pub hash: ContentHash,
    /// Size of the decoded bytes.
    pub size: u64,
    /// `_meta` as sent.
    pub meta: Option<Box<RawValue>>,
}

impl PartialEq for Part {
    fn eq(&self, other: &Self) -> bool {
        (&self.uri, &self.mime_type, self.kind, self.hash, self.size)
            == (&other.uri, &other.mime_type, other.kind, other.hash, other.size)
            && raw_text(self.meta.as_deref()) == raw_text(other.meta.as_deref())
    }
}

/// A part with its bytes, to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewPart {
    /// The part.
    pub part: Part,
    /// Decoded bytes.
    pub bytes: Bytes,
}

impl NewPart {
    /// Hashes and measures `bytes`.
    pub fn new(uri: Option<ResourceUri>, mime_type: Option<String>, kind: PartKind, bytes: Bytes) -> Self {
        let part = Part {
            uri,
            mime_type,
            kind,
            hash: ContentHash::of(&bytes),
            size: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            meta: None,
        };
        Self { part, bytes }
    }

    /// The part with this `_meta`.
    #[must_use]
    pub fn with_meta(mut self, meta: Option<Box<RawValue>>) -> Self {
        self.part.meta = meta;
        self
    }
}

/// The definition of a resource or resource template without its URI and content.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// Name for programs, and for people if there is no title.
    pub name: String,
    /// Title for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// MIME type of the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// `audience`, `priority` and `lastModified` as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub annotations: Option<Box<RawValue>>,
    /// Icons as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub icons: Option<Box<RawValue>>,
    /// `_meta` as sent.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub meta: Option<Box<RawValue>>,
}

impl Definition {
    /// The bytes of its heap memory.
    pub fn heap(&self) -> usize {
        let raw = [&self.annotations, &self.icons, &self.meta].map(Option::as_deref);
        let optional = [&self.title, &self.description, &self.mime_type].map(Option::as_deref);
        texts([self.name.as_str()])
            + texts(optional.into_iter().flatten())
            + texts(raw.into_iter().flatten().map(RawValue::get))
    }
}

impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.title, &self.description, &self.mime_type)
            == (&other.name, &other.title, &other.description, &other.mime_type)
            && raw_text(self.annotations.as_deref()) == raw_text(other.annotations.as_deref())
            && raw_text(self.icons.as_deref()) == raw_text(other.icons.as_deref())
            && raw_text(self.meta.as_deref()) == raw_text(other.meta.as_deref())
    }
}

/// A registered resource.
#[derive(Debug, Clone)]
pub struct Resource {
    /// URI of the resource.
    pub uri: ResourceUri,
    /// Definition.
    pub definition: Definition,
    /// Labels of which a caller must have one to see it.
    pub labels: Labels,
    /// Parts of its content, in order; none if it is elsewhere.
    pub parts: Vec<Part>,
    /// Where its content is, unless it is registered.
    pub source: Option<Arc<SourcePlace>>,
    /// The revision of the agent's scope that last changed it.
    pub revision: Revision,
    /// When it last changed.
    pub last_modified: OffsetDateTime,
}

impl Resource {
    /// Size of the decoded bytes if there is a single part.
    pub fn size(&self) -> Option<u64> {
        match self.parts.as_slice() {
            [only] => Some(only.size),
            _ => None,
        }
    }

    /// The MIME type of a part: its own or the resource's.
    pub fn mime_type_of<'a>(&'a self, part: &'a Part) -> Option<&'a str> {
        part.mime_type.as_deref().or(self.definition.mime_type.as_deref())
    }
}

/// A resource to be registered.
#[derive(Debug, Clone, PartialEq)]
pub struct NewResource {
    /// URI of the resource.
    pub uri: ResourceUri,
    /// Definition.
    pub definition: Definition,
    /// Labels of which a caller must have one to see it.
    pub labels: Labels,
    /// Parts of its content; none if it is elsewhere.
    pub parts: Vec<NewPart>,
    /// Where its content is, unless it is registered.
    pub source: Option<Arc<SourcePlace>>,
}

impl DefinitionKind for Resource {
    type Key = ResourceUri;
    type New = NewResource;

    const NAME: &'static str = "resource";
    const LIST: &'static str = "resources";
    const KEY: &'static str = "uri";
    const ADDED: ChangeKind = ChangeKind::ResourceAdded;
    const REMOVED: ChangeKind = ChangeKind::ResourceRemoved;
    const IS_CHANGED_BY: fn(ChangeKind) -> bool = ChangeKind::is_of_resource;
    const IS_RELISTED_BY: fn(ChangeKind) -> bool = ChangeKind::relists_resources;

    fn parse_key(text: &str) -> Result<ResourceUri, Fault> {
        ResourceUri::parse(text).map_err(|error| Fault::invalid_params(format!("uri {error}")))
    }

    fn key(&self) -> &ResourceUri {
        &self.uri
    }

    fn key_of(new: &NewResource) -> &ResourceUri {
        &new.uri
    }

    fn labels(&self) -> &Labels {
        &self.labels
    }

    fn labels_of(new: &NewResource) -> &Labels {
        &new.labels
    }

    fn memory(&self) -> usize {
        let uris = self.parts.iter().filter_map(|part| part.uri.as_ref());
        behind_arc(size_of::<Self>())
            + behind_arc(self.uri.as_str().len())
            + self.definition.heap()
            + self.labels.heap()
            + allocated(self.parts.capacity() * size_of::<Part>())
            + texts(self.parts.iter().filter_map(|part| part.mime_type.as_deref()))
            + texts(self.parts.iter().filter_map(|part| raw_text(part.meta.as_deref())))
            + self.source.as_ref().map_or(0, |source| source.memory())
            + uris.map(|uri| behind_arc(uri.as_str().len())).sum::<usize>()
    }

    fn revision(&self) -> Revision {
        self.revision
    }

    fn contents(&self) -> Vec<(ContentHash, Option<usize>)> {
        let size = |part: &Part| usize::try_from(part.size).unwrap_or(usize::MAX);
        self.parts.iter().map(|part| (part.hash, Some(size(part)))).collect()
    }

    fn contents_of(new: &NewResource) -> impl Iterator<Item = (ContentHash, &Bytes)> {
        new.parts.iter().map(|new| (new.part.hash, &new.bytes))
    }

    fn difference(&self, new: &NewResource) -> Option<Difference> {
        let parts = self.parts.iter().eq(new.parts.iter().map(|new| &new.part));
        let contents = !parts || self.source != new.source;
        let change = if self.definition == new.definition && self.labels == new.labels {
            contents.then_some(ChangeKind::ResourceContents)
        } else {
            Some(ChangeKind::ResourceDefined)
        };
        change.map(|change| Difference { change, contents })
    }
}

impl Fingerprint for Resource {
    fn fingerprint(&self) -> Digest {
        fingerprint(&self.uri, &self.definition, self.parts.iter(), (&self.labels, self.source.as_deref()))
    }
}

impl Fingerprint for NewResource {
    fn fingerprint(&self) -> Digest {
        let parts = self.parts.iter().map(|new| &new.part);
        fingerprint(&self.uri, &self.definition, parts, (&self.labels, self.source.as_deref()))
    }
}

fn fingerprint<'a>(
    uri: &ResourceUri,
    definition: &Definition,
    parts: impl Iterator<Item = &'a Part>,
    (labels, source): (&Labels, Option<&SourcePlace>),
) -> Digest {
    let known = Parts::default().part(uri.as_str()).json(definition);
    let add = |known: Parts, part: &Part| {
        known
            .part(part.uri.as_ref().map_or("", |uri| uri.as_str()))
            .part(part.mime_type.as_deref().unwrap_or_default())
            .part(part.kind.as_str())
            .part(part.hash.0)
            .unless_default(&part.meta.as_deref().map(RawValue::get))
    };
    let source = source.map(SourcePlace::text);
    parts.fold(known, add).unless_default(labels).unless_default(&source).digest()
}

#[cfg(test)]
mod tests {
    use super::PartKind::{Blob, Text};
    use super::{PartKind, parse_mime};

    #[test]
    fn textual_mime_types_are_sent_as_text() {
        for mime in [
            "application/x-yaml",
            "application/x-ndjson",
            "application/jsonl",
            "application/x-javascript",
            "application/typescript",
            "application/graphql",
            "message/rfc822",
            "Application/JSON",
            "text/plain;charset=us-ascii",
            "text/plain ; charset=\"UTF-8\"",
        ] {
            assert_eq!(PartKind::of(Some(mime), b"a: 1"), Text, "{mime}");
            assert_eq!(PartKind::of(Some(mime), b"\xe4"), Blob, "{mime}");
        }
        for mime in ["application/octet-stream", "image/png", "application/zip", "message/partial"] {
            assert_eq!(PartKind::of(Some(mime), b"a: 1"), Blob, "{mime}");
        }
    }

    #[test]
    fn text_in_another_character_set_is_sent_as_blob() {
        for mime in
            ["text/plain;charset=iso-8859-1", "text/html; charset=Shift_JIS", "text/csv ; charset=utf-16"]
        {
            assert_eq!(PartKind::of(Some(mime), b"a"), Blob, "{mime}");
            assert_eq!(Text.replacing(Some(mime), b"a"), Blob, "{mime}");
        }
    }

    #[test]
    fn replaced_text_remains_text() {
        assert_eq!(Text.replacing(Some("image/png"), b"a"), Text);
        assert_eq!(Text.replacing(Some("image/png"), b"\xff"), Blob);
        assert_eq!(Blob.replacing(Some("image/png"), b"a"), Blob);
        assert_eq!(Blob.replacing(None, b"a"), Text);
    }

    #[test]
    fn white_space_is_allowed_around_semicolons() {
        assert!(parse_mime("text/plain ; charset=utf-8").is_some());
        assert!(parse_mime("text / plain").is_none());
    }
}
