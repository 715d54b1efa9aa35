//! Mapping an IRI to a URI (RFC 3987): which characters an IRI excludes and which it percent-encodes.

use percent_encoding::{AsciiSet, utf8_percent_encode};

/// Percent-encodes every character outside of ASCII in UTF-8 (RFC 3987, section 3.1).
pub fn encode_non_ascii(text: &str) -> String {
    utf8_percent_encode(text, &AsciiSet::EMPTY).to_string()
}

/// Whether a character formats bidirectional text, which an IRI must not contain (RFC 3987, section 4.1).
pub fn is_bidi_formatting(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
}
