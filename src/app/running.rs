//! The running gateway, and its graceful shutdown.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use super::DatabaseServices;
use super::background::Background;
use super::credentials::AcceptedCredentials;
use crate::audit::RunningAudit;
use crate::feed::Feed;
use crate::server::listeners::Listeners;
use crate::store::Store;

/// How long the writes of disconnected callers may take after the last request. Their own deadlines are longer.
const AFTER_REQUESTS: Duration = Duration::from_secs(2);
/// How long the audit log and the background tasks may take after that to write what is in memory: longer than the audit
/// log waits for the database before it writes the rest to its spill file.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(4);

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
        let deadline = Instant::now() + self.grace + AFTER_REQUESTS;
        self.listeners.close().await;
        let writes = async {
            self.feed.end_streams().await;
            self.services.drain().await;
        };
        let drained = timeout_at(deadline, writes).await.is_ok();
        if !drained {
            tracing::warn!("writes in progress at shutdown did not end in time; they may be missing");
        }
        // With time of its own: a write that hangs costs neither audit rows nor usage counts.
        let flush = async {
            tokio::join!(self.audit.stop(), self.background.end());
            // Waits for the connections of writes.
            if drained {
                self.store.close().await;
            }
        };
        if timeout(FLUSH_TIMEOUT, flush).await.is_err() {
            tracing::warn!("database unreachable at shutdown; last writes may be missing");
        }
    }
}
