//! Sessions of the legacy revisions; their streams are not part of the corpus.

use serde_json::{Value, json};

use super::{LEGACY, message, post};
use crate::case::{Case, Source};

/// Valid and invalid parameters of `initialize`.
fn handshakes() -> Vec<(&'static str, Value)> {
    let client = json!({"name": "corpus", "version": "1"});
    let initialize_with =
        |version: Value| json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client});
    vec![
        ("nothing", json!({})),
        ("no version", json!({"capabilities": {}, "clientInfo": client})),
        ("version is a number", initialize_with(json!(20251125))),
        ("an unknown version", initialize_with(json!("2023-01-01"))),
        ("the modern version", initialize_with(json!("2026-07-28"))),
        ("an empty version", initialize_with(json!(""))),
        ("no capabilities", json!({"protocolVersion": "2025-06-18", "clientInfo": client})),
        ("no client", json!({"protocolVersion": "2025-06-18", "capabilities": {}})),
        ("client is a text", json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": "x"})),
        (
            "capabilities are a list",
            json!({"protocolVersion": "2025-06-18", "capabilities": [], "clientInfo": client}),
        ),
        (
            "many capabilities",
            json!({"protocolVersion": "2025-06-18", "capabilities": {"roots": {"listChanged": true},
            "sampling": {}, "elicitation": {}, "experimental": {"x": {}}}, "clientInfo": client}),
        ),
    ]
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, params) in handshakes() {
        cases.push(post(format!("initialize: {name}"), "alpha", &message("initialize", &params)).key("mcp"));
    }
    for (version, name) in LEGACY.into_iter().zip(["session-a", "session-b", "session-c", "session-d"]) {
        cases.extend(life(version, name));
    }
    cases.extend(foreign());
    cases
}

/// A session from `initialize` to `DELETE`.
fn life(version: &str, session: &'static str) -> Vec<Case> {
    let params = json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "corpus", "version": "1"}});
    let within = |name: &str, body: &Value| {
        let case = post(format!("{version}: {name}"), "alpha", body).key("mcp");
        case.header("mcp-session-id", format!("<<{session}>>"))
    };
    let call = |name: &str, method: &str, params: Value| within(name, &message(method, &params));
    let uri = |uri: &str| json!({"uri": uri});
    let bare = |name: &str, method: &str| {
        let case = Case::new(format!("{version}: {name}"), method, "/alpha/mcp").key("mcp");
        case.header("mcp-session-id", format!("<<{session}>>"))
    };
    vec![
        post(format!("{version}: initialize"), "alpha", &message("initialize", &params))
            .key("mcp")
            .capture(session, Source::Header("mcp-session-id")),
        within("initialized", &json!({"jsonrpc": "2.0", "method": "notifications/initialized"})),
        call("ping", "ping", json!({})),
        call("read without a version header", "resources/read", uri("test://plain")),
        call("read with it", "resources/read", uri("test://plain")).header("mcp-protocol-version", version),
        call("read with another", "resources/read", uri("test://plain"))
            .header("mcp-protocol-version", "2025-03-26"),
        call("a sound", "prompts/get", json!({"name": "audio"})),
        call("a link", "prompts/get", json!({"name": "link"})),
        call("subscribe", "resources/subscribe", uri("test://plain")),
        call("subscribe again", "resources/subscribe", uri("test://plain")),
        call("subscribe to a template's URI", "resources/subscribe", uri("weather://oslo")),
        call("subscribe to an unknown one", "resources/subscribe", uri("test://none")),
        call("subscribe to no URI", "resources/subscribe", uri("none")),
        call("unsubscribe", "resources/unsubscribe", uri("test://plain")),
        call("unsubscribe what is not subscribed", "resources/unsubscribe", uri("test://json")),
        call("set a level", "logging/setLevel", json!({"level": "warning"})),
        call("set an unknown level", "logging/setLevel", json!({"level": "loud"})),
        call("set no level", "logging/setLevel", json!({})),
        call("an unknown method", "x/unknown", json!({})),
        within("no JSON", &Value::Null).raw("{"),
        within("a batch", &json!([message("ping", &json!({}))])),
        within("a response", &json!({"jsonrpc": "2.0", "id": 9, "result": {}})),
        call("another key", "ping", json!({})).with("x-agent-api-key", "<<all>>"),
        call("no key", "ping", json!({})).without("x-agent-api-key"),
        bare("GET without Accept", "GET"),
        bare("PUT", "PUT"),
        bare("DELETE by another key", "DELETE").with("x-agent-api-key", "<<all>>"),
        bare("DELETE", "DELETE"),
        bare("DELETE again", "DELETE"),
        call("read after the end", "resources/read", uri("test://plain")),
        call("a new initialize after the end", "initialize", params),
    ]
}

/// Session ids that do not exist.
fn foreign() -> Vec<Case> {
    let ids = ["", "x", "0000000000000000000000000000000000000000000", "a b", "%00", "<<uuid>>"];
    let mut cases = Vec::new();
    for id in ids {
        for agent in ["alpha", "open"] {
            let case =
                post(format!("{agent}: session {id:?}"), agent, &message("ping", &json!({}))).key("mcp");
            cases.push(case.header("mcp-session-id", id));
            let case =
                Case::new(format!("{agent}: DELETE session {id:?}"), "DELETE", format!("/{agent}/mcp"))
                    .key("mcp");
            cases.push(case.header("mcp-session-id", id));
        }
    }
    cases
}
