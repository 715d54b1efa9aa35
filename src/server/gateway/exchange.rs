//! A request and its answer, as the middleware sees them: what differs by surface. An MCP request is here, since only it is not
//! boxed.

use std::borrow::Cow;

use http::{HeaderMap, Response};
use hyper::body::{Body as _, Incoming};

use super::admin_call::AdminCall;
use super::document::DocumentRequest;
use super::surfaces::{Interrupted, SurfaceRequest};
use crate::http::body::Body;
use crate::http::context::RequestContext;
use crate::http::credential::announce_expiry;
use crate::http::metadata::Protected;
use crate::http::origin::RequestSource;
use crate::http::request_trace::Answered;
use crate::mcp::reply;
use crate::mcp::request::McpRequest;
use crate::model::fault::{Fault, Outcome};
use crate::model::ids::Slug;
use crate::server::compression::compress;
use crate::server::routes::mcp_agent;
use crate::telemetry::span;
use crate::telemetry::trace::Tracer;

/// A request to one of the surfaces. Only that of the protocol is not boxed, nor its work.
#[expect(clippy::large_enum_variant, reason = "the most frequent request is not boxed")]
pub(super) enum Exchange<'a> {
    /// A request to an MCP endpoint.
    Mcp(McpCall<'a>),
    /// A request to the administration API or its documentation.
    Admin(Box<AdminCall>),
    /// A request for a document of the gateway itself.
    Document(Box<DocumentRequest>),
}

impl Exchange<'_> {
    /// Decides whether the surface may work on the request: by its origin, and the number of requests in flight.
    pub(super) fn admit(&mut self, request: SurfaceRequest<'_>, source: Result<&RequestSource, &Fault>) {
        match self {
            Self::Mcp(call) => call.admit(request, source),
            Self::Admin(call) => call.admit(request, source),
            Self::Document(document) => document.admit(source),
        }
    }

    /// The answer of the surface, or that to its refusal.
    pub(super) async fn answer(&mut self, request: SurfaceRequest<'_>) -> Response<Body> {
        match self {
            Self::Mcp(call) => call.answer(request).await,
            Self::Admin(call) => Box::pin(call.answer(request)).await,
            Self::Document(document) => document.answer(request),
        }
    }

    /// The answer to a request whose handler did not complete.
    pub(super) fn fail(&mut self, request: SurfaceRequest<'_>, interrupted: &Interrupted) -> Response<Body> {
        match self {
            Self::Mcp(call) => call.fail(request, interrupted),
            Self::Admin(_) | Self::Document(_) => request.problem(&interrupted.fault(request.surfaces)),
        }
    }

    /// Records the request with its answer, which is replaced where its audit row cannot be made durable.
    pub(super) async fn record(&mut self, request: SurfaceRequest<'_>, response: &mut Response<Body>) {
        match self {
            Self::Mcp(call) => call.record(request, response).await,
            Self::Admin(call) => Box::pin(call.record(request, response)).await,
            Self::Document(_) => {}
        }
    }

    /// How the recorded request ended; `None` for a document of the gateway itself.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Mcp(call) => Some(call.request.context.event.outcome),
            Self::Admin(call) => Some(call.with_context(|context| context.event.outcome)),
            Self::Document(_) => None,
        }
    }

    /// Exports the trace of the request, if it is sampled.
    pub(super) fn trace(&self, tracer: &Tracer, request: SurfaceRequest<'_>, response: &Response<Body>) {
        let Some(active) = span::active_trace() else { return };
        let SurfaceRequest { surfaces, parts, .. } = request;
        let (method, status, now) = (&parts.method, response.status(), surfaces.recorder.audit().now());
        let export =
            |context: &RequestContext| Answered { context, method, status }.export(tracer, &active, now);
        match self {
            Self::Mcp(call) => export(&call.request.context),
            Self::Admin(call) => call.with_context(export),
            Self::Document(_) => {}
        }
    }

    /// Adds the headers that every answer of the surface has.
    pub(super) fn add_headers(&mut self, request: SurfaceRequest<'_>, headers: &mut HeaderMap) {
        match self {
            Self::Mcp(call) => call.add_headers(request, headers),
            Self::Admin(call) => call.add_headers(request, headers),
            Self::Document(_) => {}
        }
    }

    /// Reads the rest of the body, within limits.
    pub(super) async fn discard_body(&mut self, request: SurfaceRequest<'_>) {
        match self {
            Self::Mcp(call) => call.discard_body(request).await,
            Self::Admin(call) => Box::pin(call.discard_body(request)).await,
            Self::Document(document) => Box::pin(document.discard_body(request)).await,
        }
    }

    /// Compresses the answer, if the surface has large ones that hold no secrets.
    pub(super) async fn compress(&self, request: SurfaceRequest<'_>, response: &mut Response<Body>) {
        if let Self::Admin(_) = self {
            Box::pin(compress(request.parts, response)).await;
        }
    }
}

const LATE_BODY: Fault = Fault::InvalidRequest(Cow::Borrowed("the body did not arrive in time"));

/// A request to an MCP endpoint, and its body.
pub(super) struct McpCall<'a> {
    request: McpRequest<'a>,
    body: Incoming,
}

impl<'a> McpCall<'a> {
    pub(super) fn new(request: SurfaceRequest<'a>, body: Incoming) -> Self {
        let SurfaceRequest { surfaces, parts, id, client, .. } = request;
        let agent = Slug::decode_agent(mcp_agent(parts.uri.path()).unwrap_or_default());
        span::record_agent(&agent);
        let shared = (&*surfaces.permits, &surfaces.refusals);
        Self { request: McpRequest::new((agent, parts, id), client, shared), body }
    }

    pub(super) fn admit(&mut self, request: SurfaceRequest<'_>, source: Result<&RequestSource, &Fault>) {
        self.request.context.foreign_host = source.is_ok_and(|source| source.foreign_host);
        self.request.admitted = match source {
            Err(fault) => Err(fault.clone()),
            Ok(_) if request.surfaces.is_full() => Err(Fault::BUSY),
            Ok(_) => Ok(()),
        };
    }

    /// No `async fn`: its future would be copied once more.
    pub(super) fn answer<'s>(
        &'s mut self,
        request: SurfaceRequest<'s>,
    ) -> impl Future<Output = Response<Body>> {
        request.surfaces.endpoint.answer(&mut self.request, &mut self.body)
    }

    pub(super) fn fail(&mut self, request: SurfaceRequest<'_>, interrupted: &Interrupted) -> Response<Body> {
        let fault = match interrupted {
            Interrupted::Deadline if self.request.awaits_body => LATE_BODY,
            interrupted => interrupted.fault(request.surfaces),
        };
        reply::fail(&mut self.request, &fault)
    }

    pub(super) fn record<'s>(
        &'s mut self,
        request: SurfaceRequest<'s>,
        response: &'s mut Response<Body>,
    ) -> impl Future<Output = ()> {
        request.surfaces.recorder.complete(&mut self.request, response, reply::fail)
    }

    pub(super) fn add_headers(&mut self, request: SurfaceRequest<'_>, headers: &mut HeaderMap) {
        if let Some(status) = self.request.rate_limit.take() {
            status.write(headers);
        }
        if let Some(end) = self.request.context.key_expires {
            announce_expiry(end, headers);
        }
        let protected = || Protected::endpoint_or_gateway(&self.request.agent);
        request.surfaces.challenge(protected, &request.parts.headers, headers);
    }

    pub(super) async fn discard_body(&mut self, request: SurfaceRequest<'_>) {
        if !self.body.is_end_stream() {
            let SurfaceRequest { surfaces, parts, client, .. } = request;
            Box::pin(surfaces.refusals.discard(client, &parts.headers, &mut self.body)).await;
        }
    }
}
