//! A stream over a connection with small buffers, which may stop reading.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::client::{MODERN, meta};
use crate::sse::parse;

/// The receive buffer of a reader, which the kernel doubles. The gateway's send buffer is larger. If a segment of the loopback
/// interface (64 KiB) does not fit, the sender may get no window, and sends a few kilobytes at each probe, for minutes.
const RECEIVE_BUFFER: u32 = 64 * 1024;
/// The timeout for any event.
const TIMEOUT: Duration = Duration::from_secs(60);

/// An open stream, of either era.
#[derive(Debug)]
pub(crate) struct SlowReader {
    connection: TcpStream,
    /// As received, in chunks.
    raw: Vec<u8>,
    /// Without the chunks, from the first unread event.
    text: Vec<u8>,
}

impl SlowReader {
    /// Opens a stream for these URIs and reads the acknowledgement.
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
        let honored = slow.next().await["params"]["notifications"]["resourceSubscriptions"].take();
        assert_eq!(honored.as_array().map(Vec::len), Some(uris.len()));
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
        socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
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
        let read = tokio::time::timeout(TIMEOUT, self.connection.read_buf(&mut self.raw)).await;
        assert!(read.unwrap_or_else(|_| panic!("no event arrived")).unwrap() > 0, "the stream ended");
    }

    /// Decodes one complete chunk; false if there is none.
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

    /// Reads up to the `updated` of `last`; returns the URIs of those before it.
    pub(crate) async fn uris_before(&mut self, last: &str) -> Vec<String> {
        let mut uris = Vec::new();
        loop {
            let mut message = self.next().await;
            match message["params"]["uri"].take() {
                Value::String(uri) if uri == last => return uris,
                Value::String(uri) => uris.push(uri),
                _ => assert_eq!(message["method"], "notifications/resources/list_changed", "{message}"),
            }
        }
    }

    /// Whether no event arrives for this time.
    pub(crate) async fn is_quiet(&mut self, time: Duration) -> bool {
        tokio::time::timeout(time, self.next()).await.is_err()
    }
}
