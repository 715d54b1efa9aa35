//! Ports between the cached scopes and the change feed, so that neither imports the other.

use std::collections::HashSet;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::audience::Audience;
use super::fault::Fault;
use super::ids::{AgentId, AgentRef, ResourceUri, TenantId};
use super::label::CallerLabels;
use super::scope::{Change, Revision, Scope};
use super::scope_changes::ScopeChanges;
use super::trace::WriteSpan;

/// A boxed future, as returned by the methods of object-safe traits.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Callers to whom the same URIs are served differently than before.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServedAnew {
    /// The callers.
    pub callers: HashSet<CallerLabels>,
    /// The URIs, each with the revision that changed it; `None` if this could not be determined.
    pub uris: Option<Vec<(Revision, ResourceUri)>>,
}

impl ServedAnew {
    /// The callers whom one of the changes concerns, for whom it could not be determined.
    pub fn unknown(changes: &[(Change, Audience)], callers: &HashSet<CallerLabels>) -> Self {
        let concerned =
            |caller: &&CallerLabels| changes.iter().any(|(_, audience)| audience.includes(caller));
        Self { callers: callers.iter().filter(concerned).cloned().collect(), uris: None }
    }
}

/// Identifies a timeline of the database: another one after a restoration, and after a failover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimelineId(Arc<str>);

impl TimelineId {
    /// Of the server that answers, and the gateway's epoch.
    pub fn new(server: &str, epoch: Option<Uuid>) -> Self {
        Self(format!("{server}/{}", epoch.unwrap_or_default().simple()).into())
    }

    /// As bytes, to be authenticated.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// The query for recent changes failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the database could not be asked for recent changes")]
pub struct Unconfirmed;

/// State of the change feed for readiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "the flags are independent")]
pub struct FeedStatus {
    /// Notifications were delivered, and a sweep succeeded, at least once.
    pub started: bool,
    /// Notifications are delivered.
    pub listening: bool,
    /// Sweeps succeed.
    pub sweeping: bool,
    /// The age of the last successful sweep.
    pub sweep_age: Duration,
    /// The clock of this machine differs from the database's by a minute or more.
    pub clock_skewed: bool,
}

/// The change feed, as used by the modules that answer from memory.
pub trait ChangeFeed: Send + Sync + 'static {
    /// How long ago it was last certain that every change was received; zero while the feed is proven.
    fn unproven_for(&self) -> Duration;

    /// Whether the last sweep failed.
    fn is_unreachable(&self) -> bool;

    /// What a wait failed with `fault` for. While the database is unreachable, others hold what it waited for until their
    /// timeouts, which is no overload.
    fn cause_of(&self, fault: Fault) -> Fault {
        match fault {
            Fault::Unavailable { .. } if self.is_unreachable() => Fault::StorageUnavailable,
            fault => fault,
        }
    }

    /// The state of the feed, for readiness.
    fn status(&self) -> FeedStatus;

    /// Queries the database for recent changes, for an answer from memory while the feed is unproven. On
    /// success, everything that was committed before the call has reached the [`Follower`]. Concurrent
    /// callers share one sweep.
    ///
    /// # Errors
    /// [`Unconfirmed`] if the sweep fails; at once while the database is [unreachable](Self::is_unreachable).
    fn confirm(self: Arc<Self>) -> BoxFuture<'static, Result<(), Unconfirmed>>;

    /// Announces committed revisions to the other replicas, with the spans of the writes whose traces are exported. Never
    /// waits; lost messages are recovered by sweeps, except for the spans.
    fn announce(&self, revisions: &[(Scope, Revision)], spans: &[WriteSpan]);
}

/// Identifies the state of an agent's subscriptions, from which URIs and callers were only removed while it is the same.
pub type SubscriptionStamp = (Instant, u64);

/// What the streams of this replica are subscribed to.
pub trait Subscriptions: Send + Sync + 'static {
    /// The agents with streams.
    fn agents(&self) -> Vec<(AgentRef, SubscriptionStamp)>;

    /// Waits until an agent gets its first stream, or has got it since this was waited for last.
    fn first_stream(&self) -> BoxFuture<'_, ()>;

    /// The URIs that streams of an agent are subscribed to.
    fn uris(&self, agent: AgentRef) -> Vec<ResourceUri>;

    /// As [`uris`](Self::uris), each with the labels of the callers of these streams.
    fn callers(&self, agent: AgentRef) -> Vec<(ResourceUri, HashSet<CallerLabels>)>;
}

/// Holds scopes in memory and follows their changes.
pub trait Follower: Send + Sync + 'static {
    /// Records that a scope is at this revision or a newer one, after which nothing older is served. Cheap.
    /// Returns true if the scope is in memory and behind, so that [`catch_up`](Follower::catch_up) should be
    /// called.
    fn raise(&self, scope: Scope, revision: Revision) -> bool;

    /// The revision of a scope in memory.
    fn applied(&self, scope: Scope) -> Option<Revision>;

    /// The revisions of all scopes in memory.
    fn held(&self) -> Vec<(Scope, Revision)>;

    /// Drops everything from memory because the database went back in time.
    fn forget_all(&self);

    /// Reads the changes of a scope that is behind.
    fn catch_up(&self, scope: Scope) -> BoxFuture<'_, ()>;

    /// Reads the changes of an agent in memory after a revision, and applies them: for both they are read once. `None` if
    /// memory cannot be patched with them now, or has some of them already.
    fn apply_changes(&self, agent: AgentId, after: Revision) -> BoxFuture<'_, Option<ScopeChanges>>;

    /// The agent of a scope in memory that is behind, and the revision after which its changes are read next, if they are
    /// expected to be few and of resources alone.
    fn next_read(&self, scope: Scope) -> Option<(AgentRef, Revision)>;

    /// Whether the prompts of an agent are tools, as of the revision `after` or a later one: a change of that since then is
    /// notified as such. True if this could not be determined.
    fn offers_prompt_tools(&self, tenant: TenantId, agent: AgentId, after: Revision) -> BoxFuture<'_, bool>;

    /// Which URIs among `uris` are served differently to the callers since changes of the agent's resource templates.
    /// Callers whom none of the changes concerns are omitted.
    fn served<'a>(
        &'a self,
        tenant: TenantId,
        agent: AgentId,
        changes: &'a [(Change, Audience)],
        uris: &'a [ResourceUri],
        callers: &'a HashSet<CallerLabels>,
    ) -> BoxFuture<'a, Vec<ServedAnew>>;
}
