//! A stream's subscription to an agent: its interests and the events to send next.

use std::future::poll_fn;
use std::sync::Arc;

use super::dirty_set::{Cause, DirtySet, FIRST};
use super::topic::Topic;
use crate::feed::service::Feed;
use crate::model::fault::Fault;
use crate::model::label::CallerLabels;
use crate::model::scope::{Revision, Scope};
use crate::model::subject::{Interest, Subject};
use crate::model::system::FailPoint;

/// The watermark of a stream that has to notify of everything, also of what did not change.
pub const UNKNOWN_WATERMARK: Revision = Revision(-1);

/// A subscription to an agent's changes. Dropping it removes it from the hub.
#[derive(Debug)]
pub struct Subscription {
    feed: Arc<Feed>,
    topic: Arc<Topic>,
    subscriber: Arc<DirtySet>,
    recheck_on: Vec<Scope>,
}

/// A change to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeEvent {
    /// The subject that changed.
    pub subject: Subject,
    /// Once this event is sent, no change at or below this revision is unsent; [`UNKNOWN_WATERMARK`] while everything is.
    pub watermark: Revision,
    /// The writes that changed it, if their traces are exported.
    pub cause: Option<Cause>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.topic.remove_subscriber(&self.subscriber);
        self.feed.hub.unsubscribe(self.topic.agent, &self.recheck_on, &self.subscriber);
    }
}

impl Subscription {
    pub(super) fn new(
        feed: Arc<Feed>,
        topic: Arc<Topic>,
        subscriber: Arc<DirtySet>,
        recheck_on: Vec<Scope>,
    ) -> Self {
        topic.add_subscriber(&subscriber);
        Self { feed, topic, subscriber, recheck_on }
    }

    /// Waits until the topic has read the agent's head.
    pub(super) async fn wait_until_ready(&self) -> Result<(), Fault> {
        let ready = tokio::time::timeout(self.feed.hub.timeout, self.topic.ready()).await;
        if ready.unwrap_or(false) { Ok(()) } else { Err(Fault::StorageUnavailable) }
    }

    /// Adds interests and marks what changed above the `since` of each. Returns whether those changes are
    /// known; if they are not, all interests are marked dirty.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] if the changes could not be read; the interests are added all the same.
    pub async fn add_interests(&self, interests: Vec<Interest>) -> Result<bool, Fault> {
        self.feed.system.pause(FailPoint::BeforeSubscription).await;
        let (interests, seen) = self.topic.add_interests(&self.subscriber, interests);
        let replayed = self.feed.replay(&self.topic, &self.subscriber, &interests, seen).await;
        replayed.map_err(|error| {
            tracing::debug!(%error, "reading changes for a stream failed");
            Fault::StorageUnavailable
        })
    }

    /// Removes interests and their dirty marks.
    pub fn remove_interests(&self, subjects: &[Subject]) {
        self.topic.remove_interests(&self.subscriber, subjects);
    }

    /// The subjects of all interests.
    pub fn subjects(&self) -> Vec<Subject> {
        self.subscriber.subjects()
    }

    /// The labels of the stream's caller.
    pub fn labels(&self) -> CallerLabels {
        self.subscriber.labels()
    }

    /// Sets new labels of the stream's caller, and marks every interest dirty: it sees other definitions. Waits until
    /// every replica answers by the current state of `granted`, the scope that the labels were changed in.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`] if the scope's revision could not be read; [`Fault::Forbidden`] if it is gone. The
    /// labels remain as they were.
    pub async fn relabel(&self, labels: CallerLabels, granted: Scope) -> Result<(), Fault> {
        self.feed.acknowledge(granted).await?;
        self.topic.relabel(&self.subscriber, labels);
        Ok(())
    }

    /// Marks every interest dirty, including what was already sent.
    pub fn mark_all_dirty(&self) {
        self.subscriber.mark_all(FIRST);
    }

    /// Waits until there is an event to send or a recheck is requested. For one task at a time.
    pub async fn ready(&self) {
        poll_fn(|context| self.subscriber.poll_ready(context)).await;
    }

    /// Returns whether a recheck was requested since the last call: a scope changed that decides whether the
    /// stream may continue.
    pub fn take_recheck(&self) -> bool {
        self.subscriber.take_recheck()
    }

    /// Requests a recheck.
    pub fn request_recheck(&self) {
        self.subscriber.request_recheck();
    }

    /// Removes and returns the event that has waited for longest.
    pub fn next(&self) -> Option<ChangeEvent> {
        // Read before the set: every change up to here is in the set or was sent.
        let seen = self.topic.seen();
        let (subject, unsent, cause) = self.subscriber.take()?;
        Some(ChangeEvent { subject, watermark: watermark(seen, unsent), cause })
    }

    /// The highest revision at or below which no change is unsent; [`UNKNOWN_WATERMARK`] while everything is.
    pub fn watermark(&self) -> Revision {
        let seen = self.topic.seen();
        watermark(seen, self.subscriber.oldest())
    }
}

fn watermark(seen: Revision, unsent: Option<Revision>) -> Revision {
    match unsent {
        Some(FIRST) => UNKNOWN_WATERMARK,
        // Negative while the topic is starting, when nothing is known.
        unsent => unsent.map_or(seen, |unsent| Revision(unsent.0 - 1)).min(seen).max(Revision(0)),
    }
}
