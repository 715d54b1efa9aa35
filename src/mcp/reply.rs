//! Answers over HTTP: results, refusals in the dialect and with the id of what they answer, and nothing at all.

use http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};
use hyper::body::Incoming as IncomingBody;

use super::endpoint::Arrival;
use super::era::{self, RequestEra};
use super::error::RpcError;
use super::headers::McpHeaders;
use super::legacy;
use super::modern::error::ModernError;
use super::version::ProtocolVersion;
use super::wire::{RequestId, error_message, parse};
use crate::http::body::Body;
use crate::http::challenge;
use crate::http::limits;
use crate::http::problem;
use crate::model::fault::Fault;

/// How a request is answered when it fails: in its dialect, with its id.
pub(super) struct Reply<'a> {
    pub(super) arrival: &'a Arrival<'a>,
    pub(super) era: RequestEra,
    pub(super) version: Option<ProtocolVersion>,
    pub(super) id: Option<RequestId<'a>>,
}

impl<'a> Reply<'a> {
    /// For a request of which only so much is known.
    fn new(arrival: &'a Arrival<'a>, headers: &McpHeaders<'_>, body: &'a [u8]) -> Self {
        let incoming = parse(body);
        let (era, version) = (era::decide(headers, &incoming), era::named_version(headers, &incoming));
        if let Ok(incoming) = &incoming {
            arrival.trail.read(incoming, version);
        }
        let id = match incoming {
            Ok(incoming) => incoming.id(),
            Err(rejected) => rejected.id,
        };
        Self { arrival, era, version, id }
    }

    pub(super) fn request_id(&self) -> &'a str {
        self.arrival.request_id.to_str().unwrap_or_default()
    }

    pub(super) fn translate(&self, fault: &Fault) -> RpcError {
        if let Fault::Internal(detail) = fault {
            let request_id = self.request_id();
            tracing::error!(request_id, detail, "a request failed by a fault of the gateway");
        }
        match self.era {
            RequestEra::Modern => ModernError::from(fault.clone()).answer(self.request_id()),
            RequestEra::Legacy(_) => legacy::error::answer(fault, self.request_id()),
        }
    }

    pub(super) fn fault(&self, fault: &Fault) -> Response<Body> {
        let mut response = self.error(&self.translate(fault));
        if let Some(challenge) = challenge::of(fault) {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        limits::tell(fault, response.headers_mut());
        response
    }

    pub(super) fn error(&self, error: &RpcError) -> Response<Body> {
        self.arrival.trail.failed(error.name);
        self.arrival.noted.failed(error.name, self.era.era());
        let mut response = ok(Body::from(error_message(self.id, self.version, error)));
        *response.status_mut() = error.status;
        if let Some(wait) = error.retry_after {
            response.headers_mut().insert(RETRY_AFTER, limits::retry_after(wait));
        }
        response
    }
}

/// Answers a request that failed without its body being read.
pub fn fail(arrival: &Arrival<'_>, fault: &Fault) -> Response<Body> {
    refuse_read(arrival, fault, b"")
}

/// Answers a request of which nothing was read.
pub fn unread(fault: &Fault) -> Response<Body> {
    let error = legacy::error::answer(fault, "");
    let mut response = ok(Body::from(error_message(None, None, &error)));
    *response.status_mut() = error.status;
    limits::tell(fault, response.headers_mut());
    if let Some(wait) = error.retry_after {
        response.headers_mut().insert(RETRY_AFTER, limits::retry_after(wait));
    }
    response
}

/// Refuses a request before its body is read; the id is read all the same while there is a place for that.
pub(super) async fn refuse(arrival: &Arrival<'_>, fault: &Fault, body: &mut IncomingBody) -> Response<Body> {
    let body = arrival.refusals.read(arrival.client, body).await;
    arrival.trail.body(body.len());
    refuse_read(arrival, fault, &body)
}

/// Refuses a request whose body is read.
pub(super) fn refuse_read(arrival: &Arrival<'_>, fault: &Fault, body: &[u8]) -> Response<Body> {
    Reply::new(arrival, &McpHeaders::read(&arrival.parts.headers), body).fault(fault)
}

pub(super) fn ok(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// The answer to a method that is not served here, which names those that are.
pub(super) fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    problem::method_not_allowed(Some(allowed)).map(Body::Axum)
}

/// The answer to a session's end.
pub(super) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
