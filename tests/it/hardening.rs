//! Hostile and slow clients: what they cost, and that others are not affected.

mod bad_key_flood;
mod connections;
mod deadlines;
mod http2;
mod metrics;
mod tls;
mod unfinished;
mod uploads;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::wait::DEADLINE;

/// Whether the other side closes a connection within a time, and what it says until then.
async fn heard(stream: &mut TcpStream, within: Duration) -> (String, bool) {
    let mut said = Vec::new();
    let read = tokio::time::timeout(within, stream.read_to_end(&mut said)).await;
    (String::from_utf8_lossy(&said).into_owned(), read.is_ok())
}

/// Sends these bytes, then one byte at a time until the other side has closed; how long that took.
async fn trickle(address: SocketAddr, first: &str) -> (String, Duration) {
    let stream = TcpStream::connect(address).await.unwrap();
    let began = Instant::now();
    let (mut read, mut write) = stream.into_split();
    write.write_all(first.as_bytes()).await.unwrap();
    let dripping = tokio::spawn(async move {
        let mut drops = tokio::time::interval(Duration::from_millis(100));
        while write.write_all(b" ").await.is_ok() {
            drops.tick().await;
        }
    });
    let mut said = Vec::new();
    // What was still being sent when the other side closed resets the connection: said is what was heard before.
    let _ = tokio::time::timeout(DEADLINE, read.read_to_end(&mut said)).await.unwrap();
    dripping.abort();
    (String::from_utf8_lossy(&said).into_owned(), began.elapsed())
}
