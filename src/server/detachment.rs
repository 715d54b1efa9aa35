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
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use http::Request;
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use hyper_util::server::conn::auto::Builder;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::sync::mpsc::{Sender, channel};
    use tokio::task::{JoinHandle, yield_now};
    use tokio::time::timeout;

    use super::*;
    use crate::server::deadline::{ConnectionDeadline, Timeouts};
    use crate::server::tracked_socket::TrackedSocket;

    const DEADLINE: Duration = Duration::from_mins(1);
    const TIMEOUTS: Timeouts =
        Timeouts { head: DEADLINE, idle: DEADLINE, answer: DEADLINE, answer_bytes_per_second: 0 };

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

    /// A socket that buffers what is written until it is flushed, as TLS does. A flush is pending at first.
    struct Buffering {
        socket: DuplexStream,
        buffered: Vec<u8>,
        flushing: bool,
    }

    impl AsyncRead for Buffering {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<Result<(), Error>> {
            Pin::new(&mut self.socket).poll_read(context, buffer)
        }
    }

    impl AsyncWrite for Buffering {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<Result<usize, Error>> {
            self.buffered.extend_from_slice(bytes);
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
            if !self.buffered.is_empty() && !std::mem::replace(&mut self.flushing, true) {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            while !self.buffered.is_empty() {
                let Self { socket, buffered, .. } = &mut *self;
                let written = ready!(Pin::new(socket).poll_write(context, buffered))?;
                buffered.drain(..written);
            }
            self.flushing = false;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
            ready!(self.as_mut().poll_flush(context))?;
            Pin::new(&mut self.socket).poll_shutdown(context)
        }
    }

    /// Answers a request by hyper with a stream of two events, which is detached. Returns when all is sent.
    async fn serve<S>(socket: S)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let detachment = Arc::new(Detachment::default());
        let taking = Arc::clone(&detachment);
        let service = service_fn(move |_: Request<Incoming>| {
            let taking = Arc::clone(&taking);
            async move {
                let mut response =
                    Response::new(Body::events(Box::pin(stream::iter(["one", "two"].map(Bytes::from)))));
                taking.take_events(&mut response);
                Ok::<_, Infallible>(response)
            }
        });
        let io = TrackedSocket::new(socket, ConnectionDeadline::new(TIMEOUTS), Arc::clone(&detachment));
        let builder = Builder::new(TokioExecutor::new());
        let mut served = Box::pin(builder.serve_connection(TokioIo::new(io), service));
        let detached = poll_fn(|context| {
            assert!(served.as_mut().poll(context).is_pending());
            detachment.take().map_or(Poll::Pending, Poll::Ready)
        });
        let detached = detached.await;
        drop(served);
        detached.await.unwrap();
    }

    #[tokio::test]
    async fn head_is_sent_whole_before_the_events() {
        for (buffer, is_buffering) in [(7, false), (7, true), (4_096, false), (4_096, true)] {
            let (mut client, socket) = duplex(buffer);
            let serving = if is_buffering {
                tokio::spawn(serve(Buffering { socket, buffered: Vec::new(), flushing: false }))
            } else {
                tokio::spawn(serve(socket))
            };
            client.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
            for _ in 0..100 {
                yield_now().await;
            }
            let mut received = String::new();
            timeout(DEADLINE, client.read_to_string(&mut received)).await.unwrap().unwrap();
            serving.await.unwrap();
            let (head, body) = received.split_once("\r\n\r\n").unwrap();
            let lines: Vec<_> = head.lines().filter(|line| !line.starts_with("date: ")).collect();
            assert_eq!(lines, ["HTTP/1.1 200 OK", "connection: close", "transfer-encoding: chunked"]);
            assert_eq!(body, "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n");
        }
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
