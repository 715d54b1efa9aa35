//! HTTP/2: abuse of many streams on one connection.

use serde_json::json;
use tokio::net::TcpStream;

use crate::support::app::{Builder, gateway};
use crate::support::cluster::database;
use crate::support::frames::{END_HEADERS, FrameClient, GOAWAY, HEADERS, PING, RST_STREAM, frame, get};
use crate::support::wait::eventually;

const ENHANCE_YOUR_CALM: u32 = 11;
const CANCEL: [u8; 4] = 8_u32.to_be_bytes();

#[tokio::test]
async fn rapid_reset_closes_the_connection_and_others_are_served() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let mut attacker = FrameClient::begin(TcpStream::connect(replica.running.address).await.unwrap()).await;
    let mut burst = Vec::new();
    for nth in 0..2_000 {
        burst.extend(get(2 * nth + 1, 0));
        burst.extend(frame(RST_STREAM, 0, 2 * nth + 1, &CANCEL));
    }
    // The gateway may close the connection before everything is sent.
    let _ = attacker.send(&burst).await;
    let end = attacker.next(GOAWAY).await.expect("the connection ended without GOAWAY");
    assert_eq!(end.reason(), ENHANCE_YOUR_CALM);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(replica.http.post("a", &key, &ping).await.status, 200);
}

#[tokio::test]
async fn some_streams_may_be_reset() {
    let (_database, replica) = gateway().await;
    let mut client = FrameClient::begin(TcpStream::connect(replica.running.address).await.unwrap()).await;
    for nth in 0..10 {
        client.send(&get(2 * nth + 1, 0)).await.unwrap();
        client.send(&frame(RST_STREAM, 0, 2 * nth + 1, &CANCEL)).await.unwrap();
    }
    client.send(&get(101, 0)).await.unwrap();
    loop {
        let answer = client.next(HEADERS).await.expect("the connection stays open");
        if answer.stream == 101 {
            break;
        }
    }
}

#[tokio::test]
async fn header_limit_applies_to_http_2() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SERVER__HEADER_COUNT", 20).start().await;
    let mut client = FrameClient::begin(TcpStream::connect(replica.running.address).await.unwrap()).await;
    client.send(&get(1, 20)).await.unwrap();
    assert_eq!(client.status().await, Some(200));
    client.send(&get(3, 21)).await.unwrap();
    assert_eq!(client.status().await, Some(431));
}

#[tokio::test]
async fn endless_continuation_frames_close_the_connection() {
    let (_database, replica) = gateway().await;
    let mut attacker = FrameClient::begin(TcpStream::connect(replica.running.address).await.unwrap()).await;
    let whole = get(1, 0);
    attacker.send(&frame(HEADERS, 0, 1, &whole[9..])).await.unwrap();
    let piece = frame(9, 0, 1, b"\x00\x01x\x01y");
    let mut sent = 0;
    while sent < 100_000 && attacker.send(&piece.repeat(100)).await.is_ok() {
        sent += 100;
        tokio::task::yield_now().await;
    }
    assert!(sent < 100_000, "the connection stays open");
    assert_ne!(END_HEADERS, 0);
}

#[tokio::test]
async fn idle_http_2_connection_is_closed_despite_pings() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_SERVER__IDLE_SECONDS", 3)
        .set("WAGGLE_SERVER__HEAD_SECONDS", 1)
        .start()
        .await;
    let mut client = FrameClient::begin(TcpStream::connect(replica.running.address).await.unwrap()).await;
    client.send(&get(1, 0)).await.unwrap();
    assert_eq!(client.status().await, Some(200));
    let ends = eventually("the connection is closed", async || {
        client.send(&frame(PING, 0, 0, &[7; 8])).await.is_err()
    });
    ends.await;
    assert_eq!(client.next(GOAWAY).await.map(|end| end.reason()), Some(0));
}
