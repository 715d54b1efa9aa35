//! The socket of a connection, as hyper uses it: reports what is read and written to the deadline of the connection, and is
//! handed over when an event stream continues without hyper.

use std::io::{Error, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::deadline::ConnectionDeadline;
use super::detachment::Detachment;

/// Writes of up to this many bytes are copied into one slice: one `send` costs less than a `writev`.
const JOINED: usize = 4 * 1024;

/// A socket that reports what is read and written to a deadline.
#[derive(Debug)]
pub(super) struct TrackedSocket<S> {
    /// `None` once it was handed over: pending for the rest of this poll of hyper, which is not polled again.
    socket: Option<S>,
    deadline: Arc<ConnectionDeadline>,
    detachment: Arc<Detachment<S>>,
}

impl<S: Unpin> TrackedSocket<S> {
    pub(super) fn new(socket: S, deadline: Arc<ConnectionDeadline>, detachment: Arc<Detachment<S>>) -> Self {
        Self { socket: Some(socket), deadline, detachment }
    }

    /// Polls the socket; pending once it was handed over.
    fn poll<T>(&mut self, poll: impl FnOnce(Pin<&mut S>) -> Poll<T>) -> Poll<T> {
        self.socket.as_mut().map_or(Poll::Pending, |socket| poll(Pin::new(socket)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedSocket<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), Error>> {
        let before = buffer.filled().len();
        let read = self.poll(|socket| socket.poll_read(context, buffer));
        if read.is_ready() {
            self.deadline.on_read(buffer.filled().get(before..).unwrap_or_default());
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TrackedSocket<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let written = self.poll(|socket| socket.poll_write(context, bytes));
        if written.is_ready() {
            self.deadline.on_write();
        }
        written
    }

    /// hyper flushes once it has written all that it holds: after that, an event stream can continue without it.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let flushed = self.poll(|socket| socket.poll_flush(context));
        if self.detachment.has_begun() && matches!(flushed, Poll::Ready(Ok(()))) {
            self.socket.take().into_iter().for_each(|socket| self.detachment.hand_over(socket));
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.poll(|socket| socket.poll_shutdown(context))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        let written = if length <= JOINED {
            let mut space = [MaybeUninit::uninit(); JOINED];
            let mut joined = ReadBuf::uninit(&mut space);
            for slice in slices {
                joined.put_slice(slice);
            }
            self.poll(|socket| socket.poll_write(context, joined.filled()))
        } else {
            self.poll(|socket| socket.poll_write_vectored(context, slices))
        };
        if written.is_ready() {
            self.deadline.on_write();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;
    use std::task::ready;
    use std::time::Duration;

    use bytes::Bytes;
    use futures_util::stream;
    use http::{Request, Response};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use hyper_util::server::conn::auto::Builder;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::yield_now;
    use tokio::time::timeout;

    use super::*;
    use crate::http::body::Body;
    use crate::server::deadline::Timeouts;

    const DEADLINE: Duration = Duration::from_mins(1);
    const TIMEOUTS: Timeouts =
        Timeouts { head: DEADLINE, idle: DEADLINE, answer: DEADLINE, answer_bytes_per_second: 0 };

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
}
