//! What is received from an object store: within a limit for each answer, lists included, and at a pace. Of an error its status
//! is received.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};
use object_store::client::{
    HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
};
use reqwest::{Client, StatusCode};

use crate::error::FetchError;
use crate::http::retry_after;
use crate::pace::{Pace, Pause};

/// The maximum number of bytes of a page of a list.
pub(super) const LIST_BYTES: u64 = 16 << 20;

/// The bounds of the answer to a request, among its extensions.
#[derive(Clone)]
pub(super) struct Receive {
    pub(super) bytes: u64,
    pub(super) pace: Option<Arc<Pace>>,
}

impl Receive {
    /// As extensions of a request.
    pub(super) fn extensions(bytes: u64, pace: Option<&Arc<Pace>>) -> object_store::Extensions {
        let mut extensions = object_store::Extensions::new();
        extensions.insert(Self { bytes, pace: pace.cloned() });
        extensions
    }
}

/// A client whose answers have bounds.
pub(super) struct Bounded(pub(super) Client);

impl fmt::Debug for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded").finish_non_exhaustive()
    }
}

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for Bounded {
    fn call<'s, 'a>(&'s self, request: HttpRequest) -> Answer<'a>
    where
        's: 'a,
        Self: 'a,
    {
        let receive = request.extensions().get().cloned();
        let Receive { bytes, pace } = receive.unwrap_or(Receive { bytes: LIST_BYTES, pace: None });
        Box::pin(async move {
            let (parts, body) = self.0.call(request).await?.into_parts();
            if !parts.status.is_success() && parts.status != StatusCode::NOT_MODIFIED {
                let failed = FetchError::of_status(parts.status.as_u16(), retry_after(&parts.headers));
                return Err(HttpError::new(HttpErrorKind::Unknown, failed));
            }
            let body = BoundedBody { body, left: bytes, pace, pause: Pause::default() };
            Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
        })
    }
}

struct BoundedBody {
    body: HttpResponseBody,
    left: u64,
    pace: Option<Arc<Pace>>,
    pause: Pause,
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, HttpError>>> {
        let this = &mut *self;
        ready!(this.pause.poll_over(cx));
        let frame = ready!(Pin::new(&mut this.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame {
            let length = frame.data_ref().map_or(0, Bytes::len);
            if let Some(pace) = &this.pace {
                this.pause.charge(pace, length);
            }
            let Some(left) = this.left.checked_sub(u64::try_from(length).unwrap_or(u64::MAX)) else {
                return Poll::Ready(Some(Err(HttpError::new(HttpErrorKind::Decode, FetchError::TooLarge))));
            };
            this.left = left;
        }
        Poll::Ready(frame)
    }
}
