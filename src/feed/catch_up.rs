//! Refreshes scopes that fell behind in the background, before a request needs them.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::service::Feed;
use crate::model::feed::Follower;
use crate::model::scope::Scope;

/// Number of scopes refreshed concurrently: a share of the connection pool, so that requests still obtain
/// connections.
const CONCURRENCY: usize = 2;

impl Feed {
    pub(super) async fn catch_up(self: Arc<Self>, stop: CancellationToken) {
        while stop.run_until_cancelled(self.follower.fell_behind.notified()).await.is_some() {
            let Some(follower) = self.follower.get() else { return };
            if stop.run_until_cancelled(refresh_all(&follower, self.follower.take_behind())).await.is_none() {
                return;
            }
        }
    }
}

async fn refresh_all(follower: &Arc<dyn Follower>, behind: HashSet<Scope>) {
    let mut running = JoinSet::new();
    for scope in behind {
        if running.len() >= CONCURRENCY {
            running.join_next().await;
        }
        let follower = Arc::clone(follower);
        running.spawn(async move { follower.catch_up(scope).await });
    }
    while running.join_next().await.is_some() {}
}
