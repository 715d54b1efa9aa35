//! A minimal HTTP/1.1 client: writes bytes and reads one framed answer.

use std::io::ErrorKind;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::error::Error;

/// The longest accepted answer, including its head.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// The bytes of a request to the server on `port` of the loopback address.
pub(crate) fn request(
    method: &str,
    target: &str,
    port: u16,
    headers: &[(&str, &str)],
    body: Option<&Value>,
) -> Vec<u8> {
    let body = body.map(Value::to_string);
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n");
    for (name, value) in headers {
        head.extend([name, ": ", value, "\r\n"]);
    }
    if let Some(body) = &body {
        let length = body.len().to_string();
        head.extend(["Content-Type: application/json\r\nContent-Length: ", length.as_str(), "\r\n"]);
    }
    head.push_str("\r\n");
    head.push_str(body.as_deref().unwrap_or_default());
    head.into_bytes()
}

/// A persistent connection with its buffers.
pub(crate) struct Connection {
    stream: TcpStream,
    received: Vec<u8>,
    unchunked: Vec<u8>,
    /// The server said that it closes it after the last answer.
    closing: bool,
}

/// An answer; the body is without its framing.
pub(crate) struct Answer<'a> {
    pub(crate) status: u16,
    head: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl Answer<'_> {
    /// The value of the first header of this name.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let fields =
            std::str::from_utf8(self.head).ok()?.split("\r\n").filter_map(|line| line.split_once(':'));
        let mut named = fields.filter(|(field, _)| field.eq_ignore_ascii_case(name));
        named.next().map(|(_, value)| value.trim())
    }
}

impl Connection {
    pub(crate) async fn open(port: u16) -> Result<Self, Error> {
        let doing = || Error::io(format!("connect to 127.0.0.1:{port}"));
        let stream = TcpStream::connect(("127.0.0.1", port)).await.map_err(doing())?;
        stream.set_nodelay(true).map_err(doing())?;
        let (received, unchunked) = (Vec::with_capacity(64 * 1024), Vec::new());
        Ok(Self { stream, received, unchunked, closing: false })
    }

    /// Whether the server has not closed it, while no answer is awaited.
    pub(crate) fn is_open(&self) -> bool {
        let read = self.stream.try_read(&mut [0]);
        !self.closing && read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }

    /// Sends one request and reads its whole answer.
    pub(crate) async fn exchange(&mut self, request: &[u8]) -> Result<Answer<'_>, Error> {
        let head = self.head_of_answer(request).await?;
        match head.framing {
            Framing::Length(length) => self.rest_of_length(&head, length).await,
            Framing::Chunked => self.rest_of_chunks(&head).await,
        }
    }

    /// Sends one request whose answer is a stream; returns its status and the connection of the stream.
    pub(crate) async fn begin(self, request: &[u8]) -> Result<(u16, TcpStream), Error> {
        let (status, stream, _) = self.begin_stream(request).await?;
        Ok((status, stream))
    }

    /// As [`begin`](Self::begin), with what was received after the head.
    pub(crate) async fn begin_stream(mut self, request: &[u8]) -> Result<(u16, TcpStream, Vec<u8>), Error> {
        let head = self.head_of_answer(request).await?;
        Ok((head.status, self.stream, self.received.split_off(head.bytes)))
    }

    async fn head_of_answer(&mut self, request: &[u8]) -> Result<Head, Error> {
        self.stream.write_all(request).await.map_err(Error::io("send a request"))?;
        self.received.clear();
        loop {
            self.receive().await?;
            if let Some(head) = Head::parse(&self.received)? {
                self.closing = head.closing;
                return Ok(head);
            }
        }
    }

    async fn rest_of_length(&mut self, head: &Head, length: usize) -> Result<Answer<'_>, Error> {
        let end = head.bytes.saturating_add(length);
        while self.received.len() < end {
            self.receive().await?;
        }
        if self.received.len() > end {
            return Err(Error::Framing("bytes after the end of the answer"));
        }
        let (head_bytes, body) = self.received.split_at(head.bytes);
        Ok(Answer { status: head.status, head: head_bytes, body })
    }

    async fn rest_of_chunks(&mut self, head: &Head) -> Result<Answer<'_>, Error> {
        while !unchunk(&self.received[head.bytes..], &mut self.unchunked)? {
            self.receive().await?;
        }
        Ok(Answer { status: head.status, head: &self.received[..head.bytes], body: &self.unchunked })
    }

    async fn receive(&mut self) -> Result<(), Error> {
        if self.received.len() > MAX_ANSWER {
            return Err(Error::Framing("the answer is longer than 16 MiB"));
        }
        match self.stream.read_buf(&mut self.received).await.map_err(Error::io("read an answer"))? {
            0 => Err(Error::Framing("the connection was closed before the answer was complete")),
            _ => Ok(()),
        }
    }
}

enum Framing {
    Length(usize),
    Chunked,
}

struct Head {
    status: u16,
    framing: Framing,
    /// The length of the head, its empty line included.
    bytes: usize,
    /// Whether the server closes the connection after the answer.
    closing: bool,
}

impl Head {
    fn parse(received: &[u8]) -> Result<Option<Self>, Error> {
        let Some(end) = received.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&received[..end]).map_err(|_| Error::Framing("head is no text"))?;
        let (status_line, fields) = text.split_once("\r\n").unwrap_or((text, ""));
        let status = status_line
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3)?.parse().ok())
            .ok_or(Error::Framing("bad status line"))?;
        let closing = fields.split("\r\n").any(|field| field.eq_ignore_ascii_case("connection: close"));
        Ok(Some(Self { status, framing: framing(status, fields)?, bytes: end + 4, closing }))
    }
}

fn framing(status: u16, fields: &str) -> Result<Framing, Error> {
    for (name, value) in fields.split("\r\n").filter_map(|field| field.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            let length = value.trim().parse().map_err(|_| Error::Framing("bad Content-Length"))?;
            return Ok(Framing::Length(length));
        }
        if name.eq_ignore_ascii_case("transfer-encoding") && value.trim().eq_ignore_ascii_case("chunked") {
            return Ok(Framing::Chunked);
        }
    }
    match status {
        202 | 204 | 304 => Ok(Framing::Length(0)),
        _ => Err(Error::Framing("neither Content-Length nor chunked")),
    }
}

/// Decodes a chunked body from its beginning into `body`; false if it is incomplete.
fn unchunk(mut coded: &[u8], body: &mut Vec<u8>) -> Result<bool, Error> {
    body.clear();
    loop {
        let Some(line) = coded.windows(2).position(|window| window == b"\r\n") else {
            return Ok(false);
        };
        let size = std::str::from_utf8(&coded[..line])
            .ok()
            .and_then(|text| usize::from_str_radix(text.split(';').next()?.trim(), 16).ok())
            .filter(|size| *size <= MAX_ANSWER)
            .ok_or(Error::Framing("bad chunk size"))?;
        coded = &coded[line + 2..];
        let Some(chunk) = coded.get(..size + 2) else {
            return Ok(false);
        };
        if size == 0 {
            return Ok(true);
        }
        body.extend_from_slice(&chunk[..size]);
        coded = &coded[size + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// The result of `exchange` for an answer that arrives in these pieces.
    async fn exchange(pieces: &'static [&'static str]) -> Result<(u16, String), Error> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 4];
            stream.read_exact(&mut request).await.unwrap();
            for piece in pieces {
                stream.write_all(piece.as_bytes()).await.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        });
        let mut connection = Connection::open(port).await?;
        let answer = connection.exchange(b"ping").await;
        let answer = answer.map(|answer| (answer.status, String::from_utf8(answer.body.to_vec()).unwrap()));
        server.await.unwrap();
        answer
    }

    #[tokio::test]
    async fn an_answer_with_a_length_may_arrive_in_pieces() {
        let answer = exchange(&["HTTP/1.1 200 OK\r\ncontent-le", "ngth: 5\r\n\r\nhe", "llo"]).await;
        assert_eq!(answer.unwrap(), (200, "hello".to_owned()));
    }

    #[tokio::test]
    async fn a_chunked_answer_may_be_cut_anywhere() {
        let answer = exchange(&[
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
            "lo\r\n6;x=y\r\n world\r",
            "\n0\r\n",
            "\r\n",
        ])
        .await;
        assert_eq!(answer.unwrap(), (200, "hello world".to_owned()));
    }

    #[tokio::test]
    async fn a_status_without_a_body_needs_no_length() {
        assert_eq!(exchange(&["HTTP/1.1 202 Accepted\r\n\r\n"]).await.unwrap(), (202, String::new()));
    }

    #[tokio::test]
    async fn a_cut_off_answer_is_an_error() {
        let answer = exchange(&["HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe"]).await;
        assert!(matches!(answer, Err(Error::Framing(_))), "{answer:?}");
    }

    #[tokio::test]
    async fn a_connection_that_the_server_closed_is_not_open() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let connection = Connection::open(listener.local_addr().unwrap().port()).await.unwrap();
        let (accepted, _) = listener.accept().await.unwrap();
        assert!(connection.is_open());
        drop(accepted);
        connection.stream.readable().await.unwrap();
        assert!(!connection.is_open());
    }

    #[tokio::test]
    async fn a_connection_that_the_server_is_to_close_is_not_open() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut connection = Connection::open(listener.local_addr().unwrap().port()).await.unwrap();
        let (mut accepted, _) = listener.accept().await.unwrap();
        for (field, is_open) in [("X-Other: 1", true), ("connection: close", false)] {
            let answer = format!("HTTP/1.1 204 No Content\r\n{field}\r\n\r\n");
            accepted.write_all(answer.as_bytes()).await.unwrap();
            assert_eq!(connection.exchange(b"ping").await.unwrap().status, 204);
            assert_eq!(connection.is_open(), is_open, "{field}");
        }
    }

    #[tokio::test]
    async fn bytes_after_the_answer_are_an_error() {
        let answer = exchange(&["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhello"]).await;
        assert!(matches!(answer, Err(Error::Framing(_))), "{answer:?}");
    }
}
