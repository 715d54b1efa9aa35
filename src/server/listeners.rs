//! The listeners of a gateway: opened before anything else, closed after the requests in flight.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::ServerError;
use super::connection::ConnectionOptions;
use super::connection_limiter::ConnectionLimiter;
use super::gateway_slot::GatewaySlot;
use super::listener::Server;
use super::routes::ListenerPaths;
use super::tls::Tls;
use crate::config::Settings;
use crate::http::client_address::TrustedProxies;
use crate::http::origin::OriginRules;
use crate::http::request_id::RequestIds;
use crate::model::system::System;

/// The names of the listeners in metrics.
const MAIN: &str = "main";
const ADMIN: &str = "admin";

/// The open listeners, one or two; closed when dropped.
pub(crate) struct Listeners {
    /// Identifies this process in logs, and among the replicas.
    pub(crate) instance: Uuid,
    /// The address of the MCP endpoints.
    pub(crate) address: SocketAddr,
    /// The address of the administration API.
    pub(crate) admin_address: SocketAddr,
    /// The connections of each listener, by its name.
    pub(crate) connections: Vec<(&'static str, Arc<ConnectionLimiter>)>,
    /// Answers their requests.
    pub(crate) gateway: Arc<GatewaySlot>,
    /// The certificate; `None`: plain HTTP.
    pub(crate) tls: Option<Arc<Tls>>,
    /// Closes them.
    pub(crate) stop: CancellationToken,
    tasks: TaskTracker,
    guard: DropGuard,
}

impl Listeners {
    /// Opens the listeners, which answer at once: `/healthz` succeeds, `/readyz` fails.
    ///
    /// # Errors
    /// If an address is in use, or the certificate is invalid.
    pub(crate) async fn open(settings: &Settings, system: &System) -> Result<Self, ServerError> {
        let instance = system.uid()?;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %instance, "gateway starting");
        let tls = match &settings.server.tls() {
            Some(files) => Some(Arc::new(Tls::load(files.clone()).await?)),
            None => None,
        };
        let ids = RequestIds::new(system.random.as_ref())?;
        let stop = CancellationToken::new();
        let mut listeners = Self {
            instance,
            address: settings.server.listen,
            admin_address: settings.server.listen,
            connections: Vec::new(),
            gateway: Arc::new(GatewaySlot::new(ids, OriginRules::new(&settings.server))),
            tls,
            guard: stop.clone().drop_guard(),
            stop,
            tasks: TaskTracker::new(),
        };
        let paths = if settings.admin.listen.is_some() { ListenerPaths::Mcp } else { ListenerPaths::All };
        listeners.address = listeners.add(MAIN, settings, settings.server.listen, paths).await?;
        listeners.admin_address = match settings.admin.listen {
            Some(address) => listeners.add(ADMIN, settings, address, ListenerPaths::Admin).await?,
            None => listeners.address,
        };
        if let Some(tls) = &listeners.tls {
            listeners.tasks.spawn(Arc::clone(tls).watch(listeners.stop.clone()));
        }
        listeners.tasks.close();
        Ok(listeners)
    }

    async fn add(
        &mut self,
        name: &'static str,
        settings: &Settings,
        address: SocketAddr,
        paths: ListenerPaths,
    ) -> Result<SocketAddr, ServerError> {
        let failed = |error| ServerError::Listen(address, error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let server = &settings.server;
        let proxies = TrustedProxies::new(server.trusted_proxies.clone(), server.forwarded_header);
        let limiter = ConnectionLimiter::new(server.connections, server.connections_per_address, proxies);
        let limiter = Arc::new(limiter);
        self.connections.push((name, Arc::clone(&limiter)));
        let (gateway, tls) = (Arc::clone(&self.gateway), self.tls.clone());
        let options = ConnectionOptions::new(settings);
        let (grace, unanswered) = (server.shutdown, TaskTracker::new());
        let server = Server { gateway, paths, limiter, tls, options, grace, unanswered };
        self.tasks.spawn(server.serve(listener, self.stop.clone()));
        Ok(bound)
    }

    /// Stops accepting, and waits for the requests in flight.
    pub(crate) async fn close(self) {
        // Answers on connections that are served from here on close them.
        self.gateway.drain();
        self.stop.cancel();
        self.tasks.wait().await;
        drop(self.guard);
    }
}

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listeners").field("address", &self.address).finish_non_exhaustive()
    }
}
