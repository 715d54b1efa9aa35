//! Problem bodies of the administration API (RFC 9457), and the mapping of faults to status codes.

use axum::response::{IntoResponse, Response};
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;

use super::refusals;
use crate::model::fault::Fault;
use crate::quota::limits::{retry_after, write_refusal};

/// A problem body (RFC 9457).
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Problem<'a> {
    r#type: &'static str,
    title: &'static str,
    status: u16,
    detail: String,
    /// The stable name of the fault.
    code: &'a str,
    /// The request id, which the log entry of an internal fault has too.
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
}

/// A fault as an answer of the administration API.
#[derive(Debug)]
pub struct AdminFault(pub Fault);

impl From<Fault> for AdminFault {
    fn from(fault: Fault) -> Self {
        Self(fault)
    }
}

/// The status code of a fault.
pub fn status(fault: &Fault) -> StatusCode {
    match fault {
        Fault::ParseError(_)
        | Fault::InvalidRequest(_)
        | Fault::SlowBody(_)
        | Fault::InvalidParams(_)
        | Fault::MissingArguments(_)
        | Fault::UnknownUri { .. }
        | Fault::SessionRequired(_) => StatusCode::BAD_REQUEST,
        Fault::Unauthenticated | Fault::ConflictingCredentials => StatusCode::UNAUTHORIZED,
        Fault::Forbidden
        | Fault::NotPermitted(_)
        | Fault::InsufficientScope(_)
        | Fault::AgentDisabled
        | Fault::ForbiddenOrigin(_) => StatusCode::FORBIDDEN,
        Fault::NotFound(_)
        | Fault::KeyExpired(_)
        | Fault::SessionNotFound
        | Fault::MethodNotFound(_)
        | Fault::ResourceNotFound(_) => StatusCode::NOT_FOUND,
        Fault::NotAcceptable(_) => StatusCode::NOT_ACCEPTABLE,
        Fault::AlreadyExists(_) | Fault::InUse(_) | Fault::SlugRetired => StatusCode::CONFLICT,
        Fault::RevisionMismatch(_) => StatusCode::PRECONDITION_FAILED,
        Fault::PayloadTooLarge(_) | Fault::ResultTooLarge { .. } | Fault::BatchTooLarge(_) => {
            StatusCode::PAYLOAD_TOO_LARGE
        }
        Fault::UnsupportedMediaType(_) | Fault::UnsupportedContentEncoding => {
            StatusCode::UNSUPPORTED_MEDIA_TYPE
        }
        Fault::RateLimited { .. } | Fault::QuotaExceeded { .. } => StatusCode::TOO_MANY_REQUESTS,
        Fault::Unavailable { .. } | Fault::Starting | Fault::StorageUnavailable => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Fault::SourceTimeout => StatusCode::GATEWAY_TIMEOUT,
        Fault::SourceFailed(_) => StatusCode::BAD_GATEWAY,
        Fault::Internal(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The problem body of a fault, with its outcome as an extension of the response. The cause of an internal fault is logged
/// with the request id, and not sent.
pub fn response(fault: &Fault, request_id: Option<&str>) -> Response {
    let status = status(fault);
    let internal = matches!(fault, Fault::Internal(_));
    if let Fault::Internal(detail) = fault {
        tracing::error!(detail, "request failed internally");
    }
    let mut response = described(status, fault.name(), fault.to_string(), request_id.filter(|_| internal));
    let headers = response.headers_mut();
    if let Some(challenge) = refusals::challenge(fault) {
        headers.insert(WWW_AUTHENTICATE, challenge);
    }
    if let Some(wait) = fault.retry_after() {
        headers.insert(RETRY_AFTER, retry_after(wait));
    }
    write_refusal(fault, headers);
    response.extensions_mut().insert(fault.outcome());
    response
}

/// The answer to a method that a path does not support; `Allow` names the supported ones if they are known here.
pub fn method_not_allowed(allowed: Option<&'static str>) -> Response {
    let detail = match allowed {
        Some(allowed) => format!("this path does not have that method; use one of {allowed}"),
        None => "this path does not have that method; the header Allow names those that it has".to_owned(),
    };
    let mut response = described(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail, None);
    if let Some(allowed) = allowed {
        response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    }
    response
}

fn described(status: StatusCode, code: &str, detail: String, request_id: Option<&str>) -> Response {
    let problem = Problem {
        r#type: "about:blank",
        title: status.canonical_reason().unwrap_or_default(),
        status: status.as_u16(),
        detail,
        code,
        request_id,
    };
    let body = serde_json::to_vec(&problem).unwrap_or_default();
    let mut response = (status, body).into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
    response
}
