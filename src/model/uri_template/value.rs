//! Values: how one stands in a URI, and which none may be.

use iri_string::types::UriStr;
use percent_encoding::{percent_decode_str, percent_encode_byte};

use super::class::Class;
use super::error::ValueError;
use super::layout::Variable;
use super::scan;

impl Variable {
    /// The value that stands as `raw` in a URI: decoded once. `None` where it is none.
    pub(super) fn decode(&self, raw: &str) -> Option<String> {
        if !scan::is_encoded(raw, self.accepts) {
            return None;
        }
        let value = percent_decode_str(raw).decode_utf8().ok()?;
        self.check(&value).is_ok().then(|| value.into_owned())
    }

    /// Writes a value as it stands in a URI.
    ///
    /// As RFC 6570 does, but what could not be read back is percent-encoded too: a `%`, which it leaves in
    /// `{+…}` where two digits follow, and what the template makes a separator. So are `[` and `]`, which
    /// URIs allow around addresses alone.
    pub(super) fn encode(&self, value: &str, uri: &mut String) -> Result<(), ValueError> {
        self.check(value)?;
        let raw = if self.reserved {
            self.accepts.without(Class::of(b"[]"))
        } else {
            self.accepts.common(Class::UNRESERVED)
        };
        for byte in value.bytes() {
            if raw.contains(byte) {
                uri.push(byte.into());
            } else {
                uri.push_str(percent_encode_byte(byte));
            }
        }
        Ok(())
    }

    fn check(&self, value: &str) -> Result<(), ValueError> {
        if value.chars().any(char::is_control) {
            return Err(ValueError::Control);
        }
        if value.contains('/') && !self.reserved {
            return Err(ValueError::Slash);
        }
        if value.split(['/', '\\']).any(|segment| segment == "..") {
            return Err(ValueError::DotDot);
        }
        Ok(())
    }
}

/// Whether a text is an absolute URI.
pub(super) fn is_uri(text: &str) -> bool {
    UriStr::new(text).is_ok()
}
