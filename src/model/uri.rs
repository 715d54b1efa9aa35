//! URIs of resources.

use std::fmt;
use std::sync::Arc;

use iri_string::types::{IriStr, UriStr};
use serde::Serialize;
use uri_template::iri::{encode_non_ascii, is_bidi_formatting};

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
    use super::{MAX_URI_BYTES, ResourceUri, UriError};

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
