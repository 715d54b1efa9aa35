//! Methods, media types, origins, hosts and paths.

use serde_json::json;

use super::{MODERN, legacy, modern};
use crate::case::Case;

const MEDIA: [&str; 14] = [
    "application/json",
    "application/json; charset=utf-8",
    "application/json ; charset=utf-8",
    "APPLICATION/JSON",
    "application/json;charset=\"utf-8\"",
    "application/jsonx",
    "application/vnd.api+json",
    "text/json",
    "text/plain",
    "application/x-www-form-urlencoded",
    "application/json, text/plain",
    "application/",
    "json",
    "",
];

const ACCEPTED: [&str; 18] = [
    "application/json",
    "text/event-stream",
    "application/json, text/event-stream",
    "text/event-stream, application/json",
    "application/json;q=0",
    "application/json;q=0, text/event-stream",
    "application/json;q=0.5",
    "application/*",
    "text/*",
    "*/*",
    "*/*;q=0",
    "text/html",
    "text/html, */*;q=0.1",
    "application/json; charset=utf-8",
    "APPLICATION/JSON",
    "application/json;q=2",
    "nonsense",
    "",
];

const ORIGINS: [&str; 10] = [
    "http://localhost",
    "http://localhost:3000",
    "http://127.0.0.1:8094",
    "https://localhost",
    "http://[::1]:5173",
    "http://evil.example",
    "null",
    "http://localhost.evil.example",
    "file://",
    "localhost",
];

const HOSTS: [&str; 9] = [
    "localhost",
    "localhost:1",
    "127.0.0.1",
    "[::1]:8094",
    "LOCALHOST",
    "evil.example",
    "localhost.evil.example",
    "127.0.0.1.evil.example:8094",
    "127.0.0.2",
];

const METHODS: [&str; 7] = ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"];

const PATHS: [&str; 28] = [
    "/",
    "/alpha",
    "/alpha/",
    "/alpha/mcp",
    "/alpha/mcp/",
    "/alpha/mcp/x",
    "/alpha/mcp?x=1",
    "/Alpha/mcp",
    "/alpha/MCP",
    "/%61lpha/mcp",
    "/unknown/mcp",
    "/admin/mcp",
    "/metrics/mcp",
    "/-alpha/mcp",
    "/a.b/mcp",
    "/healthz",
    "/healthz/",
    "/readyz",
    "/admin",
    "/admin/v1",
    "/admin/v1/",
    "/admin/v1/none",
    "/admin/v2/agents",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/alpha/mcp",
    "/.well-known/oauth-authorization-server",
    "/.well-known/none",
    "/favicon.ico",
];

pub(crate) fn cases() -> Vec<Case> {
    let read = json!({"uri": "test://plain"});
    let new = |name: String| modern(name, "resources/read", &read);
    let old = |name: String| legacy(name, "2025-11-25", "resources/read", &read);
    let mut cases = Vec::new();
    for media in MEDIA {
        cases.push(new(format!("content type {media:?}, modern")).with("content-type", media));
        cases.push(old(format!("content type {media:?}, legacy")).with("content-type", media));
    }
    cases.push(new("no content type, modern".to_owned()).without("content-type"));
    cases.push(old("no content type, legacy".to_owned()).without("content-type"));
    for accept in ACCEPTED {
        cases.push(new(format!("accept {accept:?}, modern")).header("accept", accept));
        cases.push(old(format!("accept {accept:?}, legacy")).header("accept", accept));
        let ping = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        cases.push(old(format!("accept {accept:?}, a notification")).json(&ping).header("accept", accept));
    }
    for encoding in ["gzip", "identity", "br", "x"] {
        cases.push(new(format!("content encoding {encoding}")).header("content-encoding", encoding));
    }
    for origin in ORIGINS {
        cases.push(new(format!("origin {origin}, modern")).header("origin", origin));
        cases.push(
            new(format!("origin {origin}, no key")).without("x-agent-api-key").header("origin", origin),
        );
        let preflight =
            Case::new(format!("preflight of {origin}"), "OPTIONS", "/alpha/mcp").header("origin", origin);
        cases.push(preflight.header("access-control-request-method", "POST"));
        let health = Case::new(format!("health for {origin}"), "GET", "/healthz").header("origin", origin);
        cases.push(health);
        let agents = Case::new(format!("agents for {origin}"), "GET", "/admin/v1/agents/alpha")
            .header("origin", origin);
        cases.push(agents.bearer("operator"));
        let preflight =
            Case::new(format!("preflight of administration, {origin}"), "OPTIONS", "/admin/v1/agents/alpha");
        cases.push(preflight.header("origin", origin).header("access-control-request-method", "PATCH"));
    }
    for host in HOSTS {
        cases.push(new(format!("host {host}, with a key")).header("host", host));
        cases
            .push(new(format!("host {host}, without a key")).without("x-agent-api-key").header("host", host));
        for path in ["/healthz", "/readyz", "/admin/v1/agents", "/metrics", "/none"] {
            if path != "/metrics" || host.contains("evil") {
                cases.push(Case::new(format!("host {host}, {path}"), "GET", path).header("host", host));
            }
        }
    }
    for path in PATHS {
        for method in METHODS {
            let case = Case::new(format!("{method} {path}"), method, path).key("mcp");
            cases.push(case);
        }
        let post = Case::new(format!("POST {path}"), "POST", path).key("mcp").json(&json!({}));
        cases.push(post.header("mcp-protocol-version", MODERN));
    }
    for id in ["abc", "x".repeat(128).as_str(), "x".repeat(129).as_str(), "with space", ""] {
        cases.push(new(format!("request id of {} characters, {id:.3}", id.len())).header("x-request-id", id));
    }
    cases
}
