//! Large and slow bodies: memory and timeouts.

use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::wait::eventually;

const MIB: usize = 1 << 20;
const WAIT: Duration = Duration::from_secs(30);

/// A connection on which the head of a manifest of this length and its first byte were sent.
async fn announce(replica: &Replica, key: &str, length: Option<usize>) -> TcpStream {
    let mut stream = TcpStream::connect(replica.running.address).await.unwrap();
    let (framing, first) = match length {
        Some(length) => (format!("Content-Length: {length}"), "{"),
        None => ("Transfer-Encoding: chunked".to_owned(), "1\r\n{\r\n"),
    };
    let head = format!(
        "PUT /admin/v1/agents/a/manifest HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\n{framing}\r\n\r\n{first}"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// The metric of the bytes that are reserved for bodies.
async fn reserved(replica: &Replica) -> usize {
    let metrics = replica.http.get("/metrics").await.text();
    let line = metrics.lines().find(|line| line.starts_with("waggle_upload_bytes ")).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

async fn wait_for_reserved(replica: &Replica, bytes: usize) {
    eventually(&format!("{bytes} bytes are reserved"), async || reserved(replica).await == bytes).await;
}

/// The first bytes of an answer.
async fn answer(stream: &mut TcpStream) -> String {
    let mut received = vec![0; 4_096];
    let read = tokio::time::timeout(WAIT, stream.read(&mut received)).await.unwrap().unwrap();
    String::from_utf8_lossy(&received[..read]).into_owned()
}

#[tokio::test]
async fn concurrent_uploads_of_one_key_reserve_memory_once() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SERVER__BODY_BYTES_PER_SECOND", 0).start().await;
    let key = replica.acme("a").await;
    let mut first = announce(&replica, &key, Some(64 * MIB)).await;
    wait_for_reserved(&replica, 64 * MIB).await;
    for length in [Some(64 * MIB), None].into_iter().cycle().take(23) {
        let refused = answer(&mut announce(&replica, &key, length).await).await;
        assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
    }
    assert_eq!(reserved(&replica).await, 64 * MIB);
    first.shutdown().await.unwrap();
    wait_for_reserved(&replica, 0).await;
    let manifest = json!({"apiVersion": "waggle/v1", "agent": "a"});
    assert_eq!(replica.http.admin(&key, "PUT", "/agents/a/manifest", Some(manifest)).await.status, 200);
}

#[tokio::test]
async fn upload_memory_is_shared_between_tenants() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_SERVER__BODY_BYTES_PER_SECOND", 0)
        .set("WAGGLE_LIMITS__MANIFEST_BYTES", 4 * MIB)
        .set("WAGGLE_LIMITS__CONTENT_BYTES", MIB)
        .set("WAGGLE_LIMITS__SKILL_BYTES", MIB)
        .set("WAGGLE_LIMITS__UPLOAD_BYTES_PER_KEY", 4 * MIB)
        .set("WAGGLE_LIMITS__UPLOAD_BYTES_PER_TENANT", 6 * MIB)
        .set("WAGGLE_LIMITS__UPLOAD_BYTES", 24 * MIB)
        .start()
        .await;
    let first = replica.acme("a").await;
    let (_, second) = replica.key("a", &["registry"]).await;
    let _held = announce(&replica, &first, None).await;
    wait_for_reserved(&replica, 4 * MIB).await;
    let refused = answer(&mut announce(&replica, &second, Some(3 * MIB)).await).await;
    assert!(refused.starts_with("HTTP/1.1 503 ") && refused.contains("retry-after"), "{refused}");
    let _also = announce(&replica, &second, Some(2 * MIB)).await;
    wait_for_reserved(&replica, 6 * MIB).await;
    let mut operators = Vec::new();
    for nth in 1..=4 {
        operators.push(announce(&replica, &replica.operator, Some(4 * MIB)).await);
        wait_for_reserved(&replica, 6 * MIB + nth * 4 * MIB).await;
    }
    let refused = answer(&mut announce(&replica, &replica.operator, Some(3 * MIB)).await).await;
    assert!(refused.starts_with("HTTP/1.1 503 "), "the process has 2 MiB left: {refused}");
}

/// Requests an answer, which is not read.
async fn leave_unread(replica: &Replica, path: &str, bearer: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let mut stream = socket.connect(replica.running.address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {bearer}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

#[tokio::test]
async fn unread_answers_of_one_key_reserve_memory_apart_from_bodies() {
    const SIZE: usize = 4 * MIB;
    const PATH: &str = "/admin/v1/agents/a/resources/content?uri=x%3A1";
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/octet-stream")];
    assert_eq!(replica.http.send("PUT", PATH, &headers, vec![0; SIZE]).await.status, 201);
    let mut unread = Vec::new();
    for nth in 1..=4 {
        unread.push(leave_unread(&replica, PATH, &bearer).await);
        wait_for_reserved(&replica, nth * SIZE).await;
    }
    assert_eq!(replica.http.send("GET", PATH, &headers, "").await.status, 503);
    assert_eq!(replica.http.admin(&key, "GET", "/agents/a/resources", None).await.status, 200);
    let body = announce(&replica, &key, Some(64 * MIB)).await;
    wait_for_reserved(&replica, 4 * SIZE + 64 * MIB).await;
    drop(body);
    wait_for_reserved(&replica, 4 * SIZE).await;
    unread.pop();
    wait_for_reserved(&replica, 3 * SIZE).await;
    let read = replica.http.send("GET", PATH, &headers, "").await;
    assert_eq!((read.status.as_u16(), read.text().len()), (200, SIZE));
    unread.clear();
    wait_for_reserved(&replica, 0).await;

    // One longer answer leaves half of the memory.
    assert_eq!(replica.http.send("PUT", PATH, &headers, vec![0; 3 * SIZE]).await.status, 200);
    for nth in 1..=2 {
        unread.push(leave_unread(&replica, PATH, &bearer).await);
        wait_for_reserved(&replica, nth * 2 * SIZE).await;
    }
}

#[tokio::test]
async fn slow_body_is_an_invalid_request_on_both_surfaces() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SERVER__BODY_WINDOW_SECONDS", 1).start().await;
    let key = replica.acme("a").await;
    let mut publishing = announce(&replica, &key, Some(MIB)).await;
    let mut calling = replica.http.begin("a", &key, 99).await;
    publishing.write_all(&[b' '; 1_000]).await.unwrap();
    let problem = answer(&mut publishing).await;
    assert!(problem.starts_with("HTTP/1.1 400 "), "{problem}");
    assert!(problem.contains("\"code\":\"invalid_request\""), "{problem}");
    let error = answer(&mut calling).await;
    assert!(error.starts_with("HTTP/1.1 400 "), "{error}");
    assert!(error.contains("\"code\":-32600"), "{error}");
    wait_for_reserved(&replica, 0).await;
}
