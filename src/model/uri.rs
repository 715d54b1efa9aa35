//! The URI of a resource.

use std::fmt;
use std::sync::Arc;

use iri_string::types::UriStr;
use serde::Serialize;

/// Most bytes a URI may have.
pub const MAX_URI_BYTES: usize = 2_048;

/// An absolute URI of RFC 3986, kept as given and compared byte for byte.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ResourceUri(Arc<str>);

/// Why a text is no URI of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UriError {
    /// It is longer than [`MAX_URI_BYTES`].
    #[error("is longer than {MAX_URI_BYTES} bytes")]
    TooLong,
    /// It is no absolute URI.
    #[error("is not an absolute URI of RFC 3986")]
    Form,
}

impl ResourceUri {
    /// Parses a URI: with a scheme, in ASCII, every `%` followed by two hexadecimal digits.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        if text.len() > MAX_URI_BYTES {
            return Err(UriError::TooLong);
        }
        UriStr::new(text).map_err(|_| UriError::Form)?;
        Ok(Self(text.into()))
    }

    /// The text, as given.
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
    fn absolute_uris_are_kept_as_given() {
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
    fn what_is_no_absolute_uri_is_refused() {
        for bad in
            ["", "a", "//host/p", "/p", "a b:c", "a:b c", "a:%zz", "a:%2", "a:\u{e4}", "a:\0", "1a:b", "a:\n"]
        {
            assert_eq!(ResourceUri::parse(bad), Err(UriError::Form), "{bad:?}");
        }
        let long = format!("a:{}", "b".repeat(MAX_URI_BYTES - 1));
        assert_eq!(ResourceUri::parse(&long), Err(UriError::TooLong));
        assert!(ResourceUri::parse(&long[1..]).is_err());
        assert!(ResourceUri::parse(&long[..MAX_URI_BYTES]).is_ok());
    }
}
