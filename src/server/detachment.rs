//! Event streams of HTTP/1.1 are sent without hyper once the head of their answer is sent: hyper keeps 8 KiB for reading and as
//! much for writing on each connection, which would be most of the memory of a stream (ADR 0025).

use std::io::{Error, ErrorKind, Write};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use futures_util::{Stream, stream};
use http::header::CONNECTION;
use http::{HeaderValue, Response};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::http::body::{Body, Events};

/// The end of a chunked body (RFC 9112, section 7.1).
const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// Bytes around the data of a chunk.
const CHUNK_FRAME: usize = 12;
/// How many bytes after the request are read and discarded, to notice that the client disconnects. A client that sends more
/// can send what the system buffers, and is noticed when an event is sent.
const DISCARDED: usize = 4 * 1024;

/// The event stream and the socket of one connection, on their way from hyper to a [`DetachedStream`].
#[derive(Debug)]
pub(super) struct Detachment<S> {
    begun: AtomicBool,
    /// The events first, and the socket once the head of the answer is sent.
    state: Mutex<(Option<Events>, Option<S>)>,
}

impl<S> Default for Detachment<S> {
    fn default() -> Self {
        Self { begun: false.into(), state: Mutex::default() }
    }
}

impl<S> Detachment<S> {
    /// Takes the events out of an answer to a request of HTTP/1.1, and leaves a body that never yields a frame. Other answers
    /// stay as they are. The connection is closed after the last event: a request that follows may be lost with hyper's buffer.
    pub(super) fn take_events(&self, response: &mut Response<Body>) {
        if !matches!(response.body(), Body::Events(_)) {
            return;
        }
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        let placeholder = Body::events(Box::pin(stream::pending()));
        if let Body::Events(events) = std::mem::replace(response.body_mut(), placeholder) {
            self.state.lock().0 = Some(events);
            self.begun.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the events of an answer were taken.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed)
    }

    /// Receives the socket, on which the head of the answer was sent.
    pub(super) fn hand_over(&self, socket: S) {
        self.state.lock().1 = Some(socket);
    }

    /// The stream, once both are here.
    pub(super) fn take(&self) -> Option<DetachedStream<S>> {
        if !self.has_begun() {
            return None;
        }
        let mut state = self.state.lock();
        let socket = state.1.take()?;
        Some(DetachedStream {
            socket,
            events: state.0.take()?,
            chunk: Vec::new(),
            written: 0,
            discardable: DISCARDED,
            ended: false,
        })
    }
}

/// An event stream that is sent without hyper, in chunks. The future ends when all events are sent, or the client disconnects.
#[derive(Debug)]
pub(super) struct DetachedStream<S> {
    socket: S,
    events: Events,
    /// The chunk that is being sent; empty between two.
    chunk: Vec<u8>,
    /// How much of it was written.
    written: usize,
    /// How many more bytes of the client are read.
    discardable: usize,
    /// The chunk is the last one.
    ended: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Future for DetachedStream<S> {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let this = self.get_mut();
        if this.poll_disconnected(context)? {
            // With the `close_notify` of TLS, unless it would have to wait.
            let _ = Pin::new(&mut this.socket).poll_shutdown(context);
            return Poll::Ready(Ok(()));
        }
        loop {
            ready!(this.poll_sent(context))?;
            if this.ended {
                return Pin::new(&mut this.socket).poll_shutdown(context);
            }
            if let Some(data) = ready!(Pin::new(&mut this.events).poll_next(context)) {
                this.chunk.reserve_exact(data.len() + CHUNK_FRAME);
                write!(this.chunk, "{:x}\r\n", data.len())?;
                this.chunk.extend_from_slice(&data);
                this.chunk.extend_from_slice(b"\r\n");
            } else {
                this.chunk.extend_from_slice(LAST_CHUNK);
                this.ended = true;
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> DetachedStream<S> {
    /// Whether the client has closed the connection.
    fn poll_disconnected(&mut self, context: &mut Context<'_>) -> Result<bool, Error> {
        while self.discardable > 0 {
            let mut space = [0; 256];
            let mut read = ReadBuf::new(&mut space);
            match Pin::new(&mut self.socket).poll_read(context, &mut read) {
                Poll::Pending => return Ok(false),
                Poll::Ready(read) => read?,
            }
            if read.filled().is_empty() {
                return Ok(true);
            }
            self.discardable = self.discardable.saturating_sub(read.filled().len());
        }
        Ok(false)
    }

    /// Sends the rest of the chunk, and frees it.
    fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while let Some(rest) = self.chunk.get(self.written..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.socket).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        (self.chunk, self.written) = (Vec::new(), 0);
        Pin::new(&mut self.socket).poll_flush(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::mpsc::{Sender, channel};
    use tokio::task::{JoinHandle, yield_now};
    use tokio::time::timeout;

    use super::*;

    const DEADLINE: Duration = Duration::from_mins(1);

    /// Events as they are sent.
    fn events() -> (Sender<Bytes>, Body) {
        let (sender, mut receiver) = channel(8);
        (sender, Body::events(Box::pin(stream::poll_fn(move |context| receiver.poll_recv(context)))))
    }

    /// A detached stream whose connection buffers so many bytes: its events, its client and its end.
    fn detached(buffer: usize) -> (Sender<Bytes>, DuplexStream, JoinHandle<Result<(), Error>>) {
        let (detachment, (client, server), (events, body)) =
            (Detachment::default(), duplex(buffer), events());
        let mut response = Response::new(body);
        detachment.take_events(&mut response);
        assert!(detachment.take().is_none(), "the head is not sent");
        detachment.hand_over(server);
        (events, client, tokio::spawn(detachment.take().unwrap()))
    }

    #[tokio::test]
    async fn events_are_sent_in_chunks_until_the_last() {
        for buffer in [3, 1024] {
            let (events, mut client, sent) = detached(buffer);
            for event in [&b"data: 1\n\n"[..], b":\n", &[b'x'; 300]] {
                events.send(Bytes::copy_from_slice(event)).await.unwrap();
            }
            drop(events);
            let mut received = String::new();
            client.read_to_string(&mut received).await.unwrap();
            let long = "x".repeat(300);
            assert_eq!(received, format!("9\r\ndata: 1\n\n\r\n2\r\n:\n\r\n12c\r\n{long}\r\n0\r\n\r\n"));
            sent.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn stream_ends_when_its_client_disconnects() {
        for sent_before in [&[][..], b"\r\n"] {
            let (events, mut client, sent) = detached(10);
            client.write_all(sent_before).await.unwrap();
            yield_now().await;
            drop(client);
            timeout(DEADLINE, sent).await.unwrap().unwrap().unwrap();
            assert!(events.is_closed());
        }
    }

    #[tokio::test]
    async fn blocked_stream_ends_when_its_client_disconnects() {
        let (events, client, sent) = detached(10);
        events.send(Bytes::from_static(&[b'x'; 100])).await.unwrap();
        yield_now().await;
        drop(client);
        drop(timeout(DEADLINE, sent).await.unwrap().unwrap());
        assert!(events.is_closed());
    }

    #[tokio::test]
    async fn bytes_after_the_request_are_read_within_bounds() {
        let (events, mut client, _sent) = detached(1024);
        let flood = async { while client.write_all(&[b'x'; 1024]).await.is_ok() {} };
        assert!(timeout(Duration::from_millis(50), flood).await.is_err(), "it is blocked");
        events.send(Bytes::from_static(b":\n")).await.unwrap();
        let mut received = [0; 7];
        client.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"2\r\n:\n\r\n");
    }

    #[test]
    fn other_answers_stay_with_hyper() {
        let detachment = Detachment::<DuplexStream>::default();
        let mut response = Response::new(Body::from(Bytes::from_static(b"abc")));
        detachment.take_events(&mut response);
        assert!(!detachment.has_begun() && response.headers().is_empty());
        assert!(matches!(response.body(), Body::Bytes(bytes) if bytes == "abc"));
    }
}
