//! Content from outside, fetched at most once at a time (single flight) and kept for as long as its definition allows.

mod flights;
mod kept;
mod polled;
mod probe;
mod round;
mod runtime;
mod scan;
mod stored;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use content_source::{FetchError, Fetched};
use futures_util::{FutureExt, TryFutureExt};
use tokio::runtime::Handle;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::{CancellationToken, DropGuard};

use self::flights::{EndGuard, FetchLock, Flight, Flights};
use self::kept::{Ages, Kept, Key};
use self::runtime::FetchRuntime;
use super::cause::FetchCause;
use super::connections::Connections;
use super::counters::{Counters, FetchStats, ReadFrom, WatchEvent};
use super::gate::{ANONYMOUS_PART, Gates};
use super::health::FailedFetch;
use super::memory::Connection;
use crate::cache::{KeyedCounts, MemoryBudget, WeighedCache};
use crate::model::fault::Fault;
use crate::model::ids::TenantId;
use crate::model::system::Clock;
use crate::model::variant::Variant;
use crate::telemetry::trace::{self, traced};

pub use kept::{ContentRequest, FetchId, Outside};
pub use polled::Polled;

/// The maximum number of reads of a tenant that wait for fetches.
const MAX_WAITING: usize = 4_096;

/// Why content from outside could not be obtained.
#[derive(Debug, Clone, PartialEq)]
pub enum ContentError {
    /// The source has no such content.
    NotFound,
    /// Everything else.
    Fault(Fault),
}

impl From<FetchError> for ContentError {
    fn from(error: FetchError) -> Self {
        Self::Fault(match error {
            FetchError::NotFound => return Self::NotFound,
            FetchError::Timeout => Fault::SourceTimeout,
            error => Fault::SourceFailed(error),
        })
    }
}

/// What a fetch found when its turn to ask came.
enum FetchOutcome {
    /// Another one was faster.
    Newer(Arc<Kept>),
    /// How the source answered, and when it was asked.
    Answered(Result<Fetched, FetchError>, Instant),
}

/// How content from outside is fetched.
#[derive(Debug, Clone, Copy)]
pub struct FetchOptions {
    /// How old content may be whose definition does not say.
    pub ttl: Duration,
    /// How long a reader waits for a source, however long its connection lets it take: requests have a deadline.
    pub longest_wait: Duration,
    /// How fast bytes of a connection come for a tenant; 0 for any rate.
    pub bytes_per_second: u64,
}

/// Fetches content from outside, or has it in memory.
#[derive(Debug)]
pub struct Fetcher {
    inner: Arc<Inner>,
    /// Ends the fetches.
    _stop: DropGuard,
}

struct Inner {
    connections: Arc<Connections>,
    clock: Arc<dyn Clock>,
    kept: Arc<WeighedCache<Key, Arc<Kept>>>,
    flights: Flights,
    gates: Gates,
    runtime: FetchRuntime,
    waiting: Arc<KeyedCounts<TenantId>>,
    options: FetchOptions,
    began: Instant,
    stop: CancellationToken,
    counters: Counters,
    /// The number of the next contents.
    next: AtomicU64,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher").finish_non_exhaustive()
    }
}

impl Fetcher {
    /// A fetcher with nothing in memory, within `budget`.
    pub fn new(
        connections: Arc<Connections>,
        clock: Arc<dyn Clock>,
        budget: &Arc<MemoryBudget>,
        options: FetchOptions,
    ) -> Self {
        let stop = CancellationToken::new();
        let inner = Inner {
            connections,
            clock,
            kept: WeighedCache::new(budget, "sources", |_| false),
            flights: Flights::default(),
            gates: Gates::new(options.bytes_per_second),
            runtime: FetchRuntime::default(),
            waiting: Arc::default(),
            options,
            began: Instant::now(),
            stop: stop.clone(),
            counters: Counters::default(),
            next: AtomicU64::new(0),
        };
        Self { inner: Arc::new(inner), _stop: stop.drop_guard() }
    }

    /// The connections that it fetches from.
    pub fn connections(&self) -> &Arc<Connections> {
        &self.inner.connections
    }

    /// Forgets what is in memory: the database is on another timeline, where a revision of a connection or a definition is
    /// another.
    pub fn forget_all(&self) {
        self.inner.kept.clear();
        self.inner.gates.clear();
    }

    /// Where work with sources is spawned that may take long: threads that answer no requests.
    pub fn runtime(&self) -> Handle {
        self.inner.runtime.handle()
    }

    /// Counts what happens to watched content.
    pub fn count(&self, event: WatchEvent) {
        self.inner.counters.watched(event);
    }

    /// The counters.
    pub fn stats(&self) -> FetchStats {
        self.inner.counters.stats(self.inner.flights.len())
    }

    /// Content from outside that is in memory and fresh. Waits for nothing; anything else is a matter of [`read`](Self::read).
    pub fn fresh(&self, wanted: &ContentRequest) -> Option<Outside> {
        let inner = &self.inner;
        let connection = inner.connections.current_in_memory(wanted.connection)?;
        connection.source(wanted.tenant).ok()?;
        let known = inner.kept.get(&Key::new(&connection, wanted))?;
        let fresh = known.fresh(inner.ages(wanted))??;
        inner.counters.read(ReadFrom::Fresh);
        Some(fresh)
    }

    /// Content from outside, after [`fresh`](Self::fresh) had none. `before_wait` is called before a source is waited for.
    ///
    /// # Errors
    /// [`ContentError`].
    pub async fn read(
        &self,
        wanted: ContentRequest,
        before_wait: impl FnOnce() + Send,
    ) -> Result<Outside, ContentError> {
        let inner = &self.inner;
        let known =
            inner.connections.get(wanted.payer, wanted.connection).await.map_err(ContentError::Fault)?;
        // Also of what is in memory.
        let connection = known.ok_or(FetchError::NotAllowed)?;
        connection.source(wanted.tenant)?;
        let (ages, key) = (inner.ages(&wanted), Key::new(&connection, &wanted));
        let ContentRequest { payer, tenant, found, .. } = wanted;
        let is_anonymous = payer.is_anonymous();
        let cause = if is_anonymous { FetchCause::Anonymous } else { FetchCause::Tenant };
        // The use was counted.
        let known = inner.kept.peek(&key);
        match known.as_ref().and_then(|known| known.fresh(ages)) {
            Some(Some(fresh)) => {
                inner.counters.read(ReadFrom::Fresh);
                return Ok(fresh);
            }
            Some(None) => return Err(ContentError::NotFound),
            None => {}
        }
        if let Some(stale) = known.as_ref().and_then(|known| known.stale(ages)) {
            drop(Inner::flight(inner, (key, cause), &connection, (known, None), None));
            inner.counters.read(ReadFrom::Stale);
            return Ok(stale);
        }
        let most = MAX_WAITING / if is_anonymous { ANONYMOUS_PART } else { 1 };
        let _waiting = inner.waiting.try_add(tenant, most).ok_or(FetchError::Busy)?;
        before_wait();
        inner.counters.read(ReadFrom::Fetched);
        let key = (key, cause);
        let fetching = async {
            let flight = Inner::flight(inner, key.clone(), &connection, (known, found), None);
            let fetched = flight.await?;
            if fetched.is_of_round && fetched.checked.elapsed() >= ages.ttl {
                return Inner::flight(inner, key, &connection, (Some(fetched), None), None).await;
            }
            Ok(fetched)
        };
        // What takes longer is fetched all the same, for later reads.
        let fetching =
            timeout(inner.options.longest_wait, fetching).unwrap_or_else(|_| Err(FetchError::Timeout));
        let fetched = traced("fetch", trace::Kind::Client, pin!(fetching)).await?;
        let left = ages.ttl.saturating_sub(fetched.checked.elapsed());
        fetched.content(left).ok_or(ContentError::NotFound)
    }
}

impl Inner {
    fn ages(&self, wanted: &ContentRequest) -> Ages {
        Ages { ttl: wanted.ttl.unwrap_or(self.options.ttl), stale: wanted.stale }
    }

    /// The fetch of some content that is in progress, or a new one.
    /// `found` is what may be stored; `since` is when the round of polls began that it is part of.
    fn flight(
        inner: &Arc<Self>,
        (key, cause): (Key, FetchCause),
        connection: &Arc<Connection>,
        (known, found): (Option<Arc<Kept>>, Option<Variant>),
        since: Option<Instant>,
    ) -> Flight {
        let (of, connection, stop) = (key.clone(), Arc::clone(connection), inner.stop.clone());
        let owner = Arc::clone(inner);
        inner.flights.join(&key, cause, move |lock| {
            // A task of its own: the content is fetched for all who wait, also once the first of them is gone.
            let runtime = owner.runtime.handle();
            let task = runtime.spawn(async move {
                let end = EndGuard { flights: &owner.flights, key: &of, cause };
                let fetching = async {
                    // One may have ended since the caller looked into memory.
                    if let Some(newer) = owner.newer(&of, known.as_deref()) {
                        return Ok(newer);
                    }
                    let stored = match found.filter(|_| known.is_none()) {
                        Some(variant) => owner.stored(&of, variant).await,
                        None => None,
                    };
                    match stored {
                        Some(stored) => Ok(stored),
                        None => owner.fetch((&of, cause, &lock), &connection, known.as_deref(), since).await,
                    }
                };
                let fetched = stop.run_until_cancelled(fetching).await;
                drop(end);
                fetched.unwrap_or(Err(FetchError::Busy))
            });
            task.map(|ended| ended.unwrap_or(Err(FetchError::Unreachable))).boxed().shared()
        })
    }

    /// Fetches, within the limits of the connection, and keeps what the source answers.
    async fn fetch(
        &self,
        (key, cause, lock): (&Key, FetchCause, &FetchLock),
        connection: &Connection,
        known: Option<&Kept>,
        since: Option<Instant>,
    ) -> Result<Arc<Kept>, FetchError> {
        let (fetched, began) = match self.ask((key, cause, lock), connection, known, since).await {
            Ok(FetchOutcome::Newer(newer)) => return Ok(newer),
            Ok(FetchOutcome::Answered(fetched, began)) => (fetched, began),
            Err(error) => (Err(error), Instant::now()),
        };
        // What was known is not older for being polled again.
        let checked = since.map_or(began, |since| known.map_or(since, |known| known.checked.max(since)));
        let is_of_round = checked < began;
        self.counters.record(&fetched);
        let kept = match fetched {
            Ok(Fetched::Contents { contents, validator }) => {
                Kept { id: self.next_id(), contents: Some(contents.into()), validator, checked, is_of_round }
            }
            Ok(Fetched::Unchanged) => {
                let known = known.filter(|known| known.contents.is_some()).ok_or(FetchError::BadContent)?;
                let (contents, validator) = (known.contents.clone(), known.validator.clone());
                Kept { id: known.id, contents, validator, checked, is_of_round }
            }
            Err(FetchError::NotFound) => {
                Kept { id: self.next_id(), contents: None, validator: None, checked, is_of_round }
            }
            Err(error) => return Err(error),
        };
        let kept = Arc::new(kept);
        self.keep(key, &kept);
        Ok(kept)
    }

    fn next_id(&self) -> FetchId {
        FetchId(self.next.fetch_add(1, Ordering::Relaxed))
    }

    /// What is in memory and newer than what a caller knew.
    fn newer(&self, key: &Key, known: Option<&Kept>) -> Option<Arc<Kept>> {
        self.kept.peek(key).filter(|kept| known.is_none_or(|known| kept.checked > known.checked))
    }

    /// Keeps content unless newer content is kept.
    fn keep(&self, key: &Key, kept: &Arc<Kept>) {
        if self.newer(key, Some(kept)).is_none() {
            let heap = key.memory() + kept.memory();
            self.kept.insert(key.clone(), Arc::clone(kept), Some(key.tenant), heap);
        }
    }

    /// Asks the source once the fetches of other causes for the same content have ended. What they found serves this one, too;
    /// that they failed does not concern it.
    async fn ask(
        &self,
        (key, cause, lock): (&Key, FetchCause, &FetchLock),
        connection: &Connection,
        known: Option<&Kept>,
        since: Option<Instant>,
    ) -> Result<FetchOutcome, FetchError> {
        let Connection { limits, uid, revision, .. } = connection;
        let source = connection.source(key.tenant)?;
        let mut deadline = Instant::now() + limits.timeout();
        let permit = self.gates.pass((*uid, *revision), limits, (key.tenant, cause), deadline).await?;
        let at_once = lock.try_lock().ok();
        let has_waited = at_once.is_none();
        // One of each other cause may be before it, which ends by its own deadline: none makes callers of the tenant wait for
        // longer than a fetch may take.
        let _guard = match (at_once, cause) {
            (None, FetchCause::Tenant) => timeout_at(deadline, lock.lock()).await.ok(),
            (None, _) => Some(lock.lock().await),
            (guard, _) => guard,
        };
        if has_waited {
            deadline = Instant::now() + limits.timeout();
        }
        if let Some(newer) = self.newer(key, known) {
            return Ok(FetchOutcome::Newer(newer));
        }
        permit.admit()?;
        let began = Instant::now();
        let validator = known.and_then(|known| known.validator.as_ref());
        let wanted = (&*key.location, validator);
        let (fetched, circuits) = permit.fetch(&**source, wanted, (limits, since), deadline).await;
        match &fetched {
            Ok(_) | Err(FetchError::NotFound) => connection.health.succeeded(key.tenant),
            Err(error) => {
                let failure = FailedFetch { error: *error, at: self.clock.now() };
                connection.health.failed(key.tenant, failure, circuits.is_open);
            }
        }
        connection.health.paused(key.tenant, cause, circuits.cause_until);
        Ok(FetchOutcome::Answered(fetched, began))
    }
}
