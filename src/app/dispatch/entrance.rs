//! What listeners answer before there is a gateway, and while it drains.
//!
//! Listeners open before the database is asked for anything: `/healthz` says that the process lives, `/readyz` why it is
//! not ready, and everything else is `unavailable` until the gateway is built.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;

use super::{Gateway, Surface, Target, problem, status, target};
use crate::http::body::{self, Body};
use crate::http::request_id::{RequestIds, X_REQUEST_ID};
use crate::mcp::reply;
use crate::model::fault::Fault;

const STARTING: &str = r#"{"status":"unready","reasons":["starting"]}"#;
const DATABASE_UNREACHABLE: &str = r#"{"status":"unready","reasons":["database_unreachable"]}"#;
const DRAINING: &str = r#"{"status":"unready","reasons":["draining"]}"#;

/// What the listeners share: the gateway, once it is built.
pub(in crate::app) struct Entrance {
    gateway: OnceLock<Arc<Gateway>>,
    /// While there is no gateway: the database was found not to answer.
    unreachable: AtomicBool,
    draining: AtomicBool,
    ids: RequestIds,
}

impl Entrance {
    pub(in crate::app) fn new(ids: RequestIds) -> Self {
        Self { gateway: OnceLock::new(), unreachable: false.into(), draining: false.into(), ids }
    }

    /// Has `/readyz` say that the database does not answer, until there is a gateway.
    pub(in crate::app) fn database_unreachable(&self) {
        self.unreachable.store(true, Ordering::Relaxed);
    }

    /// Hands requests to a gateway from now on. A second one is ignored.
    pub(in crate::app) fn open(&self, gateway: Arc<Gateway>) {
        self.gateway.set(gateway).ok();
    }

    /// Makes `/readyz` fail; everything else is answered as before.
    pub(in crate::app) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Answers a request, whatever happens.
    pub(in crate::app) async fn answer(
        &self,
        request: Request<Incoming>,
        peer: IpAddr,
        surface: Surface,
    ) -> Response<Body> {
        let draining = self.draining.load(Ordering::Relaxed) && request.uri().path() == "/readyz";
        match self.gateway.get() {
            Some(gateway) if !draining => gateway.answer(request, peer, surface).await,
            _ => self.answer_alone(request, surface, draining).await,
        }
    }

    async fn answer_alone(
        &self,
        request: Request<Incoming>,
        surface: Surface,
        draining: bool,
    ) -> Response<Body> {
        let id = self.ids.of(request.headers());
        let mut response = match target(request.uri().path(), surface) {
            Target::Alive => status(&request, StatusCode::OK, r#"{"status":"alive"}"#.into()),
            Target::Ready => {
                let body = match self.unreachable.load(Ordering::Relaxed) {
                    _ if draining => DRAINING,
                    true => DATABASE_UNREACHABLE,
                    false => STARTING,
                };
                status(&request, StatusCode::SERVICE_UNAVAILABLE, body.into())
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
