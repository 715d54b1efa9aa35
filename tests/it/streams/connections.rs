//! Streams as bytes on their connections.

use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::tls;
use crate::support::wait::DEADLINE;

/// A `subscriptions/listen` of this version of HTTP.
fn request(version: &str, key: &str) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({"_meta": meta, "notifications": {"resourcesListChanged": true}});
    let body =
        json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}).to_string();
    format!(
        "POST /a/mcp {version}\r\nHost: localhost\r\nX-Agent-API-Key: {key}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: subscriptions/listen\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Opens a stream of a key, with bytes after the request, and revokes the key once it has sent an event. Returns the head and the
/// body until the gateway closes the connection.
async fn whole<S>(replica: &Replica, mut connection: S, version: &str, after: &str) -> (String, String)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (id, key) = replica.key("a", &["mcp"]).await;
    connection.write_all((request(version, &key) + after).as_bytes()).await.unwrap();
    let mut received = Vec::new();
    while !String::from_utf8_lossy(&received).contains("notifications/subscriptions/acknowledged") {
        let read = tokio::time::timeout(DEADLINE, connection.read_buf(&mut received)).await.unwrap().unwrap();
        assert!(read > 0, "{}", String::from_utf8_lossy(&received));
    }
    assert_eq!(replica.admin("DELETE", &format!("/keys/{id}"), None).await.status, 204);
    tokio::time::timeout(DEADLINE, connection.read_to_end(&mut received)).await.unwrap().unwrap();
    let text = String::from_utf8(received).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.to_owned())
}

/// The events of a chunked body, which is complete.
fn dechunked(mut body: &str) -> String {
    let mut events = String::new();
    loop {
        let (length, rest) = body.split_once("\r\n").unwrap();
        let (data, rest) = rest.split_at(usize::from_str_radix(length, 16).unwrap());
        events += data;
        body = rest.strip_prefix("\r\n").unwrap();
        if data.is_empty() {
            assert_eq!(body, "");
            return events;
        }
    }
}

#[tokio::test]
async fn connection_of_a_stream_is_closed_after_its_last_event() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    replica.acme("a").await;
    let (files, certificate) = tls::Files::new();
    let secured = tls::start(&database, &files, &[]).await;

    let plain = || TcpStream::connect(replica.running.address);
    let pipelined = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let encrypted = tls::connect(secured.running.address, &certificate, &[]).await.unwrap();
    let chunked = [
        whole(&replica, plain().await.unwrap(), "HTTP/1.1", "").await,
        whole(&replica, plain().await.unwrap(), "HTTP/1.1", pipelined).await,
        whole(&replica, encrypted, "HTTP/1.1", "").await,
    ];
    for (head, body) in chunked {
        let events = dechunked(&body);
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            head.contains("\r\nconnection: close") && head.contains("\r\ntransfer-encoding: chunked"),
            "{head}"
        );
        assert!(events.ends_with("}\n\n") && events.contains(r#""resultType":"complete""#), "{events}");
    }
    // HTTP/1.0 has no chunks.
    let (head, events) = whole(&replica, plain().await.unwrap(), "HTTP/1.0", "").await;
    assert!(head.starts_with("HTTP/1.0 200 OK\r\n") && !head.contains("transfer-encoding"), "{head}");
    assert!(events.ends_with("}\n\n") && events.contains(r#""resultType":"complete""#), "{events}");
}

#[tokio::test]
async fn stream_ends_when_its_client_disconnects() {
    let database = database().await;
    // No comment is sent meanwhile, which would fail.
    let replica = Builder::new(&database).set("WAGGLE_SESSIONS__KEEP_ALIVE_SECONDS", 3_600).start().await;
    let key = replica.acme("a").await;
    let mut connection = TcpStream::connect(replica.running.address).await.unwrap();
    connection.write_all(request("HTTP/1.1", &key).as_bytes()).await.unwrap();
    replica.has_streams(1).await;
    drop(connection);
    replica.has_streams(0).await;
}
