//! Paths in URIs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// What is percent-encoded: everything but unreserved characters (RFC 3986, section 2.3) and `/`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A path as it is written at the end of a URI.
pub fn encode(path: &str) -> String {
    utf8_percent_encode(path, ENCODED).to_string()
}

/// The path that is written so; `None` for what [`encode`] never writes, and for what is no path of a file: with a segment
/// that is empty, `.` or `..`, or that contains `\` or NUL.
pub fn decode(text: &str) -> Option<String> {
    let path = percent_decode_str(text).decode_utf8().ok()?;
    let is_file = path.split('/').all(|segment| {
        !segment.is_empty() && segment != "." && segment != ".." && !segment.contains(['\\', '\0'])
    });
    (is_file && encode(&path) == text).then(|| path.into_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{decode, encode};

    #[test]
    fn paths_that_no_file_has_are_not_decoded() {
        for text in [
            "", "/a", "a/", "a//b", ".", "..", "a/..", "a/%2e%2e", "a%2Fb", "%61", "a b", "a%5Cb", "a%00",
            "%ff",
        ] {
            assert_eq!(decode(text), None, "{text}");
        }
        assert_eq!(decode("a/b%20c/%E5%8C%97.md").as_deref(), Some("a/b c/北.md"));
    }

    proptest! {
        #[test]
        fn encoded_paths_are_decoded(path in "[^/\\\\\u{0}]{1,8}(/[^/\\\\\u{0}]{1,8}){0,3}") {
            prop_assume!(path.split('/').all(|segment| segment != "." && segment != ".."));
            prop_assert_eq!(decode(&encode(&path)), Some(path));
        }

        #[test]
        fn a_file_has_one_uri(text in "[a-c%25./ ]{0,8}") {
            if let Some(path) = decode(&text) {
                prop_assert_eq!(encode(&path), text);
            }
        }
    }
}
