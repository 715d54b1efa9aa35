//! The surfaces of the gateway with what their requests share, and a request as it arrives at them.

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use axum::Router;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Response};
use tokio::sync::Semaphore;

use crate::http::body::Body;
use crate::http::metadata::{Metadata, Protected};
use crate::http::origin::OriginRules;
use crate::http::problem;
use crate::http::recorder::RequestRecorder;
use crate::http::refusals::Refusals;
use crate::mcp::endpoint::Endpoint;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::feed::ChangeFeed;
use crate::quota::limits::Limits;
use crate::server::metrics::Metrics;
use crate::telemetry::trace::Tracer;

/// The surfaces, and what their requests share.
pub(crate) struct Surfaces {
    pub(super) endpoint: Endpoint,
    pub(super) admin: Router,
    pub(super) metrics: Metrics,
    /// Records completed requests.
    pub(super) recorder: Arc<RequestRecorder>,
    /// Rate limits.
    pub(super) limits: Arc<Limits>,
    /// Exports the traces of requests, if they are exported.
    pub(super) tracer: Option<Arc<Tracer>>,
    /// Allowed hosts and origins.
    pub(super) origins: OriginRules,
    /// Permits of requests in flight. None is held while a body is awaited.
    pub(super) permits: Arc<Semaphore>,
    pub(super) refusals: Refusals,
    pub(super) metadata: SharedMetadata,
    /// Whether the database is away.
    pub(super) feed: Arc<dyn ChangeFeed>,
}

/// The metadata of protected resources, where access tokens are accepted; it changes with the issuers.
pub(crate) type SharedMetadata = Arc<ArcSwapOption<Metadata>>;

/// What the requests of all surfaces share, and their bounds.
#[derive(Debug)]
pub(crate) struct SurfaceOptions {
    /// Records completed requests.
    pub(crate) recorder: Arc<RequestRecorder>,
    /// Rate limits.
    pub(crate) limits: Arc<Limits>,
    /// Exports the traces of requests, if they are exported.
    pub(crate) tracer: Option<Arc<Tracer>>,
    /// Allowed hosts and origins.
    pub(crate) origins: OriginRules,
    /// The metadata of protected resources.
    pub(crate) metadata: SharedMetadata,
    /// The maximum number of requests in flight.
    pub(crate) most_requests: usize,
    /// The maximum number of refused requests whose body is being read.
    pub(crate) most_refused_bodies: usize,
}

impl Surfaces {
    pub(crate) fn new(
        (endpoint, admin, metrics): (Endpoint, Router, Metrics),
        feed: Arc<dyn ChangeFeed>,
        options: SurfaceOptions,
    ) -> Self {
        let SurfaceOptions { recorder, limits, tracer, origins, metadata, .. } = options;
        let permits = Arc::new(Semaphore::new(options.most_requests));
        let refusals = Refusals::new(options.most_refused_bodies, Arc::clone(&limits));
        Self {
            endpoint,
            admin,
            metrics,
            recorder,
            limits,
            tracer,
            origins,
            permits,
            refusals,
            metadata,
            feed,
        }
    }

    /// Completes the challenge of a refusal, where access tokens are accepted.
    pub(super) fn challenge<'a>(
        &self,
        what: impl FnOnce() -> Protected<'a>,
        request: &HeaderMap,
        response: &mut HeaderMap,
    ) {
        if let Some(metadata) = self.metadata.load().as_deref() {
            metadata.complete_challenge(what(), request, response);
        }
    }
}

/// A request without its body, and the surfaces.
#[derive(Clone, Copy)]
pub(super) struct SurfaceRequest<'a> {
    /// The surfaces.
    pub(super) surfaces: &'a Surfaces,
    /// Method, URI and headers.
    pub(super) parts: &'a Parts,
    /// The id of the request.
    pub(super) id: &'a HeaderValue,
    /// The other end of the connection.
    pub(super) peer: IpAddr,
    /// The address of the client, behind trusted proxies.
    pub(super) client: ClientAddress,
}

impl SurfaceRequest<'_> {
    /// The problem document of a fault.
    pub(super) fn problem(&self, fault: &Fault) -> Response<Body> {
        problem(fault, self.id)
    }
}

/// The problem document of a fault.
pub(in crate::server) fn problem(fault: &Fault, id: &HeaderValue) -> Response<Body> {
    problem::response(fault, id.to_str().ok()).map(Body::Axum)
}
