//! The order of the checks of the modern era, one pair of faults after the other.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::dispatch::{ModernMessage, decode};
use super::error::ModernError;
use crate::mcp::version::McpHeaders;
use crate::mcp::wire::{MessageBody, error_message, parse};

const MAX_URIS: usize = 100;

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A request and its headers, good until something is done to it.
struct Sent {
    headers: Vec<(&'static str, String)>,
    body: Value,
}

impl Sent {
    fn new(method: &str, params: &Value) -> Self {
        let mut body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        body["params"]["_meta"] = json!({VERSION: "2026-07-28", CAPABILITIES: {}});
        let sent = Self { headers: Vec::new(), body };
        sent.header("mcp-protocol-version", "2026-07-28").header("mcp-method", method)
    }

    fn read() -> Self {
        Self::new("resources/read", &json!({"uri": "a:b"})).header("mcp-name", "a:b")
    }

    /// Sends this header instead of the one before, if there was one.
    fn header(mut self, name: &'static str, value: &str) -> Self {
        self = self.without(name);
        self.headers.push((name, value.to_owned()));
        self
    }

    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(sent, _)| *sent != name);
        self
    }

    fn body(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.body);
        self
    }

    fn meta(self, change: impl FnOnce(&mut serde_json::Map<String, Value>)) -> Self {
        self.body(|body| change(body["params"]["_meta"].as_object_mut().unwrap()))
    }

    fn version(self, header: &str, meta: &str) -> Self {
        self.header("mcp-protocol-version", header).meta(|members| {
            members.insert(VERSION.to_owned(), meta.into());
        })
    }

    fn answer(&self) -> String {
        answer(&self.headers, &self.body.to_string())
    }
}

/// What is read, or the status and the error as it is answered, in one line.
fn answer(headers: &[(&'static str, String)], body: &str) -> String {
    let headers: HeaderMap = headers
        .iter()
        .map(|(name, value)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        })
        .collect();
    let read = parse(body.as_bytes());
    let id = read.as_ref().map_or_else(|rejected| rejected.id, MessageBody::id);
    let decoded = match &read {
        Ok(incoming) => decode(&McpHeaders::read(&headers), incoming, MAX_URIS),
        Err(rejected) => Err(rejected.fault.clone().into()),
    };
    match decoded {
        Ok(ModernMessage::Notification) => "notification".to_owned(),
        Ok(ModernMessage::Call(call)) => format!("{} {:?}", call.id.as_json(), call.method),
        Err(error) => {
            let error = error.answer("r-1");
            let message = error_message(id, Some(crate::mcp::version::ProtocolVersion::V2026_07_28), &error);
            format!("{} {}", error.status.as_u16(), std::str::from_utf8(&message).unwrap())
        }
    }
}

/// An error with the id 1, as [`answer`] tells it.
fn error(status: u16, code: i32, message: &str, data: &str) -> String {
    let message = Value::from(message);
    format!(
        r#"{status} {{"jsonrpc":"2.0","id":1,"error":{{"code":{code},"message":{message},"data":{{{data}}}}}}}"#
    )
}

fn invalid_request(message: &str) -> String {
    error(400, -32600, message, r#""code":"invalid_request""#)
}

fn bad_meta(message: &str) -> String {
    error(
        400,
        -32602,
        &format!("params._meta must have io.modelcontextprotocol/{message}"),
        r#""code":"invalid_params""#,
    )
}

fn mismatch(message: &str) -> String {
    error(400, -32020, &format!("header mismatch: {message}"), r#""code":"header_mismatch""#)
}

fn unsupported(requested: &str) -> String {
    let all = r#"["2026-07-28","2025-11-25","2025-06-18","2025-03-26","2024-11-05"]"#;
    let data =
        format!(r#""code":"unsupported_protocol_version","requested":"{requested}","supported":{all}"#);
    error(400, -32022, &format!("unsupported protocol version: {requested}"), &data)
}

fn not_found(method: &str) -> String {
    error(404, -32601, &format!("unknown method: {method}"), r#""code":"method_not_found""#)
}

fn invalid_params(message: &str) -> String {
    error(200, -32602, message, r#""code":"invalid_params""#)
}

#[test]
fn good_requests_are_read() {
    assert_eq!(Sent::read().answer(), "1 Call(ReadResource { uri: \"a:b\" })");
    for (method, params, expected) in [
        ("server/discover", json!({}), "1 Discover"),
        ("resources/list", json!({}), "1 Call(List { list: Resources, cursor: None })"),
        ("resources/list", json!({"cursor": "c"}), "1 Call(List { list: Resources, cursor: Some(\"c\") })"),
        ("tools/list", json!({"x": 1}), "1 Call(ListTools { cursor: None })"),
    ] {
        assert_eq!(Sent::new(method, &params).answer(), expected);
    }
}

#[test]
fn the_envelope_is_checked_before_an_unknown_version() {
    let sent = Sent::read().without("mcp-method").version("2099-01-01", "2099-01-01");
    let sent = sent.body(|body| body["jsonrpc"] = "1.0".into());
    assert_eq!(sent.answer(), invalid_request("jsonrpc must be \"2.0\""));
    let unknown = [("mcp-protocol-version", "2099-01-01".to_owned())];
    for (body, message) in [
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":1}"#, "params must be an object"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","x":1,"x":1}"#, "the message has a member twice"),
    ] {
        assert_eq!(answer(&unknown, body), invalid_request(message));
    }
    let without_id = |message: &str| invalid_request(message).replace("\"id\":1,", "");
    let response = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    assert_eq!(answer(&unknown, response), without_id("this revision has no responses of clients"));
    assert_eq!(answer(&unknown, &format!("[{response}]")), without_id("this revision has no batches"));
}

#[test]
fn an_unknown_version_header_is_checked_before_a_missing_version_in_meta() {
    for (header, requested) in [("2099-01-01", "2099-01-01"), ("", ""), ("ä", "ä")] {
        let sent = Sent::read().header("mcp-protocol-version", header);
        assert_eq!(sent.meta(serde_json::Map::clear).answer(), unsupported(requested));
        let sent = Sent::read().header("mcp-protocol-version", header);
        assert_eq!(
            sent.meta(|meta| _ = meta.insert(VERSION.into(), 1.into())).answer(),
            unsupported(requested)
        );
    }
    let twice = [
        ("mcp-protocol-version", "2025-06-18".to_owned()),
        ("mcp-protocol-version", "2025-11-25".to_owned()),
    ];
    let body = Sent::read().meta(serde_json::Map::clear).body.to_string();
    let headers: HeaderMap = {
        let mut map = HeaderMap::new();
        for (name, value) in &twice {
            map.append(*name, value.parse().unwrap());
        }
        map
    };
    let incoming = parse(body.as_bytes()).unwrap();
    let expected = ModernError::UnsupportedVersion { requested: "2025-06-18, 2025-11-25".to_owned() };
    assert_eq!(decode(&McpHeaders::read(&headers), &incoming, MAX_URIS).unwrap_err(), expected);
}

#[test]
fn a_missing_version_in_meta_is_checked_before_the_version_header() {
    let expected = bad_meta("protocolVersion, a string");
    let sent = || Sent::read().without("mcp-protocol-version");
    assert_eq!(sent().meta(serde_json::Map::clear).answer(), expected);
    assert_eq!(sent().meta(|meta| _ = meta.insert(VERSION.into(), Value::Null)).answer(), expected);
    assert_eq!(sent().body(|body| body["params"]["_meta"] = json!([1])).answer(), expected);
    assert_eq!(sent().body(|body| body["params"] = json!([1])).answer(), expected);
    assert_eq!(sent().body(|body| _ = body.as_object_mut().unwrap().remove("params")).answer(), expected);
    // A header that names a served version is no reason to stop before.
    let served = Sent::read().header("mcp-protocol-version", "2026-07-28").meta(serde_json::Map::clear);
    assert_eq!(served.answer(), expected);
}

#[test]
fn the_version_header_is_checked_before_an_unsupported_version() {
    let absent = Sent::read().version("", "2099-01-01").without("mcp-protocol-version");
    assert_eq!(absent.answer(), mismatch("MCP-Protocol-Version is required"));
    for (header, meta) in
        [("2026-07-28", "2099-01-01"), ("2025-11-25", "2099-01-01"), ("2099-01-01", "2026-07-28")]
    {
        let sent = Sent::read().version(header, meta);
        assert_eq!(
            sent.answer(),
            mismatch("MCP-Protocol-Version does not match params._meta"),
            "{header} {meta}"
        );
    }
}

#[test]
fn an_unsupported_version_is_checked_before_capabilities() {
    for version in ["2099-01-01", "2025-11-25", "2024-11-05", ""] {
        let sent = Sent::read().version(version, version).meta(|meta| _ = meta.remove(CAPABILITIES));
        assert_eq!(sent.answer(), unsupported(version));
    }
    let long = "9".repeat(300);
    let short = format!("{}…", "9".repeat(256));
    assert_eq!(Sent::read().version(&long, &long).answer(), unsupported(&short));
}

#[test]
fn capabilities_come_before_the_method_header() {
    let expected = bad_meta("clientCapabilities, an object");
    let sent = || Sent::read().without("mcp-method");
    assert_eq!(sent().meta(|meta| _ = meta.remove(CAPABILITIES)).answer(), expected);
    assert_eq!(sent().meta(|meta| _ = meta.insert(CAPABILITIES.into(), json!([]))).answer(), expected);
}

#[test]
fn the_method_header_is_checked_before_name_header_and_method() {
    let required = mismatch("Mcp-Method is required");
    let differs = mismatch("Mcp-Method does not match the method");
    assert_eq!(Sent::read().without("mcp-method").without("mcp-name").answer(), required);
    assert_eq!(Sent::read().header("mcp-method", "Resources/Read").answer(), differs);
    assert_eq!(Sent::new("no/such", &json!({})).without("mcp-method").answer(), required);
    assert_eq!(Sent::new("no/such", &json!({})).header("mcp-method", "resources/list").answer(), differs);
}

#[test]
fn the_name_header_is_checked_before_method_and_parameters() {
    let required = mismatch("Mcp-Name is required for this method");
    let differs = mismatch("Mcp-Name does not match params.uri or params.name");
    assert_eq!(Sent::read().without("mcp-name").answer(), required);
    assert_eq!(Sent::new("prompts/get", &json!({"name": "p"})).answer(), required);
    assert_eq!(Sent::new("tools/call", &json!({"name": "t"})).answer(), required);
    for (uri, header) in [
        (json!("no uri"), "other"),
        (json!("a:b"), "A:B"),
        (json!("a:b"), "=?base64?YTpi"),
        (json!("a:b"), "=?base64?YTpi!?="),
        (json!("a:b"), "=?BASE64?YTpi?="),
        (json!("=?base64?YTpi?="), "=?base64?YTpi?="),
        (json!("ä"), "ä"),
        (json!(5), "5"),
        (json!(null), "null"),
    ] {
        let sent = Sent::new("resources/read", &json!({"uri": uri})).header("mcp-name", header);
        assert_eq!(sent.answer(), differs, "{uri} {header}");
    }
    let nothing = Sent::new("resources/read", &json!({}));
    assert_eq!(nothing.answer(), required);
}

#[test]
fn a_name_header_of_another_method_is_not_looked_at() {
    let sent = Sent::new("resources/list", &json!({"uri": "a:b"})).header("mcp-name", "any");
    assert_eq!(sent.answer(), "1 Call(List { list: Resources, cursor: None })");
}

#[test]
fn a_name_may_come_in_base64() {
    let sent = Sent::read().header("mcp-name", "=?base64?YTpi?=");
    assert_eq!(sent.answer(), "1 Call(ReadResource { uri: \"a:b\" })");
    // A name that looks like base64 has to come in base64.
    let name = "=?base64?YTpi?=";
    let sent = Sent::new("tools/call", &json!({"name": name}))
        .header("mcp-name", &format!("=?base64?{}?=", STANDARD.encode(name)));
    assert_eq!(sent.answer(), "1 Call(CallTool { name: \"=?base64?YTpi?=\", arguments: \"{}\" })");
}

#[test]
fn the_method_is_checked_before_its_parameters() {
    let cursor = json!({"cursor": 1});
    for method in
        ["initialize", "ping", "resources/subscribe", "resources/unsubscribe", "logging/setLevel", "no/such"]
    {
        assert_eq!(Sent::new(method, &cursor).answer(), not_found(method));
    }
}

#[test]
fn parameters_are_refused_with_200() {
    let read = Sent::new("resources/read", &json!({"uri": "no uri"})).header("mcp-name", "no uri");
    assert_eq!(read.answer(), invalid_params("params.uri is not an absolute URI of RFC 3986"));
    let list = Sent::new("resources/list", &json!({"cursor": 1}));
    assert_eq!(list.answer(), invalid_params("params.cursor must be a string"));
    let get = Sent::new("prompts/get", &json!({"name": "t", "arguments": []})).header("mcp-name", "t");
    assert_eq!(get.answer(), invalid_params("params.arguments must be an object"));
    let list = Sent::new("tools/list", &json!({"cursor": 1}));
    assert_eq!(list.answer(), invalid_params("params.cursor must be a string"));
}

#[test]
fn the_rules_of_headers_are_not_for_notifications() {
    let body = r#"{"jsonrpc":"2.0","method":"notifications/unknown"}"#;
    assert_eq!(answer(&[], body), "notification");
    assert_eq!(answer(&[("mcp-protocol-version", "2099-01-01".to_owned())], body), "notification");
}

proptest! {
    #[test]
    fn every_name_passes_in_base64_and_no_other_does(name: String, other: String) {
        prop_assume!(name != other);
        let header = format!("=?base64?{}?=", STANDARD.encode(&name));
        let sent = |name: &str| Sent::new("tools/call", &json!({"name": name})).header("mcp-name", &header).answer();
        prop_assert!(sent(&name).contains("CallTool"));
        prop_assert_eq!(sent(&other), mismatch("Mcp-Name does not match params.uri or params.name"));
    }
}
