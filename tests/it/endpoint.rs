//! The MCP endpoint over a real socket, in every revision of the protocol.

mod access;
mod batches;
mod cached_results;
mod listeners;
mod modern;
mod paging;
mod prompt_forms;
mod reads;
mod sdk;
mod sdk_forms;
mod surface;
mod versions;

use bytes::Bytes;
use serde_json::{Value, json};

use crate::support::app::Replica;
use crate::support::http::Answer;

pub(crate) const MODERN: &str = "2026-07-28";
/// The values of `MCP-Protocol-Version`; optional in the legacy era.
pub(crate) const REVISIONS: [Option<&str>; 6] =
    [None, Some("2024-11-05"), Some("2025-03-26"), Some("2025-06-18"), Some("2025-11-25"), Some(MODERN)];

/// The `_meta` of every modern request.
fn meta(version: &str) -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

/// Posts a body with additional headers.
async fn post(replica: &Replica, path: &str, more: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
    let mut headers = vec![("content-type", "application/json")];
    headers.extend_from_slice(more);
    replica.http.send("POST", path, &headers, body).await
}

/// Sends a request to the agent `a` as a client of the revision, without a session.
pub(crate) async fn call_as(
    replica: &Replica,
    key: &str,
    revision: Option<&str>,
    method: &str,
    mut params: Value,
) -> Answer {
    let named = params.get("uri").or_else(|| params.get("name")).and_then(Value::as_str).map(str::to_owned);
    let mut headers = vec![("x-agent-api-key", key)];
    headers.extend(revision.map(|revision| ("mcp-protocol-version", revision)));
    if revision == Some(MODERN) {
        params["_meta"] = meta(MODERN);
        headers.push(("mcp-method", method));
        headers.extend(named.as_deref().map(|name| ("mcp-name", name)));
    }
    post(replica, "/a/mcp", &headers, request(method, &params).to_string()).await
}

/// The result of a revision with these members. The agent is private and named `a`.
fn result_as(revision: Option<&str>, subject: &Value) -> Value {
    let mut result = subject.clone();
    if revision == Some(MODERN) {
        let server = json!({"name": "a", "version": env!("CARGO_PKG_VERSION")});
        result["resultType"] = json!("complete");
        result["ttlMs"] = json!(0);
        result["cacheScope"] = json!("private");
        result["_meta"] = json!({"io.modelcontextprotocol/serverInfo": server});
    }
    crate::support::answers::message(&json!({"jsonrpc": "2.0", "id": 7, "result": result}))
}
