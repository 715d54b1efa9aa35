//! What changed before an interest was there: read from the log of changes.

use std::collections::HashMap;

use super::MOST_CHANGES;
use super::reader::Reader;
use super::topic::Topic;
use super::touched::Touched;
use crate::feed::Feed;
use crate::model::scope::{Revision, Scope};
use crate::model::sources::FailPoint;
use crate::model::subject::{Interest, Subject};
use crate::store::StoreError;

impl Feed {
    /// Marks what changed above each interest's `since`, up to `until`; answers whether that is known. Where it is not
    /// retained any more, or is too much to read, everything is taken for changed.
    pub(super) async fn replay(
        &self,
        topic: &Topic,
        reader: &Reader,
        interests: &[Interest],
        until: Revision,
    ) -> Result<bool, StoreError> {
        if until.0 < 0 {
            // The topic begins anew, in another timeline of the database.
            reader.mark_unknown(interests.iter().map(|interest| &interest.subject), Revision(1));
            return Ok(false);
        }
        let since = interests.iter().map(|interest| interest.since).min();
        let Some(since) = since.filter(|since| *since < until) else { return Ok(true) };
        let scope = Scope::from(topic.agent);
        // Floor and rows in one view: what is pruned meanwhile is still seen, or its floor is.
        let read = self.hub.read(&self.store, scope, async |view, head| {
            self.sources.pause(FailPoint::DuringReplay).await;
            let changes = view.changes_after(scope, since, MOST_CHANGES + 1).await?;
            let known = head.floor <= since && changes.len() <= MOST_CHANGES;
            Ok(known.then_some(changes))
        });
        let Some(Some(mut changes)) = read.await? else {
            let subjects = interests.iter().map(|interest| &interest.subject);
            reader.mark_unknown(subjects, Revision(since.0 + 1));
            return Ok(false);
        };
        changes.retain(|change| change.revision <= until);
        let subjects: HashMap<_, _> =
            interests.iter().map(|i| (touched_by(&i.subject), &i.subject)).collect();
        let uris = || interests.iter().filter_map(|interest| uri_of(&interest.subject)).collect();
        for (revision, touched) in self.touched(topic, &changes, uris).await {
            if let Some(subject) = subjects.get(&touched) {
                reader.mark(subject, revision);
            }
        }
        Ok(true)
    }
}

fn touched_by(subject: &Subject) -> Touched {
    match subject {
        Subject::ResourceList => Touched::ResourceList,
        Subject::PromptList => Touched::PromptList,
        Subject::Resource(watched) => Touched::Resource(watched.uri.clone()),
    }
}

fn uri_of(subject: &Subject) -> Option<crate::model::uri::ResourceUri> {
    match subject {
        Subject::Resource(watched) => Some(watched.uri.clone()),
        Subject::ResourceList | Subject::PromptList => None,
    }
}
