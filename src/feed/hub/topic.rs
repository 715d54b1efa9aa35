//! The topic of one agent: reads the agent's changes in order and marks the subjects they affect.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::dirty_set::{DirtySet, FIRST, Recipients};
use super::effects::{Affected, Effects, SubscribedUris, TemplateEffects};
use super::write_spans::WriteSpans;
use crate::cache::WantedRevision;
use crate::model::audience::Audience;
use crate::model::feed::SubscriptionStamp;
use crate::model::ids::{AgentId, ResourceUri, TenantId};
use crate::model::label::CallerLabels;
use crate::model::scope::Revision;
use crate::model::subject::{Interest, Subject, SubscribedUri};
use crate::model::trace::SpanContext;

/// An agent with open streams.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) tenant: TenantId,
    pub(super) agent: AgentId,
    created: Instant,
    pub(super) wanted: WantedRevision,
    /// Every change up to here is marked; negative until the agent's head is known.
    seen: AtomicI64,
    pub(super) changed: Notify,
    ready: watch::Sender<bool>,
    /// Number of times that the database went back in time; results of reads from before are discarded.
    timeline: AtomicU64,
    index: Mutex<Index>,
    pub(super) stop: CancellationToken,
}

/// The streams interested in each subject.
#[derive(Debug, Default)]
struct Index {
    resource_list: Vec<Arc<DirtySet>>,
    prompt_list: Vec<Arc<DirtySet>>,
    tool_list: Vec<Arc<DirtySet>>,
    uris: HashMap<ResourceUri, UriEntry>,
    /// All streams of the agent.
    subscribers: Vec<Arc<DirtySet>>,
    /// Number of URIs, and of callers with other labels at one, that were added so far.
    additions: u64,
    /// The spans of writes whose changes are not marked yet.
    writes: WriteSpans,
}

/// A URI with interested streams.
#[derive(Debug)]
struct UriEntry {
    resource: Arc<SubscribedUri>,
    subscribers: Vec<Arc<DirtySet>>,
    /// Its number among the URIs added.
    number: u64,
}

impl Topic {
    pub(super) fn new(tenant: TenantId, agent: AgentId, stop: CancellationToken) -> Self {
        Self {
            tenant,
            agent,
            created: Instant::now(),
            wanted: WantedRevision::default(),
            seen: AtomicI64::new(-1),
            changed: Notify::new(),
            ready: watch::Sender::new(false),
            timeline: AtomicU64::new(0),
            index: Mutex::default(),
            stop,
        }
    }

    pub(super) fn raise(&self, revision: Revision) {
        self.wanted.raise(revision);
        self.changed.notify_one();
    }

    /// Records the span of the write that made a revision.
    pub(super) fn record_write(&self, revision: Revision, span: SpanContext) {
        let mut index = self.index.lock();
        if revision > self.seen() {
            index.writes.add(revision, span);
        }
    }

    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// Starts over on another timeline of the database, where every subject may differ.
    pub(super) fn restart(&self) {
        let _index = self.index.lock();
        self.timeline.fetch_add(1, Ordering::AcqRel);
        self.wanted.reset();
        self.seen.store(-1, Ordering::Release);
        self.ready.send_replace(false);
        self.changed.notify_one();
    }

    pub(super) fn timeline(&self) -> u64 {
        self.timeline.load(Ordering::Acquire)
    }

    /// Records the agent's head as seen; on any timeline but the first, marks everything dirty.
    pub(super) fn start_at(&self, head: Revision, timeline: u64) {
        let index = self.index.lock();
        if self.timeline() != timeline {
            return;
        }
        self.seen.store(head.0, Ordering::Release);
        if timeline > 0 {
            for subscriber in &index.subscribers {
                subscriber.restart();
            }
        }
        self.ready.send_replace(true);
    }

    /// The revision up to which every change is marked in the interested streams.
    pub(super) fn seen(&self) -> Revision {
        Revision(self.seen.load(Ordering::Acquire))
    }

    /// Waits until the agent's head is known; returns false if the topic ended before.
    pub(super) async fn ready(&self) -> bool {
        let mut ready = self.ready.subscribe();
        tokio::select! {
            known = ready.wait_for(|ready| *ready) => known.is_ok(),
            () = self.stop.cancelled() => false,
        }
    }

    /// Adds a stream's interests to the index. Returns the interests with the subjects shared between streams,
    /// and the revision up to which changes had been marked before.
    pub(super) fn add_interests(
        &self,
        subscriber: &Arc<DirtySet>,
        interests: Vec<Interest>,
    ) -> (Vec<Interest>, Revision) {
        let mut index = self.index.lock();
        let shared: Vec<_> = interests.into_iter().map(|interest| index.add(subscriber, interest)).collect();
        subscriber.add(&shared);
        (shared, self.seen())
    }

    pub(super) fn add_subscriber(&self, subscriber: &Arc<DirtySet>) {
        self.index.lock().subscribers.push(Arc::clone(subscriber));
    }

    /// Removes a stream from the index of some subjects.
    pub(super) fn remove_interests(&self, subscriber: &Arc<DirtySet>, subjects: &[Subject]) {
        let mut index = self.index.lock();
        for subject in subjects {
            index.remove(subscriber, subject);
            subscriber.remove(subject);
        }
    }

    /// Removes a stream from the topic.
    pub(super) fn remove_subscriber(&self, subscriber: &Arc<DirtySet>) {
        self.remove_interests(subscriber, &subscriber.subjects());
        self.index.lock().subscribers.retain(|other| !Arc::ptr_eq(other, subscriber));
    }

    /// Sets the labels of a stream's caller. It sees other definitions from now on, so everything is marked dirty.
    pub(super) fn relabel(&self, subscriber: &DirtySet, labels: CallerLabels) {
        // No change is marked meanwhile.
        let mut index = self.index.lock();
        subscriber.set_labels(labels);
        index.additions += 1;
        subscriber.mark_all(FIRST);
    }

    /// Changes when a URI gets its first stream, or the first one of a caller with other labels.
    pub(super) fn stamp(&self) -> SubscriptionStamp {
        (self.created, self.index.lock().additions)
    }

    /// The URIs with an interested stream.
    pub(super) fn uris(&self) -> Vec<ResourceUri> {
        self.index.lock().uris.keys().cloned().collect()
    }

    /// The URIs with an interested stream, each with the labels of the callers of its streams.
    pub(super) fn callers(&self) -> Vec<(ResourceUri, HashSet<CallerLabels>)> {
        let index = self.index.lock();
        let labels =
            |entry: &UriEntry| entry.subscribers.iter().map(|subscriber| subscriber.labels()).collect();
        index.uris.iter().map(|(uri, entry)| (uri.clone(), labels(entry))).collect()
    }

    /// The URIs with an interested stream, and the labels of the callers of streams.
    pub(super) fn subscribed_uris(&self) -> SubscribedUris {
        let index = self.index.lock();
        let uris: Vec<_> = index.uris.keys().cloned().collect();
        let callers = if uris.is_empty() { HashSet::new() } else { index.callers() };
        SubscribedUris { uris, callers, additions: index.additions }
    }

    /// Marks the affected subjects and records that every change up to `until` is marked.
    pub(super) fn mark(&self, effects: &Effects, until: Revision, timeline: u64) {
        let mut index = self.index.lock();
        if self.timeline() != timeline {
            return;
        }
        for (revision, affected, audience) in &effects.direct {
            index.mark(Recipients::Of(audience), *revision, affected);
        }
        if let Some(templates) = &effects.templates {
            index.mark_templated(templates);
        }
        index.writes.end(until);
        self.seen.store(until.0, Ordering::Release);
    }

    /// Marks everything dirty for the callers of an audience, and records that every change up to `until` is marked.
    pub(super) fn mark_all(&self, audience: &Audience, until: Revision, timeline: u64) {
        let mut index = self.index.lock();
        if self.timeline() != timeline {
            return;
        }
        let first = Revision(self.seen().0 + 1);
        for subscriber in &index.subscribers {
            subscriber.mark_all_of(audience, first);
        }
        index.writes.end(until);
        self.seen.store(until.0, Ordering::Release);
    }

    pub(super) fn is_behind(&self) -> bool {
        self.wanted.get() > self.seen()
    }
}

impl Index {
    fn add(&mut self, subscriber: &Arc<DirtySet>, interest: Interest) -> Interest {
        let Interest { subject, since } = interest;
        let (subject, subscribers) = match subject {
            Subject::ResourceList => (Subject::ResourceList, &mut self.resource_list),
            Subject::PromptList => (Subject::PromptList, &mut self.prompt_list),
            Subject::ToolList => (Subject::ToolList, &mut self.tool_list),
            Subject::Resource(resource) => {
                let entry = self.uris.entry(resource.uri.clone()).or_insert_with(|| {
                    self.additions += 1;
                    UriEntry { resource, subscribers: Vec::new(), number: self.additions }
                });
                let labels = subscriber.labels();
                if !entry.subscribers.iter().any(|other| other.labels() == labels) {
                    self.additions += 1;
                }
                (Subject::Resource(Arc::clone(&entry.resource)), &mut entry.subscribers)
            }
        };
        if !subscribers.iter().any(|other| Arc::ptr_eq(other, subscriber)) {
            subscribers.push(Arc::clone(subscriber));
        }
        Interest { subject, since }
    }

    fn remove(&mut self, subscriber: &Arc<DirtySet>, subject: &Subject) {
        let remove = |subscribers: &mut Vec<Arc<DirtySet>>| {
            subscribers.retain(|other| !Arc::ptr_eq(other, subscriber));
        };
        match subject {
            Subject::ResourceList => remove(&mut self.resource_list),
            Subject::PromptList => remove(&mut self.prompt_list),
            Subject::ToolList => remove(&mut self.tool_list),
            Subject::Resource(resource) => {
                if let Some(UriEntry { subscribers, .. }) = self.uris.get_mut(&resource.uri) {
                    remove(subscribers);
                    if subscribers.is_empty() {
                        self.uris.remove(&resource.uri);
                    }
                }
            }
        }
    }

    /// The labels of all streams' callers.
    fn callers(&self) -> HashSet<CallerLabels> {
        self.subscribers.iter().map(|subscriber| subscriber.labels()).collect()
    }

    fn mark(&self, recipients: Recipients<'_>, revision: Revision, affected: &Affected) {
        let (subscribers, subject) = match affected {
            Affected::ResourceList => (&self.resource_list, Subject::ResourceList),
            Affected::PromptList => (&self.prompt_list, Subject::PromptList),
            Affected::ToolList => (&self.tool_list, Subject::ToolList),
            Affected::Resource(uri) => return self.mark_uri(recipients, revision, uri),
        };
        self.mark_each(subscribers, recipients, &subject, revision);
    }

    fn mark_uri(&self, recipients: Recipients<'_>, revision: Revision, uri: &ResourceUri) {
        if let Some(UriEntry { resource, subscribers, .. }) = self.uris.get(uri.as_str()) {
            self.mark_each(subscribers, recipients, &Subject::Resource(Arc::clone(resource)), revision);
        }
    }

    fn mark_each(
        &self,
        subscribers: &[Arc<DirtySet>],
        recipients: Recipients<'_>,
        subject: &Subject,
        revision: Revision,
    ) {
        let write = self.writes.of(revision);
        for subscriber in subscribers {
            subscriber.mark_of(recipients, subject, (revision, write));
        }
    }

    fn mark_uris<'u>(
        &self,
        recipients: Recipients<'_>,
        revision: Revision,
        uris: impl IntoIterator<Item = &'u ResourceUri>,
    ) {
        for uri in uris {
            self.mark_uri(recipients, revision, uri);
        }
    }

    fn mark_templated(&self, changed: &TemplateEffects) {
        let TemplateEffects {
            last, audience, subscribed: SubscribedUris { uris, callers, additions }, ..
        } = changed;
        // What the changes affect was determined without the URIs and callers that were added since.
        let new_uris = self.uris.iter().filter(|(_, entry)| entry.number > *additions);
        self.mark_uris(Recipients::Of(audience), *last, new_uris.map(|(uri, _)| uri));
        let mut new_callers = self.callers();
        new_callers.retain(|caller| !callers.contains(caller) && audience.includes(caller));
        if !new_callers.is_empty() {
            self.mark_uris(Recipients::With(&new_callers), *last, uris);
        }
        for served in &changed.served {
            let recipients = Recipients::With(&served.callers);
            match &served.uris {
                Some(served) => {
                    for (revision, uri) in served {
                        self.mark_uri(recipients, *revision, uri);
                    }
                }
                // What is not known may have changed.
                None => self.mark_uris(recipients, *last, uris),
            }
        }
    }
}
