//! Sends this replica's messages by `NOTIFY`, batched to one statement every few milliseconds, on a dedicated
//! connection.
//!
//! `NOTIFY` inside the writing transaction would take a lock on the whole database at every commit.

use std::sync::Arc;

use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::pending::UnsentMessages;
use super::service::Feed;
use crate::model::sources::FailPoint;
use crate::store::notify::{FeedMessage, NotifySender};

impl Feed {
    pub(super) async fn notify(self: Arc<Self>, stop: CancellationToken) {
        let mut sender = None;
        let mut heartbeats = tokio::time::interval(self.options.probe);
        heartbeats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sent = Instant::now();
        let mut timeline = self.timeline();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                // Without delay after an idle interval: an event takes three of these messages before it is
                // sent.
                () = self.pending.changed.notified() => sleep_until(sent + self.options.notify).await,
                _ = heartbeats.tick() => {}
            }
            sent = Instant::now();
            if std::mem::replace(&mut timeline, self.timeline()) != timeline {
                sender = None;
            }
            let messages = self.messages();
            sender = self.send(sender, &messages).await;
        }
    }

    /// The messages to send now: acknowledgement requests after the revisions they refer to, and always a
    /// heartbeat.
    fn messages(&self) -> Vec<FeedMessage> {
        let UnsentMessages { mut revisions, last_request, request_pending, acks } = self.pending.take();
        let all = revisions.len();
        revisions.retain(|_, _| !self.sources.fails(FailPoint::Notify));
        let mut messages: Vec<_> =
            revisions.iter().map(|(scope, revision)| FeedMessage::Raised(*scope, *revision)).collect();
        let me = self.replicas.me;
        // Tests that lose a revision lose the request that accompanies it as well.
        if request_pending && messages.len() == all {
            messages.push(FeedMessage::AckRequest(me, last_request));
        }
        messages.extend(acks.into_iter().map(|(of, request)| FeedMessage::Ack(me, of, request)));
        messages.push(FeedMessage::Heartbeat(me, self.health.number(Instant::now())));
        messages
    }

    /// Sends messages on the given connection or a new one; returns the connection if it is still usable.
    async fn send(&self, sender: Option<NotifySender>, messages: &[FeedMessage]) -> Option<NotifySender> {
        let sending = async {
            let mut sender = match sender {
                Some(sender) => sender,
                None => self.store.notify_sender().await?,
            };
            sender.send(messages).await?;
            Ok::<_, crate::store::StoreError>(sender)
        };
        match timeout(self.options.timeout, sending).await {
            Ok(Ok(sender)) => Some(sender),
            Ok(Err(error)) => {
                let lost = messages.len();
                tracing::debug!(%error, lost, "notify failed; sweeps will find the changes");
                None
            }
            Err(_) => None,
        }
    }
}
