//! Replays the changes between a client's last known revision and its new interest from the `changes` table.

use std::collections::{HashMap, HashSet};

use super::dirty_set::{DirtySet, FIRST};
use super::effects::{Affected, Effects, SubscribedUris, TemplateEffects};
use super::streams::MAX_CHANGES;
use super::topic::Topic;
use crate::feed::service::Feed;
use crate::model::audience::Audience;
use crate::model::scope::{Revision, Scope};
use crate::model::subject::{Interest, Subject};
use crate::model::system::FailPoint;
use crate::store::StoreError;

impl Feed {
    /// Marks what changed above each interest's `since`, up to `until`. Returns false, and marks all interests
    /// dirty, if changes that concern its caller are not retained any more or are too many to read.
    pub(super) async fn replay(
        &self,
        topic: &Topic,
        subscriber: &DirtySet,
        interests: &[Interest],
        until: Revision,
    ) -> Result<bool, StoreError> {
        if until.0 < 0 {
            // The topic is restarting on another timeline of the database.
            subscriber.mark_unknown(interests.iter().map(|interest| &interest.subject), FIRST);
            return Ok(false);
        }
        let since = interests.iter().map(|interest| interest.since).min();
        let Some(since) = since.filter(|since| *since < until) else { return Ok(true) };
        let (scope, caller) = (Scope::from(topic.agent), subscriber.labels());
        // Floor and rows in one snapshot: rows that are pruned meanwhile remain visible, or the floor shows it.
        let read = self.hub.read(&self.store, scope, async |view, head| {
            self.system.pause(FailPoint::DuringReplay).await;
            let changes = view.changes_for(&caller, scope, since, MAX_CHANGES + 1).await?;
            let pruned = head.floor > since && view.pruned_for(&caller, scope, since).await?;
            Ok((!pruned && changes.len() <= MAX_CHANGES).then_some(changes))
        });
        let Some(Some(mut changes)) = read.await? else {
            let subjects = interests.iter().map(|interest| &interest.subject);
            subscriber.mark_unknown(subjects, Revision(since.0 + 1));
            return Ok(false);
        };
        changes.retain(|change| change.revision <= until);
        let subjects: HashMap<_, _> =
            interests.iter().map(|i| (affected_key(&i.subject), &i.subject)).collect();
        let uris: Vec<_> = interests.iter().filter_map(|interest| uri_of(&interest.subject)).collect();
        // All of these changes concern the stream's caller.
        let changes: Vec<_> = changes.into_iter().map(|change| (change, Audience::Everybody)).collect();
        let in_question =
            || SubscribedUris { uris: uris.clone(), callers: HashSet::from([caller]), additions: 0 };
        let Effects { direct, templates } = self.effects_of(topic, (since, &changes), in_question).await;
        let direct = direct.into_iter().map(|(revision, affected, _)| (revision, affected));
        let templated = templates.map(|TemplateEffects { last, served, .. }| {
            let known = served.into_iter().next().and_then(|served| served.uris);
            // What is not known may have changed.
            known.unwrap_or_else(|| uris.into_iter().map(|uri| (last, uri)).collect())
        });
        let templated = templated.into_iter().flatten();
        let affected = direct.chain(templated.map(|(revision, uri)| (revision, Affected::Resource(uri))));
        for (revision, affected) in affected {
            if let Some(subject) = subjects.get(&affected) {
                subscriber.mark(subject, revision);
            }
        }
        Ok(true)
    }
}

fn affected_key(subject: &Subject) -> Affected {
    match subject {
        Subject::ResourceList => Affected::ResourceList,
        Subject::PromptList => Affected::PromptList,
        Subject::ToolList => Affected::ToolList,
        Subject::Resource(resource) => Affected::Resource(resource.uri.clone()),
    }
}

fn uri_of(subject: &Subject) -> Option<crate::model::ids::ResourceUri> {
    match subject {
        Subject::Resource(resource) => Some(resource.uri.clone()),
        Subject::ResourceList | Subject::PromptList | Subject::ToolList => None,
    }
}
