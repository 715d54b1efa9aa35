//! The headers of MCP, and the era of a request, which is decided once, by the version header and the body.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::version::ProtocolVersion;
use super::wire::{Incoming, Message, MethodName, Rejected};
use crate::model::fault::shortened;
use crate::model::method::{Era, Method};

const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";
const SESSION_ID: &str = "mcp-session-id";
const ACCEPT: &str = "accept";
const CONTENT_TYPE: &str = "content-type";
const CONTENT_ENCODING: &str = "content-encoding";

/// The values of `Accept` that conforming clients send.
const USUAL_ACCEPT: [&str; 2] =
    ["application/json, text/event-stream", "text/event-stream, application/json"];
const USUAL_CONTENT_TYPE: &str = "application/json";

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

/// The headers of MCP, and whether those of media types need parsing.
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
    /// Whether `Accept` is what conforming clients send: JSON and events are accepted, and `media_type` need not parse it.
    pub accepts_usual: bool,
    /// Whether `Content-Type` is what conforming clients send, and the body is not encoded: `media_type` need not parse it.
    pub declares_usual: bool,
}

impl<'a> McpHeaders<'a> {
    /// Reads them from the headers of a request.
    pub fn read(headers: &'a HeaderMap) -> Self {
        let mut read = Self::default();
        let (mut accepts, mut types, mut encodings) = (0, 0, 0);
        // One pass over the sent headers costs less than a look-up for each known one.
        for (name, value) in headers {
            let field = match name.as_str() {
                PROTOCOL_VERSION => &mut read.protocol_version,
                METHOD => &mut read.method,
                NAME => &mut read.name,
                SESSION_ID => &mut read.session_id,
                ACCEPT => {
                    accepts += 1;
                    read.accepts_usual = accepts == 1 && USUAL_ACCEPT.iter().any(|usual| value == usual);
                    continue;
                }
                CONTENT_TYPE => {
                    types += 1;
                    read.declares_usual = types == 1 && value == USUAL_CONTENT_TYPE;
                    continue;
                }
                CONTENT_ENCODING => {
                    encodings += 1;
                    continue;
                }
                _ => continue,
            };
            *field = if field.is_present() { Field::of_all(headers, name) } else { Field::of(value) };
        }
        read.declares_usual &= encodings == 0;
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

/// The era of a request, with the source of a legacy revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestEra {
    /// Revision `2026-07-28`.
    Modern,
    /// A revision with a handshake.
    Legacy(VersionSource),
}

impl RequestEra {
    /// The era without details.
    pub fn era(self) -> Era {
        match self {
            Self::Modern => Era::Modern,
            Self::Legacy(_) => Era::Legacy,
        }
    }
}

/// The source of the revision of a legacy request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionSource {
    /// This request negotiates it: an `initialize`, which opens a session even if it names one.
    Negotiation,
    /// The named session.
    Session,
    /// The request itself, without a session.
    Sessionless(ProtocolVersion),
}

/// Whether the version header alone makes a request without a body modern.
pub fn is_modern(headers: &McpHeaders<'_>) -> bool {
    let version = headers.protocol_version.value().and_then(ProtocolVersion::parse);
    headers.protocol_version.is_present() && version.is_none_or(|version| version.era() == Era::Modern)
}

/// Decides by the version header and the parsed body. `Mcp-Method`, `Mcp-Name` and `Mcp-Session-Id` have no influence.
pub fn decide(headers: &McpHeaders<'_>, body: &Result<Incoming<'_>, Rejected<'_>>) -> RequestEra {
    let version = headers.protocol_version.value().and_then(ProtocolVersion::parse);
    let legacy = version.filter(|version| version.era() == Era::Legacy);
    if declares_version(body) || is_modern(headers) {
        RequestEra::Modern
    } else if opens_session(body) {
        RequestEra::Legacy(VersionSource::Negotiation)
    } else if headers.session_id.is_present() {
        RequestEra::Legacy(VersionSource::Session)
    } else {
        RequestEra::Legacy(VersionSource::Sessionless(legacy.unwrap_or(ProtocolVersion::ASSUMED)))
    }
}

/// The revision of an error without better knowledge: that of the header; without a header the modern one if the body
/// declares a version.
pub fn named_version(
    headers: &McpHeaders<'_>,
    body: &Result<Incoming<'_>, Rejected<'_>>,
) -> Option<ProtocolVersion> {
    match headers.protocol_version.value() {
        Some(version) => ProtocolVersion::parse(version),
        None => declares_version(body).then_some(ProtocolVersion::V2026_07_28),
    }
}

fn declares_version(body: &Result<Incoming<'_>, Rejected<'_>>) -> bool {
    match body {
        Ok(incoming) => incoming.declares_version(),
        Err(rejected) => rejected.declares_version,
    }
}

fn opens_session(body: &Result<Incoming<'_>, Rejected<'_>>) -> bool {
    let Ok(Incoming::Message(Message::Request(request))) = body else { return false };
    request.method == MethodName::Known(Method::Initialize)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::{Field, McpHeaders, RequestEra, VersionSource, decide, named_version};
    use crate::http::media_type;
    use crate::mcp::version::ProtocolVersion;
    use crate::mcp::version::ProtocolVersion::{V2024_11_05, V2025_03_26, V2025_11_25, V2026_07_28};
    use crate::mcp::wire::parse;

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
            accepts_usual: false,
            declares_usual: false,
        };
        assert_eq!(McpHeaders::read(&headers), expected);
    }

    /// Whether `Accept` and `Content-Type` are the usual ones, which must be what the rules of media types admit.
    fn usual(sent: &[(&'static str, &'static str)]) -> (bool, bool) {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let McpHeaders { accepts_usual, declares_usual, .. } = McpHeaders::read(&headers);
        let admitted = [media_type::admits_json(&headers), media_type::admits_events(&headers)];
        assert!(!accepts_usual || admitted == [true; 2] && media_type::check_accept(&headers).is_ok());
        assert!(!declares_usual || media_type::check_json(&headers).is_ok());
        (accepts_usual, declares_usual)
    }

    #[test]
    fn usual_media_types_need_no_parsing() {
        let (json, both) = (("content-type", "application/json"), ("accept", super::USUAL_ACCEPT[0]));
        assert_eq!(usual(&[json, both]), (true, true));
        assert_eq!(usual(&[("accept", super::USUAL_ACCEPT[1])]), (true, false));
        for other in [both, ("accept", "text/html"), ("accept", "")] {
            assert_eq!(usual(&[both, other, json]), (false, true), "{other:?}");
        }
        for other in [json, ("content-type", "text/plain"), ("content-encoding", "identity")] {
            assert_eq!(usual(&[other, json, both, json]), (true, false), "{other:?}");
            assert_eq!(usual(&[json, both, other]), (true, false), "{other:?}");
        }
        assert_eq!(
            usual(&[("accept", "application/json"), ("content-type", "application/json; charset=utf-8")]),
            (false, false)
        );
    }

    const PLAIN: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    const DECLARED: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25"}}}"#;
    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;

    fn headers(version: Option<&'static str>, session: Option<&'static str>) -> McpHeaders<'static> {
        let field = |value: Option<&'static str>| value.map_or(Field::Absent, Field::Value);
        let (method, name) = (Field::Value("resources/read"), Field::Value("a:b"));
        McpHeaders {
            protocol_version: field(version),
            method,
            name,
            session_id: field(session),
            ..McpHeaders::default()
        }
    }

    #[test]
    fn a_request_belongs_to_the_documented_era() {
        let sessionless = |version| RequestEra::Legacy(VersionSource::Sessionless(version));
        let session = RequestEra::Legacy(VersionSource::Session);
        let negotiation = RequestEra::Legacy(VersionSource::Negotiation);
        for (version, session_id, body, expected) in [
            (None, None, PLAIN, sessionless(V2025_03_26)),
            (Some("2024-11-05"), None, PLAIN, sessionless(V2024_11_05)),
            (Some("2025-11-25"), None, PLAIN, sessionless(V2025_11_25)),
            (Some("2025-11-25"), Some("s"), PLAIN, session),
            (None, Some("s"), PLAIN, session),
            (None, Some("s"), INITIALIZE, negotiation),
            (Some("2025-06-18"), None, INITIALIZE, negotiation),
            (Some("2026-07-28"), None, PLAIN, RequestEra::Modern),
            (Some("2026-07-28"), Some("s"), PLAIN, RequestEra::Modern),
            (Some("2026-07-28"), None, INITIALIZE, RequestEra::Modern),
            (Some("2099-01-01"), None, PLAIN, RequestEra::Modern),
            (Some(""), None, PLAIN, RequestEra::Modern),
            (None, None, DECLARED, RequestEra::Modern),
            (Some("2025-11-25"), Some("s"), DECLARED, RequestEra::Modern),
            // For batches and unreadable bodies only the header decides.
            (None, None, "[1]", sessionless(V2025_03_26)),
            (None, Some("s"), "[1]", session),
            (Some("2026-07-28"), None, "[1]", RequestEra::Modern),
            (None, None, "{", sessionless(V2025_03_26)),
            (Some("2099-01-01"), None, "{", RequestEra::Modern),
        ] {
            let decided = decide(&headers(version, session_id), &parse(body.as_bytes()));
            assert_eq!(decided, expected, "{version:?} {session_id:?} {body}");
        }
    }

    #[test]
    fn a_version_header_that_contradicts_itself_names_no_legacy_revision() {
        let mut headers = headers(None, None);
        headers.protocol_version = Field::Malformed("2025-06-18, 2025-11-25".to_owned());
        assert_eq!(decide(&headers, &parse(PLAIN.as_bytes())), RequestEra::Modern);
    }

    #[test]
    fn an_error_is_written_in_the_version_that_is_named() {
        let named = |version, body: &str| named_version(&headers(version, None), &parse(body.as_bytes()));
        let none: Option<ProtocolVersion> = None;
        assert_eq!(named(Some("2025-11-25"), "{"), Some(V2025_11_25));
        assert_eq!(named(Some("2025-11-25"), DECLARED), Some(V2025_11_25));
        assert_eq!(named(None, DECLARED), Some(V2026_07_28));
        assert_eq!(named(None, PLAIN), none);
        assert_eq!(named(Some("2099-01-01"), DECLARED), none);
    }
}
