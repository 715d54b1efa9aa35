//! A stream over a connection with small buffers, which may stop reading.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{MODERN, meta};
use crate::sse::parse;

/// What the kernel may keep for a reader on its own side; it doubles it. On the gateway's side it keeps more.
const ROOM: u32 = 8 * 1024;
/// The longest that a reader waits for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// An open stream, of either era.
#[derive(Debug)]
pub(crate) struct Slow {
    connection: TcpStream,
    /// As it comes, in chunks.
    raw: Vec<u8>,
    /// Without the chunks, from the first event that is not read.
    text: Vec<u8>,
}

impl Slow {
    /// Listens to these URIs; the acknowledgement is read.
    pub(crate) async fn listen(port: u16, agent: &str, key: &str, uris: &[String]) -> Self {
        let params = json!({"_meta": meta(), "notifications": {"resourceSubscriptions": uris}});
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params});
        let body = body.to_string();
        let request = format!(
            "POST /{agent}/mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nx-agent-api-key: {key}\r\n\
             content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
             mcp-protocol-version: {MODERN}\r\nmcp-method: subscriptions/listen\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        let mut slow = Self::open(port, &request).await;
        let honoured = slow.next().await["params"]["notifications"]["resourceSubscriptions"].take();
        assert_eq!(honoured.as_array().map(Vec::len), Some(uris.len()));
        slow
    }

    /// Opens the stream of a session.
    pub(crate) async fn resume(port: u16, agent: &str, key: &str, session: &str) -> Self {
        let request = format!(
            "GET /{agent}/mcp HTTP/1.1\r\nhost: 127.0.0.1\r\nx-agent-api-key: {key}\r\n\
             mcp-session-id: {session}\r\naccept: text/event-stream\r\n\r\n"
        );
        Self::open(port, &request).await
    }

    async fn open(port: u16, request: &str) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(ROOM).unwrap();
        let connection = socket.connect(([127, 0, 0, 1], port).into()).await.unwrap();
        let mut slow = Self { connection, raw: Vec::new(), text: Vec::new() };
        slow.connection.write_all(request.as_bytes()).await.unwrap();
        loop {
            if let Some(end) = slow.raw.windows(4).position(|four| four == b"\r\n\r\n") {
                let head: Vec<_> = slow.raw.drain(..end + 4).collect();
                assert!(head.starts_with(b"HTTP/1.1 200"), "{}", String::from_utf8_lossy(&head));
                return slow;
            }
            slow.receive().await;
        }
    }

    async fn receive(&mut self) {
        let read = tokio::time::timeout(PATIENCE, self.connection.read_buf(&mut self.raw)).await;
        assert!(read.unwrap_or_else(|_| panic!("nothing is told")).unwrap() > 0, "the stream ended");
    }

    /// Takes a chunk that is there whole.
    fn unwrap_chunk(&mut self) -> bool {
        let Some(line) = self.raw.windows(2).position(|two| two == b"\r\n") else { return false };
        let size = usize::from_str_radix(std::str::from_utf8(&self.raw[..line]).unwrap(), 16).unwrap();
        let (from, until) = (line + 2, line + 2 + size);
        if self.raw.len() < until + 2 {
            return false;
        }
        self.text.extend_from_slice(&self.raw[from..until]);
        self.raw.drain(..until + 2);
        true
    }

    /// The next message.
    async fn next(&mut self) -> Value {
        loop {
            if let Some(end) = self.text.windows(2).position(|two| two == b"\n\n") {
                let block: Vec<_> = self.text.drain(..end + 2).collect();
                match parse(std::str::from_utf8(&block).unwrap()) {
                    Some(event) if !event.message.is_null() => return event.message,
                    _ => continue,
                }
            }
            while !self.unwrap_chunk() {
                self.receive().await;
            }
        }
    }

    /// The URIs that are told of before one of them is.
    pub(crate) async fn told_before(&mut self, last: &str) -> Vec<String> {
        let mut told = Vec::new();
        loop {
            let mut message = self.next().await;
            match message["params"]["uri"].take() {
                Value::String(uri) if uri == last => return told,
                Value::String(uri) => told.push(uri),
                _ => assert_eq!(message["method"], "notifications/resources/list_changed", "{message}"),
            }
        }
    }

    /// Whether nothing is told for a while.
    pub(crate) async fn is_quiet(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.next()).await.is_err()
    }
}
