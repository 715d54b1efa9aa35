//! Health checks: `/healthz` and `/readyz`.

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderValue, Method, Response, StatusCode};

use crate::catalog::readiness::Readiness;
use crate::http::body::Body;
use crate::http::problem;

/// Answers `/healthz`: the process runs.
pub(super) fn alive(method: &Method) -> Response<Body> {
    status(method, StatusCode::OK, r#"{"status":"alive"}"#.into())
}

/// Answers `/readyz`: whether the gateway serves requests, and why not.
pub(super) fn ready(method: &Method, readiness: &Readiness) -> Response<Body> {
    let (code, body) = readyz(readiness);
    status(method, code, body)
}

/// The status and the body of `/readyz`.
fn readyz(readiness: &Readiness) -> (StatusCode, Bytes) {
    let (code, status, reasons) = match readiness {
        Readiness::Ready => {
            return (StatusCode::OK, Bytes::from_static(br#"{"status":"ready"}"#));
        }
        Readiness::Degraded(reasons) => (StatusCode::OK, "degraded", reasons),
        Readiness::Unready(reasons) => (StatusCode::SERVICE_UNAVAILABLE, "unready", reasons),
    };
    let reasons: Vec<_> = reasons.iter().map(|reason| reason.code()).collect();
    (code, serde_json::json!({"status": status, "reasons": reasons}).to_string().into())
}

/// Answers a health check.
pub(super) fn status(method: &Method, code: StatusCode, body: Bytes) -> Response<Body> {
    if !matches!(*method, Method::GET | Method::HEAD) {
        return problem::method_not_allowed(Some("GET, HEAD")).map(Body::Axum);
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}
