//! A client with a socket of its own and a small receive buffer, which reads only on request.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// The end of the last chunk of an answer.
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
const RECEIVE_BUFFER: u32 = 64 << 10;

/// A connection with an open stream.
#[derive(Debug)]
pub(super) struct StreamSocket(TcpStream);

impl StreamSocket {
    /// Sends `subscriptions/listen`.
    pub(super) async fn listen(address: SocketAddr, agent: &str, bearer: &str, uris: &[String]) -> Self {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let params = json!({"_meta": meta, "notifications": {"resourceSubscriptions": uris}});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params});
        let body = message.to_string();
        let head = format!(
            "POST /{agent}/mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        Self::send(address, &(head + &body)).await
    }

    /// Sends `GET` in a session.
    pub(super) async fn resume(address: SocketAddr, agent: &str, bearer: &str, session: &str) -> Self {
        let head = format!(
            "GET /{agent}/mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {bearer}\r\n\
             Accept: text/event-stream\r\nMCP-Protocol-Version: 2025-06-18\r\nMcp-Session-Id: {session}\r\n\r\n"
        );
        Self::send(address, &head).await
    }

    async fn send(address: SocketAddr, request: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut status = [0; 12];
        stream.read_exact(&mut status).await.unwrap();
        assert_eq!(std::str::from_utf8(&status).unwrap(), "HTTP/1.1 200");
        Self(stream)
    }

    /// Reads until the answer ends; `None` if it does not end within `patience`, or not in good order.
    pub(super) async fn end(mut self, patience: Duration) -> Option<String> {
        let reading = async {
            let mut read = Vec::new();
            let mut buffer = vec![0; RECEIVE_BUFFER as usize];
            while !read.ends_with(LAST_CHUNK) {
                match self.0.read(&mut buffer).await {
                    Ok(0) | Err(_) => return None,
                    Ok(count) => read.extend_from_slice(&buffer[..count]),
                }
            }
            String::from_utf8(read).ok()
        };
        tokio::time::timeout(patience, reading).await.ok().flatten()
    }
}
