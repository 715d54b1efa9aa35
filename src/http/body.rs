//! Bodies: read whole within a limit, answered in few pieces.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use http::HeaderMap;
use http::header::EXPECT;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use parking_lot::Mutex;

use crate::model::fault::Fault;

/// How much of a body that nobody wants is read away, and for how long.
const DISCARDED: usize = 64 * 1024 * 1024;
const DISCARD_PATIENCE: Duration = Duration::from_secs(1);

/// What is answered: at most three pieces held in memory, events, or whatever the admin surface makes.
#[derive(Debug)]
pub enum Body {
    /// Pieces in memory, sent in order.
    Pieces([Bytes; 3]),
    /// A stream that goes on for as long as it likes.
    Events(Events),
    /// A body of the admin surface.
    Axum(axum::body::Body),
    /// One whose delivery has an effect.
    Watched(Box<Watched>),
}

/// A body, and what is done when its connection takes the first of it. It is not done where the client left before.
pub struct Watched {
    body: Body,
    taken: Option<Box<dyn FnOnce() + Send>>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").field("body", &self.body).finish_non_exhaustive()
    }
}

/// Bytes that come one after another.
pub struct Events(Pin<Box<dyn Stream<Item = Bytes> + Send>>);

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Body {
    /// No bytes at all.
    pub const fn empty() -> Self {
        Self::Pieces([Bytes::new(), Bytes::new(), Bytes::new()])
    }

    /// A stream of bytes.
    pub fn events(events: Pin<Box<dyn Stream<Item = Bytes> + Send>>) -> Self {
        Self::Events(Events(events))
    }

    /// This body, and what is done when its connection takes the first of it.
    #[must_use]
    pub fn when_taken(self, taken: impl FnOnce() + Send + 'static) -> Self {
        Self::Watched(Box::new(Watched { body: self, taken: Some(Box::new(taken)) }))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Pieces([bytes, Bytes::new(), Bytes::new()])
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
            Self::Pieces(pieces) => {
                let next = pieces.iter_mut().find(|piece| !piece.is_empty()).map(std::mem::take);
                Poll::Ready(next.map(|piece| Ok(Frame::data(piece))))
            }
            Self::Events(Events(events)) => {
                events.as_mut().poll_next(context).map(|next| next.map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Axum(body) => Pin::new(body).poll_frame(context),
            Self::Watched(watched) => {
                if let Some(taken) = watched.taken.take() {
                    taken();
                }
                Pin::new(&mut watched.body).poll_frame(context)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Pieces(pieces) => pieces.iter().all(Bytes::is_empty),
            Self::Events(_) => false,
            Self::Axum(body) => body.is_end_stream(),
            Self::Watched(watched) => watched.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Pieces(pieces) => SizeHint::with_exact(pieces.iter().map(|piece| piece.len() as u64).sum()),
            Self::Events(_) => SizeHint::default(),
            Self::Axum(body) => body.size_hint(),
            Self::Watched(watched) => watched.body.size_hint(),
        }
    }
}

/// Reads a body of at most `limit` bytes.
///
/// # Errors
/// [`Fault::PayloadTooLarge`], also for one that only announces to be so; [`Fault::InvalidRequest`] where it breaks
/// off.
pub async fn read(body: &mut Incoming, limit: usize) -> Result<Bytes, Fault> {
    if body.size_hint().lower() > limit as u64 {
        return Err(Fault::PayloadTooLarge(limit));
    }
    let within = |length| if length <= limit { Ok(()) } else { Err(Fault::PayloadTooLarge(limit)) };
    let Some(first) = next_piece(body).await? else { return Ok(Bytes::new()) };
    within(first.len())?;
    if body.is_end_stream() {
        return Ok(first);
    }
    let mut whole = BytesMut::from(first);
    while let Some(piece) = next_piece(body).await? {
        within(whole.len() + piece.len())?;
        whole.extend_from_slice(&piece);
    }
    Ok(whole.freeze())
}

async fn next_piece(body: &mut Incoming) -> Result<Option<Bytes>, Fault> {
    loop {
        match body.frame().await {
            None => return Ok(None),
            Some(Err(_)) => return Err(Fault::InvalidRequest("the body broke off".into())),
            Some(Ok(frame)) => {
                if let Ok(piece) = frame.into_data() {
                    return Ok(Some(piece));
                }
            }
        }
    }
}

/// Reads away what is left of a body, within bounds. A connection that is closed on a client which is still sending is
/// reset, and the answer is lost with it (RFC 9112, section 9.6). Who waits for a `100` is not sending.
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
    // Whoever needs longer may find the connection closed.
    let _ = tokio::time::timeout(DISCARD_PATIENCE, reading).await;
}

/// A body on loan: what the borrower leaves of it can be read away.
#[derive(Debug, Clone)]
pub struct Lent(Arc<Mutex<Incoming>>);

impl Lent {
    /// Lends a body.
    pub fn new(body: Incoming) -> Self {
        Self(Arc::new(Mutex::new(body)))
    }
}

impl HttpBody for Lent {
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use http_body_util::BodyExt;
    use hyper::body::Body as _;

    use super::Body;

    #[tokio::test]
    async fn effect_of_a_delivery_takes_place_when_the_body_is_taken() {
        let taken = Arc::new(AtomicUsize::new(0));
        let watched = || {
            let taken = Arc::clone(&taken);
            Body::from(Bytes::from_static(b"abc"))
                .when_taken(move || _ = taken.fetch_add(1, Ordering::Relaxed))
        };
        let body = watched();
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(3), false));
        drop(body);
        assert_eq!(taken.load(Ordering::Relaxed), 0);
        assert_eq!(watched().collect().await.unwrap().to_bytes(), "abc");
        assert_eq!(taken.load(Ordering::Relaxed), 1);
    }
}
