//! The listeners of a gateway: opened before anything else, closed after the requests under way.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::AppError;
use super::dispatch::{Entrance, Surface};
use super::options::connection_options;
use super::places::Places;
use super::serve::Door;
use super::tls::Tls;
use crate::config::Settings;
use crate::http::client_address::TrustedProxies;
use crate::http::request_id::RequestIds;
use crate::model::sources::Sources;

/// The listeners, by the names that metrics have for them.
const MAIN: &str = "main";
const ADMIN: &str = "admin";

/// The open listeners, one or two. Dropped, they are closed.
pub(super) struct Listeners {
    /// Identifies this process in logs, and among the replicas.
    pub(super) instance: Uuid,
    /// Where the MCP endpoints are.
    pub(super) address: SocketAddr,
    /// Where the admin surface is.
    pub(super) admin_address: SocketAddr,
    /// The connections of each listener, by its name.
    pub(super) places: Vec<(&'static str, Arc<Places>)>,
    /// What they answer with.
    pub(super) entrance: Arc<Entrance>,
    /// What TLS is spoken with, if it is.
    pub(super) tls: Option<Arc<Tls>>,
    /// Closes them.
    pub(super) stop: CancellationToken,
    /// What they run in.
    pub(super) tasks: TaskTracker,
    guard: DropGuard,
}

impl Listeners {
    /// Opens the listeners, which answer at once: that the process lives, and is not ready.
    ///
    /// # Errors
    /// When an address is taken, or the files of TLS are not good.
    pub(super) async fn open(settings: &Settings, sources: &Sources) -> Result<Self, AppError> {
        let instance = sources.uid()?;
        tracing::info!(version = env!("CARGO_PKG_VERSION"), %instance, "gateway starting");
        let tls = match &settings.server.tls {
            Some(files) => Some(Arc::new(Tls::load(files.clone()).await?)),
            None => None,
        };
        let stop = CancellationToken::new();
        let mut listeners = Self {
            instance,
            address: settings.server.listen,
            admin_address: settings.server.listen,
            places: Vec::new(),
            entrance: Arc::new(Entrance::new(RequestIds::new(sources.random.as_ref())?)),
            tls,
            guard: stop.clone().drop_guard(),
            stop,
            tasks: TaskTracker::new(),
        };
        let surface = if settings.admin.listen.is_some() { Surface::Mcp } else { Surface::All };
        listeners.address = listeners.add(MAIN, settings, settings.server.listen, surface).await?;
        listeners.admin_address = match settings.admin.listen {
            Some(address) => listeners.add(ADMIN, settings, address, Surface::Admin).await?,
            None => listeners.address,
        };
        if let Some(tls) = &listeners.tls {
            listeners.tasks.spawn(Arc::clone(tls).follow(listeners.stop.clone()));
        }
        listeners.tasks.close();
        Ok(listeners)
    }

    async fn add(
        &mut self,
        name: &'static str,
        settings: &Settings,
        address: SocketAddr,
        surface: Surface,
    ) -> Result<SocketAddr, AppError> {
        let failed = |error| AppError::Listen(address, error);
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let server = &settings.server;
        let proxies = TrustedProxies::new(server.trusted_proxies.clone(), server.forwarded_header);
        let places = Arc::new(Places::new(server.connections, server.connections_per_address, proxies));
        self.places.push((name, Arc::clone(&places)));
        let (entrance, tls) = (Arc::clone(&self.entrance), self.tls.clone());
        let door = Door { entrance, surface, places, tls, options: connection_options(settings) };
        self.tasks.spawn(door.serve(listener, self.stop.clone()));
        Ok(bound)
    }

    /// Stops accepting, and waits for the requests under way.
    pub(super) async fn close(self) {
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
