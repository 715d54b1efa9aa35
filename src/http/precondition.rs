//! `If-Match` and `ETag` (RFC 9110, sections 8.8.3 and 13.1.1). A tag is a revision in quotes.

use http::header::IF_MATCH;
use http::{HeaderMap, HeaderValue};

use crate::model::fault::Fault;
use crate::model::scope::Revision;
use crate::registry::write::Precondition;

const MALFORMED: &str = r#"If-Match must be * or revisions in quotes, as in "7""#;

/// Reads `If-Match`.
///
/// # Errors
/// [`Fault::InvalidParams`] where it has not the form. A tag of the right form that is none of ours matches nothing.
pub fn if_match(headers: &HeaderMap) -> Result<Precondition, Fault> {
    let mut revisions = Vec::new();
    let mut values = headers.get_all(IF_MATCH).iter().peekable();
    if values.peek().is_none() {
        return Ok(Precondition::None);
    }
    for value in values {
        let value = value.to_str().map_err(|_| Fault::invalid_params(MALFORMED))?.trim();
        if value == "*" {
            return Ok(Precondition::Exists);
        }
        for tag in value.split(',').map(str::trim) {
            let strong = tag.strip_prefix("W/").unwrap_or(tag);
            let inner = strong.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            let inner = inner.ok_or_else(|| Fault::invalid_params(MALFORMED))?;
            // A weak tag never matches strongly.
            if strong.len() == tag.len()
                && let Ok(revision) = inner.parse()
            {
                revisions.push(revision);
            }
        }
    }
    Ok(Precondition::Revisions(revisions))
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
    use http::HeaderMap;

    use super::{Precondition, Revision, etag, if_match};

    fn read(values: &[&str]) -> Result<Precondition, &'static str> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("if-match", value.parse().unwrap());
        }
        if_match(&headers).map_err(|fault| fault.name())
    }

    #[test]
    fn if_match_is_read_as_rfc_9110_says() {
        let revisions =
            |list: &[i64]| Ok(Precondition::Revisions(list.iter().map(|r| Revision(*r)).collect()));
        assert_eq!(read(&[]), Ok(Precondition::None));
        assert_eq!(read(&["*"]), Ok(Precondition::Exists));
        assert_eq!(read(&["\"7\""]), revisions(&[7]));
        assert_eq!(read(&["\"7\", \"8\"", "\"9\""]), revisions(&[7, 8, 9]));
        assert_eq!(read(&["W/\"7\""]), revisions(&[]));
        assert_eq!(read(&["\"abc\""]), revisions(&[]));
        for bad in ["7", "", "\"7", "\"7\",", "'7'"] {
            assert_eq!(read(&[bad]), Err("invalid_params"), "{bad}");
        }
        assert_eq!(etag(Revision(7)), "\"7\"");
    }
}
