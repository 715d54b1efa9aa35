//! The topics and streams of this replica.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::dirty_set::DirtySet;
use super::topic::Topic;
use crate::cache::GroupCommit;
use crate::model::fault::Fault;
use crate::model::feed::SubscriptionStamp;
use crate::model::ids::{AgentId, AgentRef, ResourceUri};
use crate::model::label::CallerLabels;
use crate::model::scope::{Head, Revision, Scope};
use crate::model::trace::WriteSpan;
use crate::store::snapshot::Snapshot;
use crate::store::{Store, StoreError};
use crate::telemetry::histogram::DurationHistogram;

/// Number of concurrent reads of changes: a share of the connection pool.
const CONCURRENT_READS: usize = 4;
/// Maximum number of changes per read; with more, every subject is marked dirty.
pub(super) const MAX_CHANGES: usize = 20_000;

/// The topics and streams of this replica.
#[derive(Debug)]
pub(in crate::feed) struct Hub {
    pub(super) topics: Mutex<HashMap<AgentId, TopicEntry>>,
    /// The streams to recheck when a scope changes, since the scope decides whether they may continue.
    pub(super) to_recheck: Mutex<HashMap<Scope, Vec<Arc<DirtySet>>>>,
    /// Notified when an agent gets its first stream.
    pub(in crate::feed) opened: Notify,
    pub(super) read_permits: Semaphore,
    /// Reads the current revisions of scopes for many streams that are opened at once. Scopes take turns.
    pub(super) heads: GroupCommit<Scope, Scope, Option<Revision>>,
    pub(super) timeout: Duration,
    /// The time from a change until it is marked in the streams that it concerns.
    pub(in crate::feed) lag: DurationHistogram,
    /// Whether the events of writes whose traces are exported have spans.
    traces_events: bool,
    pub(in crate::feed) tasks: TaskTracker,
    pub(super) stop: CancellationToken,
}

#[derive(Debug)]
pub(super) struct TopicEntry {
    pub(super) topic: Arc<Topic>,
    pub(super) streams: usize,
}

impl Hub {
    pub(in crate::feed) fn new(timeout: Duration, traces_events: bool) -> Self {
        Self {
            topics: Mutex::default(),
            to_recheck: Mutex::default(),
            opened: Notify::new(),
            read_permits: Semaphore::new(CONCURRENT_READS),
            heads: GroupCommit::new(timeout),
            timeout,
            lag: DurationHistogram::default(),
            traces_events,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// Records that a scope is at this revision or a newer one. Returns whether it has streams that are behind, for which
    /// its changes must be read.
    pub(in crate::feed) fn raise(&self, scope: Scope, revision: Revision) -> bool {
        let topic = self.topic(AgentId(scope.0));
        if let Some(topic) = &topic {
            topic.raise(revision);
        }
        if let Some(subscribers) = self.to_recheck.lock().get(&scope) {
            for subscriber in subscribers {
                subscriber.request_recheck();
            }
        }
        topic.is_some_and(|topic| topic.is_behind())
    }

    /// Records the span of a write to an agent with streams.
    pub(in crate::feed) fn record_write(&self, WriteSpan { scope, revision, span }: WriteSpan) {
        if !self.traces_events {
            return;
        }
        if let Some(topic) = self.topic(AgentId(scope.0)) {
            topic.record_write(revision, span);
        }
    }

    /// The revision up to which the changes of a scope with streams are marked.
    pub(in crate::feed) fn seen(&self, scope: Scope) -> Option<Revision> {
        self.topics.lock().get(&AgentId(scope.0)).map(|entry| entry.topic.seen())
    }

    /// [`seen`](Self::seen) for all scopes with streams.
    pub(in crate::feed) fn all_seen(&self) -> Vec<(Scope, Revision)> {
        let topics = self.topics.lock();
        topics.iter().map(|(agent, entry)| (Scope::from(*agent), entry.topic.seen())).collect()
    }

    /// The agents with streams.
    pub(in crate::feed) fn agents(&self) -> Vec<(AgentRef, SubscriptionStamp)> {
        let topics = self.topics.lock();
        let topics = topics.values().map(|entry| &entry.topic);
        topics.map(|topic| (AgentRef { tenant: topic.tenant, uid: topic.agent }, topic.stamp())).collect()
    }

    /// The URIs that streams of an agent are subscribed to.
    pub(in crate::feed) fn uris(&self, agent: AgentId) -> Vec<ResourceUri> {
        self.topic(agent).map(|topic| topic.uris()).unwrap_or_default()
    }

    /// As [`uris`](Self::uris), each with the labels of the callers of these streams.
    pub(in crate::feed) fn callers(&self, agent: AgentId) -> Vec<(ResourceUri, HashSet<CallerLabels>)> {
        self.topic(agent).map(|topic| topic.callers()).unwrap_or_default()
    }

    fn topic(&self, agent: AgentId) -> Option<Arc<Topic>> {
        self.topics.lock().get(&agent).map(|entry| Arc::clone(&entry.topic))
    }

    /// Marks every subject dirty and rechecks every stream, after the database went back in time.
    pub(in crate::feed) fn restart(&self) {
        for entry in self.topics.lock().values() {
            entry.topic.restart();
        }
        self.recheck_all();
    }

    /// Requests a recheck of every stream.
    pub(in crate::feed) fn recheck_all(&self) {
        for subscriber in self.to_recheck.lock().values().flatten() {
            subscriber.request_recheck();
        }
    }

    /// Stops the topics' tasks and waits for them.
    pub(in crate::feed) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Registers a stream to be rechecked when one of the scopes changes.
    pub(super) fn recheck_on(&self, scopes: &[Scope], subscriber: &Arc<DirtySet>) {
        let mut to_recheck = self.to_recheck.lock();
        for scope in scopes {
            to_recheck.entry(*scope).or_default().push(Arc::clone(subscriber));
        }
    }

    /// Removes a stream, and the agent's topic with its last stream.
    pub(super) fn unsubscribe(&self, agent: AgentId, scopes: &[Scope], subscriber: &Arc<DirtySet>) {
        let mut to_recheck = self.to_recheck.lock();
        for scope in scopes {
            if let Entry::Occupied(mut entry) = to_recheck.entry(*scope) {
                entry.get_mut().retain(|other| !Arc::ptr_eq(other, subscriber));
                if entry.get().is_empty() {
                    entry.remove();
                }
            }
        }
        drop(to_recheck);
        let mut topics = self.topics.lock();
        if let Entry::Occupied(mut entry) = topics.entry(agent) {
            entry.get_mut().streams -= 1;
            if entry.get().streams == 0 {
                entry.remove().topic.end();
            }
        }
    }

    /// Reads the head of a scope and something else in one snapshot, [limited](Self::limit). Returns `None` if the scope does not exist.
    pub(super) async fn read<T>(
        &self,
        store: &Store,
        scope: Scope,
        read: impl AsyncFnOnce(&mut Snapshot, Head) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        self.limit(async {
            let mut view = store.snapshot().await?;
            let Some(head) = view.head(scope).await? else {
                view.end().await?;
                return Ok(None);
            };
            let read = read(&mut view, head).await?;
            view.end().await?;
            Ok(Some(read))
        })
        .await
    }

    /// Reads the current revision of a scope; `None` if it does not exist. Several are read together: after the restart of a
    /// replica its streams are opened at once, most of them for the same agents.
    pub(super) async fn read_head(&self, store: &Store, scope: Scope) -> Result<Option<Revision>, Fault> {
        let read = async |scopes: Vec<Scope>| {
            let read = self.limit(store.heads(&scopes)).await;
            let heads: HashMap<_, _> = read.map_err(|_| Fault::StorageUnavailable)?.into_iter().collect();
            Ok(scopes.iter().map(|scope| heads.get(scope).copied()).collect())
        };
        self.heads.write(scope, scope, read).await
    }

    /// Reads within the limit of concurrent reads and the timeout.
    pub(super) async fn limit<T>(
        &self,
        read: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let read = async {
            let _permit = self.read_permits.acquire().await;
            read.await
        };
        tokio::time::timeout(self.timeout, read).await.unwrap_or(Err(StoreError::Timeout))
    }
}
