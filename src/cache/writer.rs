//! Runs writes: one at a time per scope, detached from the caller, and published to cells and replicas after the commit.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::oneshot::{self, error::TryRecvError};
use tokio_util::task::TaskTracker;

use super::scope_map::ScopeMap;
use super::shared_transaction::{OpenTransaction, Outcome, SharedWriters};
use super::write_queue::{QueueOptions, QueuedWriter, WritePermit, WriteQueue};
use crate::model::audit::write::AuditedWrite;
use crate::model::fault::Fault;
use crate::model::feed::ChangeFeed;
use crate::model::scope::{Change, Revision, Scope};
use crate::model::system::{FailPoint, System};
use crate::model::trace::WriteSpan;
use crate::store::audit::entry::Entry;
use crate::store::write::{NewChange, Write, Written};
use crate::store::{Store, StoreError};
use crate::telemetry::span;
use crate::telemetry::trace::{Kind, sampled_span, traced};

/// The permit of a scope, and a share of the pool unless an open transaction comes with it.
type Acquired = (WritePermit<OpenTransaction>, Option<OwnedSemaphorePermit>);

/// Runs writes in the order of arrival at their scopes.
pub struct Writer {
    store: Store,
    system: System,
    feed: Arc<dyn ChangeFeed>,
    scopes: Arc<ScopeMap>,
    queue: WriteQueue<OpenTransaction>,
    tasks: TaskTracker,
}

/// The changes of a commit without a response yet. If this is dropped before the response, the changes are in doubt.
struct UnansweredCommit<'m> {
    scopes: &'m ScopeMap,
    changes: Vec<(Scope, Vec<Change>)>,
}

impl UnansweredCommit<'_> {
    /// Records that the commit succeeded.
    fn committed(mut self) {
        for (scope, changes) in std::mem::take(&mut self.changes) {
            self.scopes.forget(scope, &changes);
        }
    }
}

impl Drop for UnansweredCommit<'_> {
    fn drop(&mut self) {
        for (scope, changes) in std::mem::take(&mut self.changes) {
            self.scopes.doubt(scope, changes);
        }
    }
}

impl Writer {
    /// Creates a writer that raises the cells of `scopes`.
    pub fn new(
        (store, system): (Store, System),
        feed: Arc<dyn ChangeFeed>,
        scopes: Arc<ScopeMap>,
        options: QueueOptions,
    ) -> Self {
        Self { store, system, feed, scopes, queue: WriteQueue::new(options), tasks: TaskTracker::new() }
    }

    /// Waits for the writes in progress.
    pub async fn drain(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// The tasks of writes, which outlive their callers.
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Runs a write to its end, even if its caller is cancelled: a commit would otherwise not be published.
    pub fn detached<T: Send + 'static>(
        &self,
        write: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> impl Future<Output = Result<T, Fault>> {
        // Boxed first: a future that is given another one by value has space for it twice, and this one is large.
        self.spawned(Box::pin(write))
    }

    /// Not generic over the write: a task is much code, which would be compiled for each of them.
    async fn spawned<T: Send + 'static>(
        &self,
        mut write: BoxFuture<'static, Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let traced = async move { traced("write", Kind::Internal, write.as_mut()).await };
        let done = self.tasks.spawn(span::inherit(traced)).await;
        done.unwrap_or_else(|error| Err(Fault::Internal(error.to_string())))
    }

    /// Runs `work` as one transaction with the permit of `scope`, the outermost scope that it locks, and publishes what
    /// was committed, with the audit row of its call. Nothing is committed if `work` fails or changes nothing.
    pub async fn transact<T>(
        &self,
        scope: Scope,
        audited: &AuditedWrite,
        work: impl AsyncFnOnce(&mut Write) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let queued = self.queue.enter(scope).map_err(|fault| self.cause_of(fault))?;
        let acquired = self.acquire(&queued).await?;
        self.in_time(self.write_alone(acquired, audited, work)).await
    }

    /// As [`transact`](Self::transact), in one transaction with other writes that wait for `scope`, which is the only one
    /// that the work locks. Each is answered after the commit. `work` returns the work, a second time if the transaction
    /// is rolled back: it is repeated in one of its own.
    pub async fn transact_shared<T, W: AsyncFnOnce(&mut Write) -> Result<T, Fault>>(
        &self,
        scope: Scope,
        audited: &AuditedWrite,
        work: impl Fn() -> W,
    ) -> Result<T, Fault> {
        let queued = self.queue.enter(scope).map_err(|fault| self.cause_of(fault))?;
        let acquired = self.acquire(&queued).await?;
        self.in_time(async {
            match self.write_shared(&queued, acquired, audited, work()).await {
                Some(done) => done,
                None => self.write_alone(self.acquire(&queued).await?, audited, work()).await,
            }
        })
        .await
    }

    async fn acquire(&self, queued: &QueuedWriter<'_, OpenTransaction>) -> Result<Acquired, Fault> {
        queued.acquire().await.map_err(|fault| self.cause_of(fault))
    }

    /// What a wait for a write failed with `fault` for ([`ChangeFeed::cause_of`]).
    pub fn cause_of(&self, fault: Fault) -> Fault {
        self.feed.cause_of(fault)
    }

    /// Past the deadline it is not known whether the commit took place: the sweep finds it if it did, and memory does not
    /// answer what it may have changed. Not `async`, which would have space for the write twice.
    fn in_time<T>(
        &self,
        writing: impl Future<Output = Result<T, Fault>>,
    ) -> impl Future<Output = Result<T, Fault>> {
        let written = tokio::time::timeout(self.queue.deadline(), writing);
        written.map(|written| written.unwrap_or(Err(Fault::StorageUnavailable)))
    }

    async fn write_alone<T>(
        &self,
        (mut permit, share): Acquired,
        audited: &AuditedWrite,
        work: impl AsyncFnOnce(&mut Write) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let _share = self.end_other(&mut permit, share).await;
        let mut write = self.store.begin().await?.write(audited, &self.system);
        let done = work(&mut write).await;
        if done.is_err() || !write.has_changes() {
            write.finish().0.roll_back().await?;
            return done;
        }
        write.log().await?;
        self.system.pause(FailPoint::BeforeCommit).await;
        let unanswered = UnansweredCommit { scopes: &self.scopes, changes: access_changes(&write) };
        let (transaction, Written { revisions, entry, .. }) = write.finish();
        transaction.commit().await?;
        self.system.pause(FailPoint::AfterCommit).await;
        self.publish(&revisions, &spans(audited, &revisions));
        unanswered.committed();
        entry.into_iter().for_each(Entry::committed);
        done
    }

    /// Returns `None` if the transaction was rolled back because of another write, or of this one after others.
    async fn write_shared<T>(
        &self,
        queued: &QueuedWriter<'_, OpenTransaction>,
        (mut permit, share): Acquired,
        audited: &AuditedWrite,
        work: impl AsyncFnOnce(&mut Write) -> Result<T, Fault>,
    ) -> Option<Result<T, Fault>> {
        let OpenTransaction { transaction, mut members } = match self.open(&mut permit, share).await {
            Ok(open) => open,
            Err(fault) => return Some(Err(fault)),
        };
        let mut write = transaction.write(audited, &self.system);
        let mut done = work(&mut write).await;
        if done.is_ok() {
            done = write.log().await.and(done);
        }
        let usable = done.is_ok() || write.is_clean();
        let first = members.is_empty();
        if !usable || first && !write.has_changes() {
            let ended = write.finish().0.roll_back().await;
            return first.then(|| ended.map_err(Fault::from).and(done));
        }
        // A write that fails or changes nothing may depend on uncommitted ones.
        let mut unanswered = UnansweredCommit { scopes: &self.scopes, changes: access_changes(&write) };
        let (transaction, written) = write.finish();
        let outcome = members.add(&written, spans(audited, &written.revisions));
        *permit = Some(OpenTransaction { transaction, members });
        drop(permit);
        match self.outcome(queued, outcome).await {
            Outcome::Committed => {
                unanswered.committed();
                written.entry.into_iter().for_each(Entry::committed);
                Some(done)
            }
            Outcome::RolledBack => {
                unanswered.changes.clear();
                None
            }
            Outcome::Failed(fault) => Some(Err(fault)),
        }
    }

    /// The transaction that the writer before has left, if it has room, or a new one.
    async fn open(
        &self,
        permit: &mut WritePermit<OpenTransaction>,
        share: Option<OwnedSemaphorePermit>,
    ) -> Result<OpenTransaction, Fault> {
        if let Some(open) = permit.take_if(|open| open.members.have_room()) {
            return Ok(open);
        }
        let members = SharedWriters::new(self.end_other(permit, share).await);
        Ok(OpenTransaction { transaction: self.store.begin().await?, members })
    }

    /// Waits until the transaction has ended, and ends it if no other writer waits for its turn before.
    async fn outcome(
        &self,
        queued: &QueuedWriter<'_, OpenTransaction>,
        mut outcome: oneshot::Receiver<Outcome>,
    ) -> Outcome {
        let mut permit = tokio::select! {
            biased;
            outcome = &mut outcome => return outcome.unwrap_or(Outcome::Failed(Fault::StorageUnavailable)),
            permit = queued.permit() => permit,
        };
        match outcome.try_recv() {
            // If it has ended meanwhile, the transaction in the queue is another one.
            Ok(outcome) => return outcome,
            Err(TryRecvError::Closed) => {}
            Err(TryRecvError::Empty) => {
                if let Some(open) = permit.take() {
                    self.commit(open).await;
                }
            }
        }
        outcome.await.unwrap_or(Outcome::Failed(Fault::StorageUnavailable))
    }

    /// Ends the transaction that the writer before has left, if any. Returns the share of the pool.
    async fn end_other(
        &self,
        permit: &mut WritePermit<OpenTransaction>,
        share: Option<OwnedSemaphorePermit>,
    ) -> Option<OwnedSemaphorePermit> {
        match permit.take() {
            Some(open) => self.commit(open).await,
            None => share,
        }
    }

    /// Commits a shared transaction, publishes it and answers its writers. Returns its share of the pool.
    async fn commit(
        &self,
        OpenTransaction { transaction, members }: OpenTransaction,
    ) -> Option<OwnedSemaphorePermit> {
        self.system.pause(FailPoint::BeforeCommit).await;
        let (committing, share) = members.commit();
        let outcome = match transaction.commit().await {
            Ok(()) => {
                self.system.pause(FailPoint::AfterCommit).await;
                self.publish(&committing.revisions, &committing.spans);
                Outcome::Committed
            }
            Err(error) => Outcome::Failed(error.into()),
        };
        committing.answer(&outcome);
        share
    }

    /// Runs a statement that writes what no cell can hold yet, with a share of the pool and within the deadline of a
    /// write.
    pub async fn execute<T>(
        &self,
        statement: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Fault> {
        let _share = self.queue.acquire_share().await.map_err(|fault| self.cause_of(fault))?;
        let done = tokio::time::timeout(self.queue.deadline(), statement).await;
        Ok(done.unwrap_or(Err(StoreError::Timeout))?)
    }

    /// The timeout of waiting before a write begins.
    pub fn longest_wait(&self) -> Duration {
        self.queue.wait()
    }

    /// Raises the cells, so that this replica answers nothing older, and notifies the other replicas.
    fn publish(&self, revisions: &[(Scope, Revision)], spans: &[WriteSpan]) {
        for (scope, revision) in revisions {
            self.scopes.raise(*scope, *revision);
        }
        self.feed.announce(revisions, spans);
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("queue", &self.queue).finish_non_exhaustive()
    }
}

/// The span of the current write with each of its revisions, if its trace is exported.
fn spans(audited: &AuditedWrite, revisions: &[(Scope, Revision)]) -> Vec<WriteSpan> {
    let Some(span) = sampled_span(|| audited.has_credential()) else { return Vec::new() };
    revisions.iter().map(|(scope, revision)| WriteSpan { scope: *scope, revision: *revision, span }).collect()
}

/// The changes of a write that affect access.
fn access_changes(write: &Write) -> Vec<(Scope, Vec<Change>)> {
    let of_scope = |(scope, revision, changes): (Scope, Revision, &[NewChange])| {
        let access = changes.iter().filter(|change| change.kind.decides_access());
        let change = |NewChange { kind, subject, .. }: &NewChange| Change {
            revision,
            kind: *kind,
            subject: subject.clone(),
        };
        (scope, access.map(change).collect())
    };
    write.changes().map(of_scope).collect()
}
