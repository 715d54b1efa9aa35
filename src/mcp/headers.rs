//! The headers that MCP gives a meaning to, read once.

use crate::model::fault::shortened;
use axum::http::{HeaderMap, HeaderName, HeaderValue};

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// One header of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Field<'a> {
    /// Not sent.
    #[default]
    Absent,
    /// Sent, once or several times alike; without the white space around it.
    Value(&'a str),
    /// Sent with different values or with characters that no such header may have; as it reads, roughly.
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
    /// Picks them from a request's headers.
    pub fn read(headers: &'a HeaderMap) -> Self {
        Self {
            protocol_version: Field::read(headers, &PROTOCOL_VERSION),
            method: Field::read(headers, &METHOD),
            name: Field::read(headers, &NAME),
            session_id: Field::read(headers, &SESSION_ID),
        }
    }
}

impl<'a> Field<'a> {
    fn read(headers: &'a HeaderMap, name: &HeaderName) -> Self {
        let mut values = headers.get_all(name).iter();
        let Some(first) = values.next() else {
            return Self::Absent;
        };
        match first.to_str() {
            Ok(text) if values.all(|other| other == first) => Self::Value(text.trim_matches([' ', '\t'])),
            _ => Self::Malformed(combined(headers, name)),
        }
    }

    /// Whether it was sent at all.
    pub fn is_present(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// The value, where there is a readable one.
    pub fn value(&self) -> Option<&'a str> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Malformed(_) => None,
        }
    }
}

/// All values in one, as RFC 9110 section 5.2 has it.
fn combined(headers: &HeaderMap, name: &HeaderName) -> String {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let values: Vec<_> = headers.get_all(name).iter().take(2).map(text).collect();
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
    fn each_header_stands_in_its_own_field() {
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
