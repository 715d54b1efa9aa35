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

/// The queues of all scopes that are being written to. A writer may leave a `T` to the next one of its scope.
#[derive(Debug)]
pub(super) struct WriteQueue<T> {
    scopes: DashMap<Scope, Arc<ScopeQueue<T>>>,
    connections: Arc<Semaphore>,
    options: QueueOptions,
}

#[derive(Debug)]
struct ScopeQueue<T> {
    /// The waiting writers of a scope and the active one.
    writers: AtomicUsize,
    permit: Arc<Mutex<Option<T>>>,
}

impl<T> Default for ScopeQueue<T> {
    fn default() -> Self {
        Self { writers: AtomicUsize::new(0), permit: Arc::default() }
    }
}

/// A writer in the queue of a scope, which it leaves when this is dropped.
#[derive(Debug)]
pub(super) struct QueuedWriter<'q, T> {
    queue: &'q WriteQueue<T>,
    scope: Scope,
    permit: Arc<Mutex<Option<T>>>,
}

/// The permit to write to a scope, with what the writer before has left.
pub(super) type WritePermit<T> = OwnedMutexGuard<Option<T>>;

impl<T> Drop for QueuedWriter<'_, T> {
    fn drop(&mut self) {
        self.queue.leave(self.scope);
    }
}

impl<T> QueuedWriter<'_, T> {
    /// Waits for the permit, in the order of arrival.
    pub(super) async fn permit(&self) -> WritePermit<T> {
        Arc::clone(&self.permit).lock_owned().await
    }

    /// Waits for the permit, and unless the writer before has left something for a share of the pool, each in the order
    /// of arrival.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] after the timeout.
    pub(super) async fn acquire(&self) -> Result<(WritePermit<T>, Option<OwnedSemaphorePermit>), Fault> {
        let waiting = async {
            let permit = self.permit().await;
            if permit.is_some() {
                return Some((permit, None));
            }
            Some((permit, Some(Arc::clone(&self.queue.connections).acquire_owned().await.ok()?)))
        };
        tokio::time::timeout(self.queue.options.wait, waiting).await.ok().flatten().ok_or(Fault::BUSY)
    }
}

impl<T> WriteQueue<T> {
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
        acquired.ok().and_then(Result::ok).ok_or(Fault::BUSY)
    }

    /// Enters the queue of a scope.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if too many writers wait already.
    pub(super) fn enter(&self, scope: Scope) -> Result<QueuedWriter<'_, T>, Fault> {
        let queue = self.scopes.entry(scope).or_default();
        let writers = queue.writers.fetch_add(1, Ordering::Relaxed);
        if writers > self.options.waiting_per_scope {
            queue.writers.fetch_sub(1, Ordering::Relaxed);
            return Err(Fault::BUSY);
        }
        Ok(QueuedWriter { queue: self, scope, permit: Arc::clone(&queue.permit) })
    }

    fn leave(&self, scope: Scope) {
        // The map's own lock keeps other writers from entering between the count and the removal.
        self.scopes.remove_if(&scope, |_, queue| queue.writers.fetch_sub(1, Ordering::Relaxed) == 1);
    }
}
