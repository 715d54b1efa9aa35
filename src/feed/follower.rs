//! The memory that follows the feed, and the scopes in it that fell behind and wait to be refreshed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::feed::Follower;
use crate::model::scope::Scope;

/// The follower of the feed, once the feed has started.
#[derive(Default)]
pub(super) struct FeedFollower {
    follower: OnceLock<Weak<dyn Follower>>,
    /// Bounded by the number of scopes in memory.
    behind: Mutex<HashSet<Scope>>,
    pub(super) fell_behind: Notify,
    catch_ups: AtomicU64,
}

impl FeedFollower {
    /// Sets the follower; false if there is one already.
    pub(super) fn set(&self, follower: Weak<dyn Follower>) -> bool {
        self.follower.set(follower).is_ok()
    }

    /// The follower; `None` before the feed starts and after the follower is dropped.
    pub(super) fn get(&self) -> Option<Arc<dyn Follower>> {
        self.follower.get().and_then(Weak::upgrade)
    }

    /// Adds a scope that is behind.
    pub(super) fn add_behind(&self, scope: Scope) {
        self.behind.lock().insert(scope);
        self.fell_behind.notify_one();
    }

    /// Takes all scopes that are behind.
    pub(super) fn take_behind(&self) -> HashSet<Scope> {
        let taken = std::mem::take(&mut *self.behind.lock());
        self.catch_ups.fetch_add(taken.len() as u64, Ordering::Relaxed);
        taken
    }

    /// Number of refreshes started so far.
    pub(super) fn catch_ups(&self) -> u64 {
        self.catch_ups.load(Ordering::Relaxed)
    }
}
