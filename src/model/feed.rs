//! How the registry and the change feed meet without knowing each other.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::ids::{AgentId, TenantId};
use super::scope::{Change, Revision, Scope};
use super::uri::ResourceUri;

/// A future that a trait object answers with.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The database could not be asked what is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the database could not be asked what is new")]
pub struct Unconfirmed;

/// The state of the change feed, as readiness reports it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own, and every combination occurs")]
pub struct FeedHealth {
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

/// What the registry asks of the change feed.
pub trait ChangeFeed: Send + Sync + 'static {
    /// For how long the feed has not proven that it hears of changes; zero while it is heard from in time.
    fn unproven_for(&self) -> Duration;

    /// Whether the database did not answer the last sweep.
    fn is_away(&self) -> bool;

    /// What readiness reports of the feed.
    fn health(&self) -> FeedHealth;

    /// Asks the database what changed, for an answer from memory while the feed is unproven. On success all that was
    /// committed before the call has reached the [`Follower`]. Callers at the same time share one question; while the
    /// database is [away](Self::is_away) they fail at once.
    fn confirm(&self) -> BoxFuture<'_, Result<(), Unconfirmed>>;

    /// Tells the other replicas of what this one committed. Never waits; a wake that is lost is found by the sweep.
    fn announce(&self, revisions: &[(Scope, Revision)]);
}

/// Who holds scopes in memory and must learn of their changes.
pub trait Follower: Send + Sync + 'static {
    /// A scope is at this revision or a newer one. Cheap; from now on nothing older is answered. True where the scope
    /// is held and behind, so that [`catch_up`](Follower::catch_up) has something to do.
    fn raise(&self, scope: Scope, revision: Revision) -> bool;

    /// The revision that a scope in memory is at.
    fn applied(&self, scope: Scope) -> Option<Revision>;

    /// The revisions that all scopes in memory are at.
    fn held(&self) -> Vec<(Scope, Revision)>;

    /// The database went back in time: nothing in memory holds any more.
    fn forget_all(&self);

    /// Reads what changed in a scope that is behind.
    fn catch_up(&self, scope: Scope) -> BoxFuture<'_, ()>;

    /// Which of these URIs of an agent are answered otherwise since changes of its resource templates, each with the
    /// revision that did it.
    fn served<'a>(
        &'a self,
        tenant: TenantId,
        agent: AgentId,
        changes: &'a [Change],
        uris: &'a [ResourceUri],
    ) -> BoxFuture<'a, Result<Vec<(Revision, ResourceUri)>, Unconfirmed>>;
}
