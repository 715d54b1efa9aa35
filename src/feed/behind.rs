//! The scopes in memory that fell behind and wait to be refreshed.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::scope::Scope;

/// Scopes that are behind and wait to be refreshed; bounded by the number of scopes in memory.
#[derive(Debug, Default)]
pub(super) struct BehindScopes {
    scopes: Mutex<HashSet<Scope>>,
    pub(super) added: Notify,
    started: AtomicU64,
}

impl BehindScopes {
    /// Adds a scope.
    pub(super) fn add(&self, scope: Scope) {
        self.scopes.lock().insert(scope);
        self.added.notify_one();
    }

    /// Takes all scopes.
    pub(super) fn take_all(&self) -> HashSet<Scope> {
        let taken = std::mem::take(&mut *self.scopes.lock());
        self.started.fetch_add(taken.len() as u64, Ordering::Relaxed);
        taken
    }

    /// Number of refreshes started so far.
    pub(super) fn started(&self) -> u64 {
        self.started.load(Ordering::Relaxed)
    }
}
