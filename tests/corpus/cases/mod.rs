//! The requests of the corpus, in the order in which they are sent.

mod access;
mod administration;
mod authority;
mod batches;
mod definitions;
mod envelope;
mod eras;
mod fixture;
mod negotiation;
mod parameters;
mod reads;
mod sessions;

use serde_json::{Value, json};

use crate::case::Case;

pub(crate) const MODERN: &str = "2026-07-28";
/// Newest first.
pub(crate) const LEGACY: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// All groups with their cases: the fixture first, since the others read its objects; changes last.
pub(crate) fn all() -> Vec<(&'static str, Vec<Case>)> {
    vec![
        ("fixture", fixture::cases()),
        ("eras", eras::cases()),
        ("envelope", envelope::cases()),
        ("parameters", parameters::cases()),
        ("reads", reads::cases()),
        ("negotiation", negotiation::cases()),
        ("access", access::cases()),
        ("batches", batches::cases()),
        ("sessions", sessions::cases()),
        ("authority", authority::cases()),
        ("definitions", definitions::cases()),
        ("administration", administration::cases()),
    ]
}

/// A message to an agent's endpoint, without a credential.
pub(crate) fn post(name: impl Into<String>, agent: &str, message: &Value) -> Case {
    Case::new(name, "POST", format!("/{agent}/mcp")).json(message)
}

pub(crate) fn message(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
}

/// The parameters with the members of `_meta` that 2026-07-28 requires.
pub(crate) fn with_meta(params: &Value) -> Value {
    let mut params = params.clone();
    params["_meta"] = json!({VERSION: MODERN, CAPABILITIES: {}});
    params
}

/// A request of 2026-07-28 with the key of `alpha`.
pub(crate) fn modern(name: impl Into<String>, method: &str, params: &Value) -> Case {
    let case = post(name, "alpha", &message(method, &with_meta(params)))
        .key("mcp")
        .header("mcp-protocol-version", MODERN)
        .header("mcp-method", method);
    let named = match method {
        "resources/read" => params["uri"].as_str(),
        "prompts/get" | "tools/call" => params["name"].as_str(),
        _ => None,
    };
    match named {
        Some(name) if name.is_ascii() => case.header("mcp-name", name),
        Some(name) => {
            use base64::Engine;
            let encoded = base64::prelude::BASE64_STANDARD.encode(name);
            case.header("mcp-name", format!("=?base64?{encoded}?="))
        }
        None => case,
    }
}

/// A request of a legacy revision without a session, with the key of `alpha`.
pub(crate) fn legacy(name: impl Into<String>, version: &str, method: &str, params: &Value) -> Case {
    let case = post(name, "alpha", &message(method, params)).key("mcp");
    case.header("mcp-protocol-version", version)
}

/// The same request in each revision.
pub(crate) fn in_all_revisions(name: &str, method: &str, params: &Value) -> Vec<Case> {
    let modern = modern(format!("{name}, {MODERN}"), method, params);
    let older = LEGACY.iter().map(|version| legacy(format!("{name}, {version}"), version, method, params));
    std::iter::once(modern).chain(older).collect()
}

/// An administration call with a variable's value as the bearer token.
pub(crate) fn admin(name: impl Into<String>, bearer: &str, method: &str, path: &str) -> Case {
    Case::new(name, method, format!("/admin/v1{path}")).bearer(bearer)
}
