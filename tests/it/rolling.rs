//! What a load balancer in front of a gateway relies on while it is restarted, and the messages to its service manager.

use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixDatagram};

use crate::support::process::Site;
use crate::support::wait::eventually;

const ALIVE: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Sends a request on a connection that may stay open; returns whether the answer says that it is closed.
async fn is_closed_after(connection: &mut TcpStream) -> bool {
    connection.write_all(ALIVE.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(br#"{"status":"alive"}"#) {
        assert_ne!(connection.read_buf(&mut answer).await.unwrap(), 0);
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    answer.to_ascii_lowercase().contains("\r\nconnection: close\r\n")
}

#[tokio::test]
async fn answers_of_a_draining_gateway_close_their_connections() {
    let site = Site::new().set("WAGGLE_SERVER__DRAIN_SECONDS", 600);
    let gateway = site.serve().await;
    let mut connection = TcpStream::connect(site.address).await.unwrap();
    assert!(!is_closed_after(&mut connection).await);
    gateway.terminate();
    eventually("the gateway drains", async || !site.is_ready().await).await;
    assert!(is_closed_after(&mut connection).await);
    assert_eq!(connection.read(&mut [0; 1]).await.unwrap(), 0);
    gateway.terminate();
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn first_request_of_a_connection_is_answered_after_the_listener_closed() {
    let site = Site::new();
    let gateway = site.serve().await;
    let mut connection = TcpStream::connect(site.address).await.unwrap();
    // Connections are accepted in order: a later one has been served.
    assert!(site.is_ready().await);
    gateway.terminate();
    eventually("connections are refused", async || TcpStream::connect(site.address).await.is_err()).await;
    assert!(is_closed_after(&mut connection).await);
    assert_eq!(gateway.ended().await.code(), Some(0));
}

/// The next message to the service manager other than that for its watchdog.
async fn next_message(manager: &UnixDatagram) -> String {
    loop {
        let mut message = [0; 256];
        let length = tokio::time::timeout(Duration::from_secs(30), manager.recv(&mut message)).await;
        let message = std::str::from_utf8(&message[..length.unwrap().unwrap()]).unwrap();
        if message.trim() != "WATCHDOG=1" {
            return message.to_owned();
        }
    }
}

#[tokio::test]
async fn service_manager_is_notified_of_start_reload_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let site = Site::new().set("NOTIFY_SOCKET", socket.display());
    let gateway = site.serve().await;
    assert_eq!(next_message(&manager).await.trim(), "READY=1");
    kill(gateway.pid(), Signal::SIGHUP).unwrap();
    let reloading = next_message(&manager).await;
    assert!(reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{reloading}");
    assert_eq!(next_message(&manager).await.trim(), "READY=1");
    gateway.terminate();
    assert_eq!(next_message(&manager).await.trim(), "STOPPING=1");
    assert_eq!(gateway.ended().await.code(), Some(0));
}

#[tokio::test]
async fn watchdog_is_told_that_the_gateway_is_alive() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let site = Site::new().set("NOTIFY_SOCKET", socket.display()).set("WATCHDOG_USEC", 200_000);
    let gateway = site.serve().await;
    for expected in ["READY=1", "WATCHDOG=1", "WATCHDOG=1", "WATCHDOG=1"] {
        let mut message = [0; 256];
        let length = tokio::time::timeout(Duration::from_secs(30), manager.recv(&mut message)).await;
        let length = length.unwrap().unwrap();
        assert_eq!(std::str::from_utf8(&message[..length]).unwrap().trim(), expected);
    }
    assert_eq!(gateway.stop().await.code(), Some(0));
}
