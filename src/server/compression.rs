//! Compresses responses of the administration surface for clients that accept it (RFC 9110, section 12.5.3).

use std::convert::Infallible;
use std::future::ready;
use std::mem::replace;

use http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, ETAG, IF_NONE_MATCH, VARY};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Body as _;
use tower::{Layer, ServiceExt, service_fn};
use tower_http::CompressionLevel;
use tower_http::compression::CompressionLayer;
use tower_http::compression::predicate::{NotForContentType, Predicate, SizeAbove};

use crate::http::body::Body;
use crate::http::precondition::{CODINGS, with_coding};

/// The minimum size of a compressed body, in bytes: a smaller response fits in one packet anyway.
const MIN_BYTES: u16 = 1_400;

/// Compresses the response to a `GET` as its `Accept-Encoding` says.
///
/// Only `GET` has large responses; the others would cost time and may hold secrets. The `ETag` of a compressed response
/// names its coding, since a strong tag identifies bytes.
pub(super) async fn compress(parts: &Parts, response: &mut Response<Body>) {
    if parts.method != Method::GET {
        return;
    }
    let layer = CompressionLayer::new().quality(CompressionLevel::Fastest).compress_when(compressible());
    let mut request = Request::new(());
    request.headers_mut().clone_from(&parts.headers);
    let length = response.body().size_hint().exact();
    let mut plain = take(response);
    let answered = service_fn(|_: Request<()>| ready(Ok::<_, Infallible>(take(&mut plain))));
    let Ok(mut compressed) = layer.layer(answered).oneshot(request).await;
    tag(compressed.status(), parts.headers.get(IF_NONE_MATCH), compressed.headers_mut());
    *response = compressed.map(|body| Body::Compressed { body: axum::body::Body::new(body), plain: length });
}

/// Adds the `Vary` with which the response to a `GET` is sent, before `304` replaces it (RFC 9110, section 15.4.5).
pub(super) fn add_vary(parts: &Parts, response: &mut Response<Body>) {
    if parts.method == Method::GET && compressible().should_compress(response) {
        response.headers_mut().append(VARY, ACCEPT_ENCODING.into());
    }
}

/// Which responses are compressed for clients that accept it.
fn compressible() -> impl Predicate {
    SizeAbove::new(MIN_BYTES).and(NotForContentType::SSE)
}

fn take(response: &mut Response<Body>) -> Response<Body> {
    replace(response, Response::new(Body::empty()))
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
