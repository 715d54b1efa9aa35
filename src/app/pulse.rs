//! The pulse of a connection: whether a request is under way on it, and by when the next one must be there.

use std::io::{Error, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

use crate::http::body::Body;

/// What a connection of HTTP/2 begins with, and no request of HTTP/1.1.
const HTTP_2: &[u8] = b"PRI";

/// How long a connection may take, between requests.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// From the first byte of a request to the end of its head; for a TLS handshake.
    pub(super) head: Duration,
    /// Without a request.
    pub(super) idle: Duration,
}

/// What is known of one connection.
#[derive(Debug)]
pub(super) struct Pulse {
    patience: Patience,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    under_way: usize,
    /// A head began and has not ended. Of HTTP/2 it is not known, since bytes may be anything there.
    in_head: bool,
    multiplexed: bool,
    /// When the head began, or when there was last anything to do; `None` for just now, until somebody asks. Between two
    /// looks at the deadline the connection does what it can without waiting, so that the time is read once for all.
    since: Option<Instant>,
}

impl Pulse {
    /// Of a connection that was just opened.
    pub(super) fn new(patience: Patience) -> Arc<Self> {
        Arc::new(Self { patience, state: Mutex::new(State::new(Instant::now())) })
    }

    /// By when something must happen: `None` while a request is under way.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.state.lock().deadline(self.patience, Instant::now)
    }

    /// Whether a head has begun and not ended.
    pub(super) fn is_in_head(&self) -> bool {
        self.state.lock().in_head
    }

    /// A request is there; it is under way until what is answered is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.state.lock().begin();
        UnderWay(Arc::clone(self))
    }

    fn heard(&self, bytes: &[u8]) {
        self.state.lock().hear(bytes);
    }

    fn said(&self) {
        self.state.lock().say();
    }
}

impl State {
    fn new(now: Instant) -> Self {
        Self { under_way: 0, in_head: false, multiplexed: false, since: Some(now) }
    }

    fn deadline(&mut self, patience: Patience, now: impl FnOnce() -> Instant) -> Option<Instant> {
        let patience = if self.in_head { patience.head } else { patience.idle };
        (self.under_way == 0).then(|| *self.since.get_or_insert_with(now) + patience)
    }

    fn begin(&mut self) {
        self.under_way += 1;
        self.in_head = false;
    }

    fn end(&mut self) {
        self.under_way -= 1;
        self.since = None;
    }

    fn hear(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.under_way > 0 || self.in_head || self.multiplexed {
            return;
        }
        if bytes.starts_with(HTTP_2) {
            self.multiplexed = true;
        } else {
            self.in_head = true;
            self.since = None;
        }
    }

    /// What is left of an answer goes out. The signs of life of HTTP/2 do not count.
    fn say(&mut self) {
        if self.under_way == 0 && !self.in_head && !self.multiplexed {
            self.since = None;
        }
    }
}

/// A request that is under way.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Pulse>);

impl UnderWay {
    /// Goes on until the body was taken.
    pub(super) fn until_taken(self, body: Body) -> Answer {
        Answer { body, _under_way: self }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.state.lock().end();
    }
}

/// What is answered, which is under way until it is dropped.
#[derive(Debug)]
pub(super) struct Answer {
    body: Body,
    _under_way: UnderWay,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A connection whose bytes are noticed.
#[derive(Debug)]
pub(super) struct Noticed<S> {
    pub(super) stream: S,
    pub(super) pulse: Arc<Pulse>,
}

impl<S: AsyncRead + Unpin> AsyncRead for Noticed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<Result<(), Error>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.pulse.heard(buffer.filled().get(before..).unwrap_or_default());
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Noticed<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        if written.is_ready() {
            self.pulse.said();
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        if written.is_ready() {
            self.pulse.said();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Patience, State};

    const PATIENCE: Patience = Patience { head: Duration::from_secs(15), idle: Duration::from_secs(95) };

    /// A connection that was just opened, and the second of its deadline, looked at in some second.
    fn opened() -> (State, impl Fn(&mut State, u64) -> Option<u64>) {
        let start = Instant::now();
        let due = move |state: &mut State, second| {
            let now = || start + Duration::from_secs(second);
            state.deadline(PATIENCE, now).map(|due| (due - start).as_secs())
        };
        (State::new(start), due)
    }

    #[test]
    fn the_first_byte_of_a_head_starts_its_time_and_no_other_byte_does() {
        let (mut state, due) = opened();
        assert_eq!(due(&mut state, 50), Some(95));
        state.hear(b"");
        assert_eq!(due(&mut state, 80), Some(95));
        state.hear(b"P");
        assert_eq!((due(&mut state, 90), state.in_head), (Some(105), true));
        state.hear(b"O");
        state.say();
        assert_eq!((due(&mut state, 100), state.in_head), (Some(105), true));
    }

    #[test]
    fn a_request_that_is_under_way_takes_its_time_and_then_the_connection_is_idle() {
        let (mut state, due) = opened();
        state.hear(b"POST");
        assert_eq!(due(&mut state, 1), Some(16));
        state.begin();
        state.begin();
        state.hear(b"its body");
        assert_eq!((due(&mut state, 2), state.in_head), (None, false));
        state.end();
        assert_eq!(due(&mut state, 3), None);
        state.end();
        assert_eq!(due(&mut state, 200), Some(295));
        assert_eq!(due(&mut state, 210), Some(295), "it goes on being idle");
        state.say();
        assert_eq!(due(&mut state, 250), Some(345), "an answer is still going out");
    }

    #[test]
    fn a_connection_of_http_2_is_idle_whatever_goes_over_it_without_a_request() {
        let (mut state, due) = opened();
        state.hear(b"PRI * HTTP/2.0");
        assert_eq!((due(&mut state, 40), state.in_head), (Some(95), false));
        state.hear(b"a ping");
        state.say();
        assert_eq!((due(&mut state, 50), state.in_head), (Some(95), false));
    }
}
