//! Tests of the administration API. Answers are compared whole.

mod agents;
mod anonymous;
mod authority;
mod compression;
mod content;
mod keys;
mod lists;
mod manifest;
mod preconditions;
mod privilege;
mod prompts;
mod resources;
mod templates;
mod tenants;

use serde_json::Value;

use crate::support::app::Replica;
use crate::support::http::Answer;

/// Sends an administration call with additional headers.
async fn send(
    replica: &Replica,
    key: &str,
    (method, path): (&str, &str),
    more: &[(&str, &str)],
    body: impl Into<bytes::Bytes>,
) -> Answer {
    let bearer = format!("Bearer {key}");
    let mut headers = vec![("authorization", bearer.as_str())];
    headers.extend_from_slice(more);
    replica.http.send(method, &format!("/admin/v1{path}"), &headers, body).await
}

/// Sends an administration call as the operator, with JSON text unchanged.
async fn send_json(replica: &Replica, call: (&str, &str), body: &str) -> Answer {
    send(replica, &replica.operator, call, &[("content-type", "application/json")], body.to_owned()).await
}

/// The tenant's owner key.
async fn owner(replica: &Replica, tenant: &str) -> String {
    let path = format!("/tenants/{tenant}/keys");
    let made = replica.admin("POST", &path, Some(Value::Object(serde_json::Map::new()))).await.json();
    made["key"].as_str().unwrap().to_owned()
}
