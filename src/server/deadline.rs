//! The deadline of a connection (head timeout, against slowloris, and idle timeout): when it is closed unless a request
//! arrives, or unless its client receives an answer, against slow reading.
//!
//! Kept outside of hyper, whose only timeout for heads also closes idle connections: a value short enough for a head is
//! too short for clients that keep connections open for 90 seconds.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::http::body::Body;

/// The preface of an HTTP/2 connection (RFC 9113, section 3.4). Nothing shorter makes a difference to hyper: `PRIVATE` may be a
/// method of HTTP/1.1.
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Answers of HTTP/1.1 up to this many bytes have no deadline: the send buffer of the connection takes them. In HTTP/2 the client
/// decides what is sent of each.
const SHORT_ANSWER: u64 = 16 * 1024;

/// Whether an answer shares its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sharing {
    Alone,
    /// With other requests, which a proxy may have sent for other clients.
    Multiplexed,
}

/// The timeouts of a connection between requests, and of answers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    /// From the first byte of a request to the end of its head; also of a TLS handshake.
    pub(super) head: Duration,
    /// Without a request in flight.
    pub(super) idle: Duration,
    /// Until an answer is sent, beside the time for its length.
    pub(super) answer: Duration,
    /// The minimum speed of an answer. With 0 answers have no deadline.
    pub(super) answer_bytes_per_second: u32,
}

impl Timeouts {
    /// How long an answer of this many bytes in memory may take; `None` without a deadline.
    fn of_answer(&self, bytes: u64, http2: bool) -> Option<Duration> {
        let (short, per_second) =
            (if http2 { 0 } else { SHORT_ANSWER }, u64::from(self.answer_bytes_per_second));
        (bytes > short && per_second > 0).then(|| self.answer + Duration::from_secs(bytes / per_second))
    }
}

/// Tracks the requests and bytes of one connection.
#[derive(Debug)]
pub(super) struct ConnectionDeadline {
    timeouts: Timeouts,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    in_flight: usize,
    /// A head has begun and not ended. Unknown for HTTP/2, whose bytes may be anything.
    in_head: bool,
    http2: bool,
    /// What is still missing of the HTTP/2 preface, as long as nothing else was read.
    preface: &'static [u8],
    /// Nothing was read yet.
    unused: bool,
    /// When the head began, or the connection was last active; `None` means now, until the deadline is read. Between two
    /// reads of the deadline a connection never waits, so the clock is read once for all activity.
    since: Option<Instant>,
    /// When the answers that are being sent are due, by their numbers.
    sending: BTreeMap<u64, Instant>,
    /// The number of the next one.
    next: u64,
}

impl ConnectionDeadline {
    /// The deadline of a connection that was just opened.
    pub(super) fn new(timeouts: Timeouts) -> Arc<Self> {
        Arc::new(Self { timeouts, state: Mutex::new(State::new(Instant::now())) })
    }

    /// When the connection is due to be closed; `None` while requests are in flight and none of their answers has a deadline.
    pub(super) fn get(&self) -> Option<Instant> {
        self.state.lock().deadline(self.timeouts, Instant::now)
    }

    /// Whether a head has begun and not ended.
    pub(super) fn is_in_head(&self) -> bool {
        self.state.lock().in_head
    }

    /// Whether an answer with a deadline is being sent, and whether other requests may be in flight beside it.
    pub(super) fn sending(&self) -> Option<Sharing> {
        let state = self.state.lock();
        let sharing = if state.http2 { Sharing::Multiplexed } else { Sharing::Alone };
        (!state.sending.is_empty()).then_some(sharing)
    }

    /// Whether the peer has sent nothing yet.
    pub(super) fn is_unused(&self) -> bool {
        self.state.lock().unused
    }

    /// Begins a request, which is in flight until its response is sent, or taken by the connection if that is short.
    pub(super) fn begin(self: &Arc<Self>) -> InFlight {
        let http2 = {
            let mut state = self.state.lock();
            state.begin();
            state.http2
        };
        InFlight { deadline: Arc::clone(self), http2 }
    }

    /// Begins to send an answer with a body of this many bytes in memory. Returns its number; `None` without a deadline.
    fn send(&self, held: Option<u64>, http2: bool) -> Option<u64> {
        let due = Instant::now() + self.timeouts.of_answer(held?, http2)?;
        Some(self.state.lock().send(due))
    }

    /// Bytes were read, or the end of the connection.
    pub(super) fn on_read(&self, bytes: &[u8]) {
        self.state.lock().read(bytes);
    }

    /// Bytes were written.
    pub(super) fn on_write(&self) {
        self.state.lock().write();
    }
}

impl State {
    fn new(now: Instant) -> Self {
        Self {
            in_flight: 0,
            in_head: false,
            http2: false,
            preface: HTTP2_PREFACE,
            unused: true,
            since: Some(now),
            sending: BTreeMap::new(),
            next: 0,
        }
    }

    fn deadline(&mut self, timeouts: Timeouts, now: impl FnOnce() -> Instant) -> Option<Instant> {
        let timeout = if self.in_head { timeouts.head } else { timeouts.idle };
        let request = (self.in_flight == 0).then(|| *self.since.get_or_insert_with(now) + timeout);
        self.sending.values().copied().chain(request).min()
    }

    fn send(&mut self, due: Instant) -> u64 {
        self.next += 1;
        self.sending.insert(self.next, due);
        self.next
    }

    fn begin(&mut self) {
        self.in_flight += 1;
        self.in_head = false;
    }

    fn end(&mut self) {
        self.in_flight -= 1;
        self.since = None;
    }

    fn read(&mut self, bytes: &[u8]) {
        if bytes.is_empty() || self.http2 {
            return;
        }
        self.unused = false;
        if self.completes_preface(bytes) {
            (self.http2, self.in_head, self.since) = (true, false, None);
        } else if self.in_flight == 0 && !self.in_head {
            (self.in_head, self.since) = (true, None);
        }
    }

    /// Whether the preface of HTTP/2 is complete with these bytes.
    fn completes_preface(&mut self, bytes: &[u8]) -> bool {
        let matching = self.preface.iter().zip(bytes).take_while(|(missing, read)| missing == read).count();
        let rest = self.preface.get(matching..).unwrap_or_default();
        let is_complete = rest.is_empty() && !self.preface.is_empty();
        // Anything else ends it.
        self.preface = if matching == bytes.len() { rest } else { &[] };
        is_complete
    }

    /// The rest of a response is sent. HTTP/2 pings do not count.
    fn write(&mut self) {
        if self.in_flight == 0 && !self.in_head && !self.http2 {
            self.since = None;
        }
    }
}

/// A request in flight, until dropped.
#[derive(Debug)]
pub(super) struct InFlight {
    deadline: Arc<ConnectionDeadline>,
    http2: bool,
}

impl InFlight {
    /// Keeps the request in flight until the body of its response was sent.
    pub(super) fn until_sent(self, response: Response<Body>) -> Response<InFlightBody> {
        let number = self.deadline.send(response.body().held(), self.http2);
        let (sending, in_flight) = match number {
            Some(number) => (Some(Arc::new(Sending { in_flight: self, number })), None),
            None => (None, Some(self)),
        };
        response.map(|body| InFlightBody { body, sending, _in_flight: in_flight })
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.deadline.state.lock().end();
    }
}

/// An answer with a deadline, whose request is in flight until its body and all frames of it are dropped.
#[derive(Debug)]
struct Sending {
    in_flight: InFlight,
    number: u64,
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.in_flight.deadline.state.lock().sending.remove(&self.number);
    }
}

/// Bytes of an answer, which the connection drops once they are sent.
struct SentBytes {
    bytes: Bytes,
    _sending: Arc<Sending>,
}

impl AsRef<[u8]> for SentBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of a response, whose request is in flight until it is dropped, and the frames of an answer with a deadline too.
#[derive(Debug)]
pub(super) struct InFlightBody {
    body: Body,
    /// `None` without a deadline.
    sending: Option<Arc<Sending>>,
    /// `None` with a deadline, of which it is a part.
    _in_flight: Option<InFlight>,
}

impl HttpBody for InFlightBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let Some(sending) = &self.sending else { return polled };
        let hold = |bytes| Bytes::from_owner(SentBytes { bytes, _sending: Arc::clone(sending) });
        polled.map_ok(|frame| frame.map_data(hold))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{HTTP2_PREFACE, State, Timeouts};

    const TIMEOUTS: Timeouts = Timeouts {
        head: Duration::from_secs(15),
        idle: Duration::from_secs(95),
        answer: Duration::from_mins(1),
        answer_bytes_per_second: 16_384,
    };

    /// A connection that was just opened, and the second of its deadline as of a given second.
    fn opened() -> (State, impl Fn(&mut State, u64) -> Option<u64>) {
        let start = Instant::now();
        let due = move |state: &mut State, second| {
            let now = || start + Duration::from_secs(second);
            state.deadline(TIMEOUTS, now).map(|due| (due - start).as_secs())
        };
        (State::new(start), due)
    }

    #[test]
    fn the_first_byte_of_a_head_starts_its_timeout() {
        let (mut state, due) = opened();
        assert_eq!(due(&mut state, 50), Some(95));
        state.read(b"");
        assert_eq!((due(&mut state, 80), state.unused), (Some(95), true));
        state.read(b"P");
        assert_eq!((due(&mut state, 90), state.in_head, state.unused), (Some(105), true, false));
        state.read(b"O");
        state.write();
        assert_eq!((due(&mut state, 100), state.in_head), (Some(105), true));
    }

    #[test]
    fn a_connection_is_idle_after_its_last_request() {
        let (mut state, due) = opened();
        state.read(b"POST");
        assert_eq!(due(&mut state, 1), Some(16));
        state.begin();
        state.begin();
        state.read(b"its body");
        assert_eq!((due(&mut state, 2), state.in_head), (None, false));
        state.end();
        assert_eq!(due(&mut state, 3), None);
        state.end();
        assert_eq!(due(&mut state, 200), Some(295));
        assert_eq!(due(&mut state, 210), Some(295), "still idle");
        state.write();
        assert_eq!(due(&mut state, 250), Some(345), "a response is still being sent");
    }

    #[test]
    fn answer_is_due_before_the_connection_is_idle() {
        let (mut state, due) = opened();
        state.begin();
        let start = state.since.unwrap();
        let (first, second) = (start + Duration::from_secs(90), start + Duration::from_secs(70));
        let numbers = [first, second].map(|due| state.send(due));
        assert_eq!(due(&mut state, 1), Some(70));
        state.end();
        state.sending.remove(&numbers[1]);
        assert_eq!(due(&mut state, 50), Some(90));
        state.sending.remove(&numbers[0]);
        assert_eq!(due(&mut state, 80), Some(145));
    }

    #[test]
    fn time_of_an_answer_follows_from_its_length() {
        let of = |bytes, http2| TIMEOUTS.of_answer(bytes, http2).map(|time| time.as_secs());
        let lengths = [0, 16 * 1024, 16 * 1024 + 1, 4 * 1024 * 1024];
        assert_eq!(lengths.map(|bytes| of(bytes, false)), [None, None, Some(61), Some(316)]);
        assert_eq!(lengths.map(|bytes| of(bytes, true)), [None, Some(61), Some(61), Some(316)]);
        let disabled = Timeouts { answer_bytes_per_second: 0, ..TIMEOUTS };
        assert_eq!(disabled.of_answer(u64::MAX, true), None);
    }

    #[test]
    fn an_http2_connection_without_a_request_is_idle_whatever_it_sends() {
        for reads in [&[HTTP2_PREFACE][..], &[&b"P"[..], b"R", &HTTP2_PREFACE[2..20], &HTTP2_PREFACE[20..]]] {
            let (mut state, due) = opened();
            for read in reads {
                state.read(read);
            }
            state.read(b"settings");
            assert_eq!((due(&mut state, 40), state.in_head), (Some(135), false));
            state.read(b"a ping");
            state.write();
            assert_eq!((due(&mut state, 50), state.in_head), (Some(135), false));
        }
        let (mut state, due) = opened();
        state.read(&[HTTP2_PREFACE, b"settings"].concat());
        assert_eq!((due(&mut state, 40), state.in_head), (Some(135), false));
    }

    #[test]
    fn head_that_begins_like_http2_has_the_timeout_of_a_head() {
        for reads in [&[&b"PRIVATE / HT"[..]][..], &[&b"PRI"[..], b"VATE"], &[&HTTP2_PREFACE[..23]]] {
            let (mut state, due) = opened();
            for read in reads {
                state.read(read);
            }
            assert_eq!((due(&mut state, 40), state.in_head), (Some(55), true), "{reads:?}");
        }
        // Not at the start of the connection.
        let (mut state, _) = opened();
        state.read(b"GET");
        state.begin();
        state.end();
        state.read(HTTP2_PREFACE);
        assert!(state.in_head && !state.http2);
    }
}
