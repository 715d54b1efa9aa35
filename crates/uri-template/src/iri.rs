//! Mapping an IRI to a URI (RFC 3987): which characters an IRI excludes and which it percent-encodes.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, utf8_percent_encode};

use crate::MAX_TEMPLATE_BYTES;

/// Percent-encodes every character outside of ASCII in UTF-8 (RFC 3987, section 3.1).
pub fn encode_non_ascii(text: &str) -> String {
    utf8_percent_encode(text, &AsciiSet::EMPTY).to_string()
}

/// Percent-encodes every character outside of ASCII in the literal text of a template: the text by which the template is
/// compared. Expressions are left unchanged, and so is a text that is too long for a template.
pub fn encode_literals(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || text.len() > MAX_TEMPLATE_BYTES {
        return Cow::Borrowed(text);
    }
    let pieces = text.split_inclusive('}').map(|piece| {
        let (literal, expression) = piece.split_at(piece.find('{').unwrap_or(piece.len()));
        encode_non_ascii(literal) + expression
    });
    Cow::Owned(pieces.collect())
}

/// Whether a character formats bidirectional text, which an IRI must not contain (RFC 3987, section 4.1).
pub fn is_bidi_formatting(character: char) -> bool {
    matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::encode_literals;
    use crate::MAX_TEMPLATE_BYTES;

    #[test]
    fn literals_of_a_template_are_encoded() {
        assert_eq!(encode_literals("x:é/{é}/ß"), "x:%C3%A9/{é}/%C3%9F");
        for unchanged in ["x:e/{a}".to_owned(), "é".repeat(MAX_TEMPLATE_BYTES)] {
            assert!(matches!(encode_literals(&unchanged), Cow::Borrowed(same) if same == unchanged));
        }
    }
}
