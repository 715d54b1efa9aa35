//! Hostile and slow clients: what they cost, and that others are not affected.

mod bad_key_flood;
mod connections;
mod deadlines;
mod http2;
mod manifest_permits;
mod metrics;
mod native_histograms;
mod slow_answers;
mod tls;
mod trust;
mod unfinished;
mod uploads;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::wait::DEADLINE;

/// Reads until the gateway closes the connection or the time is over; returns the received bytes, and whether the
/// connection was closed.
async fn read_to_close(stream: &mut TcpStream, within: Duration) -> (String, bool) {
    let mut received = Vec::new();
    let read = tokio::time::timeout(within, stream.read_to_end(&mut received)).await;
    (String::from_utf8_lossy(&received).into_owned(), read.is_ok())
}

/// Sends these bytes, then one byte at a time until the gateway closes the connection; returns the received bytes, and
/// the time until then.
async fn trickle(address: SocketAddr, first: &str) -> (String, Duration) {
    let stream = TcpStream::connect(address).await.unwrap();
    let began = Instant::now();
    let (mut read, mut write) = stream.into_split();
    write.write_all(first.as_bytes()).await.unwrap();
    let trickling = tokio::spawn(async move {
        let mut interval = tokio::time::interval(Duration::from_millis(100));
        while write.write_all(b" ").await.is_ok() {
            interval.tick().await;
        }
    });
    let mut received = Vec::new();
    // A byte that was sent after the gateway closed resets the connection; what was received before is kept.
    let _ = tokio::time::timeout(DEADLINE, read.read_to_end(&mut received)).await.unwrap();
    trickling.abort();
    (String::from_utf8_lossy(&received).into_owned(), began.elapsed())
}
