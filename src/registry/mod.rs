//! Use cases: who may, what there is, and how it changes.
//!
//! Reads answer from memory, kept by one rule (`cell`, `snapshot`); writes are one transaction each (`write`).

pub mod access;
pub mod agents;
mod answered;
pub mod audited;
mod cell;
mod compiled;
pub mod complete;
mod difference;
mod directory;
pub mod explain;
mod fair;
mod fingerprint;
pub mod housekeeping;
mod issued;
pub mod keys;
pub mod limits;
pub mod look_up;
pub mod manifest;
mod plan;
mod prefix_index;
pub mod prompts;
pub mod read;
pub mod readiness;
mod registration;
pub mod render;
mod rendered;
pub mod resources;
mod served;
pub mod sessions;
pub mod snapshot;
pub mod stats;
mod strangers;
mod target;
pub mod template_set;
pub mod templates;
pub mod tenants;
mod tokens;
pub mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use moka::sync::Cache;
use quick_cache::sync::Cache as IdCache;
use tokio::sync::Semaphore;
use tokio_util::task::TaskTracker;

use crate::model::fault::Fault;
use crate::model::feed::{BoxFuture, ChangeFeed, Follower, Unconfirmed};
use crate::model::ids::{AgentId, SessionUid, TenantId};
use crate::model::key::KeyHash;
use crate::model::resource::ContentHash;
use crate::model::scope::{Change, Revision, Scope};
use crate::model::sources::{FailPoint, RandomError, Sources};
use crate::model::uri::ResourceUri;
use crate::store::{Store, StoreError};
use crate::tokens::Tokens;

use access::TenantAccess;
use cell::Cell;
use compiled::Compilations;
use directory::Directory;
use issued::IssuedKeys;
use limits::RegistryLimits;
use look_up::LookUpLimit;
use render::Renderer;
use sessions::{HeldSession, OpenStreams, SessionUses};
use snapshot::AgentCell;
use tokens::{KnownToken, TokenHash};
use write::Writers;

/// The longest that a load may take while the database is away.
const WHILE_AWAY: Duration = Duration::from_millis(250);

/// Connections that a load tries when the server closes them: a failover or an administrator closes all pooled
/// connections at once, and each is noticed when it is next used. More than the pool holds by default.
const LOAD_ATTEMPTS: usize = 20;
const LOAD_ATTEMPTS_WHILE_AWAY: usize = 2;

/// Keys of which it is remembered whose they are.
const KNOWN_KEYS: usize = 100_000;

/// What the gateway knows, in memory and behind it in the database.
pub struct Registry {
    store: Store,
    sources: Sources,
    feed: Arc<dyn ChangeFeed>,
    limits: RegistryLimits,
    directory: Cell<Directory>,
    tenants: IdCache<TenantId, Arc<Cell<TenantAccess>>>,
    agents: IdCache<AgentId, Arc<AgentCell>>,
    sessions: IdCache<SessionUid, Arc<Cell<HeldSession>>>,
    /// Which tenant a key belongs to, and which keys do not exist: both for good, since keys are random and never change
    /// hands. Made-up keys must not displace known ones.
    key_tenants: IdCache<KeyHash, TenantId>,
    unknown_keys: IdCache<KeyHash, ()>,
    issued: IssuedKeys,
    key_look_ups: LookUpLimit,
    /// How often a scope was raised, whether it is held or not.
    raises: AtomicU64,
    /// Whose access tokens are believed.
    tokens: Arc<Tokens>,
    known_tokens: Cache<TokenHash, KnownToken>,
    /// Contents never change under their address.
    contents: Cache<(AgentId, ContentHash), Bytes>,
    /// Never change for their revision either.
    compilations: Compilations,
    renderer: Renderer,
    fills: Fills,
    /// Look-ups of keys that are not known to be issued: none of them takes a place of the others.
    unissued_fills: Fills,
    writers: Writers,
    uses: access::KeyUses,
    session_uses: SessionUses,
    open_streams: OpenStreams,
    /// Counted now and then; -1 before.
    expiring_keys: AtomicI64,
    /// How often the database went back in time.
    timeline: AtomicU64,
    tasks: TaskTracker,
}

impl Registry {
    /// Builds an empty memory over the store.
    pub fn new(
        store: Store,
        sources: Sources,
        feed: Arc<dyn ChangeFeed>,
        tokens: Arc<Tokens>,
        limits: RegistryLimits,
    ) -> Self {
        Self {
            directory: Cell::new(Scope::GATEWAY),
            tenants: IdCache::new(limits.cached_tenants),
            agents: IdCache::new(limits.cached_agents),
            sessions: IdCache::new(limits.cached_sessions),
            key_tenants: IdCache::new(KNOWN_KEYS),
            unknown_keys: IdCache::new(limits.cached_keys),
            issued: IssuedKeys::default(),
            key_look_ups: LookUpLimit::new(limits.unknown_keys_per_second),
            raises: AtomicU64::new(0),
            tokens,
            known_tokens: Cache::new(limits.cached_tokens),
            contents: Cache::builder()
                .max_capacity(limits.cached_content_bytes)
                .weigher(|_, bytes: &Bytes| u32::try_from(bytes.len() + 128).unwrap_or(u32::MAX))
                .build(),
            compilations: Compilations::new(limits.cached_compiled_bytes),
            renderer: Renderer::new(limits.rendering),
            fills: Fills::new(limits.concurrent_fills, limits.load_deadline),
            unissued_fills: Fills::new(1, limits.load_deadline),
            writers: Writers::new(&limits),
            uses: access::KeyUses::default(),
            session_uses: SessionUses::new(limits.session_idle),
            open_streams: OpenStreams::default(),
            expiring_keys: AtomicI64::new(-1),
            timeline: AtomicU64::new(0),
            tasks: TaskTracker::new(),
            store,
            sources,
            feed,
            limits,
        }
    }

    /// Waits for the writes that are under way.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn timeline(&self) -> u64 {
        self.timeline.load(Ordering::Acquire)
    }

    /// The time of day, as everything here goes by.
    pub fn now(&self) -> time::OffsetDateTime {
        self.sources.clock.now()
    }

    /// Makes sure that memory may answer: that the feed is heard from, or that the database was asked just now.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] when neither has been so for longer than memory is trusted.
    pub async fn confirm(&self) -> Result<(), Fault> {
        if self.feed.unproven_for().is_zero() || self.feed.confirm().await.is_ok() || self.trusts_memory() {
            Ok(())
        } else {
            Err(Fault::StorageUnavailable)
        }
    }

    /// Loads from the database, on up to [`LOAD_ATTEMPTS`] connections where they were closed: another one may answer.
    /// While the database is away a load has [`WHILE_AWAY`] instead of its whole deadline, and fewer attempts.
    async fn fill<T>(
        &self,
        load: impl AsyncFnOnce() -> Result<T, StoreError> + Clone,
    ) -> Result<T, StoreError> {
        self.fill_within(&self.fills, load).await
    }

    async fn fill_within<T>(
        &self,
        fills: &Fills,
        load: impl AsyncFnOnce() -> Result<T, StoreError> + Clone,
    ) -> Result<T, StoreError> {
        let deadline = if self.feed.is_unreachable() { WHILE_AWAY } else { fills.deadline };
        let loading = async {
            let _place = fills.places.acquire().await;
            self.sources.pause(FailPoint::Load).await;
            if self.sources.fails(FailPoint::Load) {
                return Err(StoreError::closed());
            }
            let attempts = if self.feed.is_unreachable() { LOAD_ATTEMPTS_WHILE_AWAY } else { LOAD_ATTEMPTS };
            for _ in 1..attempts {
                match load.clone()().await {
                    Err(error) if error.is_disconnected() => {}
                    done => return done,
                }
            }
            load().await
        };
        tokio::time::timeout(deadline.min(fills.deadline), loading).await.unwrap_or(Err(StoreError::Timeout))
    }

    /// Whether memory answers without an attempt to load: the database is away, and memory is still trusted.
    fn answers_from_memory(&self) -> bool {
        self.feed.is_unreachable() && self.trusts_memory()
    }

    /// Whether memory is all there is, after something could not be loaded: the database is asked once more, since one
    /// connection that broke does not make it away.
    async fn is_left_to_memory(&self) -> bool {
        self.feed.confirm().await.is_err() && self.trusts_memory()
    }

    /// Whether the database has been away for so short a time that what is in memory is still answered.
    fn trusts_memory(&self) -> bool {
        self.feed.unproven_for() < self.limits.stale
    }
}

impl std::fmt::Debug for Registry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registry").finish_non_exhaustive()
    }
}

impl Follower for Registry {
    fn raise(&self, scope: Scope, revision: Revision) -> bool {
        // Before the cell is looked for: what is looked up meanwhile either has its cell by then, or is not kept.
        self.raises.fetch_add(1, Ordering::SeqCst);
        if scope == Scope::GATEWAY {
            return self.directory.raise(revision);
        }
        if let Some(agent) = self.agents.get(&AgentId(scope.0)) {
            return agent.raise(revision);
        }
        if let Some(session) = self.sessions.get(&SessionUid(scope.0)) {
            return session.raise(revision);
        }
        self.issued.touch();
        self.tenants.get(&TenantId(scope.0)).is_some_and(|tenant| tenant.raise(revision))
    }

    fn applied(&self, scope: Scope) -> Option<Revision> {
        if scope == Scope::GATEWAY {
            return self.directory.applied();
        }
        if let Some(agent) = self.agents.get(&AgentId(scope.0)) {
            return agent.stale().map(|current| current.revision);
        }
        if let Some(session) = self.sessions.get(&SessionUid(scope.0)) {
            return session.applied();
        }
        self.tenants.get(&TenantId(scope.0)).and_then(|tenant| tenant.applied())
    }

    fn held(&self) -> Vec<(Scope, Revision)> {
        let agents =
            self.agents.iter().filter_map(|(agent, cell)| Some((agent.into(), cell.stale()?.revision)));
        let tenants = self.tenants.iter().filter_map(|(tenant, cell)| Some((tenant.into(), cell.applied()?)));
        let sessions =
            self.sessions.iter().filter_map(|(session, cell)| Some((session.into(), cell.applied()?)));
        let gateway = self.directory.applied().map(|applied| (Scope::GATEWAY, applied));
        gateway.into_iter().chain(agents).chain(tenants).chain(sessions).collect()
    }

    fn forget_all(&self) {
        // First: a cell that is made meanwhile is dropped below, and one that is made later reads the new timeline.
        self.timeline.fetch_add(1, Ordering::AcqRel);
        self.raises.fetch_add(1, Ordering::SeqCst);
        self.directory.restart();
        self.tenants.clear();
        self.agents.clear();
        self.sessions.clear();
        self.key_tenants.clear();
        self.unknown_keys.clear();
        self.issued.reload();
        self.known_tokens.invalidate_all();
    }

    fn catch_up(&self, scope: Scope) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let caught_up = if scope == Scope::GATEWAY {
                self.fill(async || self.directory.catch_up(&self.store).await).await
            } else if let Some(agent) = self.agents.get(&AgentId(scope.0)) {
                self.fill(async || agent.snapshot(&self.store, &self.sources).await).await.map(|_| ())
            } else if let Some(session) = self.sessions.get(&SessionUid(scope.0)) {
                self.fill(async || session.catch_up(&self.store).await).await
            } else if let Some(tenant) = self.tenants.get(&TenantId(scope.0)) {
                self.fill(async || tenant.catch_up(&self.store).await).await
            } else {
                Ok(())
            };
            if let Err(error) = caught_up {
                // Whoever reads the scope next tries again and answers for it.
                tracing::debug!(%error, scope = %scope.0, "a scope could not be caught up");
            }
        })
    }

    fn served<'a>(
        &'a self,
        tenant: TenantId,
        agent: AgentId,
        changes: &'a [Change],
        uris: &'a [ResourceUri],
    ) -> BoxFuture<'a, Result<Vec<(Revision, ResourceUri)>, Unconfirmed>> {
        Box::pin(async move {
            let snapshot = self.snapshot_of(tenant, agent).await.map_err(|_| Unconfirmed)?;
            self.answered_anew(tenant, snapshot, changes, uris).await.ok_or(Unconfirmed)
        })
    }
}

/// Loads from the database: at most so many at once, so that a cold start does not take every connection, and each
/// within a deadline.
#[derive(Debug)]
struct Fills {
    places: Semaphore,
    deadline: Duration,
}

impl Fills {
    fn new(at_once: usize, deadline: Duration) -> Self {
        Self { places: Semaphore::new(at_once), deadline }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(_) | StoreError::Timeout => {
                tracing::debug!(%error, "the database is away");
                Self::StorageUnavailable
            }
            bug => Self::Internal(bug.to_string()),
        }
    }
}

impl From<RandomError> for Fault {
    fn from(error: RandomError) -> Self {
        Self::Internal(error.to_string())
    }
}
