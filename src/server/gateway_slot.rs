//! Answers requests until the gateway is built, and health checks while it drains.
//!
//! Listeners open before the first query of the database: `/healthz` succeeds, `/readyz` reports why the gateway is not
//! ready, and everything else is `unavailable` until the gateway is built.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use hyper::body::Incoming;

use super::gateway::{Gateway, problem};
use super::health;
use super::routes::{Surface, Target, target};
use crate::http::body::{self, Body};
use crate::http::request_id::{RequestIds, X_REQUEST_ID};
use crate::identity::AccessMemo;
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

    /// Answers a request to an MCP endpoint.
    pub(super) async fn answer_mcp(
        &self,
        parts: &Parts,
        body: &mut Incoming,
        connection: (IpAddr, &AccessMemo),
    ) -> Response<Body> {
        if let Some(gateway) = self.gateway.get() {
            return gateway.answer_mcp(parts, body, connection).await;
        }
        let id = self.ids.of(&parts.headers);
        Box::pin(finish((parts, body), id, reply::unread(&Fault::BUSY))).await
    }

    /// Answers any other request.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        surface: Surface,
    ) -> Response<Body> {
        let draining = self.draining.load(Ordering::Relaxed) && request.uri().path() == "/readyz";
        match self.gateway.get() {
            Some(gateway) if !draining => gateway.answer(request, peer, surface).await,
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
        let response = match target(request.uri().path(), surface) {
            Target::Alive => health::alive(&request),
            Target::Ready => {
                let body = match self.database_unreachable.load(Ordering::Relaxed) {
                    _ if draining => DRAINING,
                    true => DATABASE_UNREACHABLE,
                    false => STARTING,
                };
                health::status(&request, StatusCode::SERVICE_UNAVAILABLE, body.into())
            }
            _ => problem(&Fault::BUSY, &id),
        };
        let (parts, mut body) = request.into_parts();
        finish((&parts, &mut body), id, response).await
    }
}

/// Completes an answer with the id of its request, once the rest of the request's body is read.
async fn finish(
    (parts, body): (&Parts, &mut Incoming),
    id: HeaderValue,
    mut response: Response<Body>,
) -> Response<Body> {
    body::discard(&parts.headers, body).await;
    response.headers_mut().insert(X_REQUEST_ID, id);
    response
}
