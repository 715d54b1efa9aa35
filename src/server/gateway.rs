//! From a path to the surface that answers it; what every answer carries is added here.

mod administer;
mod guard;

use std::borrow::Cow;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use axum::Router;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use tokio::sync::Semaphore;

use self::guard::{Interrupted, guard};
use super::metrics::{Metrics, Scraper};
use crate::audit::AuditRecorder;
use crate::cache::audited::AuditedCall;
use crate::catalog::Catalog;
use crate::catalog::readiness::Readiness;
use crate::http::body::{Body, SharedBody};
use crate::http::client_address::TrustedProxies;
use crate::http::client_context::ClientContext;
use crate::http::intake::Intake;
use crate::http::metadata::{Metadata, Protected};
use crate::http::origin::{self, ADMIN_CORS, Cors, FOREIGN_HOST, MCP_CORS, OriginRules, RequestSource};
use crate::http::refusals::Refusals;
use crate::http::request_id::{RequestIds, X_REQUEST_ID};
use crate::http::{challenge, problem};
use crate::mcp::context::{Progress, RequestContext};
use crate::mcp::endpoint::Endpoint;
use crate::mcp::reply;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::telemetry::span::{self, RequestSpan};

const NO_PATH: Fault = Fault::NotFound("path");
const LATE_BODY: Fault = Fault::InvalidRequest(Cow::Borrowed("the body did not arrive in time"));

/// What a listener serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Surface {
    /// Everything.
    All,
    /// Everything but administration, which has a listener of its own.
    Mcp,
    /// Administration.
    Admin,
}

/// Everything that answers.
pub(crate) struct Gateway {
    endpoint: Endpoint,
    admin: Router,
    catalog: Arc<Catalog>,
    audit: Arc<AuditRecorder>,
    ids: RequestIds,
    metrics: Metrics,
    options: GatewayOptions,
    /// Places of those that are worked on. None is held while a body is awaited.
    places: Arc<Semaphore>,
    refusals: Refusals,
}

/// What is said of access tokens, where they are taken: it changes with the issuers.
pub(crate) type SharedMetadata = Arc<ArcSwapOption<Metadata>>;

/// Whose requests are taken, how many, and for how long.
#[derive(Debug)]
pub(crate) struct GatewayOptions {
    /// The hosts and the origins.
    pub(crate) origins: OriginRules,
    /// What is said of access tokens, where they are taken.
    pub(crate) metadata: SharedMetadata,
    /// Who says for whom he asks.
    pub(crate) proxies: TrustedProxies,
    /// How long a request may take.
    pub(crate) deadline: Duration,
    /// How many are answered at once.
    pub(crate) most_requests: usize,
    /// Of how many refused requests the body is read at once.
    pub(crate) most_refused_bodies: usize,
    /// How many headers one may have.
    pub(crate) most_headers: usize,
    /// Whether each request is logged.
    pub(crate) access_log: bool,
}

/// The part of the gateway that a path belongs to.
pub(super) enum Target {
    Alive,
    Ready,
    Mcp,
    Admin,
    WellKnown,
    Metrics,
    Nothing,
}

impl Gateway {
    pub(crate) fn new(
        endpoint: Endpoint,
        admin: Router,
        catalog: Arc<Catalog>,
        audit: Arc<AuditRecorder>,
        ids: RequestIds,
        metrics: Metrics,
        options: GatewayOptions,
    ) -> Self {
        let places = Arc::new(Semaphore::new(options.most_requests));
        let refusals = Refusals::new(options.most_refused_bodies, Arc::clone(&metrics.services.limits));
        Self { endpoint, admin, catalog, audit, ids, metrics, options, places, refusals }
    }

    /// Answers a request, whatever happens.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        surface: Surface,
    ) -> Response<Body> {
        let id = self.ids.of(request.headers());
        let span = RequestSpan::new(id.to_str().unwrap_or_default(), request.method());
        let mut response = span.run(pin!(self.answer_in_span(request, peer, surface, &id))).await;
        response.headers_mut().insert(X_REQUEST_ID, id);
        response
    }

    async fn answer_in_span(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        surface: Surface,
        id: &HeaderValue,
    ) -> Response<Body> {
        let began = Instant::now();
        let response = self.dispatch(request, peer, surface, id).await;
        if self.options.access_log {
            let duration_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
            tracing::info!(
                target: "waggle::access",
                status = response.status().as_u16(),
                duration_us,
                "request answered"
            );
        }
        response
    }

    async fn dispatch(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        surface: Surface,
        id: &HeaderValue,
    ) -> Response<Body> {
        let client = self.options.proxies.client(peer, request.headers());
        match target(request.uri().path(), surface) {
            _ if self.has_too_many_headers(&request) => {
                let mut response = Response::new(Body::empty());
                *response.status_mut() = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
                response
            }
            Target::Alive => status(&request, StatusCode::OK, r#"{"status":"alive"}"#.into()),
            Target::Ready => {
                let (code, body) = readyz(&self.catalog.readiness());
                status(&request, code, body)
            }
            Target::Mcp => self.mcp(request, client, id).await,
            Target::Admin => {
                let intake = Intake::new(Arc::clone(&self.metrics.services.limits), Arc::clone(&self.places));
                let context = ClientContext::new(client, intake);
                let administer = async |request| self.administer_audited(request, id, &context).await;
                Box::pin(self.lend(request, client, administer)).await
            }
            Target::WellKnown => {
                let describe =
                    async |request: Request<SharedBody>, id: &HeaderValue, _| self.describe(&request, id);
                let receive = async |request| self.receive(request, id, (false, MCP_CORS), describe).await;
                Box::pin(self.lend(request, client, receive)).await
            }
            Target::Metrics => {
                let scrape = async |request: Request<SharedBody>, id: &HeaderValue, foreign_host| {
                    self.scrape(&request, (peer, client), id, foreign_host)
                };
                let receive = async |request| self.receive(request, id, (true, ADMIN_CORS), scrape).await;
                Box::pin(self.lend(request, client, receive)).await
            }
            Target::Nothing => {
                let receive = async |request| self.receive(request, id, (false, MCP_CORS), nothing).await;
                Box::pin(self.lend(request, client, receive)).await
            }
        }
    }

    /// Of HTTP/1.1 they are counted while they are read, but nobody counts those of HTTP/2.
    fn has_too_many_headers(&self, request: &Request<Incoming>) -> bool {
        request.version() == Version::HTTP_2 && request.headers().len() > self.options.most_headers
    }

    /// Whether as many requests are worked on as may be.
    fn is_full(&self) -> bool {
        self.places.available_permits() == 0
    }

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

    async fn guard<T>(&self, answering: impl Future<Output = T>) -> Result<T, Interrupted> {
        guard(self.options.deadline, answering).await
    }

    async fn mcp(
        &self,
        request: Request<Incoming>,
        client: ClientAddress,
        id: &HeaderValue,
    ) -> Response<Body> {
        let source = self.options.origins.check(request.uri(), request.headers());
        if let Some(preflight) = preflight(&request, source.as_ref().ok(), MCP_CORS) {
            return preflight;
        }
        let admitted = match &source {
            Err(fault) => Err(fault.clone()),
            Ok(_) if self.is_full() => Err(Fault::BUSY),
            Ok(_) => Ok(()),
        };
        let (parts, mut body) = request.into_parts();
        let agent = mcp_agent(parts.uri.path()).unwrap_or_default();
        span::record_agent(agent);
        let mut context = RequestContext {
            agent,
            parts: &parts,
            request_id: id,
            client,
            foreign_host: source.as_ref().is_ok_and(|source| source.foreign_host),
            admitted,
            permits: &self.places,
            refusals: &self.refusals,
            progress: Progress::default(),
        };
        let answered = {
            // Pinned here: the guard would move all of it.
            let answering = pin!(self.endpoint.answer(&mut context, &mut body));
            self.guard(answering).await
        };
        let response = answered.unwrap_or_else(|interrupted| {
            let fault = match interrupted {
                Interrupted::Deadline if context.is_awaiting_body() => LATE_BODY,
                interrupted => interrupted.fault(),
            };
            reply::fail(&mut context, &fault)
        });
        let mut response = self.endpoint.complete(&mut context, response, &self.metrics.meter).await;
        self.challenge(|| Protected::endpoint_or_gateway(context.agent), &parts.headers, &mut response);
        self.refusals.discard(client, &parts.headers, &mut body).await;
        if let Ok(RequestSource { origin: Some(origin), .. }) = source {
            origin::allow(origin, MCP_CORS, response.headers_mut());
        }
        response
    }

    /// Lends a request's body, and reads away what is left of it.
    async fn lend(
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

    /// Answers a request that is not for an agent: refused or a preflight, or else what `answer` makes of it, to which
    /// a foreign host is left where it reads credentials.
    async fn receive(
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
        if let Some(preflight) = preflight(&request, Some(&source), cors) {
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

    /// Answers with the metadata of a protected resource, if there is such a one.
    fn describe(&self, request: &Request<SharedBody>, id: &HeaderValue) -> Response<Body> {
        let metadata = self.options.metadata.load();
        let metadata = metadata.as_deref();
        let found = metadata.and_then(|metadata| Some((metadata, metadata.find(request.uri().path())?)));
        found
            .map_or_else(|| problem(&NO_PATH, id), |(metadata, what)| metadata.answer(request.method(), what))
    }

    /// Completes the challenge of a refusal, where access tokens are taken.
    fn challenge<'a>(
        &self,
        what: impl FnOnce() -> Protected<'a>,
        request: &HeaderMap,
        response: &mut Response<Body>,
    ) {
        if let Some(metadata) = self.options.metadata.load().as_deref() {
            challenge::complete(metadata, what(), request, response.headers_mut());
        }
    }
}

async fn nothing(_: Request<SharedBody>, id: &HeaderValue, _: bool) -> Response<Body> {
    problem(&NO_PATH, id)
}

/// Which part of the gateway a path is for.
pub(super) fn target(path: &str, surface: Surface) -> Target {
    let administered = path == "/admin" || path.starts_with("/admin/");
    match path {
        "/healthz" => Target::Alive,
        "/readyz" => Target::Ready,
        "/metrics" if surface != Surface::Mcp => Target::Metrics,
        _ if administered && surface != Surface::Mcp => Target::Admin,
        _ if path.starts_with("/.well-known/") && surface != Surface::Admin => Target::WellKnown,
        _ if administered || surface == Surface::Admin => Target::Nothing,
        _ => mcp_agent(path).map_or(Target::Nothing, |_| Target::Mcp),
    }
}

/// The agent of `/{agent_id}/mcp` and `/{agent_id}/mcp/`.
fn mcp_agent(path: &str) -> Option<&str> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let agent = path.strip_suffix("/mcp")?.strip_prefix('/')?;
    if agent.is_empty() || agent.contains('/') { None } else { Some(agent) }
}

/// The answer to `OPTIONS` of an allowed origin, which needs no credential.
fn preflight<B>(request: &Request<B>, source: Option<&RequestSource>, cors: Cors) -> Option<Response<Body>> {
    let source = source.filter(|source| !source.foreign_host && request.method() == Method::OPTIONS)?;
    let origin = source.origin.clone()?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    origin::allow(origin, cors, response.headers_mut());
    origin::allow_preflight(cors, response.headers_mut());
    Some(response)
}

/// The status and the body of `readyz`.
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

pub(super) fn status(request: &Request<Incoming>, code: StatusCode, body: Bytes) -> Response<Body> {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        return problem::method_not_allowed(Some("GET, HEAD")).map(Body::Axum);
    }
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Notes what went wrong for the audit log.
fn note(fault: &Fault) {
    let outcome = fault.outcome();
    AuditedCall::describe(|event| event.outcome = outcome);
}

pub(super) fn problem(fault: &Fault, id: &HeaderValue) -> Response<Body> {
    note(fault);
    problem::response(fault, id.to_str().ok()).map(Body::Axum)
}

#[cfg(test)]
mod tests {
    use super::mcp_agent;

    #[test]
    fn an_endpoint_has_one_segment_before_mcp() {
        assert_eq!(mcp_agent("/research/mcp"), Some("research"));
        assert_eq!(mcp_agent("/research/mcp/"), Some("research"));
        for path in ["/mcp", "//mcp", "/a/b/mcp", "/research", "/research/mcp//", "/research/mcpx", "", "/"] {
            assert_eq!(mcp_agent(path), None, "{path}");
        }
    }
}
