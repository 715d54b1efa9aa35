//! Connection limits.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::read_to_close;
use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::wait::eventually;

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// A connection on which one request was answered.
async fn served(replica: &Replica) -> Option<TcpStream> {
    let mut stream = TcpStream::connect(replica.running.address).await.unwrap();
    stream.write_all(REQUEST).await.ok()?;
    let mut first = [0; 12];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read_exact(&mut first)).await.ok()?;
    read.ok().filter(|_| &first == b"HTTP/1.1 200").map(|_| stream)
}

/// A client of the tests keeps the connection of its readiness check open.
const OWN: usize = 1;

#[tokio::test]
async fn connection_beyond_the_limit_of_an_address_is_closed() {
    let database = database().await;
    let most = 3 + OWN;
    let replica = Builder::new(&database).set("WAGGLE_SERVER__CONNECTIONS_PER_ADDRESS", most).start().await;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(served(&replica).await.unwrap());
    }
    let mut refused = TcpStream::connect(replica.running.address).await.unwrap();
    assert_eq!(read_to_close(&mut refused, Duration::from_secs(5)).await, (String::new(), true));
    held.pop();
    eventually("a place is given back", async || served(&replica).await.is_some()).await;
}

#[tokio::test]
async fn trusted_proxy_has_no_connection_limit() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_SERVER__CONNECTIONS_PER_ADDRESS", 1 + OWN)
        .set("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.0/8")
        .start()
        .await;
    let mut held = Vec::new();
    for _ in 0..10 {
        held.push(served(&replica).await.unwrap());
    }
}

#[tokio::test]
async fn connection_beyond_the_total_limit_waits_for_a_free_slot() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SERVER__CONNECTIONS", 2 + OWN).start().await;
    let (first, second) = (served(&replica).await.unwrap(), served(&replica).await.unwrap());
    let mut waiting = TcpStream::connect(replica.running.address).await.unwrap();
    waiting.write_all(REQUEST).await.unwrap();
    assert_eq!(read_to_close(&mut waiting, Duration::from_millis(500)).await, (String::new(), false));
    drop(first);
    let mut first = [0; 12];
    waiting.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    drop(second);
}

#[tokio::test]
async fn request_head_beyond_its_limits_is_refused() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_SERVER__HEADER_COUNT", 20)
        .set("WAGGLE_SERVER__HEADER_BYTES", 8192)
        .start()
        .await;
    let status = async |headers: String| {
        let request =
            format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}\r\n");
        crate::support::answers::raw(replica.running.address, request.as_bytes()).await.status.as_u16()
    };
    assert_eq!(status("X: y\r\n".repeat(18)).await, 200);
    assert_eq!(status("X: y\r\n".repeat(19)).await, 431);
    assert_eq!(status(format!("X: {}\r\n", "y".repeat(8_000))).await, 200);
    assert_eq!(status(format!("X: {}\r\n", "y".repeat(8_200))).await, 431);
}
