//! One stream's hold on the hub: what it is interested in, and what it has to tell next.

use std::sync::Arc;

use super::reader::Reader;
use super::topic::Topic;
use crate::feed::Feed;
use crate::model::fault::Fault;
use crate::model::scope::{Revision, Scope};
use crate::model::sources::FailPoint;
use crate::model::subject::{Interest, Subject};

/// A stream of what happens to an agent; dropped, it is none any more.
#[derive(Debug)]
pub struct Reading {
    feed: Arc<Feed>,
    topic: Arc<Topic>,
    reader: Arc<Reader>,
    watched: Vec<Scope>,
}

/// Something to tell, and what is told with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// What changed.
    pub subject: Subject,
    /// Once this is told, nothing at or below this revision is untold.
    pub watermark: Revision,
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.topic.leave(&self.reader);
        self.feed.hub.leave(self.topic.agent, &self.watched, &self.reader);
    }
}

impl Reading {
    pub(super) fn new(feed: Arc<Feed>, topic: Arc<Topic>, reader: Arc<Reader>, watched: Vec<Scope>) -> Self {
        topic.join(&reader);
        Self { feed, topic, reader, watched }
    }

    /// Waits until it is known where the agent stands.
    pub(super) async fn begin(&self) -> Result<(), Fault> {
        let begun = tokio::time::timeout(self.feed.hub.patience, self.topic.begun()).await;
        if begun.unwrap_or(false) { Ok(()) } else { Err(Fault::StorageUnavailable) }
    }

    /// Takes up interests; what changed above the `since` of each is to be told. Answers whether that is known: where
    /// it is not, all of them are to be told.
    ///
    /// # Errors
    /// [`Fault::StorageUnavailable`]; those that were taken up stay so.
    pub async fn take_up(&self, interests: Vec<Interest>) -> Result<bool, Fault> {
        self.feed.sources.pause(FailPoint::BeforeSubscription).await;
        let (interests, seen) = self.topic.enter(&self.reader, interests);
        let replayed = self.feed.replay(&self.topic, &self.reader, &interests, seen).await;
        replayed.map_err(|error| {
            tracing::debug!(%error, "changes could not be read for a stream");
            Fault::StorageUnavailable
        })
    }

    /// Drops interests, and what was still to be told of them.
    pub fn drop_interests(&self, subjects: &[Subject]) {
        self.topic.drop_interests(&self.reader, subjects);
    }

    /// What it is interested in.
    pub fn subjects(&self) -> Vec<Subject> {
        self.reader.subjects()
    }

    /// Everything is to be told, whatever was told before.
    pub fn reset(&self) {
        self.reader.mark_all(Revision(1));
    }

    /// Waits until there is something to tell, or something changed that decides over the stream itself.
    pub async fn stirred(&self) {
        self.reader.stirred().await;
    }

    /// Whether something changed, since the last call, that decides over the stream itself.
    pub fn take_suspicion(&self) -> bool {
        self.reader.take_suspicion()
    }

    /// Has the stream look again whether it may go on.
    pub fn suspect(&self) {
        self.reader.suspect();
    }

    /// What has waited for longest to be told.
    pub fn next(&self) -> Option<Told> {
        // Before the set is looked at: everything up to here is in it, or was told.
        let seen = self.topic.seen();
        let (subject, untold) = self.reader.take()?;
        Some(Told { subject, watermark: watermark(seen, untold) })
    }

    /// Nothing at or below this revision is untold.
    pub fn watermark(&self) -> Revision {
        let seen = self.topic.seen();
        watermark(seen, self.reader.oldest())
    }
}

fn watermark(seen: Revision, untold: Option<Revision>) -> Revision {
    // Nothing is known while a topic begins.
    untold.map_or(seen, |untold| Revision(untold.0 - 1)).min(seen).max(Revision(0))
}
