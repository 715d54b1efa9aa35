//! The rules of the modern era, in their order.

use serde_json::{Value, json};
use waggle::store::StoreOptions;

use super::{MODERN, call_as, meta, post};
use crate::support::answers::{error, exact};
use crate::support::app::{Builder, gateway};
use crate::support::cluster::database;
use crate::support::faults::Fault;
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

fn read(meta: &Value) -> String {
    let params = json!({"uri": "x:1", "_meta": meta});
    json!({"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": params}).to_string()
}

/// A rule, the headers and `_meta` that violate it, and the answer.
type Case<'a> = (&'a str, Vec<(&'a str, &'a str)>, Value, Value);

fn mismatch(sentence: &str) -> Value {
    error(400, "7", -32020, "header_mismatch", &format!("header mismatch: {sentence}"))
}

fn unsupported(version: &str) -> Value {
    let sentence = format!("unsupported protocol version: {version}");
    let mut expected = error(400, "7", -32022, "unsupported_protocol_version", &sentence);
    let data = &mut expected["body"]["error"]["data"];
    data["requested"] = json!(version);
    data["supported"] = json!(["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]);
    expected
}

#[tokio::test]
async fn header_rules_are_checked_in_the_order_of_the_contract() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let no_version = "params._meta must have io.modelcontextprotocol/protocolVersion, a string";
    let no_capabilities = "params._meta must have io.modelcontextprotocol/clientCapabilities, an object";
    let bad = |sentence| error(400, "7", -32602, "invalid_params", sentence);
    let meta_of = |version: Value| json!({"io.modelcontextprotocol/protocolVersion": version});
    let (version, method, name) = ("mcp-protocol-version", "mcp-method", "mcp-name");
    let good = [(version, MODERN), (method, "resources/read"), (name, "x:1")];
    let cases: Vec<Case<'_>> = vec![
        (
            "2: an unknown version in the header only",
            vec![(version, "2099-01-01")],
            json!({}),
            unsupported("2099-01-01"),
        ),
        (
            "2: and two that differ",
            vec![(version, "2025-11-25"), (version, "2025-06-18")],
            json!({}),
            unsupported("2025-11-25, 2025-06-18"),
        ),
        ("3: none in _meta", vec![(version, MODERN)], json!({}), bad(no_version)),
        ("3: no string", vec![(version, MODERN)], meta_of(json!(1)), bad(no_version)),
        ("3: no string, without a header", vec![], meta_of(Value::Null), bad(no_version)),
        ("4: no header", vec![], meta_of(json!(MODERN)), mismatch("MCP-Protocol-Version is required")),
        (
            "4: before the version is checked",
            vec![],
            meta_of(json!("2099-01-01")),
            mismatch("MCP-Protocol-Version is required"),
        ),
        (
            "4: another",
            vec![(version, "2025-11-25")],
            meta_of(json!(MODERN)),
            mismatch("MCP-Protocol-Version does not match params._meta"),
        ),
        (
            "4: an unknown one",
            vec![(version, "2099-01-01")],
            meta_of(json!(MODERN)),
            mismatch("MCP-Protocol-Version does not match params._meta"),
        ),
        (
            "5: not served",
            vec![(version, "2099-01-01")],
            meta_of(json!("2099-01-01")),
            unsupported("2099-01-01"),
        ),
        (
            "5: served in the other era",
            vec![(version, "2025-11-25")],
            meta_of(json!("2025-11-25")),
            unsupported("2025-11-25"),
        ),
        ("6: no capabilities", vec![(version, MODERN)], meta_of(json!(MODERN)), bad(no_capabilities)),
        ("7: no method", vec![(version, MODERN)], meta(MODERN), mismatch("Mcp-Method is required")),
        (
            "7: another method",
            vec![(version, MODERN), (method, "resources/list")],
            meta(MODERN),
            mismatch("Mcp-Method does not match the method"),
        ),
        (
            "7: another case",
            vec![(version, MODERN), (method, "Resources/Read")],
            meta(MODERN),
            mismatch("Mcp-Method does not match the method"),
        ),
        ("7: no name", good[..2].to_vec(), meta(MODERN), mismatch("Mcp-Name is required for this method")),
        (
            "7: another name",
            vec![good[0], good[1], (name, "x:2")],
            meta(MODERN),
            mismatch("Mcp-Name does not match params.uri or params.name"),
        ),
        (
            "7: no base64",
            vec![good[0], good[1], (name, "=?base64?x:1?=")],
            meta(MODERN),
            mismatch("Mcp-Name does not match params.uri or params.name"),
        ),
    ];
    for (rule, headers, meta, expected) in cases {
        let mut sent = vec![("x-agent-api-key", key.as_str())];
        sent.extend(headers);
        let answer = exact(&post(&replica, "/a/mcp", &sent, read(&meta)).await);
        assert_eq!(answer, expected, "{rule}");
        // Rule 1: the envelope is checked before everything else. Without a version in the header or in `_meta` a
        // request is legacy.
        let broken = read(&meta).replace("\"2.0\"", "\"1.0\"");
        let answer = exact(&post(&replica, "/a/mcp", &sent, broken).await);
        assert_eq!(answer, error(400, "7", -32600, "invalid_request", "jsonrpc must be \"2.0\""), "{rule}");
    }
}

#[tokio::test]
async fn method_is_checked_after_headers_and_before_parameters() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:%C3%BC", "text").await;
    let call = async |method: &str, name: Option<&str>, mut params: Value| {
        params["_meta"] = meta(MODERN);
        let mut headers =
            vec![("x-agent-api-key", key.as_str()), ("mcp-protocol-version", MODERN), ("mcp-method", method)];
        headers.extend(name.map(|name| ("mcp-name", name)));
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).to_string();
        exact(&post(&replica, "/a/mcp", &headers, body).await)
    };
    let bad = |sentence| error(200, "7", -32602, "invalid_params", sentence);
    assert_eq!(call("nope", None, json!({})).await["status"], 404);
    assert_eq!(call("resources/list", Some("ignored"), json!({})).await["status"], 200);
    let no_uri = "params.uri is not an absolute URI of RFC 3986";
    assert_eq!(call("resources/read", Some("relative"), json!({"uri": "relative"})).await, bad(no_uri));
    let differs = mismatch("Mcp-Name does not match params.uri or params.name");
    assert_eq!(call("resources/read", Some("x:1"), json!({})).await, differs);
    assert_eq!(call("resources/read", Some("1"), json!({"uri": 1})).await, differs);
    let unknown_tool = bad("unknown tool: ä");
    assert_eq!(call("tools/call", Some("=?base64?w6Q=?="), json!({"name": "ä"})).await, unknown_tool);
    let prompt = call("prompts/get", None, json!({"name": "p"})).await;
    assert_eq!(prompt, mismatch("Mcp-Name is required for this method"), "before the method is checked");
    // The name in base64 is the same name.
    let uri = json!({"uri": "x:%C3%BC"});
    for name in ["x:%C3%BC", "=?base64?eDolQzMlQkM=?=", "  x:%C3%BC\t"] {
        assert_eq!(call("resources/read", Some(name), uri.clone()).await["status"], 200, "{name}");
    }
}

#[tokio::test]
async fn era_is_not_decided_by_session_or_headers() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "text").await;
    let modern = [
        ("x-agent-api-key", key.as_str()),
        ("mcp-protocol-version", MODERN),
        ("mcp-method", "resources/read"),
        ("mcp-name", "x:1"),
        ("mcp-session-id", "ignored"),
    ];
    let answer = exact(&post(&replica, "/a/mcp", &modern, read(&meta(MODERN))).await);
    assert_eq!(answer["body"]["result"]["resultType"], "complete");
    let plain = json!({"jsonrpc": "2.0", "id": 7, "method": "resources/read", "params": {"uri": "x:1"}});
    let legacy = [modern[0], ("mcp-method", "something/else"), ("mcp-name", "x:2")];
    let answer = exact(&post(&replica, "/a/mcp", &legacy, plain.to_string()).await);
    let expected = json!({"contents": [{"uri": "x:1", "text": "text"}]});
    assert_eq!(answer, super::result_as(None, &expected));
}

#[tokio::test]
async fn results_may_be_cached_for_the_time_of_the_setting() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_MCP__TTL_MS", 1_234).start().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "text").await;
    for (method, params) in [
        ("server/discover", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("prompts/list", json!({})),
        ("tools/list", json!({})),
        ("skills/list", json!({})),
        ("resources/read", json!({"uri": "x:1"})),
    ] {
        let answer = call_as(&replica, &key, Some(MODERN), method, params).await.json();
        assert_eq!(answer["result"]["ttlMs"], 1_234, "{method}: {answer}");
    }
}

#[tokio::test]
async fn discovery_is_answered_from_memory() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let through = |options: &mut StoreOptions| {
        options.connect = proxy.options.clone();
        options.listen = proxy.options.clone();
    };
    let replica = Builder::new(&database).store(through).start().await;
    let key = replica.acme("a").await;
    let discover = async || exact(&call_as(&replica, &key, Some(MODERN), "server/discover", json!({})).await);
    let before = discover().await;
    assert_eq!(before["status"], 200);
    proxy.fail(Fault::Refused);
    let is_away = async || replica.http.get("/readyz").await.text().contains("database_unreachable");
    eventually("the database is away", is_away).await;
    for _ in 0..3 {
        assert_eq!(discover().await, before);
    }
}
