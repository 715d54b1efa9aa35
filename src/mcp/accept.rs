//! Content negotiation of the endpoint: JSON comes in, JSON goes out.

use axum::http::header::{ACCEPT, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};

use crate::model::fault::Fault;

const JSON: &str = "application/json";

/// Refuses a body that is not declared to be JSON; parameters such as `charset` are not looked at.
///
/// # Errors
/// [`Fault::UnsupportedMediaType`].
pub fn check_content_type(headers: &HeaderMap) -> Result<(), Fault> {
    let mut declared =
        headers.get_all(CONTENT_TYPE).iter().map(|value| essence(value.to_str().unwrap_or_default()));
    let some = declared.next().is_some_and(is_json);
    if some && declared.all(is_json) { Ok(()) } else { Err(Fault::UnsupportedMediaType(JSON)) }
}

/// Refuses a client that does not take JSON. Who does not say what it takes, takes it.
///
/// # Errors
/// [`Fault::NotAcceptable`].
pub fn check_accept(headers: &HeaderMap) -> Result<(), Fault> {
    let ranges = || {
        let values = headers.get_all(ACCEPT).iter().filter_map(|value: &HeaderValue| value.to_str().ok());
        values.flat_map(|value| value.split(',')).map(str::trim).filter(|range| !range.is_empty())
    };
    // Of the ranges that match, the most specific one counts: RFC 9110 section 12.5.1.
    let best = ranges().filter_map(|range| Some((specificity(range)?, is_wanted(range)))).max();
    let says_nothing = headers.get_all(ACCEPT).iter().all(HeaderValue::is_empty);
    match best {
        Some((_, true)) => Ok(()),
        None if says_nothing => Ok(()),
        _ => Err(Fault::NotAcceptable(JSON)),
    }
}

fn essence(value: &str) -> &str {
    value.split(';').next().unwrap_or_default().trim()
}

fn is_json(essence: &str) -> bool {
    essence.eq_ignore_ascii_case(JSON)
}

fn specificity(range: &str) -> Option<u8> {
    match essence(range) {
        essence if is_json(essence) => Some(2),
        essence if essence.eq_ignore_ascii_case("application/*") => Some(1),
        "*/*" => Some(0),
        _ => None,
    }
}

/// Whether the weight of a range is more than nothing. What is no weight is taken for none given.
fn is_wanted(range: &str) -> bool {
    let weight = range.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        name.trim().eq_ignore_ascii_case("q").then(|| value.trim())
    });
    weight.and_then(|weight| weight.parse::<f32>().ok()).is_none_or(|weight| weight > 0.0)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue};

    use super::{check_accept, check_content_type};
    use crate::model::fault::Fault;

    fn headers(name: &'static str, values: &[&str]) -> HeaderMap {
        let line = |value: &&str| (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
        let mut headers = HeaderMap::new();
        for (name, value) in values.iter().map(line) {
            headers.append(name, value);
        }
        headers
    }

    #[test]
    fn a_body_must_be_declared_to_be_json() {
        for good in
            ["application/json", "Application/JSON", "application/json; charset=utf-8", "application/json ;"]
        {
            assert_eq!(check_content_type(&headers("content-type", &[good])), Ok(()), "{good}");
        }
        let refused = Err(Fault::UnsupportedMediaType("application/json"));
        assert_eq!(check_content_type(&HeaderMap::new()), refused);
        for bad in
            ["", "text/plain", "application/jsonx", "application/json-rpc", "application/*", "text/json", "ä"]
        {
            assert_eq!(check_content_type(&headers("content-type", &[bad])), refused, "{bad}");
        }
        assert_eq!(
            check_content_type(&headers("content-type", &["application/json", "text/plain"])),
            refused
        );
    }

    #[test]
    fn a_client_that_takes_json_is_answered() {
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
            assert_eq!(check_accept(&headers("accept", accept)), Ok(()), "{accept:?}");
        }
    }

    #[test]
    fn a_client_that_takes_no_json_is_refused() {
        for accept in [
            "text/event-stream",
            "text/html, text/*",
            "application/jsonp",
            "application/json;q=0",
            "application/json; Q=0.000, */*",
            "*/*;q=0",
            "application/*;q=0.0, */*",
            ",",
        ] {
            let refused = Err(Fault::NotAcceptable("application/json"));
            assert_eq!(check_accept(&headers("accept", &[accept])), refused, "{accept}");
        }
    }
}
