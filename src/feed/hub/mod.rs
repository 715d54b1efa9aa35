//! Who wants what: the streams of this replica, told of what changes once every replica has heard of it.
//!
//! An agent with streams has a `Topic`, which reads the agent's changes in their order and marks what
//! they touch with those who want to hear of it. What is marked is a set, never a queue.

mod reader;
mod reading;
mod replay;
mod topic;
mod touched;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Feed;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, TenantId};
use crate::model::scope::{Revision, Scope};
use crate::store::snapshot::{Head, Snapshot};
use crate::store::{Store, StoreError};

use reader::Reader;
use topic::Topic;

pub use reading::{Reading, Told};

/// Reads of changes at once: a share of the pool, so that others find connections too.
const READS_AT_ONCE: usize = 4;
/// Changes read at once; where there are more, everything is taken for changed.
const MOST_CHANGES: usize = 20_000;

/// The streams of this replica.
#[derive(Debug)]
pub(super) struct Hub {
    topics: Mutex<HashMap<AgentId, Used>>,
    /// Who has to look again whether it may go on, when one of these scopes changes.
    watched: Mutex<HashMap<Scope, Vec<Arc<Reader>>>>,
    places: Semaphore,
    patience: Duration,
    tasks: TaskTracker,
    stop: CancellationToken,
}

#[derive(Debug)]
struct Used {
    topic: Arc<Topic>,
    streams: usize,
}

impl Hub {
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            topics: Mutex::default(),
            watched: Mutex::default(),
            places: Semaphore::new(READS_AT_ONCE),
            patience,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    /// A scope is at this revision or a newer one.
    pub(super) fn raise(&self, scope: Scope, revision: Revision) {
        let topic = self.topics.lock().get(&AgentId(scope.0)).map(|used| Arc::clone(&used.topic));
        if let Some(topic) = topic {
            topic.raise(revision);
        }
        if let Some(readers) = self.watched.lock().get(&scope) {
            for reader in readers {
                reader.suspect();
            }
        }
    }

    /// The revision up to which the changes of a scope with streams are marked.
    pub(super) fn seen(&self, scope: Scope) -> Option<Revision> {
        self.topics.lock().get(&AgentId(scope.0)).map(|used| used.topic.seen())
    }

    /// [`seen`](Self::seen) of all scopes with streams.
    pub(super) fn all_seen(&self) -> Vec<(Scope, Revision)> {
        let topics = self.topics.lock();
        topics.iter().map(|(agent, used)| (Scope::from(*agent), used.topic.seen())).collect()
    }

    /// The database went back in time: everything is to be told, and each stream looks whether it may go on.
    pub(super) fn restart(&self) {
        for used in self.topics.lock().values() {
            used.topic.restart();
        }
        self.suspect_all();
    }

    /// Has every stream look again at what decides whether it may go on.
    pub(super) fn suspect_all(&self) {
        for reader in self.watched.lock().values().flatten() {
            reader.suspect();
        }
    }

    /// Ends what reads for the streams.
    pub(super) async fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }

    fn watch(&self, scopes: &[Scope], reader: &Arc<Reader>) {
        let mut watched = self.watched.lock();
        for scope in scopes {
            watched.entry(*scope).or_default().push(Arc::clone(reader));
        }
    }

    fn leave(&self, agent: AgentId, scopes: &[Scope], reader: &Arc<Reader>) {
        let mut watched = self.watched.lock();
        for scope in scopes {
            if let Entry::Occupied(mut entry) = watched.entry(*scope) {
                entry.get_mut().retain(|other| !Arc::ptr_eq(other, reader));
                if entry.get().is_empty() {
                    entry.remove();
                }
            }
        }
        drop(watched);
        let mut topics = self.topics.lock();
        if let Entry::Occupied(mut entry) = topics.entry(agent) {
            entry.get_mut().streams -= 1;
            if entry.get().streams == 0 {
                entry.remove().topic.end();
            }
        }
    }

    /// Reads in one view where a scope stands, and something else; within bounds.
    async fn read<T>(
        &self,
        store: &Store,
        scope: Scope,
        read: impl AsyncFnOnce(&mut Snapshot, Head) -> Result<T, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        let reading = async {
            let _place = self.places.acquire().await;
            let mut view = store.snapshot().await?;
            let Some(head) = view.head(scope).await? else {
                view.end().await?;
                return Ok(None);
            };
            let read = read(&mut view, head).await?;
            view.end().await?;
            Ok(Some(read))
        };
        tokio::time::timeout(self.patience, reading).await.unwrap_or(Err(StoreError::Late))
    }
}

impl Feed {
    /// Opens a stream of what happens to an agent, which is interested in nothing yet. From now on it is told to look
    /// again whether it may go on, when one of `watched` changes.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] where the database cannot be asked where the agent stands.
    pub async fn open(
        self: &Arc<Self>,
        tenant: TenantId,
        agent: AgentId,
        watched: &[Scope],
    ) -> Result<Reading, Fault> {
        let topic = self.topic(tenant, agent);
        let reader = Arc::new(Reader::default());
        self.hub.watch(watched, &reader);
        // From here on dropping it undoes what was done.
        let reading = Reading::new(Arc::clone(self), topic, reader, watched.to_vec());
        reading.begin().await?;
        Ok(reading)
    }

    /// The revision that an agent is at.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] where the database cannot be asked; [`Fault::Forbidden`] where the agent is gone.
    pub async fn head(&self, agent: AgentId) -> Result<Revision, Fault> {
        let scope = Scope::from(agent);
        let head = self.hub.read(&self.store, scope, async |_, head| Ok(head.revision)).await;
        head.map_err(|_| Fault::StorageUnavailable)?.ok_or(Fault::Forbidden)
    }

    /// The revision that an agent is at, once every replica knows of it. Whoever is to be told of what comes after it may
    /// read what was there before on any of them.
    ///
    /// # Errors
    /// As [`head`](Self::head).
    pub async fn settled_head(&self, agent: AgentId) -> Result<Revision, Fault> {
        let head = self.head(agent).await?;
        self.settle(Scope::from(agent), head).await;
        Ok(head)
    }

    /// Waits until every replica that may answer from memory has heard that a scope is at a revision, but no longer
    /// than it takes those who hear nothing to find out or to stop answering from memory.
    pub async fn settle(&self, scope: Scope, revision: Revision) {
        let question = self.pending.ask(scope, revision);
        // Whoever hears nothing sweeps in this time, or knows that it did not.
        let longest = self.options.sweep * 2;
        let _ = tokio::time::timeout(longest, self.members.all_heard(question)).await;
    }

    fn topic(self: &Arc<Self>, tenant: TenantId, agent: AgentId) -> Arc<Topic> {
        let mut topics = self.hub.topics.lock();
        let used = topics.entry(agent).or_insert_with(|| {
            let topic = Arc::new(Topic::new(tenant, agent, self.hub.stop.child_token()));
            self.hub.tasks.spawn(Arc::clone(self).attend(Arc::clone(&topic)));
            Used { topic, streams: 0 }
        });
        used.streams += 1;
        Arc::clone(&used.topic)
    }
}
