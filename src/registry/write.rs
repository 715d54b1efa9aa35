//! The order of writes: who writes to one scope queues here, before taking a connection, and what was committed is
//! told.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedSemaphorePermit, Semaphore};

use super::Registry;
use super::audited::{AuditedCall, Entry};
use super::limits::RegistryLimits;
use crate::model::fault::Fault;
use crate::model::ids::{SessionUid, TenantId};
use crate::model::scope::{Change, ChangeKind, Revision, Scope};
use crate::model::sources::FailPoint;
use crate::store::StoreError;
use crate::store::write::Write;

/// What a write asks of the present state (RFC 9110, section 13.1); nothing by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Precondition {
    /// `If-Match`: the present state is one of these.
    pub matches: Option<Tags>,
    /// `If-None-Match`: it is none of these.
    pub matches_none: Option<Tags>,
}

/// States that a precondition names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tags {
    /// Any, as long as there is one: `*`.
    Any,
    /// Those that were made by these revisions.
    Revisions(Vec<Revision>),
}

impl Tags {
    /// Whether the present state is among them; `None` where there is none.
    pub fn name(&self, present: Option<Revision>) -> bool {
        match self {
            Self::Any => present.is_some(),
            Self::Revisions(named) => present.is_some_and(|present| named.contains(&present)),
        }
    }
}

impl Precondition {
    /// Holds the present revision against what is asked for.
    ///
    /// # Errors
    /// [`Fault::RevisionMismatch`].
    pub fn check(&self, present: Option<Revision>) -> Result<(), Fault> {
        let matches = self.matches.as_ref().is_none_or(|tags| tags.name(present));
        let excluded = self.matches_none.as_ref().is_some_and(|tags| tags.name(present));
        if matches && !excluded { Ok(()) } else { Err(Fault::RevisionMismatch(present)) }
    }
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Written {
    /// The revision that last changed the thing.
    pub revision: Revision,
    /// Whether it is new.
    pub created: bool,
}

/// The queues of all scopes that are written to right now.
#[derive(Debug)]
pub(super) struct Writers {
    queues: DashMap<Scope, Arc<Queue>>,
    connections: Arc<Semaphore>,
    most_waiting: usize,
    wait: Duration,
}

#[derive(Debug, Default)]
struct Queue {
    /// Those who wait and the one who writes.
    present: AtomicUsize,
    turn: Arc<Mutex<()>>,
}

/// The right to write to a scope, until dropped.
#[derive(Debug)]
struct Turn<'w> {
    writers: &'w Writers,
    scope: Scope,
    held: Option<(OwnedMutexGuard<()>, OwnedSemaphorePermit)>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.held = None;
        self.writers.leave(self.scope);
    }
}

impl Writers {
    pub(super) fn new(limits: &RegistryLimits) -> Self {
        Self {
            queues: DashMap::new(),
            connections: Arc::new(Semaphore::new(limits.concurrent_writes)),
            most_waiting: limits.write_queue,
            wait: limits.write_wait,
        }
    }

    /// Waits for the turn of a scope and a share of the pool, in this order and in the order of arrival.
    async fn turn(&self, scope: Scope) -> Result<Turn<'_>, Fault> {
        let busy = Fault::Unavailable { retry_after: Duration::from_secs(1) };
        let queue = self.enter(scope).ok_or_else(|| busy.clone())?;
        let mut turn = Turn { writers: self, scope, held: None };
        let waiting = async {
            let guard = Arc::clone(&queue.turn).lock_owned().await;
            Some((guard, Arc::clone(&self.connections).acquire_owned().await.ok()?))
        };
        let held = tokio::time::timeout(self.wait, waiting).await.ok().flatten();
        turn.held = Some(held.ok_or(busy)?);
        Ok(turn)
    }

    fn enter(&self, scope: Scope) -> Option<Arc<Queue>> {
        let queue = self.queues.entry(scope).or_default();
        let present = queue.present.fetch_add(1, Ordering::Relaxed);
        if present <= self.most_waiting {
            return Some(Arc::clone(&queue));
        }
        queue.present.fetch_sub(1, Ordering::Relaxed);
        None
    }

    fn leave(&self, scope: Scope) {
        // The map's own lock keeps anyone from entering between the count and the removal.
        self.queues.remove_if(&scope, |_, queue| queue.present.fetch_sub(1, Ordering::Relaxed) == 1);
    }
}

/// The changes of a commit that is not answered yet. Dropped before it is, they are in doubt.
struct UnansweredCommit<'r> {
    registry: &'r Registry,
    changes: Vec<(Scope, Vec<Change>)>,
}

impl UnansweredCommit<'_> {
    /// The commit took place.
    fn committed(mut self) {
        for (scope, changes) in std::mem::take(&mut self.changes) {
            self.registry.forget(scope, &changes);
        }
    }
}

impl Drop for UnansweredCommit<'_> {
    fn drop(&mut self) {
        for (scope, changes) in std::mem::take(&mut self.changes) {
            self.registry.doubt(scope, changes);
        }
    }
}

impl Registry {
    /// Runs a write to its end, whatever becomes of the caller who asked for it: a commit that nobody waited for
    /// would otherwise be told to nobody either.
    pub(super) async fn detached<T: Send + 'static>(
        &self,
        write: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        let call = AuditedCall::current();
        let write = async move {
            match call {
                Some(call) => call.run(write).await,
                None => write.await,
            }
        };
        self.tasks.spawn(write).await.unwrap_or_else(|error| Err(Fault::Internal(error.to_string())))
    }

    /// Runs `work` as one transaction in the turn of `scope`, the outermost scope that it locks, and tells what was
    /// committed. Nothing is committed where `work` fails or changes nothing.
    pub(super) async fn transact<T>(
        &self,
        scope: Scope,
        work: impl AsyncFnOnce(&mut Write) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let _turn = self.writers.turn(scope).await?;
        let writing = async {
            let mut write = self.store.write().await?;
            let done = work(&mut write).await;
            if done.is_err() || !write.has_changes() {
                write.roll_back().await?;
                return done;
            }
            self.sources.pause(FailPoint::BeforeCommit).await;
            let entry = self.entry(write.take_summary())?;
            let unanswered = UnansweredCommit { registry: self, changes: access_changes(&write) };
            let revisions = write.commit(entry.as_ref().map(|entry| &entry.row)).await?;
            self.sources.pause(FailPoint::AfterCommit).await;
            self.publish(&revisions);
            unanswered.committed();
            entry.into_iter().for_each(Entry::committed);
            done
        };
        // Past the deadline it is not known whether the commit took place: the sweep finds it if it did, and memory does
        // not answer what it may have changed.
        let written = tokio::time::timeout(self.limits.write_deadline, writing).await;
        written.unwrap_or(Err(Fault::StorageUnavailable))
    }

    /// Runs a statement that writes what nobody can hold yet, in its turn and within the deadline of a write.
    pub(super) async fn in_turn<T>(
        &self,
        scope: Scope,
        statement: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Fault> {
        let _turn = self.writers.turn(scope).await?;
        let done = tokio::time::timeout(self.limits.write_deadline, statement).await;
        Ok(done.unwrap_or(Err(StoreError::Timeout))?)
    }

    /// Forgets what a committed write touched, before it is answered: if the database goes away before this replica has
    /// read the change, what was held before must not be answered.
    fn forget(&self, scope: Scope, changes: &[Change]) {
        if scope == Scope::GATEWAY {
            self.directory.forget(changes);
        } else if let Some(session) = self.sessions.get(&SessionUid(scope.0)) {
            session.forget(changes);
        } else if let Some(tenant) = self.tenants.get(&TenantId(scope.0)) {
            tenant.forget(changes);
        }
    }

    /// Forgets what a write touched of which it is not known whether it was committed, and keeps nothing of it for a
    /// while.
    fn doubt(&self, scope: Scope, changes: Vec<Change>) {
        if scope == Scope::GATEWAY {
            self.directory.doubt(changes);
        } else if let Some(session) = self.sessions.get(&SessionUid(scope.0)) {
            session.doubt(changes);
        } else if let Some(tenant) = self.tenants.get(&TenantId(scope.0)) {
            tenant.doubt(changes);
        }
    }

    /// From here on this replica answers nothing older, and the others are woken.
    fn publish(&self, revisions: &[(Scope, Revision)]) {
        use crate::model::feed::Follower;
        for (scope, revision) in revisions {
            self.raise(*scope, *revision);
        }
        self.feed.announce(revisions);
    }
}

/// The changes of a write that decide who may do what.
fn access_changes(write: &Write) -> Vec<(Scope, Vec<Change>)> {
    let of_scope = |(scope, revision, changes): (Scope, Revision, &[(ChangeKind, String)])| {
        let access = changes.iter().filter(|(kind, _)| kind.decides_access());
        let change = |(kind, subject): &(ChangeKind, String)| Change {
            revision,
            kind: *kind,
            subject: subject.clone(),
        };
        (scope, access.map(change).collect())
    };
    write.changes().map(of_scope).collect()
}
