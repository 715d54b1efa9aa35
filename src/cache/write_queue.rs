//! The write queue: writers of one scope wait for each other before one of them takes a connection of the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::model::fault::Fault;
use crate::model::scope::Scope;

/// The limits of the write queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueOptions {
    /// The maximum number of concurrent writes of all scopes: at most half of the pool.
    pub concurrent: usize,
    /// The maximum number of writes that wait for one scope.
    pub waiting_per_scope: usize,
    /// The timeout of waiting for a permit.
    pub wait: Duration,
    /// The deadline of a write once it has its permit.
    pub deadline: Duration,
}

/// The queues of all scopes that are being written to.
#[derive(Debug)]
pub(super) struct WriteQueue {
    scopes: DashMap<Scope, Arc<ScopeQueue>>,
    connections: Arc<Semaphore>,
    options: QueueOptions,
}

#[derive(Debug, Default)]
struct ScopeQueue {
    /// The waiting writers of a scope and the active one.
    writers: AtomicUsize,
    turn: Arc<Mutex<()>>,
}

/// The permit to write to a scope, released when dropped.
#[derive(Debug)]
pub(super) struct WritePermit<'q> {
    queue: &'q WriteQueue,
    scope: Scope,
    guards: Option<(OwnedMutexGuard<()>, OwnedSemaphorePermit)>,
}

impl Drop for WritePermit<'_> {
    fn drop(&mut self) {
        self.guards = None;
        self.queue.leave(self.scope);
    }
}

/// The fault of a write that waits for too long, or behind too many others.
pub(super) fn busy() -> Fault {
    Fault::Unavailable { retry_after: Duration::from_secs(1) }
}

impl WriteQueue {
    pub(super) fn new(options: QueueOptions) -> Self {
        Self { scopes: DashMap::new(), connections: Arc::new(Semaphore::new(options.concurrent)), options }
    }

    /// The deadline of a write.
    pub(super) fn deadline(&self) -> Duration {
        self.options.deadline
    }

    /// The timeout of waiting for a permit.
    pub(super) fn wait(&self) -> Duration {
        self.options.wait
    }

    /// Waits for a share of the pool, in the order of arrival, for a write that changes no scope.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] after the timeout.
    pub(super) async fn acquire_share(&self) -> Result<SemaphorePermit<'_>, Fault> {
        let acquired = tokio::time::timeout(self.options.wait, self.connections.acquire()).await;
        acquired.ok().and_then(Result::ok).ok_or_else(busy)
    }

    /// Waits for a scope and then for a share of the pool, each in the order of arrival.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if too many writers wait already, and after the timeout.
    pub(super) async fn acquire(&self, scope: Scope) -> Result<WritePermit<'_>, Fault> {
        let queue = self.enter(scope).ok_or_else(busy)?;
        let mut permit = WritePermit { queue: self, scope, guards: None };
        let waiting = async {
            let guard = Arc::clone(&queue.turn).lock_owned().await;
            Some((guard, Arc::clone(&self.connections).acquire_owned().await.ok()?))
        };
        let guards = tokio::time::timeout(self.options.wait, waiting).await.ok().flatten();
        permit.guards = Some(guards.ok_or_else(busy)?);
        Ok(permit)
    }

    fn enter(&self, scope: Scope) -> Option<Arc<ScopeQueue>> {
        let queue = self.scopes.entry(scope).or_default();
        let writers = queue.writers.fetch_add(1, Ordering::Relaxed);
        if writers <= self.options.waiting_per_scope {
            return Some(Arc::clone(&queue));
        }
        queue.writers.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn leave(&self, scope: Scope) {
        // The map's own lock keeps other writers from entering between the count and the removal.
        self.scopes.remove_if(&scope, |_, queue| queue.writers.fetch_sub(1, Ordering::Relaxed) == 1);
    }
}
