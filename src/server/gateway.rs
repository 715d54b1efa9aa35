//! Answers requests: the middleware of all surfaces, in the order in which a request passes it.

mod admin_call;
mod document;
mod exchange;
mod surfaces;

use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, Version};
use hyper::body::Incoming;

use self::admin_call::AdminCall;
use self::document::DocumentRequest;
use self::exchange::{Exchange, McpCall};
pub(super) use self::surfaces::problem;
pub(crate) use self::surfaces::{SharedMetadata, SurfaceOptions, Surfaces};
use self::surfaces::{SurfaceRequest, guard};
use super::access_log::AccessEntry;
use super::health;
use super::routes::Surface;
use crate::catalog::Catalog;
use crate::config::AccessLog;
use crate::http::body::Body;
use crate::http::client_address::TrustedProxies;
use crate::http::context::TRACEPARENT;
use crate::http::origin::{self, Cors, RequestSource};
use crate::http::request_id::{RequestIds, X_REQUEST_ID};
use crate::telemetry::span::RequestSpan;
use crate::telemetry::trace;

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

    /// Answers a request. Every layer and check of all surfaces is listed here, in the order in which a request passes it.
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
                        // Health checks pass nothing else.
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
                        // The number of requests in flight.
                        exchange.admit(request, source.as_ref());
                        // Panics and the deadline. Within, the surface checks the credential, rates and quotas, and the
                        // size of the body, in this order, and does the work.
                        let answered = {
                            // Pinned here: the guard would move all of it.
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
