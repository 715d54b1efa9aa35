//! Receives the messages of all replicas by `LISTEN`, and detects a connection that no longer delivers them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::service::{Feed, Prefetch};
use crate::model::backoff::Backoff;
use crate::store::StoreError;
use crate::store::notify::{FeedMessage, ListenerId, ListenerState, NotifyListener};

/// The delay before reconnecting.
const RETRY: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));

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
        let mut failures = 0_u32;
        // The error logged last: further failures to connect are logged if they have another.
        let mut logged = String::new();
        let mut registered = None;
        loop {
            let mut connected = false;
            let received = self.receive(&mut connected, &mut registered);
            let ended = stop.run_until_cancelled(received).await;
            self.health.record_loss();
            let Some(lost) = ended else { break };
            failures = if connected { 0 } else { failures.saturating_add(1) };
            let wait = RETRY.jittered(failures, self.system.random.as_ref());
            let error = lost.to_string();
            if connected || error != logged {
                let retry_in_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
                tracing::warn!(error, retry_in_ms, "listen connection lost; sweeping before each answer");
            }
            logged = error;
            if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                break;
            }
        }
        // Otherwise the next event of every other replica waits for the trust period.
        if let Some(registered) = registered {
            let _ = timeout(self.options.probe, self.store.unregister_listener(registered)).await;
        }
    }

    /// Connects and receives messages until the connection is lost. `registered` is the connection that other replicas
    /// wait for.
    async fn receive(&self, connected: &mut bool, registered: &mut Option<ListenerId>) -> ConnectionLost {
        let timeline = self.timeline();
        let mut listener = match timeout(self.options.timeout, self.store.notify_listener()).await {
            Ok(Ok(listener)) => listener,
            Ok(Err(error)) => return error.into(),
            Err(_) => return ConnectionLost::Silent,
        };
        let mut shown = ListenerState { id: self.replicas.new_listener(), acknowledged: None, probes: 0 };
        // Before the sweep: a replica that does not find it registered has committed the awaited change before.
        match timeout(self.options.timeout, register(&mut listener, &shown, *registered)).await {
            Ok(Ok(())) => *registered = Some(shown.id),
            Ok(Err(error)) => return error.into(),
            Err(_) => return ConnectionLost::Silent,
        }
        // Changes committed before LISTEN took effect were not delivered here.
        if self.sweep().await.is_err() {
            return ConnectionLost::Missed;
        }
        self.replicas.start_listening(shown.id, Instant::now());
        // The feed is proven once this probe is answered.
        if let Err(lost) = self.probe(&mut listener, &mut shown, None).await {
            return lost;
        }
        *connected = true;
        tracing::info!("listen connection established");
        loop {
            if let Err(lost) = self.receive_until_probe(&mut listener, &mut shown).await {
                return lost;
            }
            if self.timeline() != timeline {
                return ConnectionLost::Timeline;
            }
        }
    }

    /// Receives messages until a probe is due or an acknowledgement is requested, then probes the connection: a
    /// connection that silently drops everything is not noticed otherwise.
    async fn receive_until_probe(
        &self,
        listener: &mut NotifyListener,
        shown: &mut ListenerState,
    ) -> Result<(), ConnectionLost> {
        let due = aligned_timers::deadline(self.options.probe);
        let mut prefetch = None;
        while Instant::now() < due {
            match timeout_at(due, listener.next()).await {
                Ok(received) => {
                    let requested;
                    (requested, prefetch) = self.handle(&received?, shown);
                    if requested {
                        break;
                    }
                }
                Err(_) => break,
            }
        }
        self.probe(listener, shown, prefetch).await
    }

    /// Probes the connection, which shows the newest request received to other replicas, and reads what is due with it.
    async fn probe(
        &self,
        listener: &mut NotifyListener,
        shown: &mut ListenerState,
        mut prefetch: Option<Prefetch>,
    ) -> Result<(), ConnectionLost> {
        let mut requested = true;
        while requested {
            shown.probes += 1;
            let sent = Instant::now();
            let probing = async {
                match &prefetch {
                    Some(Prefetch { agent, after, .. }) => {
                        listener.probe_and_read(shown, *agent, *after).await
                    }
                    None => listener.probe(shown).await,
                }
            };
            let probed = timeout(self.options.probe, probing).await;
            if let Some(Prefetch { raised, .. }) = prefetch.take() {
                // Whether it was read or not.
                self.raise_streams(&[raised]);
            }
            probed.map_err(|_| ConnectionLost::Silent)??;
            (requested, prefetch) = self.handle(&listener.buffered(), shown);
            self.health.record_probe(sent);
        }
        Ok(())
    }

    /// Handles messages: first the spans of writes, then memory, then everything else in order, and streams last. Returns
    /// whether a request was among them, and what is read with the probe that acknowledges it: streams learn of that later.
    fn handle(&self, messages: &[FeedMessage], shown: &mut ListenerState) -> (bool, Option<Prefetch>) {
        for message in messages {
            if let FeedMessage::Written(span) = message {
                self.hub.record_write(*span);
            }
        }
        let raised: Vec<_> = messages.iter().filter_map(FeedMessage::raised).collect();
        let mut raised = self.raise_memory(&raised);
        let before = shown.acknowledged;
        for message in messages {
            match *message {
                FeedMessage::Raised(scope, revision) => self.replicas.record_raised(scope, revision),
                FeedMessage::Written(_) => {}
                FeedMessage::Followed(scope) => self.replicas.record_followed(scope, Instant::now()),
                FeedMessage::AckRequest(request) => {
                    self.replicas.record_request(request);
                    shown.acknowledged = Some(request);
                }
                FeedMessage::Acknowledged(request) => self.replicas.record_acknowledged(request),
            }
        }
        let requested = shown.acknowledged != before;
        let prefetch = if requested { self.take_prefetch(&mut raised) } else { None };
        self.raise_streams(&raised);
        (requested, prefetch)
    }
}

async fn register(
    listener: &mut NotifyListener,
    shown: &ListenerState,
    before: Option<ListenerId>,
) -> Result<(), StoreError> {
    // Shown first: a registered connection that shows nothing counts as closed.
    listener.probe(shown).await?;
    listener.register(shown.id, before).await
}
