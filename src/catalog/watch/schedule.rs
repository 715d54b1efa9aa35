//! When watched content is polled.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

use crate::model::ids::TenantId;
use crate::store::watching::WatchedSubject;

/// The maximum number of concurrent polls of a connection.
pub(super) const MAX_POLLS: usize = 8;

/// What is known of a subject. Anonymous callers subscribe to values that they choose, for which a source may hang: what was never
/// fetched does not delay the polls of what was, nor what failed then those of what is new.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum ContentState {
    /// The source has answered for it.
    Known,
    /// It was not polled yet.
    New,
    /// It was never fetched, and its last poll failed.
    Failing,
}

impl ContentState {
    /// The maximum number of concurrent polls of a tenant: one whose polls wait, or whose sources hang, leaves some to others.
    fn most(self) -> usize {
        match self {
            Self::Known => MAX_POLLS / 2,
            Self::New => MAX_POLLS / 4,
            Self::Failing => 1,
        }
    }
}

/// The subjects of a tenant that are polled in turn.
pub(super) type Lane = (TenantId, ContentState);

/// The times at which subjects are due, each at most once. Those that are due are taken in turn between lanes, except of
/// lanes with as many polls in progress as one may have.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    queues: HashMap<Lane, Queue>,
    times: HashMap<WatchedSubject, (Instant, Lane)>,
    /// When the first subject of each lane is due whose turn is not awaited.
    firsts: BTreeSet<(Instant, Lane)>,
    /// The lanes with subjects that were due, in the order of their turns.
    turns: VecDeque<Lane>,
    /// When turns were taken last.
    taken: Option<Instant>,
}

/// The subjects of a lane.
#[derive(Debug, Default)]
struct Queue {
    subjects: BTreeSet<(Instant, WatchedSubject)>,
    /// How many were taken whose polls have not ended.
    polls: usize,
    is_in_turns: bool,
}

impl Queue {
    /// When the first subject of its lane is due that may be polled.
    fn first(&self, (_, content_state): Lane) -> Option<Instant> {
        self.subjects.first().map(|(at, _)| *at).filter(|_| self.polls < content_state.most())
    }

    fn is_empty(&self) -> bool {
        self.subjects.is_empty() && self.polls == 0
    }
}

impl Schedule {
    /// Sets when a subject is due, in place of the time before.
    pub(super) fn set(&mut self, subject: &WatchedSubject, content_state: ContentState, at: Instant) {
        self.remove(subject);
        let lane = (subject.0.tenant, content_state);
        self.times.insert(subject.clone(), (at, lane));
        self.change(lane, |queue| _ = queue.subjects.insert((at, subject.clone())));
    }

    /// Sets when a subject is due unless it is due earlier.
    pub(super) fn advance(&mut self, subject: &WatchedSubject, content_state: ContentState, at: Instant) {
        if self.times.get(subject).is_none_or(|(before, _)| *before > at) {
            self.set(subject, content_state, at);
        }
    }

    pub(super) fn remove(&mut self, subject: &WatchedSubject) {
        if let Some((at, lane)) = self.times.remove(subject) {
            self.change(lane, |queue| _ = queue.subjects.remove(&(at, subject.clone())));
        }
    }

    /// Changes the queue of a lane.
    fn change(&mut self, lane: Lane, change: impl FnOnce(&mut Queue)) {
        let queue = self.queues.entry(lane).or_default();
        let before = queue.first(lane);
        change(queue);
        if queue.is_in_turns {
            return;
        }
        let (after, is_empty) = (queue.first(lane), queue.is_empty());
        if let Some(before) = before {
            self.firsts.remove(&(before, lane));
        }
        if let Some(after) = after {
            self.firsts.insert((after, lane));
        }
        if is_empty {
            self.queues.remove(&lane);
        }
    }

    /// A poll of a subject that was taken from a lane ended.
    pub(super) fn ended(&mut self, lane: Lane) {
        self.change(lane, |queue| queue.polls = queue.polls.saturating_sub(1));
    }

    /// When the next subject is due.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.turns.is_empty() { self.firsts.first().map(|(at, _)| *at) } else { self.taken }
    }

    /// Takes the subject of the next lane in turn that has been due for longest. Its poll is in progress until it
    /// [`ended`](Self::ended).
    pub(super) fn take_due(&mut self, now: Instant) -> Option<(Lane, WatchedSubject)> {
        self.taken = Some(now);
        while self.firsts.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, lane)) = self.firsts.pop_first()
        {
            self.turns.push_back(lane);
            self.queues.entry(lane).or_default().is_in_turns = true;
        }
        while let Some(lane) = self.turns.pop_front() {
            let queue = self.queues.entry(lane).or_default();
            let is_due = queue.first(lane).is_some_and(|at| at <= now);
            let taken = if is_due { queue.subjects.pop_first() } else { None };
            queue.polls += usize::from(taken.is_some());
            match queue.first(lane) {
                Some(at) if at <= now => self.turns.push_back(lane),
                first => {
                    queue.is_in_turns = false;
                    let is_empty = queue.is_empty();
                    if let Some(at) = first {
                        self.firsts.insert((at, lane));
                    }
                    if is_empty {
                        self.queues.remove(&lane);
                    }
                }
            }
            if let Some((_, subject)) = taken {
                self.times.remove(&subject);
                return Some((lane, subject));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;
    use uuid::Uuid;

    use super::ContentState::{Failing, Known, New};
    use super::{MAX_POLLS, Schedule};
    use crate::model::ids::{AgentId, AgentRef, ResourceUri, TenantId};
    use crate::store::watching::WatchedSubject;

    fn subject(uri: &str) -> WatchedSubject {
        subject_of(0, uri)
    }

    fn subject_of(tenant: u128, uri: &str) -> WatchedSubject {
        let agent = AgentRef { tenant: TenantId(Uuid::from_u128(tenant)), uid: AgentId(Uuid::nil()) };
        (agent, ResourceUri::parse(uri).unwrap().into())
    }

    /// A subject whose poll has ended.
    fn taken_and_ended(schedule: &mut Schedule, now: Instant) -> Option<WatchedSubject> {
        let (lane, taken) = schedule.take_due(now)?;
        schedule.ended(lane);
        Some(taken)
    }

    fn taken(schedule: &mut Schedule, now: Instant) -> Option<WatchedSubject> {
        schedule.take_due(now).map(|(_, subject)| subject)
    }

    #[test]
    fn polls_in_progress_of_a_tenant_leave_half_to_others() {
        let now = Instant::now();
        let many: Vec<_> = (0..=MAX_POLLS).map(|number| subject_of(1, &format!("a:{number}"))).collect();
        let others = ["b:0", "b:1"].map(|uri| subject_of(2, uri));
        let mut schedule = Schedule::default();
        for subject in &many {
            schedule.set(subject, Known, now);
        }
        for subject in &many[..MAX_POLLS / 2] {
            assert_eq!(taken(&mut schedule, now).as_ref(), Some(subject));
        }
        // Nothing is waited for either, except the end of a poll.
        assert_eq!((schedule.take_due(now), schedule.next()), (None, None));
        schedule.set(&others[0], Known, now);
        assert_eq!(taken(&mut schedule, now).as_ref(), Some(&others[0]));
        // Changes meanwhile do not pass the limit.
        schedule.remove(&many[MAX_POLLS]);
        schedule.set(&many[0], Known, now);
        schedule.set(&others[1], Known, now + Duration::from_secs(9));
        assert_eq!((schedule.take_due(now), schedule.next()), (None, Some(now + Duration::from_secs(9))));
        schedule.ended((many[0].0.tenant, Known));
        assert_eq!((schedule.next(), taken(&mut schedule, now)), (Some(now), Some(many[0].clone())));
        assert_eq!(schedule.take_due(now), None);
    }

    #[test]
    fn what_was_never_fetched_delays_neither_what_was_nor_what_is_new() {
        let now = Instant::now();
        let mut schedule = Schedule::default();
        let all = [(Failing, "f"), (New, "n"), (Known, "k")].map(|(content_state, name)| {
            let subjects = [0, 1, 2].map(|number| subject(&format!("{name}:{number}")));
            for subject in &subjects {
                schedule.set(subject, content_state, now);
            }
            subjects
        });
        let mut first: Vec<_> = std::iter::from_fn(|| taken(&mut schedule, now)).collect();
        let [failing, new, known] = all;
        let mut expected = [&failing[..1], &new[..2], &known].concat();
        first.sort();
        expected.sort();
        assert_eq!(first, expected);
        schedule.ended((new[0].0.tenant, New));
        assert_eq!([(); 2].map(|()| taken(&mut schedule, now)), [Some(new[2].clone()), None]);
    }

    #[test]
    fn subjects_that_are_due_are_taken_in_turn_between_tenants() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let many = ["a:a", "a:b", "a:c", "a:d"].map(|uri| subject_of(1, uri));
        let few = ["a:e", "a:f"].map(|uri| subject_of(2, uri));
        let mut schedule = Schedule::default();
        for (subject, seconds) in many.iter().zip([1, 1, 2, 2]).chain(few.iter().zip([3, 9])) {
            schedule.set(subject, Known, at(seconds));
        }
        let taken = [3, 3, 3].map(|seconds| taken_and_ended(&mut schedule, at(seconds)));
        assert_eq!(taken, [&many[0], &few[0], &many[1]].map(|subject| Some(subject.clone())));
        // Those whose turn is awaited may change.
        schedule.remove(&many[2]);
        schedule.set(&many[3], Known, at(5));
        assert!(schedule.next().is_some_and(|next| next <= at(3)));
        assert_eq!((schedule.take_due(at(4)), schedule.next()), (None, Some(at(5))));
        let taken = [5, 8, 9].map(|seconds| taken_and_ended(&mut schedule, at(seconds)));
        assert_eq!(taken, [Some(many[3].clone()), None, Some(few[1].clone())]);
        assert_eq!((schedule.next(), schedule.queues.len(), schedule.times.len()), (None, 0, 0));
    }

    #[test]
    fn subjects_are_due_in_order_and_once() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let [a, b, c] = ["a:a", "a:b", "a:c"].map(subject);
        let mut schedule = Schedule::default();
        schedule.set(&a, Known, at(3));
        schedule.set(&b, Known, at(2));
        schedule.set(&c, Known, at(9));
        schedule.set(&c, Known, at(1));
        schedule.advance(&a, Known, at(5));
        schedule.advance(&b, Known, at(1));
        schedule.remove(&subject("a:d"));
        assert_eq!((schedule.next(), schedule.take_due(now)), (Some(at(1)), None));
        let taken = [2, 2, 2, 3, 9].map(|seconds| taken_and_ended(&mut schedule, at(seconds)));
        assert_eq!(taken, [Some(b), Some(c.clone()), None, Some(a), None]);
        schedule.set(&c, Known, at(1));
        schedule.remove(&c);
        assert_eq!((schedule.next(), schedule.take_due(at(9))), (None, None));
    }
}
