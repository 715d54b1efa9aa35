//! Receives the messages of all replicas by `LISTEN`, and detects a connection that no longer delivers them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::service::Feed;
use crate::store::StoreError;
use crate::store::notify::{FeedMessage, NotifyListener};

/// Wait before reconnecting; doubled after each failure, up to [`LAST_WAIT`].
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Why the connection was given up.
#[derive(Debug, thiserror::Error)]
enum ConnectionLost {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the connection did not answer in time")]
    Silent,
    #[error("the changes missed while disconnected could not be read")]
    Missed,
    #[error("the database timeline changed")]
    Timeline,
}

impl Feed {
    pub(super) async fn listen(self: Arc<Self>, stop: CancellationToken) {
        let mut wait = FIRST_WAIT;
        let mut attempted = false;
        loop {
            let mut connected = false;
            let Some(lost) = stop.run_until_cancelled(self.receive(&mut connected)).await else { return };
            wait = if connected { FIRST_WAIT } else { (wait * 2).min(LAST_WAIT) };
            if connected || !attempted {
                let retry_in_ms = wait.as_millis();
                tracing::warn!(error = %lost, retry_in_ms, "listen connection lost; sweeping before each answer");
            }
            attempted = true;
            if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    /// Connects and receives messages until the connection is lost.
    async fn receive(&self, connected: &mut bool) -> ConnectionLost {
        let timeline = self.timeline();
        let mut listener = match timeout(self.options.timeout, self.store.notify_listener()).await {
            Ok(Ok(listener)) => listener,
            Ok(Err(error)) => return error.into(),
            Err(_) => return ConnectionLost::Silent,
        };
        // Changes committed before LISTEN took effect were not delivered here.
        if self.sweep().await.is_err() {
            return ConnectionLost::Missed;
        }
        self.replicas.start_listening(Instant::now());
        // The feed is proven once this heartbeat is received back.
        self.pending.request_heartbeat();
        *connected = true;
        tracing::info!("listen connection established");
        loop {
            if let Err(lost) = self.receive_until_probe(&mut listener).await {
                return lost;
            }
            if self.timeline() != timeline {
                return ConnectionLost::Timeline;
            }
        }
    }

    /// Receives messages until a probe is due, then probes the connection: a connection that silently drops
    /// everything is not noticed otherwise.
    async fn receive_until_probe(&self, listener: &mut NotifyListener) -> Result<(), ConnectionLost> {
        let due = Instant::now() + self.options.probe;
        while Instant::now() < due {
            match timeout_at(due, listener.next()).await {
                Ok(received) => self.handle(&received?),
                Err(_) => break,
            }
        }
        timeout(self.options.probe, listener.probe()).await.map_err(|_| ConnectionLost::Silent)??;
        self.handle(&listener.buffered());
        Ok(())
    }

    /// Handles messages: first revisions, then requests to acknowledge them.
    fn handle(&self, messages: &[FeedMessage]) {
        let raised: Vec<_> = messages.iter().filter_map(FeedMessage::raised).collect();
        self.deliver(&raised);
        for message in messages {
            match *message {
                FeedMessage::Heartbeat(replica, number) if replica == self.replicas.me => {
                    self.health.record_heartbeat(number);
                }
                FeedMessage::Heartbeat(replica, _) => self.replicas.record_heartbeat(replica, Instant::now()),
                FeedMessage::AckRequest(replica, request) if replica == self.replicas.me => {
                    self.replicas.record_own_request(request);
                }
                FeedMessage::AckRequest(replica, request) => self.pending.acknowledge(replica, request),
                FeedMessage::Ack(by, of, request) if of == self.replicas.me => {
                    self.replicas.record_ack(by, request);
                }
                FeedMessage::Raised(..) | FeedMessage::Ack(..) => {}
            }
        }
    }
}
