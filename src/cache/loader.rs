//! Loads cached facts from the database: a bounded number concurrently (against a thundering herd at a cold start), each
//! with a deadline. [`Loader`] also decides when stale facts may be used because the database is unreachable.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::cell::{Cell, Invalidate};
use super::fair_semaphore::FairSemaphore;
use super::scope_map::ScopeMap;
use crate::model::caller::Payer;
use crate::model::fault::Fault;
use crate::model::feed::{ChangeFeed, FeedStatus};
use crate::model::scope::Scope;
use crate::model::system::{FailPoint, System};
use crate::store::{Store, StoreError};
use crate::telemetry::RareEvent;
use crate::telemetry::trace::{Kind, traced};

/// The deadline of a load while the database is unreachable.
const UNREACHABLE_DEADLINE: Duration = Duration::from_millis(250);
/// How long after a failed load facts that are known to be stale are used without another attempt.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// That the database refuses the role or does not exist, which each request finds.
static REFUSALS: RareEvent = RareEvent::new(Duration::from_mins(1));

/// The maximum number of connections that a load tries while each turns out to be closed by the server: after a failover
/// all pooled connections are, and each is detected when it is next used. More than the default size of the pool.
const ATTEMPTS: usize = 20;

/// The limits of loads.
#[derive(Debug, Clone, Copy)]
pub struct LoadOptions {
    /// The maximum number of concurrent loads.
    pub concurrent: usize,
    /// The deadline of a load, including the wait for its permit.
    pub deadline: Duration,
    /// How long cached facts are used while the database is unreachable.
    pub stale: Duration,
}

/// The maximum number of loads that wait; past it, the payer with the most of them loses its newest one.
const MAX_WAITING: usize = 65_536;

/// How often background work looks for idle capacity.
const IDLE_CHECK: Duration = Duration::from_millis(20);

/// Bounds the number of concurrent loads, so that a cold start does not take every connection of the pool. Loads that wait
/// are admitted in turn between their payers.
#[derive(Debug)]
pub struct LoadLimiter {
    permits: Arc<FairSemaphore<Payer>>,
    concurrent: usize,
}

impl LoadLimiter {
    /// Permits `concurrent` concurrent loads.
    pub fn new(concurrent: usize) -> Self {
        Self { permits: FairSemaphore::new(concurrent, MAX_WAITING), concurrent }
    }
}

/// Loads facts into cells, and falls back to memory while the database is unreachable.
pub struct Loader {
    store: Store,
    system: System,
    feed: Arc<dyn ChangeFeed>,
    limiter: LoadLimiter,
    /// When a load failed last because the database did not answer, unless one succeeded since.
    failed: Mutex<Option<Instant>>,
    options: LoadOptions,
}

impl Loader {
    /// Creates a loader.
    pub fn new(store: Store, system: System, feed: Arc<dyn ChangeFeed>, options: LoadOptions) -> Self {
        let limiter = LoadLimiter::new(options.concurrent);
        Self { store, system, feed, limiter, failed: Mutex::default(), options }
    }

    /// Checks that cached facts may be used: the change feed is proven, or a sweep succeeds now.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] if neither has been the case for longer than [`LoadOptions::stale`].
    pub async fn confirm(&self) -> Result<(), Fault> {
        if self.is_proven() || Arc::clone(&self.feed).confirm().await.is_ok() || self.trusts_memory() {
            Ok(())
        } else {
            Err(Fault::StorageUnavailable)
        }
    }

    /// Receives all changes committed so far, so that no answer is older.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] if the database does not answer.
    pub async fn sweep(&self) -> Result<(), Fault> {
        Arc::clone(&self.feed).confirm().await.map_err(|_| Fault::StorageUnavailable)
    }

    /// Whether the change feed is proven, so that cached facts are used without a query.
    pub fn is_proven(&self) -> bool {
        self.feed.unproven_for().is_zero()
    }

    /// Reads the changes that the cell of a scope has missed.
    pub async fn catch_up(&self, scopes: &ScopeMap, scope: Scope) {
        let Some(cell) = scopes.cell(scope) else { return };
        let catch_up = async || cell.catch_up(&self.store, &self.system).await;
        if let Err(error) = self.load(cell.payer(), catch_up).await {
            // The next read of the scope tries again and reports the failure.
            tracing::debug!(%error, scope = %scope.0, "catching up failed");
        }
    }

    /// Whether the last sweep failed.
    pub fn is_unreachable(&self) -> bool {
        self.feed.is_unreachable()
    }

    /// The state of the change feed.
    pub fn health(&self) -> FeedStatus {
        self.feed.status()
    }

    /// How long cached facts are used while the database is unreachable.
    pub fn stale(&self) -> Duration {
        self.options.stale
    }

    /// Waits until at least half of the permits are free: background work leaves the others to requests.
    pub async fn idle(&self) {
        while self.limiter.permits.free() < self.limiter.concurrent.div_ceil(2) {
            tokio::time::sleep(IDLE_CHECK).await;
        }
    }

    /// Runs a load, and repeats it on another connection if its connection was closed. Payers whose loads wait are served
    /// in turn.
    ///
    /// # Errors
    /// Those of the load; [`StoreError::Timeout`] past the deadline, which is shorter while the database is unreachable, and
    /// if too many loads wait.
    pub async fn load<T>(
        &self,
        payer: Payer,
        load: impl AsyncFnOnce() -> Result<T, StoreError> + Clone,
    ) -> Result<T, StoreError> {
        self.load_within(&self.limiter, payer, load).await
    }

    /// As [`load`](Self::load), with a permit of another limiter.
    pub async fn load_within<T>(
        &self,
        limiter: &LoadLimiter,
        payer: Payer,
        load: impl AsyncFnOnce() -> Result<T, StoreError> + Clone,
    ) -> Result<T, StoreError> {
        let mut deadline = self.options.deadline;
        if self.feed.is_unreachable() {
            deadline = deadline.min(UNREACHABLE_DEADLINE);
        }
        let loading = async {
            let permit = limiter.permits.acquire(payer, deadline).await;
            let _permit = permit.ok_or(StoreError::Timeout)?;
            self.system.pause(FailPoint::Load).await;
            if self.system.fails(FailPoint::Load) {
                return Err(StoreError::closed());
            }
            for _ in 1..ATTEMPTS {
                match load.clone()().await {
                    Err(error) if error.is_disconnected() => {}
                    done => return done,
                }
            }
            load().await
        };
        let loading = pin!(loading);
        let loading = traced("load", Kind::Internal, loading);
        let loaded = tokio::time::timeout(deadline, loading).await.unwrap_or(Err(StoreError::Timeout));
        let failed = loaded
            .as_ref()
            .is_err_and(|error| error.is_unavailable() || matches!(error, StoreError::Timeout));
        *self.failed.lock() = failed.then(Instant::now);
        loaded
    }

    /// Finds a fact in a cell: the cached one; otherwise, once the cell has caught up, a loaded one; otherwise a stale
    /// one, while stale facts may be used.
    ///
    /// # Errors
    /// Those of `load`, if no stale fact may be used.
    pub async fn find<H: Invalidate, T>(
        &self,
        payer: Payer,
        cell: &Cell<H>,
        cached: impl Fn(&H) -> Option<T> + Clone,
        load: impl AsyncFnOnce() -> Result<Option<T>, StoreError> + Clone,
    ) -> Result<Option<T>, Fault> {
        if let Some(found) = cell.get(&cached) {
            return Ok(Some(found));
        }
        if self.answers_from_memory()
            && let Some(stale) = cell.get_stale(&cached)
        {
            return Ok(Some(stale));
        }
        match Box::pin(self.catch_up_and_load(payer, cell, &cached, load)).await {
            Ok(found) => Ok(found),
            Err(error) => match cell.get_stale(&cached) {
                Some(stale) if self.may_use_memory_after_failure().await => Ok(Some(stale)),
                _ => Err(error.into()),
            },
        }
    }

    async fn catch_up_and_load<H: Invalidate, T>(
        &self,
        payer: Payer,
        cell: &Cell<H>,
        cached: impl FnOnce(&H) -> Option<T> + Clone,
        load: impl AsyncFnOnce() -> Result<Option<T>, StoreError> + Clone,
    ) -> Result<Option<T>, StoreError> {
        self.load(payer, async || {
            cell.apply_changes(&self.store).await?;
            match cell.get(cached) {
                Some(found) => Ok(Some(found)),
                None => load().await,
            }
        })
        .await
    }

    /// Whether cached facts that are known to be stale are used without an attempt to load: sweeps fail, a load has failed
    /// just now, and stale facts may be used. Sweeps alone may fail, for want of a connection of their own.
    pub fn answers_from_memory(&self) -> bool {
        let failed_recently = || self.failed.lock().is_some_and(|failed| failed.elapsed() < RETRY_AFTER);
        self.feed.is_unreachable() && failed_recently() && self.trusts_memory()
    }

    /// Whether to use a stale fact after a load failed. A sweep is attempted first, since one broken connection does not
    /// make the database unreachable.
    pub async fn may_use_memory_after_failure(&self) -> bool {
        Arc::clone(&self.feed).confirm().await.is_err() && self.trusts_memory()
    }

    /// Whether the feed is proven, or the last successful sweep is younger than [`LoadOptions::stale`].
    fn trusts_memory(&self) -> bool {
        self.feed.unproven_for() < self.options.stale
    }
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").field("options", &self.options).finish_non_exhaustive()
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) | StoreError::NoConnection(_) | StoreError::Timeout => {
                tracing::debug!(%error, "database unreachable");
                Self::StorageUnavailable
            }
            // A password that was changed, for example: not a bug; the operator must correct it.
            StoreError::Denied(_) => {
                if REFUSALS.is_due() {
                    tracing::warn!(%error, "database access refused");
                } else {
                    tracing::debug!(%error, "database access refused again");
                }
                Self::StorageUnavailable
            }
            bug => Self::Internal(bug.to_string()),
        }
    }
}
