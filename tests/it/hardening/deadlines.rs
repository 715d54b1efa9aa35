//! Timeouts of slow requests and idle connections.

use std::io::{ErrorKind, Read};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use waggle::model::system::FailPoint;

use super::{read_to_close, trickle};
use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::faults::FaultScript;

/// A gateway with timeouts of two seconds for a head and for a request, and this idle timeout.
async fn impatient(idle: u64) -> Replica {
    let database = database().await;
    Builder::new(&database)
        .set("WAGGLE_SERVER__HEAD_SECONDS", 2)
        .set("WAGGLE_SERVER__IDLE_SECONDS", idle)
        .set("WAGGLE_SERVER__REQUEST_SECONDS", 2)
        .start()
        .await
}

/// Slightly less than the two seconds for a head or a request: timers may be early by the difference.
const HEAD: Duration = Duration::from_millis(1_900);

/// Longer than any timeout here.
const WITHIN: Duration = Duration::from_secs(60);

/// An idle timeout in seconds that is not reached within a test.
const LONG_IDLE: u64 = 300;

/// A timeout of heads in seconds that is longer than clients of the tests wait for an answer.
const LONG_HEAD: u64 = 600;

/// A connection without a request, which the gateway closes after its idle timeout. Tests compare with it instead of a
/// clock, since it is delayed by the same load as the gateway.
struct IdleConnection(TcpStream);

impl IdleConnection {
    async fn open(replica: &Replica) -> Self {
        Self(TcpStream::connect(replica.running.address).await.unwrap())
    }

    fn stays_open(self) -> bool {
        let mut stream = self.0.into_std().unwrap();
        stream.read(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

#[tokio::test]
async fn slow_request_head_is_timed_from_its_first_byte() {
    let replica = impatient(3).await;
    let idle = IdleConnection::open(&replica).await;
    let (received, took) = trickle(replica.running.address, "POST /a/mcp HTTP/1.1\r\nX-Slow:").await;
    assert_eq!(received, "");
    assert!(took >= HEAD, "{took:?}");
    assert!(idle.stays_open(), "closed after more than three seconds: {took:?}");
}

#[tokio::test]
async fn second_request_head_is_timed_from_its_own_first_byte() {
    let replica = impatient(4).await;
    let mut stream = TcpStream::connect(replica.running.address).await.unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    // Not for a condition: the deadline of a head must not run while there is none.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle = IdleConnection::open(&replica).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    stream.write_all(b"GET /healthz HTTP/1.1\r\n").await.unwrap();
    let (received, closed) = read_to_close(&mut stream, WITHIN).await;
    assert_eq!((received.matches("HTTP/1.1 200 OK").count(), closed), (1, true), "{received}");
    assert!(began.elapsed() >= HEAD, "{:?}", began.elapsed());
    assert!(idle.stays_open(), "closed after more than three seconds: {:?}", began.elapsed());
}

#[tokio::test]
async fn idle_connection_is_closed_after_the_idle_timeout() {
    let replica = impatient(4).await;
    for first in ["", "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    {
        let mut stream = TcpStream::connect(replica.running.address).await.unwrap();
        let began = Instant::now();
        stream.write_all(first.as_bytes()).await.unwrap();
        // Not for a condition: a later connection is closed later.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let later = IdleConnection::open(&replica).await;
        let (_, closed) = read_to_close(&mut stream, WITHIN).await;
        assert!(closed && began.elapsed() >= 2 * HEAD, "{first:?} {:?}", began.elapsed());
        assert!(later.stays_open(), "{first:?}: closed after more than seven seconds: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn slow_body_ends_at_the_request_timeout_on_every_surface() {
    let replica = impatient(4).await;
    let key = replica.acme("a").await;
    let (operator, length) =
        (&replica.operator, "Content-Type: application/json\r\nContent-Length: 9999\r\n\r\n{");
    for (path, credential, statuses) in [
        ("/a/mcp", format!("X-Agent-API-Key: {key}"), &["400"][..]),
        ("/a/mcp", "X-Agent-API-Key: bak_no".to_owned(), &["401"]),
        ("/admin/v1/tenants", format!("Authorization: Bearer {operator}"), &["503"]),
        ("/admin/v1/tenants", "X-Unknown: 1".to_owned(), &["401"]),
        ("/metrics", "X-Unknown: 1".to_owned(), &["405"]),
        ("/healthz", "X-Unknown: 1".to_owned(), &["405"]),
        ("/nowhere", "X-Unknown: 1".to_owned(), &["404"]),
    ] {
        let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{credential}\r\n{length}");
        let idle = IdleConnection::open(&replica).await;
        let (received, took) = trickle(replica.running.address, &head).await;
        let status = received.split(' ').nth(1).unwrap_or_default();
        assert!(statuses.contains(&status), "{path} {credential}: {received:?}");
        assert!(idle.stays_open(), "{path} {credential}: closed after more than four seconds: {took:?}");
    }
}

#[tokio::test]
async fn body_that_does_not_arrive_in_the_time_of_a_request_is_charged() {
    let database = database().await;
    let mut builder = Builder::new(&database).set("WAGGLE_SERVER__REQUEST_SECONDS", 2);
    for (limit, value) in
        [("LIMITS__AGENT_PER_SECOND", 0), ("LIMITS__TENANT_PER_SECOND", 0), ("LIMITS__KEY_PER_SECOND", 1)]
    {
        builder = builder.set(&format!("WAGGLE_{limit}"), value);
    }
    // After one such body, the key is refused for minutes.
    let replica = builder.set("WAGGLE_COSTS__OTHER", 400).start().await;
    let key = replica.acme("a").await;
    let mut late = replica.http.begin("a", &key, 9_999).await;
    let mut answer = [0; 13];
    tokio::time::timeout(WITHIN, late.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(std::str::from_utf8(&answer), Ok("HTTP/1.1 400 "));
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(replica.http.post("a", &key, &ping).await.status, 429);
}

#[tokio::test]
async fn request_that_takes_too_long_is_answered_with_its_id() {
    let database = database().await;
    let faults = FaultScript::new();
    let replica = Builder::new(&database)
        .set("WAGGLE_SERVER__REQUEST_SECONDS", 2)
        .fault_injector(faults.clone())
        .start()
        .await;
    let key = replica.acme("a").await;
    let message = |method: &str| json!({"jsonrpc": "2.0", "id": "seven", "method": method});
    assert_eq!(replica.http.post("a", &key, &message("ping")).await.status, 200);
    // A ping loads nothing; the first list loads the catalog.
    let held = faults.hold(FailPoint::CacheFillRead);
    let (http, list) = (replica.http.clone(), message("resources/list"));
    let listing = tokio::spawn(async move { http.post("a", &key, &list).await });
    held.meanwhile(async {
        let answer = listing.await.unwrap();
        let body = answer.json();
        assert_eq!((answer.status.as_u16(), &body["id"]), (503, &json!("seven")), "{body}");
        assert_eq!(body["error"]["data"]["code"], "unavailable");
    })
    .await;
}

#[tokio::test]
async fn slow_clients_do_not_delay_others() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SERVER__HEAD_SECONDS", LONG_HEAD).start().await;
    let key = replica.acme("a").await;
    let mut slow = Vec::new();
    for _ in 0..200 {
        let mut stream = TcpStream::connect(replica.running.address).await.unwrap();
        stream.write_all(b"POST /a/mcp HTTP/1.1\r\n").await.unwrap();
        slow.push(stream);
    }
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for _ in 0..20 {
        assert_eq!(replica.http.post("a", &key, &ping).await.status, 200);
    }
    // The others were answered while all of these heads are still awaited.
    for stream in slow {
        assert!(IdleConnection(stream).stays_open());
    }
}

#[tokio::test]
async fn stream_outlives_all_connection_timeouts() {
    let replica = impatient(LONG_IDLE).await;
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
    // Not for a condition: longer than each of the gateway's deadlines, none of which may end the stream.
    tokio::time::sleep(Duration::from_secs(6)).await;
    replica.put("a", "x:1", "text").await;
    let chunk = stream.chunk().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&chunk).contains("list_changed"), "{chunk:?}");
}
