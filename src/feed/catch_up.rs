//! Brings scopes that are behind up to date before anybody asks.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use futures_util::StreamExt;
use futures_util::stream;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Feed;
use crate::model::scope::Scope;

/// Scopes caught up at once: a share of the pool, so that readers find connections too.
const AT_ONCE: usize = 2;

/// Scopes that are behind: at most as many as are held.
#[derive(Debug, Default)]
pub(super) struct CatchUp {
    behind: Mutex<HashSet<Scope>>,
    some: Notify,
}

impl CatchUp {
    pub(super) fn add(&self, scope: Scope) {
        self.behind.lock().insert(scope);
        self.some.notify_one();
    }

    fn take(&self) -> HashSet<Scope> {
        std::mem::take(&mut *self.behind.lock())
    }
}

impl Feed {
    pub(super) async fn catch_up(self: Arc<Self>, stop: CancellationToken) {
        while stop.run_until_cancelled(self.catch_up.some.notified()).await.is_some() {
            let Some(follower) = self.follower.get().and_then(Weak::upgrade) else { return };
            let catching_up = stream::iter(self.catch_up.take())
                .for_each_concurrent(AT_ONCE, |scope| {
                    let follower = Arc::clone(&follower);
                    async move { follower.catch_up(scope).await }
                });
            if stop.run_until_cancelled(catching_up).await.is_none() {
                return;
            }
        }
    }
}
