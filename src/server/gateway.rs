//! Answers requests: the middleware of all surfaces, the access log, and dispatch to the surface of a path.

mod administer;
mod guard;

use std::borrow::Cow;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use axum::Router;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::{Body as _, Incoming};
use tokio::sync::Semaphore;

use self::guard::{Interrupted, guard};
use super::compression::compress;
use super::health;
use super::metrics::{Metrics, Scraper};
use super::routes::{Surface, Target, mcp_agent, target};
use crate::catalog::Catalog;
use crate::http::body::{Body, SharedBody};
use crate::http::client_address::TrustedProxies;
use crate::http::metadata::{Metadata, Protected};
use crate::http::origin::{self, ADMIN_CORS, Cors, FOREIGN_HOST, MCP_CORS, OriginRules, RequestSource};
use crate::http::problem;
use crate::http::recorder::RequestRecorder;
use crate::http::refusals::Refusals;
use crate::http::request_id::{RequestIds, X_REQUEST_ID};
use crate::identity::AccessMemo;
use crate::mcp::endpoint::Endpoint;
use crate::mcp::reply;
use crate::mcp::request::McpRequest;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::telemetry::span::{self, RequestSpan};

const NO_PATH: Fault = Fault::NotFound("path");
const LATE_BODY: Fault = Fault::InvalidRequest(Cow::Borrowed("the body did not arrive in time"));

/// Answers requests of all surfaces.
pub(crate) struct Gateway {
    endpoint: Endpoint,
    admin: Router,
    catalog: Arc<Catalog>,
    recorder: Arc<RequestRecorder>,
    ids: RequestIds,
    metrics: Metrics,
    options: GatewayOptions,
    /// Permits of requests in flight. None is held while a body is awaited.
    places: Arc<Semaphore>,
    refusals: Refusals,
}

/// The metadata of protected resources, if access tokens are accepted; it changes with the issuers.
pub(crate) type SharedMetadata = Arc<ArcSwapOption<Metadata>>;

/// Limits of requests, and the hosts, origins and proxies that are trusted.
#[derive(Debug)]
pub(crate) struct GatewayOptions {
    /// Allowed hosts and origins.
    pub(crate) origins: OriginRules,
    /// The metadata of protected resources.
    pub(crate) metadata: SharedMetadata,
    /// Proxies that report the address of their client.
    pub(crate) proxies: TrustedProxies,
    /// The deadline of a request.
    pub(crate) deadline: Duration,
    /// The maximum number of requests in flight.
    pub(crate) most_requests: usize,
    /// The maximum number of refused requests whose body is being read.
    pub(crate) most_refused_bodies: usize,
    /// The maximum number of headers of a request.
    pub(crate) most_headers: usize,
    /// Whether each request is logged.
    pub(crate) access_log: bool,
}

impl Gateway {
    pub(crate) fn new(
        endpoint: Endpoint,
        admin: Router,
        catalog: Arc<Catalog>,
        recorder: Arc<RequestRecorder>,
        ids: RequestIds,
        metrics: Metrics,
        options: GatewayOptions,
    ) -> Self {
        let places = Arc::new(Semaphore::new(options.most_requests));
        let refusals = Refusals::new(options.most_refused_bodies, Arc::clone(&metrics.services.limits));
        Self { endpoint, admin, catalog, recorder, ids, metrics, options, places, refusals }
    }

    /// Answers a request to an MCP endpoint, within its span and with its id.
    pub(super) async fn answer_mcp(
        &self,
        parts: &Parts,
        body: &mut Incoming,
        connection: (IpAddr, &AccessMemo),
    ) -> Response<Body> {
        let id = self.ids.of(&parts.headers);
        let span = RequestSpan::new(id.to_str().unwrap_or_default(), &parts.method);
        let mut response = span.run(pin!(self.mcp(parts, body, connection, &id))).await;
        response.headers_mut().insert(X_REQUEST_ID, id);
        response
    }

    /// Answers any other request, within its span and with its id.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        surface: Surface,
    ) -> Response<Body> {
        let id = self.ids.of(request.headers());
        let span = RequestSpan::new(id.to_str().unwrap_or_default(), request.method());
        let mut response = span.run(pin!(self.dispatch(request, peer, surface, &id))).await;
        response.headers_mut().insert(X_REQUEST_ID, id);
        response
    }

    /// Answers a request that is not to an MCP endpoint, and logs it.
    ///
    /// The middleware of all surfaces, in the order in which a request passes it:
    ///
    /// 1. request id and span ([`answer`](Self::answer)), access log, client address, then routing by path;
    /// 2. the number of headers, of HTTP/2 (hyper counts those of HTTP/1.1);
    /// 3. `/healthz` and `/readyz` are answered here;
    /// 4. compression of the response, of administration ([`compress`]);
    /// 5. the rest of the body is read after the response, within limits ([`drain`](Self::drain));
    /// 6. the audit row, of administration ([`administer_audited`](Self::administer_audited));
    /// 7. `Host`, `Origin` and CORS ([`check_origin`](Self::check_origin));
    /// 8. the number of requests in flight;
    /// 9. deadline and panics ([`guard`](Self::guard));
    /// 10. the surface: credential, rate and quota, the size of the body, the work.
    ///
    /// An MCP request passes the same steps in [`mcp`](Self::mcp), written out: it is not boxed again, and its refusals
    /// are recorded by the endpoint.
    async fn dispatch(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        surface: Surface,
        id: &HeaderValue,
    ) -> Response<Body> {
        let began = self.options.access_log.then(Instant::now);
        let client = self.options.proxies.client(peer, request.headers());
        let response = match target(request.uri().path(), surface) {
            _ if self.has_too_many_headers(request.version(), request.headers()) => headers_too_large(),
            Target::Alive => health::alive(&request),
            Target::Ready => health::ready(&request, &self.catalog.readiness()),
            Target::Admin => {
                let administer = |request| self.administer_audited(request, id, client);
                Box::pin(compress(request, |request| self.drain(request, client, administer))).await
            }
            target => {
                let read = |request| self.read_only(request, &target, (peer, client), id);
                Box::pin(self.drain(request, client, read)).await
            }
        };
        log_access(began, &response);
        response
    }

    /// Whether an HTTP/2 request has too many headers; hyper counts those of HTTP/1.1 as it reads them.
    fn has_too_many_headers(&self, version: Version, headers: &HeaderMap) -> bool {
        version == Version::HTTP_2 && headers.len() > self.options.most_headers
    }

    /// Whether the limit of requests in flight is reached.
    fn is_full(&self) -> bool {
        self.places.available_permits() == 0
    }

    /// Answers metrics, the metadata of protected resources, and unknown paths.
    async fn read_only(
        &self,
        request: Request<SharedBody>,
        target: &Target,
        addresses: (IpAddr, ClientAddress),
        id: &HeaderValue,
    ) -> Response<Body> {
        let reads_credentials = matches!(target, Target::Metrics);
        let cors = if reads_credentials { ADMIN_CORS } else { MCP_CORS };
        let answer = async |request: Request<SharedBody>, id: &HeaderValue, foreign_host| match target {
            Target::Metrics => self.scrape(&request, addresses, id, foreign_host),
            Target::WellKnown => self.describe(&request, id),
            _ => problem(&NO_PATH, id),
        };
        self.check_origin(request, id, (reads_credentials, cors), answer).await
    }

    /// Answers `/metrics`.
    fn scrape(
        &self,
        request: &Request<SharedBody>,
        (peer, client): (IpAddr, ClientAddress),
        id: &HeaderValue,
        foreign_host: bool,
    ) -> Response<Body> {
        let headers = request.headers();
        let scraper = Scraper {
            headers,
            peer,
            client,
            foreign_host,
            names_this_machine: self.options.origins.names_this_machine(request.uri(), headers),
        };
        let answered = self.metrics.answer(&self.endpoint, request.method(), &scraper);
        answered.unwrap_or_else(|fault| problem(&fault, id))
    }

    /// Runs a handler until it completes, panics or exceeds the deadline of requests.
    async fn guard<T>(&self, answering: impl Future<Output = T>) -> Result<T, Interrupted> {
        guard(self.options.deadline, answering).await
    }

    /// Answers a request to an MCP endpoint, and logs it.
    async fn mcp(
        &self,
        parts: &Parts,
        body: &mut Incoming,
        connection: (IpAddr, &AccessMemo),
        id: &HeaderValue,
    ) -> Response<Body> {
        let began = self.options.access_log.then(Instant::now);
        let response = self.mcp_unlogged(parts, body, connection, id).await;
        log_access(began, &response);
        response
    }

    async fn mcp_unlogged(
        &self,
        parts: &Parts,
        body: &mut Incoming,
        (peer, memo): (IpAddr, &AccessMemo),
        id: &HeaderValue,
    ) -> Response<Body> {
        let client = self.options.proxies.client(peer, &parts.headers);
        if self.has_too_many_headers(parts.version, &parts.headers) {
            return headers_too_large();
        }
        let source = self.options.origins.check(&parts.uri, &parts.headers);
        if let Some(preflight) = preflight(&parts.method, source.as_ref().ok(), MCP_CORS) {
            return preflight;
        }
        let admitted = match &source {
            Err(fault) => Err(fault.clone()),
            Ok(_) if self.is_full() => Err(Fault::BUSY),
            Ok(_) => Ok(()),
        };
        let agent = mcp_agent(parts.uri.path()).unwrap_or_default();
        span::record_agent(agent);
        let mut request =
            McpRequest::new((agent, parts, id), (client, memo), admitted, (&self.places, &self.refusals));
        request.context.foreign_host = source.as_ref().is_ok_and(|source| source.foreign_host);
        let answered = {
            // Pinned here: the guard would move all of it.
            let answering = pin!(self.endpoint.answer(&mut request, body));
            self.guard(answering).await
        };
        let mut response = answered.unwrap_or_else(|interrupted| {
            let fault = match interrupted {
                Interrupted::Deadline if request.awaits_body => LATE_BODY,
                interrupted => interrupted.fault(),
            };
            reply::fail(&mut request, &fault)
        });
        self.endpoint.complete(&mut request, &mut response).await;
        self.challenge(|| Protected::endpoint_or_gateway(request.agent), &parts.headers, &mut response);
        if !body.is_end_stream() {
            Box::pin(self.refusals.discard(client, &parts.headers, body)).await;
        }
        if let Ok(RequestSource { origin: Some(origin), .. }) = source {
            origin::allow(origin, MCP_CORS, response.headers_mut());
        }
        response
    }

    /// Answers a request, then reads the rest of its body, so that the connection can be reused.
    async fn drain(
        &self,
        request: Request<Incoming>,
        client: ClientAddress,
        answer: impl AsyncFnOnce(Request<SharedBody>) -> Response<Body>,
    ) -> Response<Body> {
        let headers = request.headers().clone();
        let request = request.map(SharedBody::new);
        let body = request.body().clone();
        let response = answer(request).await;
        self.refusals.discard(client, &headers, body).await;
        response
    }

    /// Checks `Host` and `Origin`, answers a CORS preflight, and adds the CORS headers to the response. A request for a
    /// foreign `Host` is passed on only if `answer` reads credentials.
    async fn check_origin(
        &self,
        request: Request<SharedBody>,
        id: &HeaderValue,
        (reads_credentials, cors): (bool, Cors),
        answer: impl AsyncFnOnce(Request<SharedBody>, &HeaderValue, bool) -> Response<Body>,
    ) -> Response<Body> {
        let source = match self.options.origins.check(request.uri(), request.headers()) {
            Ok(source) => source,
            Err(fault) => return problem(&fault, id),
        };
        if let Some(preflight) = preflight(request.method(), Some(&source), cors) {
            return preflight;
        }
        let RequestSource { origin, foreign_host } = source;
        let mut response = if foreign_host && !reads_credentials {
            problem(&FOREIGN_HOST, id)
        } else {
            answer(request, id, foreign_host).await
        };
        if let Some(origin) = origin {
            origin::allow(origin, cors, response.headers_mut());
        }
        response
    }

    /// Answers with the metadata of a protected resource (RFC 9728).
    fn describe(&self, request: &Request<SharedBody>, id: &HeaderValue) -> Response<Body> {
        let metadata = self.options.metadata.load();
        let metadata = metadata.as_deref();
        let found = metadata.and_then(|metadata| Some((metadata, metadata.find(request.uri().path())?)));
        found
            .map_or_else(|| problem(&NO_PATH, id), |(metadata, what)| metadata.answer(request.method(), what))
    }

    /// Completes the challenge of a refusal, if access tokens are accepted.
    fn challenge<'a>(
        &self,
        what: impl FnOnce() -> Protected<'a>,
        request: &HeaderMap,
        response: &mut Response<Body>,
    ) {
        if let Some(metadata) = self.options.metadata.load().as_deref() {
            metadata.complete_challenge(what(), request, response.headers_mut());
        }
    }
}

/// Logs an answered request, if requests are logged.
fn log_access(began: Option<Instant>, response: &Response<Body>) {
    if let Some(began) = began {
        let duration_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::info!(
            target: "waggle::access",
            status = response.status().as_u16(),
            duration_us,
            "request answered"
        );
    }
}

fn headers_too_large() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
    response
}

/// The response to a CORS preflight of an allowed origin, which needs no credential.
fn preflight(method: &Method, source: Option<&RequestSource>, cors: Cors) -> Option<Response<Body>> {
    let source = source.filter(|source| !source.foreign_host && method == Method::OPTIONS)?;
    let origin = source.origin.clone()?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    origin::allow(origin, cors, response.headers_mut());
    origin::allow_preflight(cors, response.headers_mut());
    Some(response)
}

pub(super) fn problem(fault: &Fault, id: &HeaderValue) -> Response<Body> {
    problem::response(fault, id.to_str().ok()).map(Body::Axum)
}
