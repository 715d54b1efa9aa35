//! Clients that receive an answer slowly, or not at all.

use std::iter::successors;

use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};

use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::events::Session;
use crate::support::frames::{FrameClient, GOAWAY, get_path};
use crate::support::wait::eventually;

/// More than the buffers of a connection take.
const SIZE: usize = 8 << 20;
const CONTENT: &str = "/admin/v1/agents/a/resources/content?uri=x%3A1";
const CLOSED: &str = "the connection is closed";

/// Bytes that a compressed answer cannot leave out.
fn incompressible() -> Vec<u8> {
    let next = |state: &u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    successors(Some(1), next).map(|state| state.to_be_bytes()[0]).take(SIZE).collect()
}

/// A connection whose client receives what a small buffer takes.
async fn connect(replica: &Replica) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(replica.running.address).await.unwrap()
}

#[tokio::test]
async fn answer_that_its_client_does_not_receive_closes_the_connection() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_SERVER__ANSWER_SECONDS", 1)
        .set("WAGGLE_SERVER__ANSWER_BYTES_PER_SECOND", 1_000_000_000)
        .start()
        .await;
    let key = replica.acme("a").await;
    let bearer = format!("Bearer {key}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/octet-stream")];
    assert_eq!(replica.http.send("PUT", CONTENT, &headers, incompressible()).await.status, 201);
    let session = Session::open(&replica, "a", &key, "2025-06-18").await;
    session.subscribe(&replica, "x:1").await;
    let mut stream = session.stream(&replica, None).await;

    let read =
        json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x:1"}}).to_string();
    let get = format!("GET {CONTENT} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {bearer}\r\n");
    let requests = [
        format!("{get}\r\n"),
        format!("{get}Accept-Encoding: gzip\r\n\r\n"),
        format!(
            "POST /a/mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: {bearer}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{read}",
            read.len()
        ),
    ];
    for request in requests {
        let mut client = connect(&replica).await;
        client.write_all(request.as_bytes()).await.unwrap();
        eventually(CLOSED, async || client.write_all(b"\r\n").await.is_err()).await;
    }
    // In HTTP/2 also a short one, of which the client wants nothing; others are not begun any more.
    for (window, path) in [(65_535, CONTENT), (0, "/healthz")] {
        let stream = TcpStream::connect(replica.running.address).await.unwrap();
        let mut client = FrameClient::with_window(stream, window).await;
        client.send(&get_path(1, path, &[("authorization", &bearer)])).await.unwrap();
        assert_eq!(client.next(GOAWAY).await.map(|end| end.reason()), Some(0));
        while client.next(GOAWAY).await.is_some() {}
    }

    assert_eq!(replica.http.send("PUT", CONTENT, &headers, "new").await.status, 200);
    assert_eq!(stream.next_summary().await, "updated x:1", "streams go on");
}
