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
