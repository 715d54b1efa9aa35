//! Bodies: a request body is read completely, within the body limit (maximum size) and a minimum speed, against slow
//! clients; whether its JSON nests too deeply ([`is_too_deep`]); responses, which are sent in few chunks.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::header::{CONTENT_TYPE, EXPECT};
use http::{HeaderMap, HeaderValue, Response};
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::model::fault::Fault;
use crate::quota::limits::BodyPace;

/// How much of an unwanted body is read and discarded, and for how long.
const DISCARDED: usize = 64 * 1024 * 1024;
const DISCARD_TIMEOUT: Duration = Duration::from_secs(1);

/// Bytes of a body that need no reservation if they arrived with the head: the connection has buffered them.
const UNRESERVED: usize = 64 * 1024;

/// Maximum nesting depth of the JSON of a request.
pub const MAX_DEPTH: usize = 64;

/// The body of an answer: bytes in memory, events, or a body of the administration API.
#[derive(Debug)]
pub enum Body {
    /// Bytes in memory.
    Bytes(Bytes),
    /// Pieces in memory, sent in order. Boxed, so that the other bodies are small to move.
    Pieces(Box<[Bytes]>),
    /// An event stream of unlimited length.
    Events(Events),
    /// A body of the administration API.
    Axum(axum::body::Body),
    /// A body that is compressed while it is sent.
    Compressed {
        /// The compressed bytes.
        body: axum::body::Body,
        /// The number of bytes before compression, which are in memory; `None` for a stream.
        plain: Option<u64>,
    },
    /// A body whose delivery is observed.
    Observed(Box<ObservedBody>),
}

/// A body with an action that runs when its connection takes the first frame; never if the client disconnects before.
pub struct ObservedBody {
    body: Body,
    taken: Option<Box<dyn FnOnce() + Send>>,
}

impl std::fmt::Debug for ObservedBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObservedBody").field("body", &self.body).finish_non_exhaustive()
    }
}

/// A stream of events, encoded.
pub struct Events(Pin<Box<dyn Stream<Item = Bytes> + Send>>);

impl Stream for Events {
    type Item = Bytes;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.as_mut().poll_next(context)
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Body {
    /// The empty body.
    pub const fn empty() -> Self {
        Self::Bytes(Bytes::new())
    }

    /// A body of server-sent events, none of which is empty.
    pub fn events(events: Pin<Box<dyn Stream<Item = Bytes> + Send>>) -> Self {
        Self::Events(Events(events))
    }

    /// How many bytes of the answer are in memory until it is sent; `None` for a stream, which holds what it sends next.
    pub fn held(&self) -> Option<u64> {
        match self {
            Self::Compressed { plain, .. } => *plain,
            Self::Observed(observed) => observed.body.held(),
            Self::Bytes(_) | Self::Pieces(_) | Self::Events(_) | Self::Axum(_) => self.size_hint().exact(),
        }
    }

    /// This body, with an action that runs when its connection takes the first frame.
    #[must_use]
    pub fn when_taken(self, taken: impl FnOnce() + Send + 'static) -> Self {
        Self::Observed(Box::new(ObservedBody { body: self, taken: Some(Box::new(taken)) }))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        match &mut *self {
            Self::Bytes(bytes) => {
                let bytes = (!bytes.is_empty()).then(|| std::mem::take(bytes));
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Pieces(pieces) => {
                let next = pieces.iter_mut().find(|piece| !piece.is_empty()).map(std::mem::take);
                Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
            }
            Self::Events(events) => {
                Pin::new(events).poll_next(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Axum(body) | Self::Compressed { body, .. } => Pin::new(body).poll_frame(context),
            Self::Observed(observed) => {
                if let Some(taken) = observed.taken.take() {
                    taken();
                }
                Pin::new(&mut observed.body).poll_frame(context)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Bytes(bytes) => bytes.is_empty(),
            Self::Pieces(pieces) => pieces.iter().all(Bytes::is_empty),
            Self::Events(_) => false,
            Self::Axum(body) | Self::Compressed { body, .. } => body.is_end_stream(),
            Self::Observed(observed) => observed.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Bytes(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Pieces(pieces) => SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum()),
            Self::Events(_) => SizeHint::default(),
            Self::Axum(body) | Self::Compressed { body, .. } => body.size_hint(),
            Self::Observed(observed) => observed.body.size_hint(),
        }
    }
}

/// A body that was read, with its reservation.
#[derive(Debug)]
pub struct Received<R> {
    /// The whole body.
    pub bytes: Bytes,
    /// The reserved memory; `None` for a short body that arrived with the head and was buffered already.
    pub reserved: Option<R>,
}

/// Reads a body of at most `limit` bytes. Its declared length, or the limit if it declares none, is reserved before
/// memory is allocated.
///
/// # Errors
/// [`Fault::PayloadTooLarge`], also if only the declared length is too large; [`Fault::SlowBody`];
/// [`Fault::InvalidRequest`] if the body ends early; the errors of `reserve`.
pub async fn read<B, R>(
    body: &mut B,
    limit: usize,
    pace: BodyPace,
    reserve: impl FnOnce(usize) -> Result<R, Fault>,
) -> Result<Received<R>, Fault>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    let too_large = || Fault::PayloadTooLarge(limit);
    let length = body.size_hint();
    if length.lower() > limit as u64 {
        return Err(too_large());
    }
    let expected = length.exact().and_then(|exact| usize::try_from(exact).ok()).unwrap_or(limit);
    let mut first = None;
    if expected <= UNRESERVED {
        let arrived = poll_once(pin!(next_piece(body))).await;
        match arrived {
            Poll::Ready(None) => return Ok(Received { bytes: Bytes::new(), reserved: None }),
            Poll::Ready(Some(piece)) => first = Some(piece?),
            Poll::Pending => {}
        }
        if let Some(piece) = first.take_if(|piece| piece.len() <= limit && body.is_end_stream()) {
            return Ok(Received { bytes: piece, reserved: None });
        }
    }
    let reserved = reserve(expected)?;
    let mut whole = BytesMut::with_capacity(length.exact().map_or(0, |_| expected));
    let mut meter = PaceMeter { pace, window: None };
    loop {
        let piece = match first.take() {
            Some(piece) => piece,
            None => match meter.next(body).await? {
                Some(piece) => piece,
                None => return Ok(Received { bytes: whole.freeze(), reserved: Some(reserved) }),
            },
        };
        if whole.len() + piece.len() > limit {
            return Err(too_large());
        }
        whole.extend_from_slice(&piece);
    }
}

/// Reads the frames of a body, and fails if they arrive too slowly.
struct PaceMeter {
    pace: BodyPace,
    /// The end of the current window, and the bytes that arrived in it. The first window opens with the first wait.
    window: Option<(Instant, u64)>,
}

impl PaceMeter {
    async fn next<B>(&mut self, body: &mut B) -> Result<Option<Bytes>, Fault>
    where
        B: HttpBody<Data = Bytes> + Unpin,
    {
        let mut piece = pin!(next_piece(body));
        let arrived = loop {
            if let Poll::Ready(arrived) = poll_once(piece.as_mut()).await {
                break arrived;
            }
            let (end, bytes) = *self.window.get_or_insert_with(|| (Instant::now() + self.pace.window, 0));
            if let Ok(arrived) = tokio::time::timeout_at(end, piece.as_mut()).await {
                break arrived;
            }
            if u128::from(bytes) < self.pace.least() {
                return Err(Fault::SlowBody(self.pace.bytes_per_second));
            }
            self.window = Some((end + self.pace.window, 0));
        };
        let piece = arrived.transpose()?;
        if let (Some((_, bytes)), Some(piece)) = (&mut self.window, &piece) {
            *bytes += piece.len() as u64;
        }
        Ok(piece)
    }
}

async fn poll_once<T>(mut future: Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

/// The next bytes; `None` at the end.
async fn next_piece<B>(body: &mut B) -> Option<Result<Bytes, Fault>>
where
    B: HttpBody<Data = Bytes> + Unpin,
{
    loop {
        match body.frame().await? {
            Err(_) => return Some(Err(Fault::InvalidRequest("the body broke off".into()))),
            Ok(frame) => {
                if let Ok(piece) = frame.into_data() {
                    return Some(Ok(piece));
                }
            }
        }
    }
}

/// Reads and discards the rest of a body, within bounds. A connection that is closed while the client is still sending
/// is reset, which loses the answer (RFC 9112, section 9.6). A client that waits for `100 Continue` is not sending.
pub async fn discard(headers: &HeaderMap, mut body: impl HttpBody<Data = Bytes> + Unpin) {
    if body.is_end_stream() || headers.contains_key(EXPECT) {
        return;
    }
    let reading = async {
        let mut left = DISCARDED;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.data_ref().map_or(0, Bytes::len));
            if left == 0 {
                return;
            }
        }
    };
    // The connection of a slower client may be reset.
    let _ = tokio::time::timeout(DISCARD_TIMEOUT, reading).await;
}

/// A request body whose unread rest can be discarded after the handler has returned.
#[derive(Debug, Clone)]
pub struct SharedBody(Arc<Mutex<Incoming>>);

impl SharedBody {
    /// Shares a body.
    pub fn new(body: Incoming) -> Self {
        Self(Arc::new(Mutex::new(body)))
    }
}

impl HttpBody for SharedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut *self.0.lock()).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.lock().is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().size_hint()
    }
}

/// The response with a body of JSON.
pub fn json_response(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Whether a text nests deeper than [`MAX_DEPTH`]. One pass without allocation; the text need not be valid
/// JSON.
pub fn is_too_deep(text: &[u8]) -> bool {
    // Few texts have that many brackets, and counting them is faster than tracking which are open.
    opening_brackets(text) > MAX_DEPTH && nests_too_deep(text)
}

/// Counts in `u8` per chunk, which is vectorized.
fn opening_brackets(text: &[u8]) -> usize {
    let count = |bytes: &[u8]| bytes.iter().map(|byte| u8::from(matches!(byte, b'[' | b'{'))).sum::<u8>();
    text.chunks(u8::MAX.into()).map(|bytes| usize::from(count(bytes))).sum()
}

fn nests_too_deep(text: &[u8]) -> bool {
    let mut depth = 0_usize;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    false
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
