//! The dirty set of one stream: the subjects that it has yet to send, each with the first revision that made it
//! dirty. Backpressure of a slow client: a set is bounded by the subscriptions, however slowly the client reads.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use foldhash::fast::RandomState;
use parking_lot::{Mutex, MutexGuard};

use super::write_spans::TracedWrite;
use crate::model::audience::Audience;
use crate::model::label::CallerLabels;
use crate::model::scope::Revision;
use crate::model::subject::{Interest, Subject};
use crate::model::trace::SpanContext;

/// The first revision of a scope. A stream marked dirty from it on has to notify of everything.
pub(super) const FIRST: Revision = Revision(1);

/// Maximum number of writes that one event links to: the first ones that made its subject dirty.
const MAX_LINKS: usize = 8;

/// The interests and dirty subjects of one stream. Its size is bounded by the number of interests, however
/// slowly the client reads.
#[derive(Debug, Default)]
pub(super) struct DirtySet {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The labels of the stream's caller: changes that do not concern it are not marked.
    labels: CallerLabels,
    /// Clients choose the URIs, but do not know the random seed of the hasher; `sessions.subscriptions` bounds their number.
    interests: HashMap<Subject, InterestState, RandomState>,
    /// In the order in which they are sent.
    dirty: BTreeSet<(Revision, Subject)>,
    /// Of dirty subjects, if traces of writes are exported.
    causes: HashMap<Subject, Cause, RandomState>,
    /// Whether the stream must recheck whether it may continue.
    recheck: bool,
    /// Wakes the stream, if it waits.
    waiting: Option<Waker>,
}

/// The writes that an event reports, as far as their traces are exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// When the first of their changes was marked in the stream.
    pub since: Instant,
    /// Their spans.
    pub writes: Vec<SpanContext>,
}

/// The streams that a change is marked in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Recipients<'a> {
    /// Those whose callers the change concerns.
    Of(&'a Audience),
    /// Those of these callers.
    With(&'a HashSet<CallerLabels>),
}

impl Recipients<'_> {
    fn include(self, labels: &CallerLabels) -> bool {
        match self {
            Self::Of(audience) => audience.includes(labels),
            Self::With(callers) => callers.contains(labels),
        }
    }
}

#[derive(Debug)]
struct InterestState {
    since: Revision,
    /// The first unsent revision above `since`.
    dirty: Option<Revision>,
}

impl DirtySet {
    /// The set of a stream whose caller has these labels.
    pub(super) fn new(labels: CallerLabels) -> Self {
        Self { state: Mutex::new(State { labels, ..State::default() }) }
    }

    /// The labels of the stream's caller.
    pub(super) fn labels(&self) -> CallerLabels {
        self.state.lock().labels.clone()
    }

    /// Sets the labels of the stream's caller.
    pub(super) fn set_labels(&self, labels: CallerLabels) {
        self.state.lock().labels = labels;
    }

    /// Adds interests; existing ones remain unchanged.
    pub(super) fn add(&self, interests: &[Interest]) {
        let mut state = self.state.lock();
        for Interest { subject, since } in interests {
            state.interests.entry(subject.clone()).or_insert(InterestState { since: *since, dirty: None });
        }
    }

    /// Removes an interest and its dirty mark.
    pub(super) fn remove(&self, subject: &Subject) {
        let mut state = self.state.lock();
        if let Some(InterestState { dirty: Some(first), .. }) = state.interests.remove(subject) {
            state.dirty.remove(&(first, subject.clone()));
            state.causes.remove(subject);
        }
    }

    /// The subjects of all interests.
    pub(super) fn subjects(&self) -> Vec<Subject> {
        self.state.lock().interests.keys().cloned().collect()
    }

    /// Marks a subject dirty if `revision` is newer than the interest in it.
    pub(super) fn mark(&self, subject: &Subject, revision: Revision) {
        self.mark_of(Recipients::Of(&Audience::Everybody), subject, (revision, None));
    }

    /// As [`mark`](Self::mark), if the stream is a recipient. `write` made the revision.
    pub(super) fn mark_of(
        &self,
        recipients: Recipients<'_>,
        subject: &Subject,
        (revision, write): (Revision, Option<&TracedWrite>),
    ) {
        let mut state = self.state.lock();
        if !recipients.include(&state.labels) {
            return;
        }
        let State { interests, dirty, causes, .. } = &mut *state;
        let Some(interest) = interests.get_mut(subject).filter(|interest| revision > interest.since) else {
            return;
        };
        if let Some(write) = write {
            link(causes, subject, write);
        }
        if interest.mark_from(dirty, subject, revision) {
            wake(state);
        }
    }

    /// Marks subjects dirty from `first` on, at any revision of the interest, because their changes are
    /// unknown.
    pub(super) fn mark_unknown<'s>(&self, subjects: impl IntoIterator<Item = &'s Subject>, first: Revision) {
        let mut state = self.state.lock();
        for subject in subjects {
            state.mark_from(subject, first);
        }
        wake(state);
    }

    /// Marks the subjects of all interests dirty from `first` on.
    pub(super) fn mark_all(&self, first: Revision) {
        self.mark_unknown(&self.subjects(), first);
    }

    /// As [`mark_all`](Self::mark_all), if the changes concern the stream's caller.
    pub(super) fn mark_all_of(&self, audience: &Audience, first: Revision) {
        if audience.includes(&self.labels()) {
            self.mark_all(first);
        }
    }

    /// Marks everything dirty because the revisions of the previous timeline do not apply any more.
    pub(super) fn restart(&self) {
        let mut state = self.state.lock();
        for interest in state.interests.values_mut() {
            interest.since = Revision(0);
        }
        drop(state);
        self.mark_all(FIRST);
    }

    /// Requests that the stream checks whether it may continue.
    pub(super) fn request_recheck(&self) {
        let mut state = self.state.lock();
        state.recheck = true;
        wake(state);
    }

    /// Returns whether a recheck was requested since the last call.
    pub(super) fn take_recheck(&self) -> bool {
        std::mem::take(&mut self.state.lock().recheck)
    }

    /// Ready once a subject is dirty or a recheck is requested. Only the last task that polled it is woken.
    pub(super) fn poll_ready(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.state.lock();
        if state.recheck || !state.dirty.is_empty() {
            return Poll::Ready(());
        }
        match &mut state.waiting {
            Some(waiting) => waiting.clone_from(context.waker()),
            slot @ None => *slot = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    /// Removes and returns the subject that has been dirty for longest, with the first revision that is still
    /// unsent after it, and the writes that made it dirty.
    pub(super) fn take(&self) -> Option<(Subject, Option<Revision>, Option<Cause>)> {
        let mut state = self.state.lock();
        let (_, subject) = state.dirty.pop_first()?;
        if let Some(interest) = state.interests.get_mut(&subject) {
            interest.dirty = None;
        }
        let cause = if state.causes.is_empty() { None } else { state.causes.remove(&subject) };
        Some((subject, state.oldest(), cause))
    }

    /// The first unsent revision.
    pub(super) fn oldest(&self) -> Option<Revision> {
        self.state.lock().oldest()
    }
}

/// Wakes the stream, outside of the lock that it takes next.
fn wake(mut state: MutexGuard<'_, State>) {
    let waiting = state.waiting.take();
    drop(state);
    if let Some(waiting) = waiting {
        waiting.wake();
    }
}

impl State {
    fn oldest(&self) -> Option<Revision> {
        self.dirty.first().map(|(revision, _)| *revision)
    }

    fn mark_from(&mut self, subject: &Subject, revision: Revision) -> bool {
        let interest = self.interests.get_mut(subject);
        interest.is_some_and(|interest| interest.mark_from(&mut self.dirty, subject, revision))
    }
}

impl InterestState {
    /// Marks the subject dirty from `revision` on. Returns false if it was dirty from that revision or an earlier one already.
    fn mark_from(
        &mut self,
        dirty: &mut BTreeSet<(Revision, Subject)>,
        subject: &Subject,
        revision: Revision,
    ) -> bool {
        match self.dirty {
            Some(first) if first <= revision => return false,
            Some(later) => {
                dirty.remove(&(later, subject.clone()));
            }
            None => {}
        }
        self.dirty = Some(revision);
        dirty.insert((revision, subject.clone()))
    }
}

/// Links the next event of a subject to a write.
fn link(causes: &mut HashMap<Subject, Cause, RandomState>, subject: &Subject, write: &TracedWrite) {
    if causes.get(subject).is_some_and(|cause| cause.writes.len() == MAX_LINKS) {
        return;
    }
    let Some(span) = write.link() else { return };
    let new = || Cause { since: Instant::now(), writes: Vec::new() };
    let cause = causes.entry(subject.clone()).or_insert_with(new);
    if !cause.writes.contains(&span) {
        cause.writes.push(span);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};

    use super::super::write_spans::WriteSpans;
    use super::{DirtySet, MAX_LINKS, Recipients};
    use crate::model::audience::Audience;
    use crate::model::ids::ResourceUri;
    use crate::model::scope::Revision;
    use crate::model::subject::{Interest, Subject};
    use crate::model::trace::SpanContext;

    struct CountingWaker(AtomicUsize);

    impl CountingWaker {
        fn new() -> Arc<Self> {
            Arc::new(Self(AtomicUsize::new(0)))
        }

        fn waker(self: &Arc<Self>) -> Waker {
            Waker::from(Arc::clone(self))
        }

        fn wakes(&self) -> usize {
            self.0.load(Ordering::Relaxed)
        }
    }

    impl Wake for CountingWaker {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn of(uri: &str) -> Subject {
        Subject::resource(ResourceUri::parse(uri).unwrap())
    }

    fn set(uris: &[(&str, i64)]) -> DirtySet {
        let set = DirtySet::default();
        let interest = |(uri, since): &(&str, i64)| Interest { subject: of(uri), since: Revision(*since) };
        set.add(&uris.iter().map(interest).collect::<Vec<_>>());
        set
    }

    fn drain(set: &DirtySet) -> Vec<(Subject, Option<i64>)> {
        std::iter::from_fn(|| set.take()).map(|(subject, next, _)| (subject, next.map(|r| r.0))).collect()
    }

    #[test]
    fn oldest_dirty_subject_is_taken_first_and_once() {
        let set = set(&[("x:a", 0), ("x:b", 0)]);
        for (uri, revision) in [("x:a", 5), ("x:b", 6), ("x:a", 7), ("x:a", 8), ("x:c", 9)] {
            set.mark(&of(uri), Revision(revision));
        }
        assert_eq!(drain(&set), [(of("x:a"), Some(6)), (of("x:b"), None)]);
        set.mark(&of("x:a"), Revision(10));
        assert_eq!(drain(&set), [(of("x:a"), None)]);
    }

    #[test]
    fn marking_an_earlier_revision_moves_the_subject_forward() {
        let set = set(&[("x:a", 0), ("x:b", 0)]);
        set.mark(&of("x:a"), Revision(9));
        set.mark(&of("x:b"), Revision(8));
        set.mark(&of("x:a"), Revision(3));
        assert_eq!(drain(&set), [(of("x:a"), Some(8)), (of("x:b"), None)]);
    }

    #[test]
    fn only_changes_after_the_interest_are_marked() {
        let set = set(&[("x:a", 5), ("x:b", 7)]);
        set.mark(&of("x:a"), Revision(5));
        set.mark(&of("x:b"), Revision(6));
        assert_eq!(drain(&set), []);
        set.mark_all(Revision(4));
        assert_eq!(
            drain(&set),
            [(of("x:a"), Some(4)), (of("x:b"), None)],
            "unknown changes are marked regardless of `since`"
        );
        set.mark_all(Revision(9));
        set.remove(&of("x:a"));
        assert_eq!(drain(&set), [(of("x:b"), None)]);
        set.mark(&of("x:a"), Revision(20));
        assert_eq!(drain(&set), []);
    }

    #[test]
    fn only_the_last_task_that_waited_is_woken_once() {
        let set = set(&[("x:a", 0)]);
        let tasks = [(); 2].map(|()| CountingWaker::new());
        let wakes = || tasks.each_ref().map(|task| task.wakes());
        let poll = |task: usize| set.poll_ready(&Context::from_waker(&tasks[task].waker()));
        assert!(poll(0).is_pending() && poll(1).is_pending());
        set.mark(&of("x:a"), Revision(1));
        set.mark(&of("x:a"), Revision(2));
        assert_eq!(wakes(), [0, 1]);
        assert!(poll(0).is_ready());
        set.take();
        assert!(poll(0).is_pending());
        set.request_recheck();
        assert_eq!(wakes(), [1, 1]);
        assert!(poll(0).is_ready());
        assert!(set.take_recheck() && poll(0).is_pending());
    }

    #[test]
    fn event_has_the_first_writes_that_made_its_subject_dirty() {
        let set = set(&[("x:a", 5), ("x:b", 0)]);
        let span = |revision: i64| SpanContext { trace: 1, span: revision.unsigned_abs() };
        let mut writes = WriteSpans::default();
        for revision in 1..30 {
            writes.add(Revision(revision), span(revision));
        }
        let everybody = Recipients::Of(&Audience::Everybody);
        let mark = |uri: &str, revision: i64| {
            let write = writes.of(Revision(revision)).filter(|_| revision % 2 == 0);
            set.mark_of(everybody, &of(uri), (Revision(revision), write));
        };
        for (uri, revision) in [("x:a", 4), ("x:a", 7), ("x:a", 8), ("x:a", 8), ("x:c", 10), ("x:a", 12)] {
            mark(uri, revision);
        }
        let cause = |taken: Option<super::Cause>| taken.map(|cause| cause.writes);
        let (subject, _, first) = set.take().unwrap();
        assert_eq!((subject, cause(first)), (of("x:a"), Some(vec![span(8), span(12)])));
        for revision in 1..30 {
            mark("x:b", revision);
        }
        let expected: Vec<_> = (1..).map(|nth| span(2 * nth)).take(MAX_LINKS).collect();
        assert_eq!(cause(set.take().unwrap().2), Some(expected));
        mark("x:a", 13);
        assert_eq!(set.take().unwrap().2, None);
        mark("x:a", 14);
        set.remove(&of("x:a"));
        set.add(&[Interest { subject: of("x:a"), since: Revision(0) }]);
        mark("x:a", 15);
        assert_eq!(set.take().unwrap().2, None);
    }
}
