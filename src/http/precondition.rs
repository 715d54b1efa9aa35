//! `If-Match`, `If-None-Match` and `ETag` (RFC 9110, sections 8.8.3 and 13.1). A tag is a revision in quotes, with the
//! content coding where the response was compressed: `"7"`, `"7-gzip"`.

use http::header::{ETAG, IF_MATCH, IF_NONE_MATCH};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

use crate::model::fault::Fault;
use crate::model::precondition::{EntityTags, Precondition};
use crate::model::scope::Revision;

/// The content codings that a tag may name.
pub const CODINGS: [&str; 2] = ["gzip", "br"];

/// Reads `If-Match` and `If-None-Match`.
///
/// # Errors
/// [`Fault::InvalidParams`] if one is malformed. A well-formed tag that the gateway did not issue matches nothing.
pub fn read(headers: &HeaderMap) -> Result<Precondition, Fault> {
    Ok(Precondition {
        matches: tags(headers, &IF_MATCH).map_err(|Malformed| malformed("If-Match"))?,
        matches_none: tags(headers, &IF_NONE_MATCH).map_err(|Malformed| malformed("If-None-Match"))?,
    })
}

fn malformed(name: &str) -> Fault {
    Fault::invalid_params(format!(r#"{name} must be * or revisions in quotes, as in "7""#))
}

struct Malformed;

fn tags(headers: &HeaderMap, name: &HeaderName) -> Result<Option<EntityTags>, Malformed> {
    // A weak tag never matches strongly.
    let weakly = *name == IF_NONE_MATCH;
    let mut revisions: Option<Vec<Revision>> = None;
    for value in headers.get_all(name) {
        let mut rest = value.as_bytes().trim_ascii();
        if rest == b"*" {
            return Ok(Some(EntityTags::Any));
        }
        let named = revisions.get_or_insert_with(Vec::new);
        while let Some(tag) = next_tag(&mut rest)? {
            named.extend(tag.revision().filter(|_| weakly || !tag.weak));
        }
    }
    Ok(revisions.map(EntityTags::Revisions))
}

struct EntityTag<'v> {
    weak: bool,
    /// The text between the quotes: any octets except quotes, commas included.
    opaque: &'v [u8],
}

impl EntityTag<'_> {
    /// The revision, with any coding; `None` for a tag of another form.
    fn revision(&self) -> Option<Revision> {
        let text = std::str::from_utf8(self.opaque).ok()?;
        let revision = match text.split_once('-') {
            Some((revision, coding)) if CODINGS.contains(&coding) => revision,
            _ => text,
        };
        revision.parse().ok()
    }
}

/// Takes the next tag off a list. Empty elements are skipped (RFC 9110, section 5.6.1.2).
fn next_tag<'v>(rest: &mut &'v [u8]) -> Result<Option<EntityTag<'v>>, Malformed> {
    let Some(start) = rest.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b',')) else {
        return Ok(None);
    };
    let (weak, tag) = match rest[start..].strip_prefix(b"W/") {
        Some(tag) => (true, tag),
        None => (false, &rest[start..]),
    };
    let tag = tag.strip_prefix(b"\"").ok_or(Malformed)?;
    let end = tag.iter().position(|byte| *byte == b'"').ok_or(Malformed)?;
    *rest = tag[end + 1..].trim_ascii_start();
    if !rest.is_empty() && !rest.starts_with(b",") {
        return Err(Malformed);
    }
    Ok(Some(EntityTag { weak, opaque: &tag[..end] }))
}

/// Evaluates the preconditions of a read (RFC 9110, section 13.2.2), which apply to an answer that has a tag. Returns whether
/// the client has the current representation by `If-None-Match`: then the answer is `304`.
///
/// # Errors
/// [`Fault::RevisionMismatch`] if `If-Match` names only other representations; [`Fault::InvalidParams`] if it is malformed. A
/// malformed `If-None-Match` is ignored: the whole representation answers it.
pub fn is_known(
    method: &Method,
    asked: &HeaderMap,
    status: StatusCode,
    answer: &HeaderMap,
) -> Result<bool, Fault> {
    let reads = matches!(*method, Method::GET | Method::HEAD) && status == StatusCode::OK;
    let tag = answer.get(ETAG).and_then(|tag| tag.to_str().ok()).filter(|_| reads);
    let Some(present) = tag.and_then(|tag| tag.trim_matches('"').parse().ok()) else { return Ok(false) };
    let matches = tags(asked, &IF_MATCH).map_err(|Malformed| malformed("If-Match"))?;
    Precondition { matches, matches_none: None }.check(Some(present))?;
    let known = tags(asked, &IF_NONE_MATCH).ok().flatten();
    Ok(known.is_some_and(|tags| tags.contain(Some(present))))
}

/// The `ETag` of a compressed response, from that of the uncompressed one.
pub fn with_coding(tag: &HeaderValue, coding: &str) -> Option<HeaderValue> {
    let opened = tag.to_str().ok()?.strip_suffix('"')?;
    HeaderValue::try_from(format!("{opened}-{coding}\"")).ok()
}

/// The `ETag` of a revision.
///
/// # Panics
/// Never: digits in quotes are a header value.
pub fn etag(revision: Revision) -> HeaderValue {
    HeaderValue::try_from(format!("\"{revision}\"")).unwrap_or_else(|_| HeaderValue::from_static("\"0\""))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method, StatusCode};

    use super::{EntityTags, Precondition, Revision, etag, is_known, read, with_coding};

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(name, value.parse().unwrap());
        }
        headers
    }

    fn revisions(list: &[i64]) -> EntityTags {
        EntityTags::Revisions(list.iter().map(|revision| Revision(*revision)).collect())
    }

    #[test]
    fn if_match_is_parsed_as_rfc_9110_defines() {
        let read = |values: &[&str]| {
            read(&headers("if-match", values)).map(|read| read.matches).map_err(|fault| fault.name())
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["*"]), Ok(Some(EntityTags::Any)));
        assert_eq!(read(&["\"7\""]), Ok(Some(revisions(&[7]))));
        assert_eq!(read(&["\"7\", \"8\"", "\"9\""]), Ok(Some(revisions(&[7, 8, 9]))));
        assert_eq!(read(&["W/\"7\""]), Ok(Some(revisions(&[]))));
        assert_eq!(read(&["\"abc\", \"7-zip\""]), Ok(Some(revisions(&[]))));
        assert_eq!(read(&["\"7-gzip\", \"8-br\""]), Ok(Some(revisions(&[7, 8]))));
        assert_eq!(with_coding(&etag(Revision(7)), "gzip").unwrap(), "\"7-gzip\"");
        for bad in ["7", "\"7", "'7'", "\"7\" \"8\"", "\"7\"8", "*, \"7\"", "w/\"7\""] {
            assert_eq!(read(&[bad]), Err("invalid_params"), "{bad}");
        }
        assert_eq!(etag(Revision(7)), "\"7\"");
    }

    #[test]
    fn empty_elements_and_any_octets_of_tags_are_accepted() {
        let read = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert("if-match", http::HeaderValue::from_bytes(value).unwrap());
            read(&headers).map(|read| read.matches).map_err(|fault| fault.name())
        };
        for list in ["\"7\",", ",\"7\"", " , ,\"7\",\t, ", "\"a,b\",\"7\",\"\""] {
            assert_eq!(read(list.as_bytes()), Ok(Some(revisions(&[7]))), "{list}");
        }
        assert_eq!(read(b"\"\xe4\", \"7\""), Ok(Some(revisions(&[7]))));
        // An empty list matches nothing.
        for empty in ["", ",", " , "] {
            assert_eq!(read(empty.as_bytes()), Ok(Some(revisions(&[]))), "{empty:?}");
        }
    }

    #[test]
    fn if_none_match_is_compared_weakly() {
        let read = |value| read(&headers("if-none-match", &[value])).unwrap().matches_none;
        assert_eq!(read("*"), Some(EntityTags::Any));
        assert_eq!(read("\"7\", W/\"8\""), Some(revisions(&[7, 8])));
    }

    #[test]
    fn a_precondition_succeeds_or_fails() {
        let holds = |matches, matches_none, present: Option<i64>| {
            Precondition { matches, matches_none }.check(present.map(Revision)).is_ok()
        };
        assert!(holds(None, None, None) && holds(None, None, Some(7)));
        assert!(holds(Some(EntityTags::Any), None, Some(7)) && !holds(Some(EntityTags::Any), None, None));
        assert!(
            holds(Some(revisions(&[6, 7])), None, Some(7)) && !holds(Some(revisions(&[6])), None, Some(7))
        );
        assert!(!holds(Some(revisions(&[7])), None, None));
        assert!(holds(None, Some(EntityTags::Any), None) && !holds(None, Some(EntityTags::Any), Some(7)));
        assert!(holds(None, Some(revisions(&[6])), Some(7)) && !holds(None, Some(revisions(&[7])), Some(7)));
    }

    #[test]
    fn a_representation_that_the_client_has_is_not_sent_again() {
        let (asked, answer) = (headers("if-none-match", &["W/\"7\""]), headers("etag", &["\"7\""]));
        let ok = StatusCode::OK;
        let is_known = |method: Method, asked: &HeaderMap, status, answer: &HeaderMap| {
            is_known(&method, asked, status, answer).unwrap()
        };
        assert!(is_known(Method::GET, &asked, ok, &answer) && is_known(Method::HEAD, &asked, ok, &answer));
        assert!(!is_known(Method::PUT, &asked, ok, &answer));
        assert!(!is_known(Method::GET, &asked, StatusCode::NOT_FOUND, &answer));
        assert!(!is_known(Method::GET, &asked, ok, &HeaderMap::new()));
        assert!(!is_known(Method::GET, &HeaderMap::new(), ok, &answer));
        assert!(!is_known(Method::GET, &headers("if-none-match", &["\"8\""]), ok, &answer));
    }

    #[test]
    fn if_match_of_a_read_is_evaluated_before_if_none_match() {
        let answer = headers("etag", &["\"7\""]);
        let read = |method: Method, values: [&str; 2], status, answer: &HeaderMap| {
            let mut asked = headers("if-match", &values[..1]);
            asked.extend(headers("if-none-match", &values[1..]));
            is_known(&method, &asked, status, answer).map_err(|fault| fault.name())
        };
        let ok = StatusCode::OK;
        for method in [Method::GET, Method::HEAD] {
            for matching in ["*", "\"7\"", "\"6\", \"7-gzip\""] {
                assert_eq!(read(method.clone(), [matching, "\"7\""], ok, &answer), Ok(true), "{matching}");
                assert_eq!(read(method.clone(), [matching, "\"8\""], ok, &answer), Ok(false), "{matching}");
            }
            for other in ["\"8\"", "W/\"7\"", ""] {
                let refused = read(method.clone(), [other, "\"7\""], ok, &answer);
                assert_eq!(refused, Err("revision_mismatch"), "{other}");
            }
            assert_eq!(read(method, ["7", "\"7\""], ok, &answer), Err("invalid_params"));
        }
        // Writes evaluate theirs before they change anything; failures and answers without a tag ignore them.
        assert_eq!(read(Method::PUT, ["\"8\"", "*"], ok, &answer), Ok(false));
        assert_eq!(read(Method::GET, ["\"8\"", "*"], StatusCode::NOT_FOUND, &answer), Ok(false));
        assert_eq!(read(Method::GET, ["\"8\"", "*"], ok, &HeaderMap::new()), Ok(false));
    }
}
