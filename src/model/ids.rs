//! Identifiers: the UUIDs of what the gateway stores, slugs, and the URIs of resources.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use iri_string::types::{IriStr, UriStr};
use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};
use uri_template::iri::{encode_non_ascii, is_bidi_formatting};
use uuid::Uuid;

macro_rules! uid {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uid! {
    /// Identifies a tenant. A tenant re-created under the same slug has a different id.
    TenantId
}
uid! {
    /// Identifies an agent. An agent re-created under the same slug has a different id.
    AgentId
}
uid! {
    /// Identifies a key.
    KeyId
}
uid! {
    /// Identifies a principal: a key and its successors by rotation have the same principal.
    PrincipalId
}
uid! {
    /// Identifies a connection. A connection re-created under the same slug has a different id.
    ConnectionId
}
uid! {
    /// Identifies an inbound webhook.
    HookId
}
uid! {
    /// Identifies a session. The client's session id cannot be derived from it.
    SessionUid
}

/// The UUID, of version 8, of what has this digest.
pub fn uuid_of_digest(digest: &[u8; 32]) -> Uuid {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// An agent and the tenant that it belongs to, which together identify the rows of the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AgentRef {
    /// The tenant.
    pub tenant: TenantId,
    /// The agent.
    pub uid: AgentId,
}

/// Slugs that agents cannot have, since they are paths of the gateway.
const RESERVED: [&str; 6] = ["admin", "healthz", "readyz", "metrics", "well-known", "assets"];

/// The name of a tenant, an agent or a connection in URLs: `^[a-z0-9][a-z0-9_-]{0,62}$`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Slug(Arc<str>);

/// Why a text is not a slug.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SlugError {
    /// It does not match the pattern.
    #[error("must match ^[a-z0-9][a-z0-9_-]{{0,62}}$")]
    Form,
    /// It is a path of the gateway.
    #[error("is reserved")]
    Reserved,
}

impl Slug {
    /// Parses the slug of a tenant or a connection.
    ///
    /// # Errors
    /// If the text does not match the pattern.
    pub fn parse(text: &str) -> Result<Self, SlugError> {
        if Self::is_slug(text) { Ok(Self(text.into())) } else { Err(SlugError::Form) }
    }

    /// Parses the slug of an agent.
    ///
    /// # Errors
    /// If the text does not match the pattern or is reserved.
    pub fn parse_agent(text: &str) -> Result<Self, SlugError> {
        if RESERVED.contains(&text) { Err(SlugError::Reserved) } else { Self::parse(text) }
    }

    /// The agent id in a segment of a path: percent-encoded it is the same (RFC 3986, section 6.2.2.2), as it is for the
    /// parameters of the administration API. What is no agent id stays as it is. The rest of a path is not decoded, so
    /// that the rule of a proxy for `/admin` holds.
    pub fn decode_agent(segment: &str) -> Cow<'_, str> {
        if !segment.contains('%') {
            return segment.into();
        }
        let decoded = percent_decode_str(segment).decode_utf8().ok();
        decoded.filter(|agent| Self::parse_agent(agent).is_ok()).unwrap_or(segment.into())
    }

    /// Whether a text matches the pattern of slugs.
    pub fn is_slug(text: &str) -> bool {
        let plain = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        matches!(text.len(), 1..=63)
            && text.as_bytes().first().is_some_and(plain)
            && text.bytes().all(|b| plain(&b) || matches!(b, b'_' | b'-'))
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Slug {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Slug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// Maximum length of a URI in bytes.
pub const MAX_URI_BYTES: usize = 2_048;

/// An absolute URI (RFC 3986), stored as given and compared byte for byte. An IRI (RFC 3987) is stored as the
/// URI it maps to, with every non-ASCII character percent-encoded in UTF-8.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ResourceUri(Arc<str>);

/// Why a text is not the URI of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// Longer than [`MAX_URI_BYTES`].
    #[error("is longer than {MAX_URI_BYTES} bytes")]
    TooLong,
    /// Not an absolute URI.
    #[error("is not an absolute URI of RFC 3986")]
    Form,
}

impl ResourceUri {
    /// Parses a URI or an IRI: with a scheme, and two hexadecimal digits after each `%`.
    ///
    /// # Errors
    /// If the text is too long or is not an absolute URI.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        if text.len() > MAX_URI_BYTES {
            return Err(UriError::TooLong);
        }
        if !text.is_ascii() {
            if text.contains(is_bidi_formatting) || IriStr::new(text).is_err() {
                return Err(UriError::Form);
            }
            return Self::parse(&encode_non_ascii(text));
        }
        UriStr::new(text).map_err(|_| UriError::Form)?;
        Ok(Self(text.into()))
    }

    /// The URI of a file below this one, which ends in `/`: `path` is written as [`file_tree::encode`] writes it, so that only
    /// its length can be wrong.
    ///
    /// # Errors
    /// [`UriError::TooLong`].
    pub fn below(&self, path: &str) -> Result<Self, UriError> {
        if self.has_below(path) {
            Ok(Self([self.as_str(), path].concat().into()))
        } else {
            Err(UriError::TooLong)
        }
    }

    /// Whether a file below this one has a URI, which may be too long.
    pub fn has_below(&self, path: &str) -> bool {
        self.0.len() + path.len() <= MAX_URI_BYTES
    }

    /// The URI.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for ResourceUri {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ResourceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ResourceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_URI_BYTES, ResourceUri, Slug, SlugError, UriError};

    #[test]
    fn slug_matches_the_pattern() {
        for good in ["a", "0", "research", "a-b_c", &"a".repeat(63)] {
            assert_eq!(Slug::parse_agent(good).map(|s| s.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "-a", "_a", "A", "a.b", "a b", "ä", "a\n", &"a".repeat(64)] {
            assert_eq!(Slug::parse_agent(bad), Err(SlugError::Form), "{bad:?}");
        }
    }

    #[test]
    fn agent_slug_must_not_be_a_path_of_the_gateway() {
        for reserved in ["admin", "healthz", "readyz", "metrics", "well-known", "assets"] {
            assert_eq!(Slug::parse_agent(reserved), Err(SlugError::Reserved));
        }
    }

    #[test]
    fn absolute_uris_are_unchanged() {
        for uri in [
            "beeos://agent/config",
            "file:///a/../b",
            "FILE:///A",
            "urn:isbn:0451450523",
            "a:",
            "db://u/%e4%BD",
            "http://[::1]:80/?q#f",
        ] {
            assert_eq!(ResourceUri::parse(uri).map(|u| u.to_string()), Ok(uri.to_owned()));
        }
    }

    #[test]
    fn iris_are_mapped_to_uris() {
        for (iri, uri) in [
            ("notes://笔记/今天?q=ä#é", "notes://%E7%AC%94%E8%AE%B0/%E4%BB%8A%E5%A4%A9?q=%C3%A4#%C3%A9"),
            ("urn:x:%e4%BD北", "urn:x:%e4%BD%E5%8C%97"),
        ] {
            let parsed = ResourceUri::parse(iri);
            assert_eq!(parsed.as_ref().map(ResourceUri::as_str), Ok(uri));
            assert_eq!(parsed, ResourceUri::parse(uri));
        }
        let long = format!("a:{}", "北".repeat(MAX_URI_BYTES / 9 + 1));
        assert_eq!(ResourceUri::parse(&long), Err(UriError::TooLong), "counted after encoding");
    }

    #[test]
    fn relative_and_malformed_uris_are_rejected() {
        for bad in [
            "",
            "a",
            "//host/p",
            "/p",
            "a b:c",
            "a:b c",
            "a:%zz",
            "a:%2",
            "a:\u{e4} b",
            "\u{e4}:b",
            "a:\u{202e}",
            "a:\0",
            "1a:b",
            "a:\n",
        ] {
            assert_eq!(ResourceUri::parse(bad), Err(UriError::Form), "{bad:?}");
        }
        let long = format!("a:{}", "b".repeat(MAX_URI_BYTES - 1));
        assert_eq!(ResourceUri::parse(&long), Err(UriError::TooLong));
        assert!(ResourceUri::parse(&long[1..]).is_err());
        assert!(ResourceUri::parse(&long[..MAX_URI_BYTES]).is_ok());
    }
}
