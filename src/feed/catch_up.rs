//! Brings scopes that are behind up to date before anybody asks.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Feed;
use crate::model::feed::Follower;
use crate::model::scope::Scope;

/// Scopes caught up at once: a share of the pool, so that readers find connections too.
const AT_ONCE: usize = 2;

/// Scopes that are behind: at most as many as are held.
#[derive(Debug, Default)]
pub(super) struct CatchUp {
    behind: Mutex<HashSet<Scope>>,
    some: Notify,
    begun: AtomicU64,
}

impl CatchUp {
    pub(super) fn add(&self, scope: Scope) {
        self.behind.lock().insert(scope);
        self.some.notify_one();
    }

    fn take(&self) -> HashSet<Scope> {
        let taken = std::mem::take(&mut *self.behind.lock());
        self.begun.fetch_add(taken.len() as u64, Ordering::Relaxed);
        taken
    }

    /// How many scopes were caught up so far, each as often as it was behind.
    pub(super) fn begun(&self) -> u64 {
        self.begun.load(Ordering::Relaxed)
    }
}

impl Feed {
    pub(super) async fn catch_up(self: Arc<Self>, stop: CancellationToken) {
        while stop.run_until_cancelled(self.catch_up.some.notified()).await.is_some() {
            let Some(follower) = self.follower() else { return };
            if stop.run_until_cancelled(all(&follower, self.catch_up.take())).await.is_none() {
                return;
            }
        }
    }
}

async fn all(follower: &Arc<dyn Follower>, behind: HashSet<Scope>) {
    let mut under_way = JoinSet::new();
    for scope in behind {
        if under_way.len() >= AT_ONCE {
            under_way.join_next().await;
        }
        let follower = Arc::clone(follower);
        under_way.spawn(async move { follower.catch_up(scope).await });
    }
    while under_way.join_next().await.is_some() {}
}
