//! Media types: what a request declares about its body (`Content-Type`, `Content-Encoding`), and what it accepts as the answer
//! (`Accept`), JSON or an event stream.

use http::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

use crate::model::fault::Fault;

const JSON: &str = "application/json";

/// Refuses a body that is not declared as uncompressed JSON; parameters such as `charset` are ignored.
///
/// # Errors
/// [`Fault::UnsupportedMediaType`], [`Fault::UnsupportedContentEncoding`].
pub fn check_json(headers: &HeaderMap) -> Result<(), Fault> {
    check_encoding(headers)?;
    if is_json(headers) { Ok(()) } else { Err(Fault::UnsupportedMediaType(JSON)) }
}

/// Whether a body is declared as JSON.
pub fn is_json(headers: &HeaderMap) -> bool {
    let mut declared = headers.get_all(CONTENT_TYPE).iter().peekable();
    let is_json =
        |value: &HeaderValue| value.to_str().is_ok_and(|value| essence(value).eq_ignore_ascii_case(JSON));
    declared.peek().is_some() && declared.all(is_json)
}

/// Refuses a body in a content coding, such as `gzip`: none is decoded.
///
/// # Errors
/// [`Fault::UnsupportedContentEncoding`].
pub fn check_encoding(headers: &HeaderMap) -> Result<(), Fault> {
    let is_identity = |value: &HeaderValue| {
        let mut codings = value.as_bytes().split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity"))
    };
    if headers.get_all(CONTENT_ENCODING).iter().all(is_identity) {
        Ok(())
    } else {
        Err(Fault::UnsupportedContentEncoding)
    }
}

/// A media type or range without its parameters.
pub fn essence(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

const EVENTS: &str = "text/event-stream";

/// The reason for refusing a client that must accept JSON and does not.
pub const NO_JSON: Fault = Fault::NotAcceptable(JSON);
/// The reason for refusing a client that must accept events and does not.
pub const NO_EVENTS: Fault = Fault::NotAcceptable(EVENTS);

/// Refuses a client that accepts neither JSON nor events. Which of them it must accept depends on its message.
///
/// # Errors
/// [`Fault::NotAcceptable`].
pub fn check_accept(headers: &HeaderMap) -> Result<(), Fault> {
    if admits_json(headers) || admits_events(headers) { Ok(()) } else { Err(NO_JSON) }
}

/// Whether a client accepts JSON, as one without `Accept` does.
pub fn admits_json(headers: &HeaderMap) -> bool {
    admits(headers, JSON)
}

/// Whether a client accepts events, as one without `Accept` does.
pub fn admits_events(headers: &HeaderMap) -> bool {
    admits(headers, EVENTS)
}

/// Whether a client names `text/event-stream`.
pub fn wants_events(headers: &HeaderMap) -> bool {
    ranges(headers).any(|range| specificity(range, EVENTS) == Some(2) && is_wanted(range))
}

fn admits(headers: &HeaderMap, wanted: &str) -> bool {
    // Of the ranges that match, the most specific one counts: RFC 9110 section 12.5.1.
    let best =
        ranges(headers).filter_map(|range| Some((specificity(range, wanted)?, is_wanted(range)))).max();
    let says_nothing = headers.get_all(ACCEPT).iter().all(HeaderValue::is_empty);
    match best {
        Some((_, admitted)) => admitted,
        None => says_nothing,
    }
}

/// The media ranges of `Accept`.
pub fn ranges(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(ACCEPT).iter().filter_map(|value: &HeaderValue| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).filter(|range| !range.is_empty())
}

/// The specificity with which a range matches a type; `None` if it does not match.
fn specificity(range: &str, wanted: &str) -> Option<u8> {
    let (kind, _) = wanted.split_once('/')?;
    match essence(range) {
        essence if essence.eq_ignore_ascii_case(wanted) => Some(2),
        "*/*" => Some(0),
        essence => {
            let (named, any) = essence.split_once('/')?;
            (any == "*" && named.eq_ignore_ascii_case(kind)).then_some(1)
        }
    }
}

fn is_wanted(range: &str) -> bool {
    weight(range) > 0.0
}

/// The weight of a range. An invalid one counts as missing, and a missing one is 1.
pub fn weight(range: &str) -> f32 {
    parameter(range, "q").and_then(|weight| weight.parse().ok()).unwrap_or(1.0)
}

/// The first parameter of a range with this name.
pub fn parameter<'r>(range: &'r str, name: &str) -> Option<&'r str> {
    range.split(';').skip(1).find_map(|parameter| {
        let (given, value) = parameter.split_once('=')?;
        given.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{admits_events, admits_json, check_accept, check_json, wants_events};
    use crate::model::fault::Fault;

    fn checked(lines: &[(HeaderName, &str)]) -> Result<(), Fault> {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        check_json(&headers)
    }

    #[test]
    fn a_body_must_be_declared_to_be_json() {
        for good in [
            "application/json",
            "Application/JSON",
            "application/json; charset=utf-8",
            "application/json ; charset=utf-8",
            "application/json ;",
        ] {
            assert_eq!(checked(&[(CONTENT_TYPE, good)]), Ok(()), "{good}");
        }
        let refused = Err(Fault::UnsupportedMediaType("application/json"));
        assert_eq!(checked(&[]), refused);
        for bad in
            ["", "text/plain", "application/jsonx", "application/json-rpc", "application/*", "text/json", "ä"]
        {
            assert_eq!(checked(&[(CONTENT_TYPE, bad)]), refused, "{bad}");
        }
        let two = [(CONTENT_TYPE, "application/json"), (CONTENT_TYPE, "text/plain")];
        assert_eq!(checked(&two), refused);
    }

    #[test]
    fn a_body_in_a_content_coding_is_refused() {
        let json = (CONTENT_TYPE, "application/json");
        for good in ["", "identity", "Identity, identity"] {
            assert_eq!(checked(&[json.clone(), (CONTENT_ENCODING, good)]), Ok(()), "{good}");
        }
        for bad in ["gzip", "identity, br", "x", "ä"] {
            let refused = Err(Fault::UnsupportedContentEncoding);
            assert_eq!(checked(&[json.clone(), (CONTENT_ENCODING, bad)]), refused, "{bad}");
        }
    }

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        let line = |value: &&str| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in values.iter().map(line) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn a_client_that_accepts_json_is_answered() {
        let cases: [&[&str]; 13] = [
            &[],
            &[""],
            &["*/*"],
            &["application/json"],
            &["APPLICATION/JSON"],
            &["application/*"],
            &["application/json, text/event-stream"],
            &["text/event-stream", "application/json"],
            &["application/json;q=0.001"],
            &["application/json; charset=utf-8; q=1"],
            &["*/*;q=0, application/json"],
            &["application/json;q=0.5, */*;q=0"],
            &["text/html, */*;q=0.1"],
        ];
        for accept in cases {
            assert!(admits_json(&headers("accept", accept)), "{accept:?}");
            assert_eq!(check_accept(&headers("accept", accept)), Ok(()), "{accept:?}");
        }
    }

    #[test]
    fn a_client_without_json_is_recognized_and_one_without_any_type_refused() {
        let refused = Err(Fault::NotAcceptable("application/json"));
        for (accept, expected) in [
            ("text/html", refused.clone()),
            ("application/jsonp", refused.clone()),
            ("application/json;q=0", refused.clone()),
            ("*/*;q=0", refused.clone()),
            ("application/*;q=0.0, text/html", refused.clone()),
            (",", refused),
            ("text/event-stream", Ok(())),
            ("text/*", Ok(())),
            ("application/json; Q=0.000, */*", Ok(())),
        ] {
            let headers = headers("accept", &[accept]);
            assert!(!admits_json(&headers), "{accept}");
            assert_eq!(check_accept(&headers), expected, "{accept}");
        }
    }

    #[test]
    fn events_are_accepted_by_wildcard_or_requested_by_name() {
        let cases: [(&[&str], bool, bool); 7] = [
            (&[], true, false),
            (&["*/*"], true, false),
            (&["text/*"], true, false),
            (&["application/json, Text/Event-Stream"], true, true),
            (&["text/event-stream;q=0, */*"], false, false),
            (&["application/json"], false, false),
            (&["text/event-streams"], false, false),
        ];
        for (accept, admitted, wanted) in cases {
            let headers = headers("accept", accept);
            assert_eq!((admits_events(&headers), wants_events(&headers)), (admitted, wanted), "{accept:?}");
        }
    }
}
