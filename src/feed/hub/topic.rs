//! One agent with streams: reads its changes in their order, and marks what they touch.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::MOST_CHANGES;
use super::reader::Reader;
use super::touched::Touched;
use crate::feed::Feed;
use crate::model::ids::{AgentId, TenantId};
use crate::model::scope::{Change, Revision, Scope};
use crate::model::sources::FailPoint;
use crate::model::subject::{Interest, Subject, Watched};
use crate::model::uri::ResourceUri;
use crate::store::StoreError;

/// After a read that failed; the next one waits twice as long, up to the last.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LAST_WAIT: Duration = Duration::from_secs(1);

/// An agent with streams.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) tenant: TenantId,
    pub(super) agent: AgentId,
    wanted: AtomicI64,
    /// Everything up to here is marked; below zero until it is known where the agent stands.
    seen: AtomicI64,
    some: Notify,
    begun: watch::Sender<bool>,
    /// How often the database went back in time: what was read before then is not marked.
    timeline: AtomicU64,
    index: Mutex<Index>,
    stop: CancellationToken,
}

/// Who wants to hear of what.
#[derive(Debug, Default)]
struct Index {
    resource_list: Vec<Arc<Reader>>,
    prompt_list: Vec<Arc<Reader>>,
    uris: HashMap<ResourceUri, (Arc<Watched>, Vec<Arc<Reader>>)>,
    /// Everybody, for what touches all.
    readers: Vec<Arc<Reader>>,
}

/// What was read after a revision.
enum Read {
    /// All changes up to a revision.
    Changes(Vec<Change>, Revision),
    /// Some are not retained, or they are too many: anything may have changed up to a revision.
    Anything(Revision),
}

impl Topic {
    pub(super) fn new(tenant: TenantId, agent: AgentId, stop: CancellationToken) -> Self {
        Self {
            tenant,
            agent,
            wanted: AtomicI64::new(0),
            seen: AtomicI64::new(-1),
            some: Notify::new(),
            begun: watch::Sender::new(false),
            timeline: AtomicU64::new(0),
            index: Mutex::default(),
            stop,
        }
    }

    pub(super) fn raise(&self, revision: Revision) {
        self.wanted.fetch_max(revision.0, Ordering::AcqRel);
        self.some.notify_one();
    }

    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// Begins anew in another timeline of the database, where everything may be different.
    pub(super) fn restart(&self) {
        let _index = self.index.lock();
        self.timeline.fetch_add(1, Ordering::AcqRel);
        self.wanted.store(0, Ordering::Release);
        self.seen.store(-1, Ordering::Release);
        self.begun.send_replace(false);
        self.some.notify_one();
    }

    fn timeline(&self) -> u64 {
        self.timeline.load(Ordering::Acquire)
    }

    /// Everything up to here is marked; in another timeline than the first, everything for everybody.
    fn begin_at(&self, head: Revision, timeline: u64) {
        let index = self.index.lock();
        if self.timeline() != timeline {
            return;
        }
        self.seen.store(head.0, Ordering::Release);
        if timeline > 0 {
            for reader in &index.readers {
                reader.restart();
            }
        }
        self.begun.send_replace(true);
    }

    /// Everything up to this revision is marked with whoever wants to hear of it.
    pub(super) fn seen(&self) -> Revision {
        Revision(self.seen.load(Ordering::Acquire))
    }

    /// Waits until it is known where the agent stands; false where it ended first.
    pub(super) async fn begun(&self) -> bool {
        let mut begun = self.begun.subscribe();
        tokio::select! {
            known = begun.wait_for(|begun| *begun) => known.is_ok(),
            () = self.stop.cancelled() => false,
        }
    }

    /// Lists a reader; answers the interests with the subjects that all readers share, and the revision up to which
    /// changes were marked before.
    pub(super) fn enter(&self, reader: &Arc<Reader>, interests: Vec<Interest>) -> (Vec<Interest>, Revision) {
        let mut index = self.index.lock();
        let shared: Vec<_> = interests.into_iter().map(|interest| index.enter(reader, interest)).collect();
        reader.add(&shared);
        (shared, self.seen())
    }

    pub(super) fn join(&self, reader: &Arc<Reader>) {
        self.index.lock().readers.push(Arc::clone(reader));
    }

    /// Takes a reader off the lists of some subjects.
    pub(super) fn drop_interests(&self, reader: &Arc<Reader>, subjects: &[Subject]) {
        let mut index = self.index.lock();
        for subject in subjects {
            index.leave(reader, subject);
            reader.remove(subject);
        }
    }

    /// Takes a reader off all lists.
    pub(super) fn leave(&self, reader: &Arc<Reader>) {
        self.drop_interests(reader, &reader.subjects());
        self.index.lock().readers.retain(|other| !Arc::ptr_eq(other, reader));
    }

    /// The URIs that somebody wants to hear of.
    fn uris(&self) -> Vec<ResourceUri> {
        self.index.lock().uris.keys().cloned().collect()
    }

    /// Marks what was touched; everything up to `until` is marked then.
    fn mark(&self, touched: &[(Revision, Touched)], until: Revision, timeline: u64) {
        let index = self.index.lock();
        if self.timeline() != timeline {
            return;
        }
        for (revision, touched) in touched {
            index.mark(*revision, touched);
        }
        self.seen.store(until.0, Ordering::Release);
    }

    fn mark_all(&self, until: Revision, timeline: u64) {
        let index = self.index.lock();
        if self.timeline() != timeline {
            return;
        }
        let first = Revision(self.seen().0 + 1);
        for reader in &index.readers {
            reader.mark_all(first);
        }
        self.seen.store(until.0, Ordering::Release);
    }

    fn is_behind(&self) -> bool {
        self.wanted.load(Ordering::Acquire) > self.seen().0
    }
}

impl Index {
    fn enter(&mut self, reader: &Arc<Reader>, interest: Interest) -> Interest {
        let Interest { subject, since } = interest;
        let (subject, readers) = match subject {
            Subject::ResourceList => (Subject::ResourceList, &mut self.resource_list),
            Subject::PromptList => (Subject::PromptList, &mut self.prompt_list),
            Subject::Resource(watched) => {
                let uri = watched.uri.clone();
                let (watched, readers) = self.uris.entry(uri).or_insert_with(|| (watched, Vec::new()));
                (Subject::Resource(Arc::clone(watched)), readers)
            }
        };
        if !readers.iter().any(|other| Arc::ptr_eq(other, reader)) {
            readers.push(Arc::clone(reader));
        }
        Interest { subject, since }
    }

    fn leave(&mut self, reader: &Arc<Reader>, subject: &Subject) {
        let others = |readers: &mut Vec<Arc<Reader>>| readers.retain(|other| !Arc::ptr_eq(other, reader));
        match subject {
            Subject::ResourceList => others(&mut self.resource_list),
            Subject::PromptList => others(&mut self.prompt_list),
            Subject::Resource(watched) => {
                if let Some((_, readers)) = self.uris.get_mut(&watched.uri) {
                    others(readers);
                    if readers.is_empty() {
                        self.uris.remove(&watched.uri);
                    }
                }
            }
        }
    }

    fn mark(&self, revision: Revision, touched: &Touched) {
        let all = |readers: &[Arc<Reader>], subject: &Subject| {
            for reader in readers {
                reader.mark(subject, revision);
            }
        };
        match touched {
            Touched::ResourceList => all(&self.resource_list, &Subject::ResourceList),
            Touched::PromptList => all(&self.prompt_list, &Subject::PromptList),
            Touched::Resource(uri) => {
                if let Some((watched, readers)) = self.uris.get(uri.as_str()) {
                    all(readers, &Subject::Resource(Arc::clone(watched)));
                }
            }
        }
    }
}

impl Feed {
    /// Reads an agent's changes for its streams, for as long as there are any.
    pub(super) async fn attend(self: Arc<Self>, topic: Arc<Topic>) {
        let stop = topic.stop.clone();
        let attending = async {
            let mut wait = FIRST_WAIT;
            loop {
                match self.advance(&topic).await {
                    Ok(()) => wait = FIRST_WAIT,
                    Err(error) => {
                        tracing::debug!(%error, agent = %topic.agent, "changes could not be read for streams");
                        tokio::time::sleep(wait).await;
                        wait = (wait * 2).min(LAST_WAIT);
                        continue;
                    }
                }
                if !topic.is_behind() {
                    topic.some.notified().await;
                }
            }
        };
        let _ = stop.run_until_cancelled(attending).await;
    }

    /// Marks what changed since the last time, once everybody has heard of it.
    async fn advance(&self, topic: &Topic) -> Result<(), StoreError> {
        let timeline = topic.timeline();
        let seen = topic.seen();
        if seen.0 < 0 {
            return self.begin(topic).await;
        }
        if !topic.is_behind() {
            return Ok(());
        }
        let scope = Scope::from(topic.agent);
        self.sources.pause(FailPoint::BeforeStreamsRead).await;
        let read = self.hub.read(&self.store, scope, async |view, head| {
            let changes = view.changes_after(scope, seen, MOST_CHANGES + 1).await?;
            let known = head.floor <= seen && changes.len() <= MOST_CHANGES;
            Ok(if known { Read::Changes(changes, head.revision) } else { Read::Anything(head.revision) })
        });
        match read.await? {
            // The agent is gone: its streams find out by themselves.
            None => topic.mark(&[], Revision(topic.wanted.load(Ordering::Acquire)), timeline),
            Some(Read::Anything(until)) => {
                self.settle(scope, until).await;
                topic.mark_all(until, timeline);
            }
            Some(Read::Changes(changes, until)) => {
                self.settle(scope, until).await;
                self.sources.pause(FailPoint::BeforeDelivery).await;
                let touched = self.touched(topic, &changes, || topic.uris()).await;
                topic.mark(&touched, until, timeline);
            }
        }
        Ok(())
    }

    async fn begin(&self, topic: &Topic) -> Result<(), StoreError> {
        let (scope, timeline) = (Scope::from(topic.agent), topic.timeline());
        let head = self.hub.read(&self.store, scope, async |_, head| Ok(head.revision));
        let head = head.await?.unwrap_or_default();
        // What a stream was not told of before it broke off is told at once, up to here.
        self.settle(scope, head).await;
        topic.begin_at(head, timeline);
        Ok(())
    }
}
