//! A resource: its definition as the MCP specification lists it, and the parts of its contents.

use std::fmt;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;

use super::scope::Revision;
use super::uri::ResourceUri;

/// The SHA-256 of some content: its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(pub [u8; 32]);

impl ContentHash {
    /// The address of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Bytes about to be stored under their address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewContent {
    /// Their address.
    pub hash: ContentHash,
    /// The bytes.
    pub bytes: Bytes,
}

impl NewContent {
    /// Addresses `bytes`.
    pub fn new(bytes: Bytes) -> Self {
        Self { hash: ContentHash::of(&bytes), bytes }
    }
}

/// How a part of the contents travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartKind {
    /// As text; the bytes are UTF-8.
    Text,
    /// As base64.
    Blob,
}

impl PartKind {
    /// How bytes of a MIME type travel: as text where both the type, if there is one, and the bytes allow it. Bytes in
    /// another character set than UTF-8 travel as they are.
    pub fn of(mime_type: Option<&str>, bytes: &[u8]) -> Self {
        let textual = mime_type.and_then(parse_mime).is_none_or(|mime| is_textual(&mime) && is_utf8(&mime));
        if textual && is_text(bytes) { Self::Text } else { Self::Blob }
    }

    /// How bytes travel that replace others of a type that stays: what was text remains text where the bytes allow it.
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

    /// As it is stored, and the member that carries it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Blob => "blob",
        }
    }
}

/// Parses a MIME type; white space may stand around its semicolons (RFC 9110 section 5.6.6).
pub fn parse_mime(text: &str) -> Option<mime::Mime> {
    let parsed = text.parse().ok();
    parsed.or_else(|| text.split(';').map(str::trim).collect::<Vec<_>>().join(";").parse().ok())
}

/// Whether a type names text: by its top-level type, its subtype, or its suffix.
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

/// Whether its character set, if it names one, is UTF-8 or a part of it.
fn is_utf8(mime: &mime::Mime) -> bool {
    let known = ["utf-8", "utf8", "us-ascii", "ascii"];
    let charset = mime.get_param(mime::CHARSET);
    charset.is_none_or(|charset| known.iter().any(|known| charset.as_str().eq_ignore_ascii_case(known)))
}

/// Whether bytes can be stored and sent as text.
fn is_text(bytes: &[u8]) -> bool {
    !bytes.contains(&0) && std::str::from_utf8(bytes).is_ok()
}

/// One of a resource's contents, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its own URI, where it differs from the resource's.
    pub uri: Option<ResourceUri>,
    /// Its own MIME type, where it was given one.
    pub mime_type: Option<String>,
    /// How it travels.
    pub kind: PartKind,
    /// Where its bytes are.
    pub hash: ContentHash,
    /// Decoded, in bytes.
    pub size: u64,
}

/// A part with its bytes, about to be stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewPart {
    /// The part.
    pub part: Part,
    /// Its bytes, decoded.
    pub bytes: Bytes,
}

impl NewPart {
    /// Addresses and measures `bytes`.
    pub fn new(uri: Option<ResourceUri>, mime_type: Option<String>, kind: PartKind, bytes: Bytes) -> Self {
        let part = Part {
            uri,
            mime_type,
            kind,
            hash: ContentHash::of(&bytes),
            size: u64::try_from(bytes.len()).unwrap_or(u64::MAX),
        };
        Self { part, bytes }
    }
}

/// What its owner says of a resource: everything but the contents.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// The name; programs use it, people see it where there is no title.
    pub name: String,
    /// A title for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The MIME type of its contents.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// `audience`, `priority`, `lastModified`, as sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub annotations: Option<Box<RawValue>>,
    /// As sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    pub icons: Option<Box<RawValue>>,
    /// As sent.
    #[serde(rename = "_meta", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub meta: Option<Box<RawValue>>,
}

impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        fn text(raw: Option<&RawValue>) -> Option<&str> {
            raw.map(RawValue::get)
        }
        (&self.name, &self.title, &self.description, &self.mime_type)
            == (&other.name, &other.title, &other.description, &other.mime_type)
            && text(self.annotations.as_deref()) == text(other.annotations.as_deref())
            && text(self.icons.as_deref()) == text(other.icons.as_deref())
            && text(self.meta.as_deref()) == text(other.meta.as_deref())
    }
}

/// A registered resource.
#[derive(Debug, Clone)]
pub struct Resource {
    /// Its URI.
    pub uri: ResourceUri,
    /// What its owner says of it.
    pub definition: Definition,
    /// Its contents, in their order.
    pub parts: Vec<Part>,
    /// The revision of the agent's scope that last changed it.
    pub revision: Revision,
    /// When it last changed.
    pub last_modified: OffsetDateTime,
}

impl Resource {
    /// The decoded bytes of a single content; several have no one size.
    pub fn size(&self) -> Option<u64> {
        match self.parts.as_slice() {
            [only] => Some(only.size),
            _ => None,
        }
    }

    /// The MIME type that a part is answered with.
    pub fn mime_type_of<'a>(&'a self, part: &'a Part) -> Option<&'a str> {
        part.mime_type.as_deref().or(self.definition.mime_type.as_deref())
    }
}

/// A resource as its owner wants it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewResource {
    /// Its URI.
    pub uri: ResourceUri,
    /// What its owner says of it.
    pub definition: Definition,
    /// Its contents.
    pub parts: Vec<NewPart>,
}

#[cfg(test)]
mod tests {
    use super::PartKind::{Blob, Text};
    use super::{PartKind, parse_mime};

    #[test]
    fn types_that_name_text_travel_as_text() {
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
    fn text_in_another_character_set_travels_as_it_is() {
        for mime in
            ["text/plain;charset=iso-8859-1", "text/html; charset=Shift_JIS", "text/csv ; charset=utf-16"]
        {
            assert_eq!(PartKind::of(Some(mime), b"a"), Blob, "{mime}");
            assert_eq!(Text.replacing(Some(mime), b"a"), Blob, "{mime}");
        }
    }

    #[test]
    fn text_of_a_type_that_stays_remains_text() {
        assert_eq!(Text.replacing(Some("image/png"), b"a"), Text);
        assert_eq!(Text.replacing(Some("image/png"), b"\xff"), Blob);
        assert_eq!(Blob.replacing(Some("image/png"), b"a"), Blob);
        assert_eq!(Blob.replacing(None, b"a"), Text);
    }

    #[test]
    fn white_space_may_stand_around_semicolons() {
        assert!(parse_mime("text/plain ; charset=utf-8").is_some());
        assert!(parse_mime("text / plain").is_none());
    }
}
