//! Values: decoded, encoded, validated.

use iri_string::types::UriStr;
use percent_encoding::{percent_decode_str, percent_encode_byte};

use crate::class::Class;
use crate::error::ValueError;
use crate::layout::Variable;
use crate::scan;

/// Which values match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    /// Those that expand.
    Expandable,
    /// All that are UTF-8.
    AnyText,
}

impl Variable {
    /// Decodes the value that is written as `raw` in a URI, once. `None` if it is not one of these values.
    pub(super) fn decode(&self, raw: &str, allowed: Allowed) -> Option<String> {
        if !scan::is_encoded(raw, self.accepts) {
            return None;
        }
        let value = percent_decode_str(raw).decode_utf8().ok()?;
        (allowed == Allowed::AnyText || self.check(&value).is_ok()).then(|| value.into_owned())
    }

    /// Appends an encoded value to a URI.
    ///
    /// As RFC 6570, and percent-encodes as well what could not be matched back: a `%`, which the RFC leaves in `{+…}`
    /// where two digits follow, and the template's separators; also `[` and `]`, which a URI allows around addresses
    /// only.
    pub(super) fn encode(&self, value: &str, uri: &mut String) -> Result<(), ValueError> {
        self.check(value)?;
        let raw = if self.reserved {
            self.accepts.difference(Class::of(b"[]"))
        } else {
            self.accepts.intersection(Class::UNRESERVED)
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
