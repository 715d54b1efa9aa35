//! HTTP around the endpoint: methods, origins, hosts, paths, request ids.

use serde_json::{Value, json};
use waggle::model::key::{KeyKind, SecretKey};

use super::{post, request};
use crate::support::answers::{error, exact, method_not_allowed, raw};
use crate::support::app::{Replica, gateway, mistyped};

const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
const ORIGIN: &str = "http://localhost:3000";
const EXPOSED: &str = "Mcp-Session-Id, WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy, X-Request-Id, \
     Waggle-Key-Expires";

fn readable() -> Value {
    json!({
        "access-control-allow-origin": ORIGIN, "access-control-expose-headers": EXPOSED, "vary": "Origin",
    })
}

fn admin_readable() -> Value {
    json!({
        "access-control-allow-origin": ORIGIN, "vary": "Origin",
        "access-control-expose-headers":
            "ETag, WWW-Authenticate, Retry-After, RateLimit, RateLimit-Policy, X-Request-Id, Waggle-Key-Expires",
    })
}

fn not_found() -> Value {
    let mut problem = crate::support::answers::problem(404, "not_found", "no such path");
    problem["headers"].as_object_mut().unwrap().remove("cache-control");
    problem
}

async fn send(replica: &Replica, method: &str, path: &str, headers: &[(&str, &str)]) -> Value {
    exact(&replica.http.send(method, path, headers, "").await)
}

#[tokio::test]
async fn get_and_delete_without_a_session_are_refused() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let expected = method_not_allowed("POST", false);
    let accept = ("accept", "text/event-stream");
    for method in ["GET", "DELETE", "PUT", "PATCH", "HEAD", "OPTIONS", "BREW"] {
        for path in ["/a/mcp", "/a/mcp/", "/unknown/mcp"] {
            for headers in [
                &[][..],
                &[("x-agent-api-key", key.as_str()), accept],
                &[("mcp-protocol-version", "2026-07-28")],
            ] {
                let mut expected = expected.clone();
                if method == "HEAD" {
                    expected["body"] = Value::Null;
                }
                assert_eq!(send(&replica, method, path, headers).await, expected, "{method} {path}");
            }
        }
    }
}

#[tokio::test]
async fn preflight_is_answered_for_allowed_origins_only() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let mut headers = readable();
    headers["access-control-allow-methods"] = json!("GET, POST, DELETE");
    headers["access-control-allow-headers"] = json!(
        "Authorization, X-Agent-API-Key, Content-Type, Accept, MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, \
         Mcp-Name, Last-Event-ID, X-Request-Id, traceparent, tracestate, baggage"
    );
    let allowed = json!({"status": 204, "headers": headers, "body": null});
    let mut headers = admin_readable();
    headers["access-control-allow-methods"] = json!("GET, POST, PUT, PATCH, DELETE");
    headers["access-control-allow-headers"] = json!(
        "Authorization, X-Agent-API-Key, Content-Type, Accept, If-Match, If-None-Match, X-Request-Id, traceparent, \
         tracestate, baggage"
    );
    let admin_allowed = json!({"status": 204, "headers": headers, "body": null});
    let requested_method = ("access-control-request-method", "POST");
    for path in [
        "/a/mcp",
        "/a/mcp/",
        "/unknown/mcp",
        "/admin/v1/agents",
        "/.well-known/oauth-protected-resource/a/mcp",
    ] {
        let mut answer = send(&replica, "OPTIONS", path, &[("origin", ORIGIN), requested_method]).await;
        answer["headers"].as_object_mut().unwrap().remove("cache-control");
        let expected = if path.starts_with("/admin") { &admin_allowed } else { &allowed };
        assert_eq!(&answer, expected, "{path}");
    }
    // The request itself may have a credential, which decides about a foreign host.
    let headers = [("host", "box.example"), ("origin", ORIGIN), requested_method];
    let mut answer = send(&replica, "OPTIONS", "/a/mcp", &headers).await;
    answer["headers"].as_object_mut().unwrap().remove("cache-control");
    assert_eq!(answer, allowed);
    let refused = error(403, "null", -31013, "forbidden_origin", "this Origin is not allowed");
    for origin in [
        "https://evil.example",
        "null",
        "http://localhost.evil.example",
        "http://localhost:3000, http://localhost",
        "",
    ] {
        assert_eq!(
            send(&replica, "OPTIONS", "/a/mcp", &[("origin", origin), requested_method]).await,
            refused,
            "{origin}"
        );
    }
    let twice = [("origin", ORIGIN), ("origin", ORIGIN)];
    assert_eq!(send(&replica, "OPTIONS", "/a/mcp", &twice).await, refused);
}

#[tokio::test]
async fn every_answer_to_an_allowed_origin_has_cors_headers() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let (mcp, admin) = (readable(), admin_readable());
    let from = async |path: &str, more: &[(&str, &str)], body: &str| {
        let readable = if path.starts_with("/admin") { &admin } else { &mcp };
        let mut headers = vec![("origin", ORIGIN)];
        headers.extend_from_slice(more);
        let answer = exact(&post(&replica, path, &headers, body.to_owned()).await);
        for (name, value) in readable.as_object().unwrap() {
            assert_eq!(&answer["headers"][name], value, "{path} {more:?} {body}");
        }
        answer["status"].as_u64().unwrap()
    };
    let key = ("x-agent-api-key", key.as_str());
    assert_eq!(from("/a/mcp", &[key], PING).await, 200);
    assert_eq!(from("/a/mcp", &[key], r#"{"jsonrpc":"2.0","method":"x"}"#).await, 202);
    assert_eq!(from("/a/mcp", &[key], "{").await, 400);
    assert_eq!(from("/a/mcp", &[], PING).await, 401);
    assert_eq!(from("/unknown/mcp", &[key], PING).await, 403);
    assert_eq!(from("/a/mcp", &[key, ("mcp-session-id", "x")], PING).await, 404);
    assert_eq!(from("/a/mcp", &[key, ("accept", "text/html")], PING).await, 406);
    assert_eq!(from("/a/mcp", &[key], &" ".repeat(5 << 20)).await, 413);
    assert_eq!(from("/admin/v1/tenants", &[], "{}").await, 401);
    assert_eq!(from("/.well-known/oauth-protected-resource", &[], "").await, 404);
    // A foreign origin gets none of them.
    let plain = exact(&post(&replica, "/a/mcp", &[key], PING).await);
    assert_eq!(plain["headers"], json!({"content-type": "application/json"}));
}

#[tokio::test]
async fn forbidden_host_or_origin_is_refused_with_the_request_id() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let wrong = mistyped(&key);
    let (key, wrong) = (("x-agent-api-key", key.as_str()), ("x-agent-api-key", wrong.as_str()));
    let made_up = SecretKey::generate(KeyKind::Agent, &mut rand::rng());
    let unknown = ("x-agent-api-key", made_up.reveal());
    let list = request("resources/list", &json!({})).to_string();
    let host = error(403, "7", -31013, "forbidden_origin", "this Host is not allowed");
    for name in [
        "evil.example",
        "localhost.evil.example:8094",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "[::2]:80",
    ] {
        let foreign = ("host", name);
        for headers in [&[foreign][..], &[foreign, wrong], &[foreign, unknown]] {
            let refused = exact(&post(&replica, "/a/mcp", headers, list.clone()).await);
            assert_eq!(refused, host, "{name} {headers:?}");
        }
        let held = post(&replica, "/a/mcp", &[foreign, key], list.clone()).await;
        assert_eq!(held.status, 200, "no web page has a credential that holds: {name}");
        let page = [foreign, key, ("origin", "https://evil.example")];
        assert_eq!(post(&replica, "/a/mcp", &page, list.clone()).await.status, 403, "{name}");
        assert_eq!(replica.http.send("GET", "/a/mcp", &[foreign], "").await.status, 403, "{name}");
        assert_eq!(replica.http.send("GET", "/a/mcp", &[foreign, key], "").await.status, 405, "{name}");
    }
    for name in ["localhost", "LOCALHOST:1", "127.0.0.1:65535", "[::1]:8094"] {
        assert_eq!(
            post(&replica, "/a/mcp", &[key, ("host", name)], list.clone()).await.status,
            200,
            "{name}"
        );
    }
    let origin = error(403, "7", -31013, "forbidden_origin", "this Origin is not allowed");
    for name in ["https://evil.example", "null", "http://localhost.evil.example"] {
        assert_eq!(
            exact(&post(&replica, "/a/mcp", &[key, ("origin", name)], list.clone()).await),
            origin,
            "{name}"
        );
    }
    let mut admin = crate::support::answers::problem(403, "forbidden_origin", "this Host is not allowed");
    let operator = format!("Bearer {}", replica.operator);
    let bad = format!("Bearer {}", mistyped(&replica.operator));
    let foreign = ("host", "evil.example");
    for (path, status) in
        [("/admin/v1/agents", 200), ("/admin/v1/nowhere", 404), ("/admin/openapi.json", 200)]
    {
        assert_eq!(send(&replica, "GET", path, &[foreign]).await, admin, "{path}");
        assert_eq!(send(&replica, "GET", path, &[foreign, ("authorization", &bad)]).await, admin, "{path}");
        let held = [foreign, ("authorization", operator.as_str())];
        assert_eq!(send(&replica, "GET", path, &held).await["status"], status, "{path}");
        let page = [foreign, held[1], ("origin", "https://evil.example")];
        assert_eq!(send(&replica, "GET", path, &page).await["status"], 403, "{path}");
    }
    admin["headers"].as_object_mut().unwrap().remove("cache-control");
    assert_eq!(send(&replica, "GET", "/nowhere", &[("host", "evil.example")]).await, admin);
}

#[tokio::test]
async fn health_is_served_under_any_host_by_get_and_head() {
    let (_database, replica) = gateway().await;
    for (path, word) in [("/healthz", "alive"), ("/readyz", "ready")] {
        let mut expected = json!({
            "status": 200, "headers": {"cache-control": "no-store", "content-type": "application/json"},
            "body": {"status": word},
        });
        for headers in [&[][..], &[("host", "10.0.0.7:8094")], &[("origin", "https://evil.example")]] {
            assert_eq!(send(&replica, "GET", path, headers).await, expected, "{path}");
        }
        expected["body"] = Value::Null;
        assert_eq!(send(&replica, "HEAD", path, &[]).await, expected, "{path}");
        assert_eq!(send(&replica, "POST", path, &[]).await, method_not_allowed("GET, HEAD", false));
    }
}

#[tokio::test]
async fn unknown_path_is_not_found() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let slash = post(&replica, "/a/mcp/", &[("x-agent-api-key", &key)], PING).await;
    assert_eq!(
        exact(&slash),
        crate::support::answers::message(&json!({"jsonrpc": "2.0", "id": 7, "result": {}}))
    );
    for path in [
        "/",
        "/a",
        "/mcp",
        "/a/mcp//",
        "/a/mcpx",
        "/a/b/mcp",
        "//mcp",
        "/sse",
        "/.well-known/oauth-protected-resource",
        "/.well-known/oauth-protected-resource/a/mcp",
        "/.well-known/oauth-authorization-server",
        "/metricsx",
    ] {
        for method in ["GET", "POST"] {
            assert_eq!(send(&replica, method, path, &[]).await, not_found(), "{method} {path}");
        }
    }
}

#[tokio::test]
async fn valid_request_id_of_the_client_is_used() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let long = "~".repeat(128);
    let longer = "~".repeat(129);
    for path in ["/a/mcp", "/unknown/mcp", "/admin/v1/agents", "/nowhere", "/healthz"] {
        let call = async |id: Option<&str>| {
            let mut headers = vec![("x-agent-api-key", key.as_str())];
            headers.extend(id.map(|id| ("x-request-id", id)));
            post(&replica, path, &headers, PING).await.header("x-request-id").unwrap().to_owned()
        };
        for good in ["a", "!~", "0f3a-1", &long] {
            assert_eq!(call(Some(good)).await, good, "{path}");
        }
        let mut ours = Vec::new();
        for bad in [None, Some(""), Some("a b"), Some(&longer), Some("a\tb")] {
            let id = call(bad).await;
            assert!(
                id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
                "{path} {bad:?}: {id}"
            );
            ours.push(id);
        }
        ours.sort_unstable();
        ours.dedup();
        assert_eq!(ours.len(), 5, "all different");
    }
    let invisible =
        "POST /a/mcp HTTP/1.1\r\nHost: localhost\r\nX-REQUEST-ID: \u{e9}\r\nConnection: close\r\n\r\n";
    let answer = raw(replica.running.address, invisible.as_bytes()).await;
    assert_eq!(answer.header("x-request-id").unwrap().len(), 32);
}

#[tokio::test]
async fn absolute_target_host_is_checked_and_a_request_has_one_host() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let call_with = async |key: &str, target: &str, hosts: &[&str]| {
        let hosts = hosts.iter().fold(String::new(), |lines, host| lines + "Host: " + host + "\r\n");
        let bytes = format!(
            "POST {target} HTTP/1.1\r\n{hosts}X-Agent-API-Key: {key}\r\nContent-Type: application/json\r\n\
             Connection: close\r\nContent-Length: {}\r\n\r\n{PING}",
            PING.len()
        );
        exact(&raw(replica.running.address, bytes.as_bytes()).await)
    };
    let call = async |target, hosts: &[&str]| call_with(&key, target, hosts).await;
    let pong = crate::support::answers::message(&json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
    let forbidden = error(403, "7", -31013, "forbidden_origin", "this Host is not allowed");
    assert_eq!(call("/a/mcp", &["localhost"]).await, pong);
    assert_eq!(call("http://localhost:9/a/mcp", &["evil.example"]).await, pong);
    for held in [call("http://evil.example/a/mcp", &["localhost"]).await, call("/a/mcp", &[""]).await] {
        assert_eq!(held, pong);
    }
    let wrong = mistyped(&key);
    let call = async |target, hosts: &[&str]| call_with(&wrong, target, hosts).await;
    assert_eq!(call("http://evil.example/a/mcp", &["localhost"]).await, forbidden);
    assert_eq!(call("/a/mcp", &[""]).await, forbidden);
    let refused = error(400, "7", -32600, "invalid_request", "a request has one Host");
    assert_eq!(call("/a/mcp", &["localhost", "localhost"]).await, refused);
    assert_eq!(call("/a/mcp", &[]).await, refused);
}

#[tokio::test]
async fn accept_header_must_allow_json() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let key = ("x-agent-api-key", key.as_str());
    for accept in [
        "*/*",
        "",
        "application/json",
        "application/json, text/event-stream",
        "APPLICATION/*",
        "text/html, */*;q=0.1",
    ] {
        assert_eq!(post(&replica, "/a/mcp", &[key, ("accept", accept)], PING).await.status, 200, "{accept}");
    }
    let not_acceptable = error(406, "7", -32600, "not_acceptable", "Accept must admit application/json");
    for accept in ["text/event-stream", "text/html", "application/json;q=0", "application/json;q=0, */*"] {
        let answer = exact(&post(&replica, "/a/mcp", &[key, ("accept", accept)], PING).await);
        assert_eq!(answer, not_acceptable, "{accept}");
    }
    let notification = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    let batch = format!("[{notification},{notification}]");
    for accept in ["text/event-stream", "text/html"] {
        let accept = ("accept", accept);
        for version in ["2025-11-25", "2026-07-28"] {
            let headers = [key, accept, ("mcp-protocol-version", version)];
            let answer = post(&replica, "/a/mcp", &headers, notification).await;
            assert_eq!((answer.status.as_u16(), answer.text()), (202, String::new()), "{accept:?} {version}");
        }
        assert_eq!(post(&replica, "/a/mcp", &[key, accept], batch.clone()).await.status, 202, "{accept:?}");
        let with_call = format!("[{notification},{PING}]");
        assert_eq!(post(&replica, "/a/mcp", &[key, accept], with_call).await.status, 406, "{accept:?}");
    }
    let declare = async |essence: &str| {
        exact(&replica.http.send("POST", "/a/mcp", &[key, ("content-type", essence)], PING).await)
    };
    for essence in ["application/json", "Application/JSON; charset=utf-8", "application/json;charset=\"x\""] {
        assert_eq!(declare(essence).await["status"], 200, "{essence}");
    }
    let unsupported =
        error(415, "7", -32600, "unsupported_media_type", "Content-Type must be application/json");
    for essence in
        ["", "text/plain", "application/json-rpc", "text/json", "application/x-www-form-urlencoded"]
    {
        assert_eq!(declare(essence).await, unsupported, "{essence}");
    }
    assert_eq!(exact(&replica.http.send("POST", "/a/mcp", &[key], PING).await), unsupported);
}

#[tokio::test]
async fn percent_encoded_agent_id_is_the_agent() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a-1").await;
    let headers = [("x-agent-api-key", key.as_str()), ("content-type", "application/json")];
    for path in ["/a-1/mcp", "/%61-1/mcp", "/%61%2d%31/mcp/"] {
        let answer = replica.http.send("POST", path, &headers, PING).await;
        assert_eq!((answer.status.as_u16(), &answer.json()["result"]), (200, &json!({})), "{path}");
    }
    for path in ["/agents/a-1", "/agents/%61%2D1"] {
        assert_eq!(replica.admin("GET", path, None).await.json()["id"], "a-1", "{path}");
    }
    // The rest of a path is compared as it is, so that the rule of a proxy for it cannot be circumvented.
    for path in ["/a-1/%6dcp", "/%61dmin/v1/agents", "/%68ealthz"] {
        assert_eq!(send(&replica, "GET", path, &[]).await, not_found(), "{path}");
    }
    // Decoded once, and only to what can be an agent id.
    for path in ["/%2561-1/mcp", "/a%2d1%00/mcp", "/%41-1/mcp", "/%ff/mcp"] {
        assert_eq!(replica.http.send("POST", path, &headers, PING).await.status, 403, "{path}");
    }
}
