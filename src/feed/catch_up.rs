//! Brings scopes that are behind up to date before anybody asks.

use std::collections::HashSet;
use std::sync::Arc;

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
