//! Tests of the table of revisions, the headers and the era.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::{Field, McpHeaders, ProtocolVersion, RequestEra, TABLE, USUAL_ACCEPT, VersionSource};
use super::{V2024_11_05, V2025_03_26, V2025_11_25, V2026_07_28};
use crate::http::media_type;
use crate::mcp::wire::parse;

#[test]
fn table_rows_are_in_the_order_of_the_versions() {
    for (place, row) in TABLE.iter().enumerate() {
        assert_eq!(row.version as usize, place, "{}", row.text);
        assert_eq!(ProtocolVersion::parse(row.version.as_str()), Some(row.version));
    }
}

#[test]
fn the_supported_versions_are_listed_newest_first() {
    let listed: Vec<_> = ProtocolVersion::SUPPORTED.iter().map(|v| v.as_str()).collect();
    assert_eq!(listed, ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]);
}

#[test]
fn the_properties_of_each_revision_are_those_of_the_contract() {
    use super::ContentTypes::{Audio, First, ResourceLinks};
    use crate::model::method::Era::{Legacy, Modern};
    let of = |text| {
        ProtocolVersion::parse(text).map(|v| {
            let names = (v.omits_unreadable_ids(), v.knows_titles(), v.knows_completions());
            (v.era(), (v.knows_batches(), v.primes_streams()), names, v.content_types())
        })
    };
    assert_eq!(of("2026-07-28"), Some((Modern, (false, false), (true, true, true), ResourceLinks)));
    assert_eq!(of("2025-11-25"), Some((Legacy, (false, true), (true, true, true), ResourceLinks)));
    assert_eq!(of("2025-06-18"), Some((Legacy, (false, false), (false, true, true), ResourceLinks)));
    assert_eq!(of("2025-03-26"), Some((Legacy, (true, false), (false, false, true), Audio)));
    assert_eq!(of("2024-11-05"), Some((Legacy, (false, false), (false, false, false), First)));
    for unknown in ["", "2026-07-29", "2025-11-25 ", "DRAFT-2026-v1", "2025-6-18"] {
        assert_eq!(of(unknown), None, "{unknown:?}");
    }
}

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
    let (json, both) = (("content-type", "application/json"), ("accept", USUAL_ACCEPT[0]));
    assert_eq!(usual(&[json, both]), (true, true));
    assert_eq!(usual(&[("accept", USUAL_ACCEPT[1])]), (true, false));
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
        let decided = RequestEra::decide(&headers(version, session_id), &parse(body.as_bytes()));
        assert_eq!(decided, expected, "{version:?} {session_id:?} {body}");
    }
}

#[test]
fn a_version_header_that_contradicts_itself_names_no_legacy_revision() {
    let mut headers = headers(None, None);
    headers.protocol_version = Field::Malformed("2025-06-18, 2025-11-25".to_owned());
    assert_eq!(RequestEra::decide(&headers, &parse(PLAIN.as_bytes())), RequestEra::Modern);
}

#[test]
fn an_error_is_written_in_the_version_that_is_named() {
    let named = |version, body: &str| headers(version, None).named_version(&parse(body.as_bytes()));
    let none: Option<ProtocolVersion> = None;
    assert_eq!(named(Some("2025-11-25"), "{"), Some(V2025_11_25));
    assert_eq!(named(Some("2025-11-25"), DECLARED), Some(V2025_11_25));
    assert_eq!(named(None, DECLARED), Some(V2026_07_28));
    assert_eq!(named(None, PLAIN), none);
    assert_eq!(named(Some("2099-01-01"), DECLARED), none);
}
