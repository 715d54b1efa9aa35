//! The headers that MCP defines, parsed once per request.

use crate::model::fault::shortened;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
const SESSION_ID: &str = "mcp-session-id";

/// One header of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Field<'a> {
    /// The header is absent.
    #[default]
    Absent,
    /// The value without surrounding white space; repeated headers have equal values.
    Value(&'a str),
    /// Repeated with different values, or with characters that the header must not have; the text is approximate.
    Malformed(String),
}

/// The headers of MCP.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct McpHeaders<'a> {
    /// `MCP-Protocol-Version`.
    pub protocol_version: Field<'a>,
    /// `Mcp-Method`.
    pub method: Field<'a>,
    /// `Mcp-Name`, not decoded.
    pub name: Field<'a>,
    /// `Mcp-Session-Id`.
    pub session_id: Field<'a>,
}

impl<'a> McpHeaders<'a> {
    /// Reads them from the headers of a request.
    pub fn read(headers: &'a HeaderMap) -> Self {
        let mut read = Self::default();
        // One pass over the sent headers costs less than a look-up for each known one.
        for (name, value) in headers {
            let field = match name.as_str() {
                PROTOCOL_VERSION => &mut read.protocol_version,
                METHOD => &mut read.method,
                NAME => &mut read.name,
                SESSION_ID => &mut read.session_id,
                _ => continue,
            };
            *field = if field.is_present() { Field::of_all(headers, name) } else { Field::of(value) };
        }
        read
    }
}

impl<'a> Field<'a> {
    fn of(value: &'a HeaderValue) -> Self {
        match value.to_str() {
            Ok(text) => Self::Value(text.trim_matches([' ', '\t'])),
            Err(_) => Self::Malformed(combined([value])),
        }
    }

    /// Merges the values of a repeated header.
    fn of_all(headers: &'a HeaderMap, name: &HeaderName) -> Self {
        let mut values = headers.get_all(name).iter();
        match values.next() {
            Some(first) if values.all(|other| other == first) => Self::of(first),
            _ => Self::Malformed(combined(headers.get_all(name))),
        }
    }

    /// Whether the header is present.
    pub fn is_present(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// The value, if it is valid.
    pub fn value(&self) -> Option<&'a str> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Malformed(_) => None,
        }
    }
}

/// All values in one list (RFC 9110, section 5.2).
fn combined<'a>(values: impl IntoIterator<Item = &'a HeaderValue>) -> String {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let values: Vec<_> = values.into_iter().take(2).map(text).collect();
    shortened(&values.join(", "))
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderMap, HeaderName, HeaderValue};

    use super::{Field, McpHeaders};

    fn version_of(values: &[&[u8]]) -> Field<'static> {
        let mut headers = HeaderMap::new();
        for value in values {
            let name = HeaderName::from_static("mcp-protocol-version");
            headers.append(name, HeaderValue::from_bytes(value).unwrap());
        }
        let headers = Box::leak(Box::new(headers));
        McpHeaders::read(headers).protocol_version
    }

    #[test]
    fn a_header_is_absent_a_value_or_malformed() {
        assert_eq!(version_of(&[]), Field::Absent);
        assert_eq!(version_of(&[b""]), Field::Value(""));
        assert_eq!(version_of(&[b" 2025-06-18\t"]), Field::Value("2025-06-18"));
        assert_eq!(version_of(&[b"a", b"a"]), Field::Value("a"));
        assert_eq!(version_of(&[b"a", b"b", b"c"]), Field::Malformed("a, b".to_owned()));
        assert_eq!(version_of(&[b"\xff"]), Field::Malformed("\u{fffd}".to_owned()));
        assert_eq!(version_of(&["ä".as_bytes()]), Field::Malformed("ä".to_owned()));
    }

    #[test]
    fn each_header_is_read_into_its_own_field() {
        let names = ["mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id"];
        let headers: HeaderMap = names
            .map(|name| (HeaderName::from_static(name), HeaderValue::from_static(name)))
            .into_iter()
            .collect();
        let expected = McpHeaders {
            protocol_version: Field::Value(names[0]),
            method: Field::Value(names[1]),
            name: Field::Value(names[2]),
            session_id: Field::Value(names[3]),
        };
        assert_eq!(McpHeaders::read(&headers), expected);
    }
}
