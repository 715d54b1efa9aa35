//! Answers requests until the gateway is built, and health checks while it drains.
//!
//! Listeners open before the first query of the database: `/healthz` succeeds, `/readyz` reports why the gateway is not
//! ready, and everything else is `unavailable` until the gateway is built.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::gateway::{Gateway, problem};
use super::health;
use super::routes::{Surface, Target, target};
use crate::http::body::{self, Body};
use crate::http::request_id::{RequestIds, X_REQUEST_ID};
use crate::mcp::reply;
use crate::model::fault::Fault;

const STARTING: &str = r#"{"status":"unready","reasons":["starting"]}"#;
const DATABASE_UNREACHABLE: &str = r#"{"status":"unready","reasons":["database_unreachable"]}"#;
const DRAINING: &str = r#"{"status":"unready","reasons":["draining"]}"#;

/// Shared by the listeners: holds the gateway once it is built.
pub(crate) struct GatewaySlot {
    gateway: OnceLock<Arc<Gateway>>,
    /// Until the gateway is built: the database did not answer.
    database_unreachable: AtomicBool,
    draining: AtomicBool,
    ids: RequestIds,
}

impl GatewaySlot {
    pub(crate) fn new(ids: RequestIds) -> Self {
        Self { gateway: OnceLock::new(), database_unreachable: false.into(), draining: false.into(), ids }
    }

    /// Makes `/readyz` report that the database does not answer, until the gateway is built.
    pub(crate) fn set_database_unreachable(&self) {
        self.database_unreachable.store(true, Ordering::Relaxed);
    }

    /// Passes requests to a gateway from now on. A second one is ignored.
    pub(crate) fn fill(&self, gateway: Arc<Gateway>) {
        self.gateway.set(gateway).ok();
    }

    /// Makes `/readyz` fail; everything else is answered as before.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// The gateway that answers a request to an MCP endpoint; `None` for other requests, and until it is built.
    pub(super) fn mcp_gateway(&self, path: &str, surface: Surface) -> Option<Arc<Gateway>> {
        self.gateway.get().filter(|_| matches!(target(path, surface), Target::Mcp)).map(Arc::clone)
    }

    /// Answers a request for which there is no [`mcp_gateway`](Self::mcp_gateway).
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        surface: Surface,
    ) -> Response<Body> {
        let path = request.uri().path();
        let draining = self.draining.load(Ordering::Relaxed) && path == "/readyz";
        let early = matches!(target(path, surface), Target::Mcp);
        match self.gateway.get() {
            Some(gateway) if !draining && !early => gateway.answer(request, peer, surface).await,
            _ => self.answer_without_gateway(request, surface, draining).await,
        }
    }

    async fn answer_without_gateway(
        &self,
        request: Request<Incoming>,
        surface: Surface,
        draining: bool,
    ) -> Response<Body> {
        let id = self.ids.of(request.headers());
        let mut response = match target(request.uri().path(), surface) {
            Target::Alive => health::alive(&request),
            Target::Ready => {
                let body = match self.database_unreachable.load(Ordering::Relaxed) {
                    _ if draining => DRAINING,
                    true => DATABASE_UNREACHABLE,
                    false => STARTING,
                };
                health::status(&request, StatusCode::SERVICE_UNAVAILABLE, body.into())
            }
            Target::Mcp => reply::unread(&Fault::BUSY),
            _ => problem(&Fault::BUSY, &id),
        };
        let (parts, mut body) = request.into_parts();
        body::discard(&parts.headers, &mut body).await;
        response.headers_mut().insert(X_REQUEST_ID, id);
        response
    }
}
