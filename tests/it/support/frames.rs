//! HTTP/2 frames (RFC 9113), for requests that client libraries do not send.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const INITIAL_WINDOW_SIZE: u16 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
/// The indexed header fields `:method GET` and `:method POST`.
const GET: u8 = 0x82;
const POST: u8 = 0x83;

/// A frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The error code of a `GOAWAY` or `RST_STREAM`.
    pub(crate) fn reason(&self) -> u32 {
        let at = if self.kind == GOAWAY { 4 } else { 0 };
        u32::from_be_bytes(self.payload[at..at + 4].try_into().unwrap())
    }
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// `GET /healthz` with `more` additional headers.
pub(crate) fn get(stream: u32, more: usize) -> Vec<u8> {
    let names: Vec<_> = (0..more).map(|nth| format!("x{nth:03}")).collect();
    let headers: Vec<_> = names.iter().map(|name| (name.as_str(), "y")).collect();
    get_path(stream, "/healthz", &headers)
}

/// `GET` of a path with these headers.
pub(crate) fn get_path(stream: u32, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    frame(HEADERS, END_STREAM | END_HEADERS, stream, &block(GET, path, headers))
}

/// A `POST` of JSON with these headers and the first byte of its body.
pub(crate) fn unfinished_post(stream: u32, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let headers = [headers, &[("content-type", "application/json")]].concat();
    let head = frame(HEADERS, END_HEADERS, stream, &block(POST, path, &headers));
    [head, frame(DATA, 0, stream, b"{")].concat()
}

/// The header block of a request: `:method`, `:scheme http`, then `:path`, `:authority` and the headers by name and value
/// (RFC 7541).
fn block(method: u8, path: &str, headers: &[(&str, &str)]) -> Vec<u8> {
    let literal = |block: &mut Vec<u8>, text: &str| {
        block.push(u8::try_from(text.len()).ok().filter(|length| *length < 0x7f).unwrap());
        block.extend(text.bytes());
    };
    let mut block = vec![method, 0x86, 0x44];
    literal(&mut block, path);
    block.extend(b"\x41\x09localhost");
    for (name, value) in headers {
        block.push(0);
        literal(&mut block, name);
        literal(&mut block, value);
    }
    block
}

/// A connection after the preface.
pub(crate) struct FrameClient<S>(pub(crate) S);

impl<S: AsyncRead + AsyncWrite + Unpin> FrameClient<S> {
    pub(crate) async fn begin(stream: S) -> Self {
        Self::with_window(stream, 65_535).await
    }

    /// A client that receives at most so many bytes of each answer.
    pub(crate) async fn with_window(mut stream: S, window: u32) -> Self {
        stream.write_all(PREFACE).await.unwrap();
        let setting = [&INITIAL_WINDOW_SIZE.to_be_bytes()[..], &window.to_be_bytes()].concat();
        stream.write_all(&frame(SETTINGS, 0, 0, &setting)).await.unwrap();
        Self(stream)
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write_all(bytes).await
    }

    /// The next frame of a kind; `None` if the connection ends before it.
    pub(crate) async fn next(&mut self, kind: u8) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            let read = tokio::time::timeout(Duration::from_secs(20), self.0.read_exact(&mut head)).await;
            read.unwrap_or_else(|_| panic!("no bytes arrived")).ok()?;
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.0.read_exact(&mut payload).await.ok()?;
            let stream = u32::from_be_bytes(head[5..].try_into().unwrap());
            let frame = Frame { kind: head[3], flags: head[4], stream, payload };
            if frame.kind == kind {
                return Some(frame);
            }
        }
    }

    /// The status of the next answer, for statuses with a static index.
    pub(crate) async fn status(&mut self) -> Option<u16> {
        let block = self.next(HEADERS).await?.payload;
        // A dynamic table size update may precede it.
        let first = *block.iter().find(|byte| **byte & 0xe0 != 0x20)?;
        Some(match first {
            0x88 => 200,
            0x8c => 400,
            0x8d => 404,
            // By the name `:status` and three digits, literal or Huffman-coded; 431 is the only one needed.
            _ => 431,
        })
    }
}
