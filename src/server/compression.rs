//! Compresses responses of the administration surface for clients that accept it (RFC 9110, section 12.5.3).

use std::convert::Infallible;

use futures_util::FutureExt;
use http::header::{CONTENT_ENCODING, ETAG, IF_NONE_MATCH};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use tower::{Layer, ServiceExt, service_fn};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

use crate::http::body::Body;
use crate::http::precondition::{CODINGS, with_coding};

/// The minimum size of a compressed body, in bytes: a smaller response fits in one packet anyway.
const MIN_BYTES: u16 = 1_400;

/// Answers a request, and compresses the response to a `GET` as its `Accept-Encoding` says.
///
/// Only `GET` has large responses; the others would cost time and may hold secrets. The `ETag` of a compressed response
/// names its coding, since a strong tag identifies bytes.
pub(super) async fn compress<B, F>(
    request: Request<B>,
    mut answer: impl FnMut(Request<B>) -> F,
) -> Response<Body>
where
    F: Future<Output = Response<Body>>,
{
    if request.method() != Method::GET {
        return answer(request).await;
    }
    let known = request.headers().get(IF_NONE_MATCH).cloned();
    let layer = CompressionLayer::new()
        .quality(CompressionLevel::Fastest)
        .compress_when(SizeAbove::new(MIN_BYTES).and(NotForContentType::SSE));
    let service = layer.layer(service_fn(|request| answer(request).map(Ok::<_, Infallible>)));
    let Ok(mut response) = service.oneshot(request).await;
    let status = response.status();
    tag(status, known.as_ref(), response.headers_mut());
    response.map(|body| Body::Axum(axum::body::Body::new(body)))
}

/// Sets the `ETag` of the representation that is sent, or that a client has (`304`).
fn tag(status: StatusCode, known: Option<&HeaderValue>, headers: &mut HeaderMap) {
    let Some(tag) = headers.get(ETAG) else { return };
    let sent = headers.get(CONTENT_ENCODING).and_then(|coding| coding.to_str().ok());
    let coded = match sent {
        Some(coding) => with_coding(tag, coding),
        None if status == StatusCode::NOT_MODIFIED => {
            CODINGS.iter().find_map(|coding| with_coding(tag, coding).filter(|coded| known == Some(coded)))
        }
        None => None,
    };
    if let Some(coded) = coded {
        headers.insert(ETAG, coded);
    }
}
