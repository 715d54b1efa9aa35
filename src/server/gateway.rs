//! Answers requests: the middleware of all surfaces, in the order in which a request passes it, with the guard of handlers and
//! what differs by surface ([`Exchange`]).

mod admin_call;
mod document;
mod surfaces;

use std::borrow::Cow;
use std::future::poll_fn;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use http::header::WWW_AUTHENTICATE;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};

use self::admin_call::AdminCall;
use self::document::DocumentRequest;
use self::surfaces::SurfaceRequest;
pub(super) use self::surfaces::problem;
pub(crate) use self::surfaces::{SharedMetadata, SurfaceOptions, Surfaces};
use super::access_log::AccessEntry;
use super::compression::compress;
use super::health;
use super::routes::{Surface, mcp_agent};
use crate::catalog::Catalog;
use crate::config::AccessLog;
use crate::http::body::Body;
use crate::http::client_address::TrustedProxies;
use crate::http::context::{RequestContext, TRACEPARENT};
use crate::http::credential::announce_expiry;
use crate::http::metadata::Protected;
use crate::http::origin::{self, Cors, RequestSource};
use crate::http::request_id::{RequestIds, X_REQUEST_ID};
use crate::http::request_trace::Answered;
use crate::mcp::reply;
use crate::mcp::request::McpRequest;
use crate::model::audit::event::Outcome;
use crate::model::fault::Fault;
use crate::model::ids::Slug;
use crate::telemetry::span::{self, RequestSpan};
use crate::telemetry::trace::{self, Tracer};

/// Answers requests of all surfaces.
pub(crate) struct Gateway {
    surfaces: Surfaces,
    catalog: Arc<Catalog>,
    ids: RequestIds,
    options: GatewayOptions,
}

/// Limits of requests, and the proxies that are trusted.
#[derive(Debug)]
pub(crate) struct GatewayOptions {
    /// Proxies that report the address of their client.
    pub(crate) proxies: TrustedProxies,
    /// The deadline of a request.
    pub(crate) deadline: Duration,
    /// The maximum number of headers of a request.
    pub(crate) most_headers: usize,
    /// Whether and how each request is logged.
    pub(crate) access_log: AccessLog,
}

impl Gateway {
    pub(crate) fn new(
        surfaces: Surfaces,
        catalog: Arc<Catalog>,
        ids: RequestIds,
        options: GatewayOptions,
    ) -> Self {
        Self { surfaces, catalog, ids, options }
    }

    /// Answers a request. The layers and checks that all surfaces share are listed here, in the order in which a
    /// request passes them; those of a surface are behind [`Exchange::answer`].
    pub(super) async fn answer(
        &self,
        (parts, body): (&Parts, Incoming),
        peer: IpAddr,
        surface: Surface,
    ) -> Response<Body> {
        // The id of the request, and the span of its log events.
        let id = self.ids.of(&parts.headers);
        let span = RequestSpan::new(id.to_str().unwrap_or_default(), &parts.method);
        // The trace of a request that may be recorded, if traces are exported.
        let tracer = self.surfaces.tracer.as_ref();
        let tracer = tracer.filter(|_| matches!(surface, Surface::Mcp | Surface::Admin));
        let traceparent = parts.headers.get(TRACEPARENT).map(HeaderValue::as_bytes);
        let span = span.with_trace(trace::begin(tracer.map(AsRef::as_ref), traceparent));
        let mut response = span
            .run(pin!(async {
                // The access log.
                let access_log = self.options.access_log;
                let began = (access_log != AccessLog::Off).then(Instant::now);
                let mut outcome = None;
                // The address of the client, as trusted proxies report it.
                let client = self.options.proxies.client(peer, &parts.headers);
                let response = 'answered: {
                    // The number of headers: of HTTP/2, since hyper counts those of HTTP/1.1 as it reads them.
                    if parts.version == Version::HTTP_2 && parts.headers.len() > self.options.most_headers {
                        break 'answered headers_too_large();
                    }
                    let request = SurfaceRequest { surfaces: &self.surfaces, parts, id: &id, peer, client };
                    let mut exchange = match surface {
                        // Health checks pass nothing of what follows but the access log.
                        Surface::Alive => break 'answered health::alive(&parts.method),
                        Surface::Ready => {
                            break 'answered health::ready(&parts.method, &self.catalog.readiness());
                        }
                        Surface::Mcp => Exchange::Mcp(McpCall::new(request, body)),
                        Surface::Admin => Exchange::Admin(Box::new(AdminCall::new(request, body))),
                        Surface::Document(document) => {
                            Exchange::Document(Box::new(DocumentRequest::new(document, body)))
                        }
                    };
                    // `Host`, `Origin`, and CORS preflights, which need no credential.
                    let source = self.surfaces.origins.check(parts);
                    let preflight = preflight(&parts.method, source.as_ref().ok(), surface.cors());
                    let (mut response, origin) = if let Some(preflight) = preflight {
                        (preflight, None)
                    } else {
                        // The number of requests in flight. The permit is taken after the body.
                        let is_full = self.surfaces.permits.available_permits() == 0;
                        exchange.admit(request, source.as_ref(), is_full);
                        // Panics and the deadline. Within, the surface checks the credential, rates and quotas, and the
                        // size of the body, in this order, and does the work.
                        let answered = {
                            // Pinned before the guard, which would move all of it.
                            let answering = pin!(exchange.answer(request));
                            guard(self.options.deadline, answering).await
                        };
                        let mut response =
                            answered.unwrap_or_else(|interrupted| exchange.fail(request, &interrupted));
                        // Audit log, usage and metrics.
                        exchange.record(request, &mut response).await;
                        // Traces.
                        if let Some(tracer) = tracer {
                            exchange.trace(tracer, request, &response);
                        }
                        outcome = exchange.outcome();
                        (response, source.ok().and_then(|RequestSource { origin, .. }| origin))
                    };
                    // The headers of the answer: those of the surface, then CORS.
                    exchange.add_headers(request, response.headers_mut());
                    if let Some((origin, cors)) = origin.zip(surface.cors()) {
                        origin::allow(origin, cors, response.headers_mut());
                    }
                    // The rest of the body, read within limits, so that the connection can be reused.
                    exchange.discard_body(request).await;
                    // Compression.
                    exchange.compress(request, &mut response).await;
                    response
                };
                if let Some(began) = began {
                    let entry = AccessEntry { began, client, parts, outcome, response: &response };
                    entry.write(access_log, || self.surfaces.recorder.audit().now());
                }
                response
            }))
            .await;
        self.surfaces.metrics.answers.count(surface, response.status());
        response.headers_mut().insert(X_REQUEST_ID, id);
        response
    }
}

fn headers_too_large() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    response
}

/// The response to a CORS preflight of an allowed origin.
pub(super) fn preflight(
    method: &Method,
    source: Option<&RequestSource>,
    cors: Option<Cors>,
) -> Option<Response<Body>> {
    // At any `Host`: a foreign one is accepted with a valid credential, and a preflight has none.
    let source = source.filter(|_| method == Method::OPTIONS)?;
    let (origin, cors) = source.origin.clone().zip(cors)?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    origin::allow(origin, cors, response.headers_mut());
    origin::allow_preflight(cors, response.headers_mut());
    Some(response)
}

/// Why a handler did not complete.
enum Interrupted {
    Panic,
    Deadline,
}

impl Interrupted {
    /// The fault that the request is answered with.
    fn fault(&self, surfaces: &Surfaces) -> Fault {
        match self {
            Self::Panic => Fault::Internal("a handler panicked".to_owned()),
            Self::Deadline => surfaces.feed.cause_of(Fault::BUSY),
        }
    }
}

/// Runs a handler until it completes, panics or exceeds the deadline.
async fn guard<T>(
    deadline: Duration,
    answering: Pin<&mut impl Future<Output = T>>,
) -> Result<T, Interrupted> {
    let answering = pin!(AssertUnwindSafe(answering).catch_unwind());
    match within(deadline, answering).await {
        Some(Ok(answer)) => Ok(answer),
        Some(Err(_)) => Err(Interrupted::Panic),
        None => Err(Interrupted::Deadline),
    }
}

/// The output of a future, or `None` after the timeout. Polls once before arming a timer: nearly all are ready.
async fn within<T>(time: Duration, mut answering: Pin<&mut impl Future<Output = T>>) -> Option<T> {
    let at_once = poll_fn(|context| Poll::Ready(answering.as_mut().poll(context)));
    match at_once.await {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => tokio::time::timeout(time, answering).await.ok(),
    }
}

/// A request to one of the surfaces. Only MCP requests are not boxed, nor are their futures.
#[expect(clippy::large_enum_variant, reason = "the most frequent request is not boxed")]
enum Exchange<'a> {
    /// A request to an MCP endpoint.
    Mcp(McpCall<'a>),
    /// A request to the administration API or its documentation.
    Admin(Box<AdminCall>),
    /// A request for a document of the gateway itself, such as `/metrics`, or for a path that it does not have.
    Document(Box<DocumentRequest>),
}

impl Exchange<'_> {
    /// Decides whether the surface may work on the request: by its origin, and the number of requests in flight.
    fn admit(&mut self, request: SurfaceRequest<'_>, source: Result<&RequestSource, &Fault>, is_full: bool) {
        match self {
            Self::Mcp(call) => call.admit(source, is_full),
            Self::Admin(call) => call.admit(request, source, is_full),
            Self::Document(document) => document.admit(source),
        }
    }

    /// The answer of the surface, or the refusal that [`admit`](Self::admit) decided.
    async fn answer(&mut self, request: SurfaceRequest<'_>) -> Response<Body> {
        match self {
            Self::Mcp(call) => call.answer(request).await,
            Self::Admin(call) => Box::pin(call.answer(request)).await,
            Self::Document(document) => document.answer(request),
        }
    }

    /// The answer to a request whose handler did not complete.
    fn fail(&mut self, request: SurfaceRequest<'_>, interrupted: &Interrupted) -> Response<Body> {
        match self {
            Self::Mcp(call) => call.fail(request, interrupted),
            Self::Admin(_) | Self::Document(_) => request.problem(&interrupted.fault(request.surfaces)),
        }
    }

    /// Records the request with its answer, which is replaced where its audit row cannot be made durable.
    async fn record(&mut self, request: SurfaceRequest<'_>, response: &mut Response<Body>) {
        match self {
            Self::Mcp(call) => call.record(request, response).await,
            Self::Admin(call) => Box::pin(call.record(request, response)).await,
            Self::Document(_) => {}
        }
    }

    /// How the recorded request ended; `None` for a document of the gateway itself.
    fn outcome(&self) -> Option<Outcome> {
        match self {
            Self::Mcp(call) => Some(call.request.context.event.outcome),
            Self::Admin(call) => Some(call.with_context(|context| context.event.outcome)),
            Self::Document(_) => None,
        }
    }

    /// Exports the trace of the request, if it is sampled.
    fn trace(&self, tracer: &Tracer, request: SurfaceRequest<'_>, response: &Response<Body>) {
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
    fn add_headers(&mut self, request: SurfaceRequest<'_>, headers: &mut HeaderMap) {
        match self {
            Self::Mcp(call) => call.add_headers(request, headers),
            Self::Admin(call) => call.add_headers(request, headers),
            Self::Document(_) => {}
        }
    }

    /// Reads the rest of the body, within limits.
    async fn discard_body(&mut self, request: SurfaceRequest<'_>) {
        match self {
            Self::Mcp(call) => call.discard_body(request).await,
            Self::Admin(call) => Box::pin(call.discard_body(request)).await,
            Self::Document(document) => Box::pin(document.discard_body(request)).await,
        }
    }

    /// Compresses an answer of the administration API.
    async fn compress(&self, request: SurfaceRequest<'_>, response: &mut Response<Body>) {
        if let Self::Admin(_) = self {
            Box::pin(compress(request.parts, response)).await;
        }
    }
}

const LATE_BODY: Fault = Fault::InvalidRequest(Cow::Borrowed("the body did not arrive in time"));

/// A request to an MCP endpoint, and its body.
struct McpCall<'a> {
    request: McpRequest<'a>,
    body: Incoming,
}

impl<'a> McpCall<'a> {
    fn new(request: SurfaceRequest<'a>, body: Incoming) -> Self {
        let SurfaceRequest { surfaces, parts, id, client, .. } = request;
        let agent = Slug::decode_agent(mcp_agent(parts.uri.path()).unwrap_or_default());
        span::record_agent(&agent);
        let shared = (&*surfaces.permits, &surfaces.refusals);
        Self { request: McpRequest::new((agent, parts, id), client, shared), body }
    }

    fn admit(&mut self, source: Result<&RequestSource, &Fault>, is_full: bool) {
        self.request.context.foreign_host = source.is_ok_and(|source| source.foreign_host);
        self.request.prior_checks = match source {
            Err(fault) => Err(fault.clone()),
            Ok(_) if is_full => Err(Fault::BUSY),
            Ok(_) => Ok(()),
        };
    }

    /// No `async fn`: its future would be copied once more.
    fn answer<'s>(&'s mut self, request: SurfaceRequest<'s>) -> impl Future<Output = Response<Body>> {
        request.surfaces.endpoint.answer(&mut self.request, &mut self.body)
    }

    fn fail(&mut self, request: SurfaceRequest<'_>, interrupted: &Interrupted) -> Response<Body> {
        let fault = match interrupted {
            Interrupted::Deadline if self.request.awaits_body => LATE_BODY,
            interrupted => interrupted.fault(request.surfaces),
        };
        reply::fail(&mut self.request, &fault)
    }

    fn record<'s>(
        &'s mut self,
        request: SurfaceRequest<'s>,
        response: &'s mut Response<Body>,
    ) -> impl Future<Output = ()> {
        request.surfaces.recorder.complete(&mut self.request, response, reply::fail)
    }

    fn add_headers(&mut self, request: SurfaceRequest<'_>, headers: &mut HeaderMap) {
        if let Some(status) = self.request.rate_limit.take() {
            status.write(headers);
        }
        if let Some(end) = self.request.context.key_expires {
            announce_expiry(end, headers);
        }
        if headers.contains_key(WWW_AUTHENTICATE) {
            let protected = || Protected::endpoint_or_gateway(&self.request.agent);
            request.surfaces.challenge(protected, &request.parts.headers, headers);
        }
    }

    async fn discard_body(&mut self, request: SurfaceRequest<'_>) {
        if !self.body.is_end_stream() {
            let SurfaceRequest { surfaces, parts, client, .. } = request;
            Box::pin(surfaces.refusals.discard(client, &parts.headers, &mut self.body)).await;
        }
    }
}

#[cfg(test)]
mod tests;
