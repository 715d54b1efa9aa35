//! HTTP responses: results, errors in the dialect of the request with its id, and empty bodies.

use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, Response, StatusCode};
use hyper::body::Incoming as IncomingBody;

use super::error::RpcError;
use super::legacy;
use super::modern::error::ModernError;
use super::refusal::Refusal;
use super::request::{McpRequest, label_of};
use super::version::{McpHeaders, ProtocolVersion, RequestEra};
use super::wire::{MessageBody, Rejected, RequestId, error_message, parse, result_pieces};
use crate::http::body::{Body, json_response};
use crate::http::{problem, refusals};
use crate::model::fault::Fault;
use crate::model::method::Method;
use crate::quota::limits;
use crate::telemetry::span;

/// The form in which a request is answered when it fails: its dialect, its revision and its id.
pub(super) struct Reply<'a> {
    pub(super) era: RequestEra,
    pub(super) version: Option<ProtocolVersion>,
    pub(super) id: Option<RequestId<'a>>,
}

impl<'a> Reply<'a> {
    /// For a refused request, from the part of its body that was read. Without one, the log has the method that the header
    /// names.
    fn refusal(request: &mut McpRequest<'_>, body: &'a [u8]) -> Self {
        let headers = McpHeaders::read(&request.parts.headers);
        let (reply, incoming) = Self::read(&headers, body);
        if let Ok(incoming) = &incoming {
            request.read(incoming, reply.version);
            span::record_method(label_of(Ok(incoming)).as_str());
        } else if let Some(method) = headers.method.value().and_then(Method::parse) {
            span::record_method(method.name());
        }
        reply
    }

    fn read(headers: &McpHeaders<'_>, body: &'a [u8]) -> (Self, Result<MessageBody<'a>, Rejected<'a>>) {
        let incoming = parse(body);
        let (era, version) = (RequestEra::decide(headers, &incoming), headers.named_version(&incoming));
        let id = incoming.as_ref().map_or_else(|rejected| rejected.id, MessageBody::id);
        (Self { era, version, id }, incoming)
    }

    /// The error for a fault. The detail of an internal fault is logged.
    pub(super) fn translate(&self, request_id: &str, fault: &Fault) -> RpcError {
        if let Fault::Internal(detail) = fault {
            tracing::error!(detail, "request failed internally");
        }
        match self.era {
            RequestEra::Modern => ModernError::from(fault.clone()).answer(request_id),
            RequestEra::Legacy(_) => legacy::error::answer(fault, request_id),
        }
    }

    /// The answer to a refused call.
    pub(super) fn refused(&self, request: &mut McpRequest<'_>, refusal: Refusal) -> Response<Body> {
        request.context.hidden = refusal.hidden;
        match (self.id, refusal.result) {
            (Some(id), Some(result)) => {
                request.failed(refusal.fault.outcome(), self.era.era());
                json_response(result_pieces(id, result))
            }
            _ => self.fault(request, &refusal.fault),
        }
    }

    pub(super) fn fault(&self, request: &mut McpRequest<'_>, fault: &Fault) -> Response<Body> {
        let mut response = self.error(request, &self.translate(request.request_id(), fault));
        if let Some(challenge) = refusals::challenge(fault) {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        limits::write_refusal(fault, response.headers_mut());
        response
    }

    pub(super) fn error(&self, request: &mut McpRequest<'_>, error: &RpcError) -> Response<Body> {
        request.failed(error.outcome, self.era.era());
        self.response(error)
    }

    fn response(&self, error: &RpcError) -> Response<Body> {
        let mut response = json_response(Body::from(error_message(self.id, self.version, error)));
        *response.status_mut() = error.status;
        if let Some(wait) = error.retry_after {
            response.headers_mut().insert(RETRY_AFTER, limits::retry_after(wait));
        }
        response
    }
}

/// Answers a request that failed, with its id if its body was read.
pub fn fail(request: &mut McpRequest<'_>, fault: &Fault) -> Response<Body> {
    let body = request.received.clone();
    refuse_read(request, fault, &body)
}

/// Answers a request that arrives before the gateway is built, of whose body the first bytes may be read.
pub fn unready(fault: &Fault, headers: &HeaderMap, body: &[u8]) -> Response<Body> {
    let (reply, _) = Reply::read(&McpHeaders::read(headers), body);
    let error = reply.translate("", fault);
    let mut response = reply.response(&error);
    limits::write_refusal(fault, response.headers_mut());
    response
}

/// Refuses a request before its body is read. The body is read for the id only, while there is capacity for that.
pub(super) async fn refuse(
    request: &mut McpRequest<'_>,
    fault: &Fault,
    body: &mut IncomingBody,
) -> Response<Body> {
    let body = request.refusals.read(request.client(), body).await;
    request.body(&body);
    refuse_read(request, fault, &body)
}

/// Refuses a request whose body is read.
pub(super) fn refuse_read(request: &mut McpRequest<'_>, fault: &Fault, body: &[u8]) -> Response<Body> {
    Reply::refusal(request, body).fault(request, fault)
}

pub(super) fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// The answer to an HTTP method that the endpoint does not have, naming those that it has.
pub(super) fn method_not_allowed(allowed: &'static str) -> Response<Body> {
    problem::method_not_allowed(Some(allowed)).map(Body::Axum)
}

/// The answer to the end of a session.
pub(super) fn no_content() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}
