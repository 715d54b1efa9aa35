//! Bytes that are not HTTP, and HTTP with wrong lengths.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Fixture;
use crate::support::answers::{error, exact, message, problem, raw};

const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;

impl Fixture {
    /// Sends a head with these lines, and a body.
    async fn send_raw(&mut self, head: &str, lines: &[&str], body: &str) -> Value {
        let mut bytes =
            format!("{head}\r\nX-Agent-API-Key: {}\r\nContent-Type: application/json\r\n", self.key);
        for line in lines.iter().chain(&["Connection: close", ""]) {
            bytes.push_str(line);
            bytes.push_str("\r\n");
        }
        bytes.push_str(body);
        self.bytes(bytes.as_bytes()).await
    }

    async fn bytes(&mut self, bytes: &[u8]) -> Value {
        self.requests += 1;
        exact(&raw(self.replica.running.address, bytes).await)
    }
}

/// Refused before there is a request.
fn no_http(status: u16) -> Value {
    json!({"status": status, "headers": {}, "body": null})
}

fn not_found() -> Value {
    let mut expected = problem(404, "not_found", "no such path");
    expected["headers"].as_object_mut().unwrap().remove("cache-control");
    expected
}

fn pong() -> Value {
    message(&json!({"jsonrpc": "2.0", "id": 7, "result": {}}))
}

#[tokio::test]
async fn wrong_content_length_is_detected() {
    let mut fixture = Fixture::new().await;
    let post = "POST /a/mcp HTTP/1.1\r\nHost: localhost";
    let own = format!("Content-Length: {}", PING.len());
    let chunk = format!("{:x}\r\n{PING}\r\n", PING.len());
    let chunked = "Transfer-Encoding: chunked";
    let broken_off = error(400, "null", -32600, "invalid_request", "the body broke off");
    let short = "the body is not JSON: EOF while parsing an object at line 1 column 10";
    let cases: Vec<(Vec<&str>, String, Value)> = vec![
        (vec![&own], PING.to_owned(), pong()),
        (vec!["Content-Length: 10"], PING.to_owned(), error(400, "null", -32700, "parse_error", short)),
        (vec!["Content-Length: -1"], PING.to_owned(), no_http(400)),
        (vec!["Content-Length: 4x"], PING.to_owned(), no_http(400)),
        (vec![&own, "Content-Length: 41"], PING.to_owned(), no_http(400)),
        (vec!["Content-Length: 99999999999999999999"], PING.to_owned(), no_http(400)),
        (vec![chunked], format!("{chunk}0\r\n\r\n"), pong()),
        (vec![chunked], format!("{chunk}zz\r\n"), broken_off.clone()),
        (vec![chunked], format!("-1\r\n{PING}\r\n0\r\n\r\n"), broken_off.clone()),
        (vec![chunked], format!("fffffffffffffffff\r\n{PING}"), broken_off),
    ];
    for (lines, body, expected) in cases {
        assert_eq!(fixture.send_raw(post, &lines, &body).await, expected, "{lines:?} {body}");
    }
    let over = error(413, "null", -31014, "payload_too_large", "the body is longer than 4194304 bytes");
    assert_eq!(fixture.send_raw(post, &["Content-Length: 4194305"], "").await, over, "by what it announces");
    let expects = ["Content-Length: 4194305", "Expect: 100-continue"];
    assert_eq!(fixture.send_raw(post, &expects, "").await, over, "without `100 Continue`");
    let pieces = format!("100000\r\n{}\r\n", " ".repeat(1 << 20)).repeat(5) + "0\r\n\r\n";
    assert_eq!(fixture.send_raw(post, &[chunked], &pieces).await, over, "by the bytes received");
    fixture.check_unaffected().await;
}

#[tokio::test]
async fn endless_body_is_limited_by_the_request_timeout() {
    let mut fixture = Fixture::within(2).await;
    let late = error(400, "null", -32600, "invalid_request", "the body did not arrive in time");
    let busy = problem(503, "unavailable", "the gateway is overloaded or shutting down; try again");
    let began = Instant::now();
    let post = "POST /a/mcp HTTP/1.1\r\nHost: localhost";
    assert_eq!(fixture.send_raw(post, &["Content-Length: 100"], PING).await, late);
    let bytes = format!(
        "POST /admin/v1/tenants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{{",
        fixture.replica.operator
    );
    let mut expected = busy;
    expected["headers"]["retry-after"] = json!("1");
    assert_eq!(fixture.bytes(bytes.as_bytes()).await, expected);
    assert!(began.elapsed() < Duration::from_secs(12), "{:?}", began.elapsed());
    fixture.check_unaffected().await;
}

#[tokio::test]
async fn malformed_http_is_answered() {
    let mut fixture = Fixture::new().await;
    let own = format!("Content-Length: {}", PING.len());
    let forbidden = error(403, "7", -31011, "forbidden", "this credential does not reach that agent");
    let not_allowed = crate::support::answers::method_not_allowed("POST", false);
    let no_host = error(400, "7", -32600, "invalid_request", "a request has one Host");
    let host = "HTTP/1.1\r\nHost: localhost";
    for (head, expected) in [
        (format!("POST http://localhost/a/mcp {host}"), pong()),
        // With a valid key, any Host is accepted.
        (format!("POST http://evil.example/a/mcp {host}"), pong()),
        (format!("POST /{}/mcp {host}", "a".repeat(30_000)), forbidden.clone()),
        (format!("POST /{}/mcp {host}", "a".repeat(33_000)), no_http(431)),
        (format!("POST /%00/mcp {host}"), forbidden.clone()),
        (format!("POST /\u{e4}/mcp {host}"), forbidden),
        (format!("POST /{} {host}", "a".repeat(70_000)), no_http(431)),
        (format!("POST /a/../a/mcp {host}"), not_found()),
        (format!("POST /a/mcp? {host}"), pong()),
        (format!("POST a/mcp {host}"), no_http(400)),
        (format!("POST /a mcp {host}"), no_http(400)),
        (format!("POST * {host}"), not_found()),
        (format!("OPTIONS * {host}"), not_found()),
        (format!("CONNECT localhost:80 {host}"), not_found()),
        (format!("BREW /a/mcp {host}"), not_allowed.clone()),
        (format!("post /a/mcp {host}"), not_allowed.clone()),
        (format!("GET /a/mcp {host}"), not_allowed),
        ("POST /a/mcp HTTP/1.0".to_owned(), pong()),
        ("POST /a/mcp HTTP/1.1".to_owned(), no_host),
        ("POST /a/mcp HTTP/1.0\r\nHost: localhost".to_owned(), pong()),
        ("POST /a/mcp HTTP/3.0\r\nHost: localhost".to_owned(), no_http(400)),
        ("POST /a/mcp\r\nHost: localhost".to_owned(), no_http(400)),
        (format!("POST /a/mcp {host}\r\n folded: x"), no_http(400)),
        (format!("POST /a/mcp {host}\r\nX-A: a\0b"), no_http(400)),
        (format!("POST /a/mcp {host}\r\nX A: b"), no_http(400)),
        (format!("POST /a/mcp {host}\r\nX-A: {}", "a".repeat(33_000)), no_http(431)),
        (format!("POST /a/mcp {host}{}", "\r\nX-A: b".repeat(200)), no_http(431)),
    ] {
        let shown = head[..head.floor_char_boundary(60)].to_owned();
        assert_eq!(fixture.send_raw(&head, &[&own], PING).await, expected, "{shown}");
    }
    for garbage in [
        &b"\x00\x01\x02\r\n\r\n"[..],
        b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
    ] {
        assert_eq!(fixture.bytes(garbage).await, no_http(400));
    }
    fixture.check_unaffected().await;
}
