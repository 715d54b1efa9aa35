//! Protocol revisions: negotiation, era detection, and methods that exist in some revisions only.

use serde_json::{Value, json};

use super::{MODERN, REVISIONS, call_as, meta, post, request, result_as};
use crate::support::answers::{error, exact, message};
use crate::support::app::gateway;

const SUPPORTED: [&str; 5] = ["2026-07-28", "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

/// The declared capabilities.
fn capabilities() -> Value {
    json!({
        "resources": {"subscribe": true, "listChanged": true}, "prompts": {"listChanged": true},
        "completions": {}, "tools": {"listChanged": true},
        "extensions": {"io.modelcontextprotocol/skills": {"directoryRead": true}},
    })
}

#[tokio::test]
async fn initialize_negotiates_the_protocol_version() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let described = json!({"name": "Research", "title": "研究", "instructions": "Read."});
    assert_eq!(replica.admin("PATCH", "/agents/a", Some(described)).await.status, 200);
    for (requested, agreed) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2025-06-18", "2025-06-18"),
        ("2025-11-25", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        ("2099-01-01", "2025-11-25"),
        ("", "2025-11-25"),
    ] {
        let client = json!({"name": "c", "version": "1"});
        let params =
            json!({"protocolVersion": requested, "capabilities": {"roots": {}}, "clientInfo": client});
        let mut server = json!({"name": "Research", "title": "研究", "version": env!("CARGO_PKG_VERSION")});
        if agreed < "2025-06-18" {
            server.as_object_mut().unwrap().remove("title");
        }
        let mut served = capabilities();
        served["logging"] = json!({});
        if agreed == "2024-11-05" {
            served.as_object_mut().unwrap().remove("completions");
        }
        let expected = json!({
            "protocolVersion": agreed, "capabilities": served, "serverInfo": server, "instructions": "Read.",
        });
        // The session that it names is ignored.
        for more in [&[][..], &[("mcp-session-id", "gone")][..]] {
            let mut headers = vec![("x-agent-api-key", key.as_str())];
            headers.extend_from_slice(more);
            let answer = post(&replica, "/a/mcp", &headers, request("initialize", &params).to_string()).await;
            let mut answer = exact(&answer);
            answer["headers"].as_object_mut().unwrap().remove("mcp-session-id");
            assert_eq!(
                answer,
                message(&json!({"jsonrpc": "2.0", "id": 7, "result": expected})),
                "{requested}"
            );
        }
    }
}

#[tokio::test]
async fn initialize_names_missing_parameters() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let whole = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    for (member, value, complaint) in [
        ("protocolVersion", None, "params.protocolVersion is required"),
        ("protocolVersion", Some(json!(1)), "params.protocolVersion must be a string"),
        ("capabilities", None, "params.capabilities is required"),
        ("capabilities", Some(json!([])), "params.capabilities must be an object"),
        ("clientInfo", None, "params.clientInfo is required"),
        ("clientInfo", Some(json!("c")), "params.clientInfo must be an object"),
        (
            "clientInfo",
            Some(json!({"name": "c"})),
            "params.clientInfo must have a name and a version, both strings",
        ),
        ("_meta", Some(json!(1)), "params._meta must be an object"),
    ] {
        let mut params = whole.clone();
        match value {
            Some(value) => params[member] = value,
            None => _ = params.as_object_mut().unwrap().remove(member),
        }
        let answer = call_as(&replica, &key, None, "initialize", params).await;
        assert_eq!(exact(&answer), error(200, "7", -32602, "invalid_params", complaint));
    }
}

#[tokio::test]
async fn each_era_has_its_own_methods() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    for revision in REVISIONS {
        let modern = revision == Some(MODERN);
        let call = async |method: &str, params: Value| {
            exact(&call_as(&replica, &key, revision, method, params).await)
        };
        let unknown = |method: &str| {
            let status = if modern { 404 } else { 200 };
            error(status, "7", -32601, "method_not_found", &format!("unknown method: {method}"))
        };
        let pong = message(&json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
        assert_eq!(call("ping", json!({})).await, if modern { unknown("ping") } else { pong });
        let discovery = json!({"supportedVersions": SUPPORTED, "capabilities": capabilities()});
        let discovered = if modern { result_as(revision, &discovery) } else { unknown("server/discover") };
        assert_eq!(call("server/discover", json!({})).await, discovered);
        let no_tool = error(200, "7", -32602, "invalid_params", "unknown tool: hammer");
        assert_eq!(call("tools/call", json!({"name": "hammer"})).await, no_tool);
        for method in ["resources/subscribe", "resources/unsubscribe", "logging/setLevel"] {
            let sentence = format!("{method} needs a session; send initialize first");
            let refused = error(400, "7", -32600, "session_required", &sentence);
            assert_eq!(call(method, json!({})).await, if modern { unknown(method) } else { refused });
        }
        for method in ["", "Resources/list", "resources/list/", "nothing/such"] {
            assert_eq!(call(method, json!({})).await, unknown(method), "{revision:?} {method:?}");
        }
    }
    let initialize = call_as(&replica, &key, Some(MODERN), "initialize", json!({})).await;
    assert_eq!(exact(&initialize), error(404, "7", -32601, "method_not_found", "unknown method: initialize"));
}

#[tokio::test]
async fn discovery_returns_the_agents_description() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let described = json!({"name": "Research", "title": "研究", "instructions": "Read.", "access": "public"});
    assert_eq!(replica.admin("PATCH", "/agents/a", Some(described)).await.status, 200);
    let server = json!({"name": "Research", "title": "研究", "version": env!("CARGO_PKG_VERSION")});
    let expected = json!({
        "resultType": "complete", "supportedVersions": SUPPORTED, "capabilities": capabilities(),
        "instructions": "Read.", "ttlMs": 0, "cacheScope": "public",
        "_meta": {"io.modelcontextprotocol/serverInfo": server},
    });
    let answer = call_as(&replica, &key, Some(MODERN), "server/discover", json!({})).await;
    assert_eq!(exact(&answer), message(&json!({"jsonrpc": "2.0", "id": 7, "result": expected})));
}

#[tokio::test]
async fn notifications_are_accepted_and_responses_in_legacy_only() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let accepted = json!({"status": 202, "headers": {}, "body": null});
    for revision in REVISIONS {
        let mut headers = vec![("x-agent-api-key", key.as_str())];
        headers.extend(revision.map(|revision| ("mcp-protocol-version", revision)));
        for notification in [
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
            json!({"jsonrpc": "2.0", "method": "unknown/method", "params": {"_meta": {}}}),
            json!({"jsonrpc": "2.0", "method": "x", "params": {"_meta": meta(revision.unwrap_or(MODERN))}}),
        ] {
            let answer = exact(&post(&replica, "/a/mcp", &headers, notification.to_string()).await);
            assert_eq!(answer, accepted, "{revision:?} {notification}");
        }
        for response in [
            json!({"jsonrpc": "2.0", "id": 1, "result": {}}),
            json!({"jsonrpc": "2.0", "id": "a", "error": {"code": 1, "message": ""}}),
        ] {
            let answer = exact(&post(&replica, "/a/mcp", &headers, response.to_string()).await);
            let refusal = "this revision has no responses of clients";
            let refused = error(400, "", -32600, "invalid_request", refusal);
            assert_eq!(answer, if revision == Some(MODERN) { refused } else { accepted.clone() });
        }
    }
}

#[tokio::test]
async fn unreadable_id_is_answered_as_the_revision_defines() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    for revision in REVISIONS {
        let mut headers = vec![("x-agent-api-key", key.as_str())];
        headers.extend(revision.map(|revision| ("mcp-protocol-version", revision)));
        let omitted = matches!(revision, Some(MODERN | "2025-11-25"));
        let id = if omitted { "" } else { "null" };
        for (body, code, name, sentence) in [
            (
                "{",
                -32700,
                "parse_error",
                "the body is not JSON: EOF while parsing an object at line 1 column 1",
            ),
            (
                r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
                -32600,
                "invalid_request",
                "id must be an integer or a string of at most 1024 bytes",
            ),
            (
                r#"{"jsonrpc":"2.0","method":"resources/list"}"#,
                -32600,
                "invalid_request",
                "a request needs an id",
            ),
        ] {
            let answer = exact(&post(&replica, "/a/mcp", &headers, body).await);
            assert_eq!(answer, error(400, id, code, name, sentence), "{revision:?} {body}");
        }
        // Refusals before the body is parsed read its id as well.
        for (body, id) in [(r#"{"jsonrpc":"2.0","id":"ä","method":"ping"}"#, "\"ä\""), ("{", id), ("", id)]
        {
            let anonymous = exact(&post(&replica, "/a/mcp", &headers[1..], body).await);
            assert_eq!(
                anonymous,
                error(401, id, -31010, "unauthenticated", "a valid credential is required")
            );
        }
    }
}

#[tokio::test]
async fn request_id_is_returned_byte_for_byte() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let headers = [("x-agent-api-key", key.as_str())];
    let long = format!("\"{}\"", "a".repeat(1_024));
    for id in [
        "0",
        "-0",
        "-7",
        "9007199254740993",
        "123456789012345678901234567890",
        "\"\"",
        r#""\u00e4\/\ud800""#,
        "\"ä\"",
        &long,
    ] {
        for (method, rest) in [
            ("ping", r#""result":{}"#),
            (
                "x",
                r#""error":{"code":-32601,"message":"unknown method: x","data":{"code":"method_not_found"}}"#,
            ),
        ] {
            let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}"}}"#);
            let answer = post(&replica, "/a/mcp", &headers, body).await.text();
            assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":{id},{rest}}}"#));
        }
    }
}

#[tokio::test]
async fn unknown_session_is_not_found() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    for revision in &REVISIONS[..5] {
        let mut headers = vec![("x-agent-api-key", key.as_str()), ("mcp-session-id", "unknown-s")];
        headers.extend(revision.map(|revision| ("mcp-protocol-version", revision)));
        let answer = post(&replica, "/a/mcp", &headers, request("ping", &json!({})).to_string()).await;
        let expected = error(404, "7", -32001, "session_not_found", "session not found");
        assert_eq!(exact(&answer), expected, "{revision:?}");
    }
}

#[tokio::test]
async fn unreadable_body_is_answered_in_the_sessions_revision() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    for (version, has_id) in [("2025-11-25", false), ("2025-06-18", true)] {
        let client = json!({"name": "c", "version": "1"});
        let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
        let key = ("x-agent-api-key", key.as_str());
        let opened = post(&replica, "/a/mcp", &[key], request("initialize", &params).to_string()).await;
        let session = ("mcp-session-id", opened.header("mcp-session-id").unwrap());
        let answer = post(&replica, "/a/mcp", &[key, session], "{".to_owned()).await.json();
        assert_eq!(answer["error"]["code"], -32700);
        assert_eq!(answer.get("id"), has_id.then_some(&Value::Null), "{version}");
    }
}
