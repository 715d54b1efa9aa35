//! What a request declares about its body: `Content-Type` and `Content-Encoding`.

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};

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
    let is_json = |value: &http::HeaderValue| {
        value.to_str().is_ok_and(|value| essence(value).eq_ignore_ascii_case(JSON))
    };
    declared.peek().is_some() && declared.all(is_json)
}

/// Refuses a body in a content coding, such as `gzip`: none is decoded.
///
/// # Errors
/// [`Fault::UnsupportedContentEncoding`].
pub fn check_encoding(headers: &HeaderMap) -> Result<(), Fault> {
    let is_identity = |value: &http::HeaderValue| {
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

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName};
    use http::{HeaderMap, HeaderValue};

    use super::check_json;
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
}
