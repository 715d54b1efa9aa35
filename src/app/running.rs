//! The running gateway, and its shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::DatabaseServices;
use super::background::Background;
use super::credentials::AcceptedCredentials;
use crate::audit::RunningAudit;
use crate::feed::Feed;
use crate::server::listeners::Listeners;
use crate::store::Store;

/// How long cleanup may take after the last request: writes of disconnected callers, open connections.
const AFTER_REQUESTS: Duration = Duration::from_secs(2);

/// A running gateway.
#[derive(Debug)]
pub struct Running {
    /// The address of the MCP endpoints.
    pub address: SocketAddr,
    /// The address of the administration API.
    pub admin_address: SocketAddr,
    /// Its services over the database.
    pub services: DatabaseServices,
    pub(super) feed: Arc<Feed>,
    pub(super) store: Store,
    pub(super) audit: RunningAudit,
    pub(super) credentials: AcceptedCredentials,
    pub(super) listeners: Listeners,
    pub(super) background: Background,
    pub(super) grace: Duration,
}

impl Running {
    /// Stops accepting, ends the streams, lets requests in flight finish within `server.shutdown_seconds`, then stops,
    /// whether or not the database answers.
    pub async fn stop(self) {
        let deadline = tokio::time::Instant::now() + self.grace + AFTER_REQUESTS;
        self.listeners.close().await;
        let leaving = async {
            self.feed.end_streams().await;
            self.services.drain().await;
            self.audit.stop().await;
            self.background.end().await;
            self.store.close().await;
        };
        if tokio::time::timeout_at(deadline, leaving).await.is_err() {
            self.background.stop.cancel();
            tracing::warn!("database unreachable at shutdown; last writes may be missing");
        }
    }
}
