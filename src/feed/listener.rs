//! Hears the wakes, and knows when it does not.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use super::Feed;
use crate::store::StoreError;
use crate::store::wakes::{Wake, WakeListener};

/// The wait before connecting again: it doubles from the first to the last.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LAST_WAIT: Duration = Duration::from_secs(1);

/// Why the listener lost its connection.
#[derive(Debug, thiserror::Error)]
enum Lost {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("no answer in time")]
    Silent,
    #[error("what was missed could not be read")]
    Missed,
    #[error("the database timeline changed")]
    Timeline,
}

impl Feed {
    pub(super) async fn listen(self: Arc<Self>, stop: CancellationToken) {
        let mut wait = FIRST_WAIT;
        let mut heard = false;
        loop {
            let mut connected = false;
            let Some(lost) = stop.run_until_cancelled(self.hear(&mut connected)).await else { return };
            if connected || !heard {
                tracing::warn!(reason = %lost, "wakes are not heard; asking the database before each answer");
            }
            heard = true;
            wait = if connected { FIRST_WAIT } else { (wait * 2).min(LAST_WAIT) };
            if stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_none() {
                return;
            }
        }
    }

    /// Connects and hears until the connection is lost.
    async fn hear(&self, connected: &mut bool) -> Lost {
        let patience = self.options.patience;
        let timeline = self.timeline();
        let mut listener = match timeout(patience, self.store.wake_listener()).await {
            Ok(Ok(listener)) => listener,
            Ok(Err(error)) => return error.into(),
            Err(_) => return Lost::Silent,
        };
        // What was committed before LISTEN took hold was told to nobody here.
        if self.sweep().await.is_err() {
            return Lost::Missed;
        }
        self.members.begin(Instant::now());
        // From the next heartbeat that comes back on it is proven that this replica hears.
        self.pending.beat();
        *connected = true;
        tracing::info!("wakes are heard");
        loop {
            if let Err(lost) = self.hear_until_probe(&mut listener).await {
                return lost;
            }
            if self.timeline() != timeline {
                return Lost::Timeline;
            }
        }
    }

    /// Takes what is heard until a probe is due, then probes: nothing else would notice a connection that swallows
    /// everything.
    async fn hear_until_probe(&self, listener: &mut WakeListener) -> Result<(), Lost> {
        let due = Instant::now() + self.options.probe;
        while Instant::now() < due {
            match timeout_at(due, listener.next()).await {
                Ok(heard) => self.take(&heard?),
                Err(_) => break,
            }
        }
        timeout(self.options.probe, listener.probe()).await.map_err(|_| Lost::Silent)??;
        self.take(&listener.heard());
        Ok(())
    }

    /// Takes messages in: first what is told of scopes, then what was asked about having heard it.
    fn take(&self, messages: &[Wake]) {
        let raised: Vec<_> = messages.iter().filter_map(Wake::raised).collect();
        self.deliver(&raised);
        for message in messages {
            match *message {
                Wake::Alive(replica, number) if replica == self.members.me => self.proof.heard(number),
                Wake::Alive(replica, _) => self.members.alive(replica, Instant::now()),
                Wake::Ask(replica, question) if replica == self.members.me => {
                    self.members.heard_self(question);
                }
                Wake::Ask(replica, question) => self.pending.answer(replica, question),
                Wake::Heard(by, of, question) if of == self.members.me => self.members.heard(by, question),
                Wake::Raised(..) | Wake::Heard(..) => {}
            }
        }
    }
}
