//! Invalid messages to the MCP endpoint.

use serde_json::{Value, json};

use super::Fixture;
use crate::support::answers::{error, message};

const MODERN: &str = "2026-07-28";

fn parse_error(why: &str) -> Value {
    error(400, "null", -32700, "parse_error", why)
}

fn invalid(id: &str, why: &str) -> Value {
    error(400, id, -32600, "invalid_request", why)
}

fn bad_params(why: &str) -> Value {
    error(200, "7", -32602, "invalid_params", why)
}

#[tokio::test]
async fn invalid_message_is_refused_with_its_id_if_present() {
    let mut fixture = Fixture::new().await;
    let not = |why: &str| parse_error(&format!("the body is not JSON: {why}"));
    let utf16: Vec<u8> = r#"{"id":7}"#.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let cases: Vec<(Vec<u8>, Value)> = vec![
        (b"".into(), not("EOF while parsing a value at line 1 column 0")),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"ping""#.into(),
            not("EOF while parsing an object at line 1 column 39"),
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"ping"} x"#.into(),
            not("trailing characters at line 1 column 42"),
        ),
        (
            br#"{"jsonrpc":"2.0","id":7,"method":"ping"}{}"#.into(),
            not("trailing characters at line 1 column 41"),
        ),
        (br#"{"jsonrpc":"2.0","id":07,"method":"ping"}"#.into(), not("invalid number at line 1 column 24")),
        (b"\xef\xbb\xbf{}".into(), not("expected value at line 1 column 1")),
        (utf16, not("key must be a string at line 1 column 2")),
        (b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"\xff\"}".into(), parse_error("the body is not UTF-8")),
        (b"\x00".into(), not("expected value at line 1 column 1")),
        (b"jsonrpc=2.0&id=7".into(), not("expected value at line 1 column 1")),
    ];
    for (body, expected) in cases {
        assert_eq!(fixture.post(&[], body.clone()).await, expected, "{}", String::from_utf8_lossy(&body));
    }
    let no_id = "id must be an integer or a string of at most 1024 bytes";
    let huge = format!("\"{}\"", "a".repeat(1_025));
    let digits = "9".repeat(1_025);
    for id in ["null", "1.5", "1.0", "1e3", "-1E2", "true", "{}", "[]", "[7]", &huge, &digits] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        assert_eq!(fixture.post(&[], body).await, invalid("null", no_id), "{id}");
    }
    for (body, expected) in [
        ("null", invalid("null", "a message must be an object")),
        ("7", invalid("null", "a message must be an object")),
        ("\"ping\"", invalid("null", "a message must be an object")),
        ("{}", invalid("null", "jsonrpc must be \"2.0\"")),
        (r#"{"id":7,"method":"ping"}"#, invalid("7", "jsonrpc must be \"2.0\"")),
        (r#"{"jsonrpc":"1.0","id":7,"method":"ping"}"#, invalid("7", "jsonrpc must be \"2.0\"")),
        (r#"{"jsonrpc":2.0,"id":7,"method":"ping"}"#, invalid("7", "jsonrpc must be \"2.0\"")),
        (r#"{"jsonrpc":"2.0","id":7}"#, invalid("7", "method is required")),
        (r#"{"jsonrpc":"2.0","id":7,"method":1}"#, invalid("7", "method must be a string")),
        (r#"{"jsonrpc":"2.0","id":7,"method":null}"#, invalid("7", "method must be a string")),
        (r#"{"jsonrpc":"2.0","id":7,"method":"\ud800"}"#, invalid("7", "method must be a string")),
        (r#"{"jsonrpc":"2.0","method":"ping"}"#, invalid("null", "a request needs an id")),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":null}"#,
            invalid("7", "params must be an object"),
        ),
        (r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":1}"#, invalid("7", "params must be an object")),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":"\ud800"}"#,
            invalid("7", "a message and its params must be objects"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","params":{"_meta":"\ud800"}}"#,
            invalid("7", "a message and its params must be objects"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","result":{}}"#,
            invalid("7", "a message has either a method or a result or an error"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"result":{},"error":{}}"#,
            invalid("null", "a response has either a result or an error"),
        ),
        (r#"{"jsonrpc":"2.0","result":{}}"#, invalid("null", "a response needs an id")),
        (
            r#"{"jsonrpc":"2.0","id":7,"id":8,"method":"ping"}"#,
            invalid("null", "the message has a member twice"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","method":"x"}"#,
            invalid("7", "the message has a member twice"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"ping","\u0070arams":{},"params":{}}"#,
            invalid("7", "the message has a member twice"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"uri":"x:1","uri":"x:1"}}"#,
            invalid("7", "params has a member twice"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"x","params":{"_meta":{"a":1,"a":1}}}"#,
            invalid("7", "params._meta has a member twice"),
        ),
    ] {
        assert_eq!(fixture.post(&[], body).await, expected, "{body}");
    }
    assert_eq!(fixture.check_unaffected().await, 10 + 11 + 24);
}

#[tokio::test]
async fn oversized_messages_are_refused_cheaply() {
    let mut fixture = Fixture::new().await;
    let nested = |open: &str, close: &str, levels: usize| {
        let value = format!("{}0{}", open.repeat(levels), close.repeat(levels));
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{{"a":{value}}}}}"#)
    };
    let too_deep = invalid("7", "the body nests deeper than 64 levels");
    let pong = message(&json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
    assert_eq!(fixture.post(&[], nested("[", "]", 62)).await, pong);
    for (open, close, levels) in [("[", "]", 63), ("{\"a\":", "}", 63), ("[", "]", 1_000_000)] {
        assert_eq!(fixture.post(&[], nested(open, close, levels)).await, too_deep, "{levels}");
    }
    assert_eq!(
        fixture.post(&[], "[".repeat(4 << 20)).await,
        invalid("null", "the body nests deeper than 64 levels")
    );

    let members = |count: usize| (0..count).map(|n| format!("\"{n}\":0")).collect::<Vec<_>>().join(",");
    let (few, many) = (members(1_000), members(350_000));
    assert!(many.len() > 3 << 20 && many.len() < 4 << 20);
    let with = |before: &str, after: &str, members: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping"{before}{members}{after}}}"#)
    };
    for (before, after, level) in [
        (",", "", "the message"),
        (r#","params":{"#, "}", "params"),
        (r#","params":{"_meta":{"#, "}}", "params._meta"),
    ] {
        assert_eq!(fixture.post(&[], with(before, after, &few)).await, pong, "{level}");
        let refused = invalid("7", &format!("{level} has more than 1024 members"));
        assert_eq!(fixture.post(&[], with(before, after, &many)).await, refused, "{level}");
    }
    // They do not matter in members that are not parsed.
    assert_eq!(fixture.post(&[], with(r#","params":{"a":{"#, "}}", &many)).await, pong);

    let large = error(413, "null", -31014, "payload_too_large", "the body is longer than 4194304 bytes");
    let request = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
    let padded = |length: usize| format!("{request}{}", " ".repeat(length - request.len()));
    assert_eq!(fixture.post(&[], padded(4 << 20)).await, pong);
    for length in [(4 << 20) + 1, 20 << 20] {
        assert_eq!(fixture.post(&[], padded(length)).await, large, "{length}");
    }
    let unauthenticated = |id| error(401, id, -31010, "unauthenticated", "a valid credential is required");
    let json = [("content-type", "application/json")];
    for (length, id) in [(64 << 10, "7"), ((64 << 10) + 1, "null"), (20 << 20, "null")] {
        assert_eq!(
            fixture.send("POST", "/a/mcp", &json, padded(length)).await,
            unauthenticated(id),
            "{length}"
        );
    }
    fixture.check_unaffected().await;
}

#[tokio::test]
async fn invalid_parameters_are_refused() {
    let mut fixture = Fixture::new().await;
    let no_uri = "params.uri is not an absolute URI of RFC 3986";
    let long = format!(r#"{{"uri":"x:{}"}}"#, "a".repeat(3_000));
    for (method, params, why) in [
        ("resources/read", "{}", "params.uri is required"),
        ("resources/read", "[]", "params must be an object"),
        ("resources/read", r#"["x:1"]"#, "params must be an object"),
        ("ping", "[1]", "params must be an object"),
        ("ping", r#"{"_meta":1}"#, "params._meta must be an object"),
        ("resources/read", r#"{"uri":1}"#, "params.uri must be a string"),
        ("resources/read", r#"{"uri":null}"#, "params.uri must be a string"),
        ("resources/read", r#"{"uri":["x:1"]}"#, "params.uri must be a string"),
        ("resources/read", r#"{"uri":"x:\ud800"}"#, "params.uri must be a string"),
        ("resources/read", r#"{"uri":""}"#, no_uri),
        ("resources/read", r#"{"uri":"x"}"#, no_uri),
        ("resources/read", r#"{"uri":"x:\u0000"}"#, no_uri),
        ("resources/read", r#"{"uri":"x:%zz"}"#, no_uri),
        ("resources/read", r#"{"uri":"ä:x"}"#, no_uri),
        ("resources/read", r#"{"uri":" x:1"}"#, no_uri),
        ("resources/read", &long, "params.uri is longer than 2048 bytes"),
        ("resources/list", r#"{"cursor":1}"#, "params.cursor must be a string"),
        ("resources/list", r#"{"cursor":""}"#, "cursor is not valid for this list"),
        ("resources/list", r#"{"cursor":"\u0000"}"#, "cursor is not valid for this list"),
        ("resources/list", r#"{"cursor":"AAAAAAAAAAAAAAAAAAAAAA"}"#, "cursor is not valid for this list"),
        ("resources/list", r#"{"_meta":[]}"#, "params._meta must be an object"),
        ("tools/list", r#"{"cursor":"x"}"#, "cursor is not valid for this list"),
        ("tools/call", "{}", "params.name is required"),
        ("tools/call", r#"{"name":"\u0000"}"#, "unknown tool: \0"),
        ("initialize", "{}", "params.protocolVersion is required"),
        (
            "initialize",
            r#"{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"\ud800","version":""}}"#,
            "params.clientInfo must have a name and a version, both strings",
        ),
    ] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{params}}}"#);
        assert_eq!(
            fixture.post(&[], body).await,
            bad_params(why),
            "{method} {}",
            &params[..params.len().min(60)]
        );
    }
    let shortened = format!("unknown method: {}…", "m".repeat(256));
    let method = "m".repeat(3_000);
    let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"{method}"}}"#);
    assert_eq!(fixture.post(&[], body).await, error(200, "7", -32601, "method_not_found", &shortened));
    let nul = r#"{"jsonrpc":"2.0","id":7,"method":"a\u0000b"}"#;
    assert_eq!(
        fixture.post(&[], nul).await,
        error(200, "7", -32601, "method_not_found", "unknown method: a\0b")
    );
    assert_eq!(fixture.check_unaffected().await, 28);
}

#[tokio::test]
async fn broken_modern_request_is_refused_without_inventing_an_id() {
    let mut fixture = Fixture::new().await;
    let version = ("mcp-protocol-version", MODERN);
    let no_version = "params._meta must have io.modelcontextprotocol/protocolVersion, a string";
    let no_capabilities = "params._meta must have io.modelcontextprotocol/clientCapabilities, an object";
    let meta =
        |rest: &str| format!(r#"{{"_meta":{{"io.modelcontextprotocol/protocolVersion":"{MODERN}"{rest}}}}}"#);
    let capabilities =
        |value: &str| meta(&format!(r#","io.modelcontextprotocol/clientCapabilities":{value}"#));
    let bad_meta = |why| error(400, "7", -32602, "invalid_params", why);
    let mismatch = |why| error(400, "7", -32020, "header_mismatch", why);
    for (params, more, expected) in [
        ("{}".to_owned(), None, bad_meta(no_version)),
        ("[]".to_owned(), None, bad_meta(no_version)),
        (r#"{"_meta":1}"#.to_owned(), None, bad_meta(no_version)),
        (
            r#"{"_meta":{"io.modelcontextprotocol/protocolVersion":"\ud800"}}"#.to_owned(),
            None,
            bad_meta(no_version),
        ),
        (meta(""), None, bad_meta(no_capabilities)),
        (capabilities("null"), None, bad_meta(no_capabilities)),
        (capabilities("[]"), None, bad_meta(no_capabilities)),
        (capabilities("{}"), None, mismatch("header mismatch: Mcp-Method is required")),
        (
            capabilities("{}"),
            Some(("mcp-method", "\u{e4}")),
            mismatch("header mismatch: Mcp-Method does not match the method"),
        ),
        (
            capabilities("{}"),
            Some(("mcp-method", "ping")),
            error(404, "7", -32601, "method_not_found", "unknown method: ping"),
        ),
        (meta(r#","a":1,"a":2"#), None, invalid("7", "params._meta has a member twice")),
    ] {
        let headers: Vec<_> = [Some(version), more].into_iter().flatten().collect();
        let body = format!(r#"{{"jsonrpc":"2.0","id":7,"method":"ping","params":{params}}}"#);
        assert_eq!(fixture.post(&headers, body).await, expected, "{params} {more:?}");
    }
    for (body, why) in [
        ("[]", "a batch has from 1 to 50 messages"),
        ("[{}]", "this revision has no batches"),
        ("[7]", "this revision has no batches"),
        (r#"{"jsonrpc":"2.0","id":7,"result":{}}"#, "this revision has no responses of clients"),
        (
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            "id must be an integer or a string of at most 1024 bytes",
        ),
        (r#"{"jsonrpc":"2.0","method":"server/discover"}"#, "a request needs an id"),
    ] {
        assert_eq!(fixture.post(&[version], body).await, invalid("", why), "{body}");
    }
    assert_eq!(fixture.check_unaffected().await, 17);
}
