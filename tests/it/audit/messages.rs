//! Rows of MCP requests and streams.

use std::time::Duration;

use serde_json::json;

use super::calls::{reaches, rows};
use crate::support::app::{Builder, gateway};
use crate::support::cluster::database;

const COLUMNS: &str = "method, coalesce(subject, '-'), principal_kind, coalesce(protocol, '-'), \
                       coalesce(client_name || '/' || client_version, '-'), outcome, status, \
                       agent is not null, bytes_in > 0, bytes_out";

#[tokio::test]
async fn each_message_has_one_audit_row_in_either_era() {
    let (database, replica) = gateway().await;
    let key = replica.acme("research").await;
    replica.put("research", "test://a", "one").await;
    reaches(&database, 4).await;
    let send = async |body: serde_json::Value, more: &[(&str, &str)]| {
        let bearer = format!("Bearer {key}");
        let mut headers = vec![("authorization", bearer.as_str()), ("content-type", "application/json")];
        headers.extend_from_slice(more);
        replica.http.send("POST", "/research/mcp", &headers, body.to_string()).await
    };
    let read =
        |uri: &str| json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}});
    let traced = ("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    send(read("test://a"), &[("x-request-id", "mine"), traced]).await;
    send(read("test://none"), &[]).await;
    send(json!({"jsonrpc": "2.0", "method": "notifications/initialized"}), &[]).await;
    send(json!([read("test://a"), {"jsonrpc": "2.0", "id": 2, "method": "nonsense\u{1b}"}]), &[]).await;
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "tester", "version": "9"},
    });
    let modern = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "test://a", "_meta": meta}});
    let headers =
        [("mcp-protocol-version", "2026-07-28"), ("mcp-method", "resources/read"), ("mcp-name", "test://a")];
    send(modern, &headers).await;
    send(json!("no message"), &[]).await;
    replica.http.send("POST", "/research/mcp", &[("content-type", "application/json")], "{}").await;
    replica.http.send("GET", "/research/mcp", &[], "").await;
    reaches(&database, 13).await;
    let rows = rows(&database, COLUMNS).await;
    insta::assert_snapshot!(rows[4..].join("\n"), @r"
    resources/read test://a agent 2025-03-26 - ok 200 t t 80
    resources/read test://none agent 2025-03-26 - resource_not_found 200 t t 149
    notifications/initialized - agent 2025-03-26 - ok 202 t t 0
    resources/read test://a agent 2025-03-26 - ok 200 t t 80
    nonsense� - agent 2025-03-26 - method_not_found 200 t f 126
    resources/read test://a agent 2026-07-28 tester/9 ok 200 t t 222
    POST - agent - - invalid_request 400 t t 125
    POST - anybody - - unauthenticated 401 f t 128
    GET - unknown - - method_not_allowed 405 f f 156
    ");
    let known = "select count(*) from audit_log where request = 'mine' and slug = 'research' and client = '127.0.0.1' \
                 and encode(trace, 'hex') = '4bf92f3577b34da6a3ce929d0e0e4736' and key is not null";
    assert_eq!(database.number(known).await, 1);
}

#[tokio::test]
async fn session_and_stream_have_start_and_end_rows() {
    let (database, replica) = gateway().await;
    let key = replica.acme("research").await;
    let opened = replica.http.post_bearer("research", &key, &json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "old", "version": "1"},
    }})).await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let bearer = format!("Bearer {key}");
    let headers =
        [("authorization", bearer.as_str()), ("mcp-session-id", &session), ("accept", "text/event-stream")];
    let waiting = replica.http.try_send("GET", "/research/mcp", &headers, "");
    tokio::time::timeout(Duration::from_millis(500), waiting).await.unwrap_err();
    let deleted = replica.http.send("DELETE", "/research/mcp", &headers, "").await;
    assert_eq!(deleted.status, 204);
    reaches(&database, 7).await;
    let mut rows =
        rows(&database, "method, protocol, client_name, session is not null, outcome, status").await;
    rows.drain(..3);
    assert_eq!(
        rows,
        [
            "initialize 2025-06-18 old t ok 200",
            "GET 2025-06-18 old t ok 200",
            "GET 2025-06-18 old t ended:disconnected",
            "DELETE 2025-06-18 old t ok 204",
        ]
    );
}

#[tokio::test]
async fn log_without_accesses_has_changes_only() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_AUDIT__EVENTS", "changes").start().await;
    let key = replica.acme("research").await;
    replica.put("research", "test://a", "one").await;
    replica.http.text("research", &key, "test://a").await.unwrap();
    replica.running.stop().await;
    let rows = rows(&database, "method").await;
    let changes = ["tenants", "agents", "agents/{agent}/keys"].map(|path| format!("POST /admin/v1/{path}"));
    assert_eq!(rows[..3], changes);
    assert_eq!(rows[3..], ["PUT /admin/v1/agents/{agent}/resources"]);
}
