//! Sends wakes after commits, gathered for a few milliseconds, on a connection of its own.
//!
//! Inside the writing transaction NOTIFY would take a lock of the whole database at every commit.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::Feed;
use crate::model::scope::{Revision, Scope};
use crate::model::sources::Point;
use crate::store::wakes::WakeSender;

/// Scopes that wait to be told; a wake past it is dropped, and the sweeps of the others find the change.
const MOST_PENDING: usize = 10_000;

/// The newest revision of each scope that was committed here and not told yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    revisions: Mutex<HashMap<Scope, Revision>>,
    some: Notify,
}

impl Pending {
    pub(super) fn add(&self, revisions: &[(Scope, Revision)]) {
        let mut pending = self.revisions.lock();
        for (scope, revision) in revisions {
            if pending.len() < MOST_PENDING || pending.contains_key(scope) {
                let newest = pending.entry(*scope).or_default();
                *newest = (*newest).max(*revision);
            }
        }
        self.some.notify_one();
    }

    fn take(&self) -> Vec<(Scope, Revision)> {
        self.revisions.lock().drain().collect()
    }
}

impl Feed {
    pub(super) async fn notify(self: Arc<Self>, stop: CancellationToken) {
        let mut sender = None;
        while stop.run_until_cancelled(self.pending.some.notified()).await.is_some() {
            tokio::time::sleep(self.options.notify).await;
            let mut hints = self.pending.take();
            hints.retain(|_| !self.sources.loses(Point::Wake));
            if !hints.is_empty() {
                sender = self.send(sender, &hints).await;
            }
        }
    }

    /// Sends on the connection there is, or a new one; answers the connection if it is still good.
    async fn send(&self, sender: Option<WakeSender>, hints: &[(Scope, Revision)]) -> Option<WakeSender> {
        let sending = async {
            let mut sender = match sender {
                Some(sender) => sender,
                None => self.store.wake_sender().await?,
            };
            sender.send(hints).await?;
            Ok::<_, crate::store::StoreError>(sender)
        };
        match timeout(self.options.patience, sending).await {
            Ok(Ok(sender)) => Some(sender),
            Ok(Err(error)) => {
                tracing::debug!(%error, wakes = hints.len(), "wakes were not sent; sweeps will find the changes");
                None
            }
            Err(_) => None,
        }
    }
}
