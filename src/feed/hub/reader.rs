//! What one stream has still to tell: a set of subjects, each with the revision that first made it dirty.

use std::collections::{BTreeSet, HashMap};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::scope::Revision;
use crate::model::subject::{Interest, Subject};

/// A stream, as those see it who have something for it. However slow it is, it costs its set.
#[derive(Debug, Default)]
pub(super) struct Reader {
    state: Mutex<State>,
    some: Notify,
}

#[derive(Debug, Default)]
struct State {
    interests: HashMap<Subject, Place>,
    /// In the order in which they are told.
    dirty: BTreeSet<(Revision, Subject)>,
    /// Whether something changed that decides over the stream itself.
    suspect: bool,
}

#[derive(Debug)]
struct Place {
    since: Revision,
    /// The first revision above `since` that is not told yet.
    dirty: Option<Revision>,
}

impl Reader {
    /// Takes up interests; those that were there already stay as they are.
    pub(super) fn add(&self, interests: &[Interest]) {
        let mut state = self.state.lock();
        for Interest { subject, since } in interests {
            state.interests.entry(subject.clone()).or_insert(Place { since: *since, dirty: None });
        }
    }

    /// Drops an interest, and what was still to be told of it.
    pub(super) fn remove(&self, subject: &Subject) {
        let mut state = self.state.lock();
        if let Some(Place { dirty: Some(first), .. }) = state.interests.remove(subject) {
            state.dirty.remove(&(first, subject.clone()));
        }
    }

    /// What it is interested in.
    pub(super) fn subjects(&self) -> Vec<Subject> {
        self.state.lock().interests.keys().cloned().collect()
    }

    /// A revision changed a subject.
    pub(super) fn mark(&self, subject: &Subject, revision: Revision) {
        if self.state.lock().mark(subject, revision) {
            self.some.notify_one();
        }
    }

    /// Any of these subjects may have changed, from `first` on.
    pub(super) fn mark_unknown<'s>(&self, subjects: impl IntoIterator<Item = &'s Subject>, first: Revision) {
        let mut state = self.state.lock();
        for subject in subjects {
            state.mark_from(subject, first);
        }
        self.some.notify_one();
    }

    /// Anything that was to be heard of may have changed, from `first` on.
    pub(super) fn mark_all(&self, first: Revision) {
        self.mark_unknown(&self.subjects(), first);
    }

    /// The database is in another timeline, whose revisions mean something else: everything is to be told.
    pub(super) fn restart(&self) {
        let mut state = self.state.lock();
        for place in state.interests.values_mut() {
            place.since = Revision(0);
        }
        drop(state);
        self.mark_all(Revision(1));
    }

    /// Something changed that decides over the stream itself.
    pub(super) fn suspect(&self) {
        self.state.lock().suspect = true;
        self.some.notify_one();
    }

    /// Whether that was so since the last call.
    pub(super) fn take_suspicion(&self) -> bool {
        std::mem::take(&mut self.state.lock().suspect)
    }

    /// Waits until there is something to tell or to look at.
    pub(super) async fn stirred(&self) {
        loop {
            {
                let state = self.state.lock();
                if state.suspect || !state.dirty.is_empty() {
                    return;
                }
            }
            self.some.notified().await;
        }
    }

    /// Takes what has been dirty for longest, with the first revision that is still to be told after it, if any.
    pub(super) fn take(&self) -> Option<(Subject, Option<Revision>)> {
        let mut state = self.state.lock();
        let (_, subject) = state.dirty.pop_first()?;
        if let Some(place) = state.interests.get_mut(&subject) {
            place.dirty = None;
        }
        Some((subject, state.oldest()))
    }

    /// The first revision that is still to be told.
    pub(super) fn oldest(&self) -> Option<Revision> {
        self.state.lock().oldest()
    }
}

impl State {
    fn oldest(&self) -> Option<Revision> {
        self.dirty.first().map(|(revision, _)| *revision)
    }

    fn mark(&mut self, subject: &Subject, revision: Revision) -> bool {
        let wanted = self.interests.get(subject).is_some_and(|place| revision > place.since);
        wanted && self.mark_from(subject, revision)
    }

    fn mark_from(&mut self, subject: &Subject, revision: Revision) -> bool {
        let Some(place) = self.interests.get_mut(subject) else { return false };
        match place.dirty {
            Some(first) if first <= revision => return false,
            Some(later) => {
                self.dirty.remove(&(later, subject.clone()));
            }
            None => {}
        }
        place.dirty = Some(revision);
        self.dirty.insert((revision, subject.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::Reader;
    use crate::model::scope::Revision;
    use crate::model::subject::{Interest, Subject};
    use crate::model::uri::ResourceUri;

    fn of(uri: &str) -> Subject {
        Subject::resource(ResourceUri::parse(uri).unwrap())
    }

    fn reader(uris: &[(&str, i64)]) -> Reader {
        let reader = Reader::default();
        let interest = |(uri, since): &(&str, i64)| Interest { subject: of(uri), since: Revision(*since) };
        reader.add(&uris.iter().map(interest).collect::<Vec<_>>());
        reader
    }

    fn told(reader: &Reader) -> Vec<(Subject, Option<i64>)> {
        std::iter::from_fn(|| reader.take()).map(|(subject, next)| (subject, next.map(|r| r.0))).collect()
    }

    #[test]
    fn what_has_been_dirty_for_longest_is_told_first_and_once() {
        let reader = reader(&[("x:a", 0), ("x:b", 0)]);
        for (uri, revision) in [("x:a", 5), ("x:b", 6), ("x:a", 7), ("x:a", 8), ("x:c", 9)] {
            reader.mark(&of(uri), Revision(revision));
        }
        assert_eq!(told(&reader), [(of("x:a"), Some(6)), (of("x:b"), None)]);
        reader.mark(&of("x:a"), Revision(10));
        assert_eq!(told(&reader), [(of("x:a"), None)]);
    }

    #[test]
    fn what_was_found_later_may_be_older() {
        let reader = reader(&[("x:a", 0), ("x:b", 0)]);
        reader.mark(&of("x:a"), Revision(9));
        reader.mark(&of("x:b"), Revision(8));
        reader.mark(&of("x:a"), Revision(3));
        assert_eq!(told(&reader), [(of("x:a"), Some(8)), (of("x:b"), None)]);
    }

    #[test]
    fn only_what_came_after_an_interest_was_taken_up_is_told() {
        let reader = reader(&[("x:a", 5), ("x:b", 7)]);
        reader.mark(&of("x:a"), Revision(5));
        reader.mark(&of("x:b"), Revision(6));
        assert_eq!(told(&reader), []);
        reader.mark_all(Revision(4));
        assert_eq!(told(&reader), [(of("x:a"), Some(4)), (of("x:b"), None)], "whatever may have changed");
        reader.mark_all(Revision(9));
        reader.remove(&of("x:a"));
        assert_eq!(told(&reader), [(of("x:b"), None)]);
        reader.mark(&of("x:a"), Revision(20));
        assert_eq!(told(&reader), []);
    }
}
