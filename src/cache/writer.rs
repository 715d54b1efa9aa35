//! Runs writes: one at a time per scope, detached from the caller, and published to cells and replicas after the commit.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::scope_map::ScopeMap;
use super::write_queue::{QueueOptions, WriteQueue};
use crate::model::audit::write::AuditedWrite;
use crate::model::fault::Fault;
use crate::model::feed::ChangeFeed;
use crate::model::scope::{Change, Revision, Scope};
use crate::model::sources::{FailPoint, Sources};
use crate::store::audit::entry::Entry;
use crate::store::write::{Committed, NewChange, Write};
use crate::store::{Store, StoreError};
use crate::telemetry::span;

/// Runs writes: one transaction each, in the order of arrival at its scope.
pub struct Writer {
    store: Store,
    sources: Sources,
    feed: Arc<dyn ChangeFeed>,
    scopes: Arc<ScopeMap>,
    queue: WriteQueue,
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
        (store, sources): (Store, Sources),
        feed: Arc<dyn ChangeFeed>,
        scopes: Arc<ScopeMap>,
        options: QueueOptions,
    ) -> Self {
        Self { store, sources, feed, scopes, queue: WriteQueue::new(options), tasks: TaskTracker::new() }
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
    pub async fn detached<T: Send + 'static>(
        &self,
        write: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, Fault> {
        self.tasks
            .spawn(span::inherit(write))
            .await
            .unwrap_or_else(|error| Err(Fault::Internal(error.to_string())))
    }

    /// Runs `work` as one transaction with the permit of `scope`, the outermost scope that it locks, and publishes what
    /// was committed, with the audit row of its call. Nothing is committed if `work` fails or changes nothing.
    pub async fn transact<T>(
        &self,
        scope: Scope,
        audited: &AuditedWrite,
        work: impl AsyncFnOnce(&mut Write) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let _permit = self.queue.acquire(scope).await?;
        let writing = async {
            let mut write = self.store.write(audited, &self.sources).await?;
            let done = work(&mut write).await;
            if done.is_err() || !write.has_changes() {
                write.roll_back().await?;
                return done;
            }
            write.log().await?;
            self.sources.pause(FailPoint::BeforeCommit).await;
            let unanswered = UnansweredCommit { scopes: &self.scopes, changes: access_changes(&write) };
            let Committed { revisions, entry } = write.commit().await?;
            self.sources.pause(FailPoint::AfterCommit).await;
            self.publish(&revisions);
            unanswered.committed();
            entry.into_iter().for_each(Entry::committed);
            done
        };
        // Past the deadline it is not known whether the commit took place: the sweep finds it if it did, and memory
        // does not answer what it may have changed.
        let written = tokio::time::timeout(self.queue.deadline(), writing).await;
        written.unwrap_or(Err(Fault::StorageUnavailable))
    }

    /// Runs a statement that writes what no cell can hold yet, with a share of the pool and within the deadline of a
    /// write.
    pub async fn execute<T>(
        &self,
        statement: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, Fault> {
        let _share = self.queue.acquire_share().await?;
        let done = tokio::time::timeout(self.queue.deadline(), statement).await;
        Ok(done.unwrap_or(Err(StoreError::Timeout))?)
    }

    /// The timeout of waiting before a write begins.
    pub fn longest_wait(&self) -> Duration {
        self.queue.wait()
    }

    /// Raises the cells, so that this replica answers nothing older, and notifies the other replicas.
    fn publish(&self, revisions: &[(Scope, Revision)]) {
        for (scope, revision) in revisions {
            self.scopes.raise(*scope, *revision);
        }
        self.feed.announce(revisions);
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("queue", &self.queue).finish_non_exhaustive()
    }
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
