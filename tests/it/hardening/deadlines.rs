//! Requests that come a byte at a time, and connections on which nothing comes.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{heard, trickle};
use crate::app::{Builder, Replica};
use crate::cluster::database;

/// A gateway that waits two seconds for a head, four without a request, and two for a request.
async fn impatient() -> Replica {
    let database = database().await;
    Builder::new(&database)
        .set("WAGGLE_SERVER__HEAD_SECONDS", 2)
        .set("WAGGLE_SERVER__IDLE_SECONDS", 4)
        .set("WAGGLE_SERVER__REQUEST_SECONDS", 2)
        .start()
        .await
}

fn seconds(took: Duration) -> f64 {
    took.as_secs_f64()
}

#[tokio::test]
async fn a_head_that_comes_a_byte_at_a_time_has_its_deadline_from_the_first_byte_on() {
    let replica = impatient().await;
    let (said, took) = trickle(replica.running.address, "POST /a/mcp HTTP/1.1\r\nX-Slow:").await;
    assert_eq!(said, "");
    assert!((1.9..3.5).contains(&seconds(took)), "{took:?}");
}

#[tokio::test]
async fn the_next_head_of_a_connection_has_its_deadline_from_its_own_first_byte_on() {
    let replica = impatient().await;
    let mut stream = TcpStream::connect(replica.running.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_secs(3)).await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    let began = Instant::now();
    let (said, closed) = heard(&mut stream, Duration::from_secs(10)).await;
    assert_eq!((said.matches("HTTP/1.1 200 OK").count(), closed), (1, true), "{said}");
    assert!((1.9..3.5).contains(&seconds(began.elapsed())), "{:?}", began.elapsed());
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_once_it_was_idle_for_long_enough() {
    let replica = impatient().await;
    for first in ["", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "PRI * HT"] {
        let mut stream = TcpStream::connect(replica.running.address).await.unwrap();
        let began = Instant::now();
        stream.write_all(first.as_bytes()).await.unwrap();
        let (_, closed) = heard(&mut stream, Duration::from_secs(12)).await;
        assert!(closed && (3.9..7.5).contains(&seconds(began.elapsed())), "{first:?} {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_body_that_comes_a_byte_at_a_time_is_waited_for_on_no_surface_for_longer_than_a_request_may_take() {
    let replica = impatient().await;
    let key = replica.acme("a").await;
    let (operator, length) =
        (&replica.operator, "Content-Type: application/json\r\nContent-Length: 9999\r\n\r\n{");
    for (path, credential, statuses) in [
        ("/a/mcp", format!("X-Agent-API-Key: {key}"), &["400"][..]),
        ("/a/mcp", "X-Agent-API-Key: bak_no".to_owned(), &["401"]),
        ("/admin/v1/tenants", format!("Authorization: Bearer {operator}"), &["503"]),
        ("/admin/v1/tenants", "X-Nobody: 1".to_owned(), &["401"]),
        ("/metrics", "X-Nobody: 1".to_owned(), &["405"]),
        ("/healthz", "X-Nobody: 1".to_owned(), &["405"]),
        ("/nowhere", "X-Nobody: 1".to_owned(), &["404"]),
    ] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{credential}\r\n{length}");
        let (said, took) = trickle(replica.running.address, &head).await;
        let status = said.split(' ').nth(1).unwrap_or_default();
        assert!(statuses.contains(&status), "{path} {credential}: {said:?}");
        assert!(seconds(took) < 5.0, "{path} {credential}: {took:?}");
    }
}

#[tokio::test]
async fn those_who_are_slow_keep_nobody_waiting() {
    let replica = impatient().await;
    let key = replica.acme("a").await;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(replica.running.address).await.unwrap();
        stream.write_all(b"POST /a/mcp HTTP/1.1\r\n").await.unwrap();
        slow.push(stream);
    }
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let began = Instant::now();
    for _ in 0..20 {
        assert_eq!(replica.http.post("a", &key, &ping).await.status, 200);
    }
    println!("20 pings beside 200 heads that do not end: {:?}", began.elapsed());
    for stream in &mut slow {
        assert!(heard(stream, Duration::from_secs(10)).await.1);
    }
}

#[tokio::test]
async fn a_stream_is_open_for_longer_than_anything_else_may_take() {
    let replica = impatient().await;
    let key = replica.acme("a").await;
    let version = "io.modelcontextprotocol/protocolVersion";
    let meta = json!({version: "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"_meta": meta, "notifications": {"resourcesListChanged": true}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params});
    let headers = [
        ("x-agent-api-key", key.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ];
    let mut stream = replica.http.respond("POST", "/a/mcp", &headers, body.to_string()).await.unwrap();
    assert_eq!(stream.status(), 200);
    assert!(stream.chunk().await.unwrap().is_some());
    tokio::time::sleep(Duration::from_secs(6)).await;
    replica.put("a", "x:1", "text").await;
    let told = stream.chunk().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&told).contains("list_changed"), "{told:?}");
}
