//! Answers requests until the gateway is built, and health checks while it drains.
//!
//! Listeners open before the first query of the database: `/healthz` succeeds, `/readyz` reports why the gateway is not
//! ready, and everything else is `unavailable` until the gateway is built.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::header::CONNECTION;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, Version};
use hyper::body::Incoming;
use tokio::sync::Semaphore;

use super::gateway::{Gateway, preflight, problem};
use super::health;
use super::routes::{ListenerPaths, Surface, find_surface};
use crate::http::body::{self, Body};
use crate::http::origin::{self, OriginRules};
use crate::http::refusals;
use crate::http::request_id::{RequestIds, X_REQUEST_ID};
use crate::mcp::reply;
use crate::model::fault::Fault;

const STARTING: &str = r#"{"status":"unready","reasons":["starting"]}"#;
const DATABASE_UNREACHABLE: &str = r#"{"status":"unready","reasons":["database_unreachable"]}"#;
const DRAINING: &str = r#"{"status":"unready","reasons":["draining"]}"#;

/// How many bodies are read concurrently for the ids of their answers until the gateway is built.
const ID_PERMITS: usize = 64;

/// Shared by the listeners: holds the gateway once it is built.
pub(crate) struct GatewaySlot {
    gateway: OnceLock<Arc<Gateway>>,
    /// Until the gateway is built: the database did not answer.
    database_unreachable: AtomicBool,
    draining: AtomicBool,
    ids: RequestIds,
    /// Allowed hosts and origins: a page reads from a `503` that the gateway starts, and when to retry.
    origins: OriginRules,
    /// Places for reading bodies until the gateway is built.
    id_permits: Semaphore,
}

impl GatewaySlot {
    pub(crate) fn new(ids: RequestIds, origins: OriginRules) -> Self {
        Self {
            gateway: OnceLock::new(),
            database_unreachable: false.into(),
            draining: false.into(),
            ids,
            origins,
            id_permits: Semaphore::new(ID_PERMITS),
        }
    }

    /// Makes `/readyz` report that the database does not answer, until the gateway is built.
    pub(crate) fn set_database_unreachable(&self) {
        self.database_unreachable.store(true, Ordering::Relaxed);
    }

    /// Passes requests to a gateway from now on. A second one is ignored.
    pub(crate) fn fill(&self, gateway: Arc<Gateway>) {
        self.gateway.set(gateway).ok();
    }

    /// Makes `/readyz` fail. Everything else is answered as before, and ends its HTTP/1.1 connection: a load balancer that
    /// keeps connections open would otherwise send a request on one while it is being closed.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Answers a request.
    pub(super) async fn answer(
        &self,
        (parts, body): (&Parts, Incoming),
        peer: IpAddr,
        paths: ListenerPaths,
    ) -> Response<Body> {
        let draining = self.draining.load(Ordering::Relaxed);
        let surface = find_surface(parts.uri.path(), paths);
        let unready = draining && matches!(surface, Surface::Ready);
        let mut response = match self.gateway.get() {
            Some(gateway) if !unready => gateway.answer((parts, body), peer, surface).await,
            _ => Box::pin(self.answer_without_gateway(parts, body, surface, unready)).await,
        };
        if draining && parts.version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    async fn answer_without_gateway(
        &self,
        parts: &Parts,
        mut body: Incoming,
        surface: Surface,
        draining: bool,
    ) -> Response<Body> {
        let id = self.ids.of(&parts.headers);
        let source = self.origins.check(parts).ok();
        let preflight = preflight(&parts.method, source.as_ref(), surface.cors());
        let mut response = if let Some(preflight) = preflight {
            preflight
        } else {
            let mut response = self.unready(parts, &mut body, surface, (draining, &id)).await;
            let origin = source.and_then(|source| source.origin);
            if let Some((origin, cors)) = origin.zip(surface.cors()) {
                origin::allow(origin, cors, response.headers_mut());
            }
            response
        };
        body::discard(&parts.headers, &mut body).await;
        response.headers_mut().insert(X_REQUEST_ID, id);
        response
    }

    async fn unready(
        &self,
        parts: &Parts,
        body: &mut Incoming,
        surface: Surface,
        (draining, id): (bool, &HeaderValue),
    ) -> Response<Body> {
        match surface {
            Surface::Alive => health::alive(&parts.method),
            Surface::Ready => {
                let status = match self.database_unreachable.load(Ordering::Relaxed) {
                    _ if draining => DRAINING,
                    true => DATABASE_UNREACHABLE,
                    false => STARTING,
                };
                health::status(&parts.method, StatusCode::SERVICE_UNAVAILABLE, status.into())
            }
            Surface::Mcp => {
                let read = self.read_for_id(body).await;
                reply::unready(&Fault::Starting, &parts.headers, &read)
            }
            Surface::Admin | Surface::Document(_) => problem(&Fault::Starting, id),
        }
    }

    /// A short body, for the id of the answer; empty if it is too long or late, or while too many are read.
    async fn read_for_id(&self, body: &mut Incoming) -> Bytes {
        let Ok(_permit) = self.id_permits.try_acquire() else { return Bytes::new() };
        refusals::read_short(body, |_| Ok(())).await.map_or_else(Bytes::new, |received| received.bytes)
    }
}
