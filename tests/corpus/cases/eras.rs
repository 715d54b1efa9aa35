//! Which era a request belongs to, what each method is in each revision, and the header rules of 2026-07-28.

use serde_json::{Value, json};

use super::{LEGACY, MODERN, VERSION, in_all_revisions, legacy, message, modern, post, with_meta};
use crate::case::Case;

/// The methods of the base protocol with valid parameters, except for those that open streams.
const METHODS: [(&str, &str); 19] = [
    (
        "initialize",
        r#"{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}"#,
    ),
    ("ping", "{}"),
    ("server/discover", "{}"),
    ("resources/list", "{}"),
    ("resources/templates/list", "{}"),
    ("resources/read", r#"{"uri":"test://plain"}"#),
    ("prompts/list", "{}"),
    ("prompts/get", r#"{"name":"simple"}"#),
    (
        "completion/complete",
        r#"{"ref":{"type":"ref/prompt","name":"arguments"},"argument":{"name":"topic","value":"par"}}"#,
    ),
    ("tools/list", "{}"),
    ("tools/call", r#"{"name":"anything","arguments":{}}"#),
    ("resources/subscribe", r#"{"uri":"test://plain"}"#),
    ("resources/unsubscribe", r#"{"uri":"test://plain"}"#),
    ("logging/setLevel", r#"{"level":"debug"}"#),
    ("sampling/createMessage", "{}"),
    ("Resources/List", "{}"),
    ("resources/list ", "{}"),
    ("", "{}"),
    ("x/unknown", "{}"),
];

const NOTIFICATIONS: [&str; 4] = [
    "notifications/initialized",
    "notifications/cancelled",
    "notifications/progress",
    "notifications/unknown",
];

fn params(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (method, text) in METHODS {
        let params = params(text);
        cases.extend(in_all_revisions(&format!("method `{method}`"), method, &params));
        let bare =
            post(format!("method `{method}`, no version"), "alpha", &message(method, &params)).key("mcp");
        let trailing = bare.clone();
        let unknown = bare.clone().header("mcp-protocol-version", "1999-01-01");
        cases.push(bare);
        cases.push(Case { name: format!("method `{method}`, unknown version"), ..unknown });
        let path = "/alpha/mcp/".to_owned();
        cases.push(Case { name: format!("method `{method}`, trailing slash"), path, ..trailing });
    }
    for method in NOTIFICATIONS {
        let notification = json!({"jsonrpc": "2.0", "method": method});
        for version in LEGACY.into_iter().chain([MODERN, "1999-01-01"]) {
            let case = post(format!("{method}, {version}"), "alpha", &notification).key("mcp");
            cases.push(case.header("mcp-protocol-version", version));
        }
        let meta = json!({"jsonrpc": "2.0", "method": method, "params": with_meta(&json!({}))});
        cases.push(post(format!("{method}, version in _meta"), "alpha", &meta).key("mcp"));
    }
    for version in LEGACY {
        cases.extend(legacy_headers(version));
    }
    let ruled =
        ["resources/list", "resources/read", "prompts/get", "tools/call", "completion/complete", "x/unknown"];
    for (method, text) in METHODS.into_iter().filter(|(method, _)| ruled.contains(method)) {
        cases.extend(modern_rules(method, &params(text)));
    }
    cases.extend(named());
    cases
}

/// Headers that have a meaning in 2026-07-28 only.
fn legacy_headers(version: &str) -> Vec<Case> {
    let read = json!({"uri": "test://plain"});
    let case = |what: &str| legacy(format!("{version}: {what}"), version, "resources/read", &read);
    vec![
        case("another Mcp-Method").header("mcp-method", "prompts/get"),
        case("another Mcp-Name").header("mcp-name", "test://other"),
        case("unknown session").header("mcp-session-id", "0000000000000000000000000000000000000000000"),
        case("version twice, alike").header("mcp-protocol-version", version),
        case("version twice, differing").header("mcp-protocol-version", "2024-11-05x"),
    ]
}

/// Violations of a single rule of 2026-07-28 about headers and `_meta`.
fn modern_rules(method: &str, params: &Value) -> Vec<Case> {
    let case = |what: &str| modern(format!("{method}: {what}"), method, params);
    let changed = |what: &str, change: &dyn Fn(&mut Value)| {
        let mut params = with_meta(params);
        change(&mut params);
        case(what).json(&message(method, &params))
    };
    let meta = |what: &str, member: &'static str, value: Value| {
        changed(what, &move |params| params["_meta"][member] = value.clone())
    };
    let removed = |what: &str, member: &'static str| {
        changed(what, &move |params| drop(params["_meta"].as_object_mut().unwrap().remove(member)))
    };
    let capabilities = super::CAPABILITIES;
    let mut cases = vec![
        case("no version header").without("mcp-protocol-version"),
        case("a legacy version in the header").with("mcp-protocol-version", "2025-11-25"),
        case("an unknown version in the header").with("mcp-protocol-version", "2027-01-01"),
        case("an empty version in the header").with("mcp-protocol-version", ""),
        case("no Mcp-Method").without("mcp-method"),
        case("another Mcp-Method").with("mcp-method", "ping"),
        case("Mcp-Method in other case").with("mcp-method", method.to_uppercase()),
        case("a session id is ignored").header("mcp-session-id", "anything"),
        changed("no _meta", &|params| drop(params.as_object_mut().unwrap().remove("_meta"))),
        changed("_meta is no object", &|params| params["_meta"] = json!([])),
        removed("no version in _meta", VERSION),
        removed("no capabilities in _meta", capabilities),
        meta("version is a number", VERSION, json!(20260728)),
        meta("version is null", VERSION, Value::Null),
        meta("version of the legacy era in _meta", VERSION, json!("2025-06-18")),
        meta("unknown version in _meta", VERSION, json!("2030-01-01")),
        meta("capabilities are a list", capabilities, json!([])),
        meta(
            "capabilities with members",
            capabilities,
            json!({"elicitation": {}, "roots": {"listChanged": true}}),
        ),
        meta("client info", "io.modelcontextprotocol/clientInfo", json!({"name": "corpus", "version": "1"})),
        meta("client info is a text", "io.modelcontextprotocol/clientInfo", json!("corpus")),
        meta("a member of another vendor", "example.com/trace", json!({"a": 1})),
        meta("a progress token", "progressToken", json!("p-1")),
    ];
    let both = changed("an unknown version in header and _meta", &|params| {
        params["_meta"][VERSION] = json!("2030-01-01")
    });
    cases.push(both.with("mcp-protocol-version", "2030-01-01"));
    if case("").headers.iter().any(|(name, _)| name == "mcp-name") {
        cases.extend([
            case("no Mcp-Name").without("mcp-name"),
            case("another Mcp-Name").with("mcp-name", "other"),
            case("an empty Mcp-Name").with("mcp-name", ""),
            case("Mcp-Name that is no base64").with("mcp-name", "=?base64?%%%?="),
            case("Mcp-Name twice").header("mcp-name", "other"),
        ]);
    }
    cases
}

/// `Mcp-Name` in base64, of names that are ASCII and names that are not.
fn named() -> Vec<Case> {
    let encoded = |what: &str, params: &Value, value: &str| {
        let method = if params["uri"].is_string() { "resources/read" } else { "prompts/get" };
        modern(what, method, params).with("mcp-name", value)
    };
    let (plain, simple) = (json!({"uri": "test://plain"}), json!({"name": "simple"}));
    vec![
        encoded("a URI in base64", &plain, "=?base64?dGVzdDovL3BsYWlu?="),
        encoded("a name in base64", &simple, "=?base64?c2ltcGxl?="),
        encoded("base64 without padding", &simple, "=?base64?c2ltcGx?="),
        encoded("base64 in capitals", &simple, "=?BASE64?c2ltcGxl?="),
        encoded("base64 of another name", &simple, "=?base64?b3RoZXI=?="),
        encoded("base64 that is no UTF-8", &simple, "=?base64?/////w==?="),
        modern("a name that is not ASCII", "prompts/get", &json!({"name": "提示", "arguments": {"n": "1"}})),
    ]
}
