//! The topic of one agent: reads the agent's changes in order and marks the subjects they affect.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::dirty_set::DirtySet;
use crate::model::ids::{AgentId, ResourceUri, TenantId};
use crate::model::scope::{Change, ChangeKind, Revision};
use crate::model::subject::{Interest, Subject, WatchedUri};

/// An agent with open streams.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) tenant: TenantId,
    pub(super) agent: AgentId,
    pub(super) wanted: AtomicI64,
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
    uris: HashMap<ResourceUri, (Arc<WatchedUri>, Vec<Arc<DirtySet>>)>,
    /// All streams of the agent.
    subscribers: Vec<Arc<DirtySet>>,
}

impl Topic {
    pub(super) fn new(tenant: TenantId, agent: AgentId, stop: CancellationToken) -> Self {
        Self {
            tenant,
            agent,
            wanted: AtomicI64::new(0),
            seen: AtomicI64::new(-1),
            changed: Notify::new(),
            ready: watch::Sender::new(false),
            timeline: AtomicU64::new(0),
            index: Mutex::default(),
            stop,
        }
    }

    pub(super) fn raise(&self, revision: Revision) {
        self.wanted.fetch_max(revision.0, Ordering::AcqRel);
        self.changed.notify_one();
    }

    pub(super) fn end(&self) {
        self.stop.cancel();
    }

    /// Starts over on another timeline of the database, where every subject may differ.
    pub(super) fn restart(&self) {
        let _index = self.index.lock();
        self.timeline.fetch_add(1, Ordering::AcqRel);
        self.wanted.store(0, Ordering::Release);
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

    /// The URIs with an interested stream.
    pub(super) fn uris(&self) -> Vec<ResourceUri> {
        self.index.lock().uris.keys().cloned().collect()
    }

    /// Marks the affected subjects and records that every change up to `until` is marked.
    pub(super) fn mark(&self, affected: &[(Revision, Affected)], until: Revision, timeline: u64) {
        let index = self.index.lock();
        if self.timeline() != timeline {
            return;
        }
        for (revision, affected) in affected {
            index.mark(*revision, affected);
        }
        self.seen.store(until.0, Ordering::Release);
    }

    pub(super) fn mark_all(&self, until: Revision, timeline: u64) {
        let index = self.index.lock();
        if self.timeline() != timeline {
            return;
        }
        let first = Revision(self.seen().0 + 1);
        for subscriber in &index.subscribers {
            subscriber.mark_all(first);
        }
        self.seen.store(until.0, Ordering::Release);
    }

    pub(super) fn is_behind(&self) -> bool {
        self.wanted.load(Ordering::Acquire) > self.seen().0
    }
}

impl Index {
    fn add(&mut self, subscriber: &Arc<DirtySet>, interest: Interest) -> Interest {
        let Interest { subject, since } = interest;
        let (subject, subscribers) = match subject {
            Subject::ResourceList => (Subject::ResourceList, &mut self.resource_list),
            Subject::PromptList => (Subject::PromptList, &mut self.prompt_list),
            Subject::Resource(watched) => {
                let uri = watched.uri.clone();
                let (watched, subscribers) = self.uris.entry(uri).or_insert_with(|| (watched, Vec::new()));
                (Subject::Resource(Arc::clone(watched)), subscribers)
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
            Subject::Resource(watched) => {
                if let Some((_, subscribers)) = self.uris.get_mut(&watched.uri) {
                    remove(subscribers);
                    if subscribers.is_empty() {
                        self.uris.remove(&watched.uri);
                    }
                }
            }
        }
    }

    fn mark(&self, revision: Revision, affected: &Affected) {
        let all = |subscribers: &[Arc<DirtySet>], subject: &Subject| {
            for subscriber in subscribers {
                subscriber.mark(subject, revision);
            }
        };
        match affected {
            Affected::ResourceList => all(&self.resource_list, &Subject::ResourceList),
            Affected::PromptList => all(&self.prompt_list, &Subject::PromptList),
            Affected::Resource(uri) => {
                if let Some((watched, subscribers)) = self.uris.get(uri.as_str()) {
                    all(subscribers, &Subject::Resource(Arc::clone(watched)));
                }
            }
        }
    }
}

/// A subject that a change affects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Affected {
    /// The list of resources or of resource templates.
    ResourceList,
    /// The list of prompts.
    PromptList,
    /// The content of a URI.
    Resource(ResourceUri),
}

/// Whether the change may affect URIs that are served by a resource template.
pub(super) fn affects_templated_uris(kind: ChangeKind) -> bool {
    kind.relists_templates() || kind == ChangeKind::TemplateBody
}

/// The subjects that a change affects without regard to templates, each with its revision.
pub(super) fn directly_affected(change: &Change) -> impl Iterator<Item = (Revision, Affected)> {
    let kind = change.kind;
    let relists =
        matches!(kind, ChangeKind::ResourceAdded | ChangeKind::ResourceRemoved | ChangeKind::ResourceDefined);
    let list = if relists || kind.relists_templates() {
        Some(Affected::ResourceList)
    } else {
        kind.relists_prompts().then_some(Affected::PromptList)
    };
    let uri = if kind.is_of_resource() { ResourceUri::parse(&change.subject).ok() } else { None };
    let revision = change.revision;
    list.into_iter().chain(uri.map(Affected::Resource)).map(move |affected| (revision, affected))
}
