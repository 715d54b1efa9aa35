//! `X-Request-Id`: the caller's own, or a new one.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::model::sources::Sources;

/// The header's name.
pub const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The caller's id, when it is 1 to 128 visible ASCII characters; else one of ours.
pub fn of(headers: &HeaderMap, sources: &Sources) -> HeaderValue {
    let theirs = headers.get(X_REQUEST_ID).filter(|id| is_good(id.as_bytes()));
    theirs.cloned().unwrap_or_else(|| ours(sources))
}

fn is_good(id: &[u8]) -> bool {
    (1..=128).contains(&id.len()) && id.iter().all(u8::is_ascii_graphic)
}

fn ours(sources: &Sources) -> HeaderValue {
    let uid = sources.uid().unwrap_or_default();
    let mut text = [0; uuid::fmt::Simple::LENGTH];
    HeaderValue::from_str(uid.as_simple().encode_lower(&mut text))
        .unwrap_or_else(|_| HeaderValue::from_static("-"))
}

#[cfg(test)]
mod tests {
    use super::is_good;

    #[test]
    fn only_short_visible_ids_are_echoed() {
        assert!(is_good(b"a") && is_good(&[b'~'; 128]));
        assert!(!is_good(b"") && !is_good(&[b'a'; 129]) && !is_good(b"a b") && !is_good("ä".as_bytes()));
    }
}
