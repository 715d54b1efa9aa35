//! When watched content is polled.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

use crate::model::ids::TenantId;
use crate::store::watching::WatchedSubject;

/// The maximum number of concurrent polls of a connection.
pub(super) const MAX_POLLS: usize = 8;
/// The maximum number of those of a tenant: one whose polls wait, or whose sources hang, leaves some to others.
const MAX_OF_TENANT: usize = MAX_POLLS / 2;

/// The times at which subjects are due, each at most once. Those that are due are taken in turn between tenants, except of
/// tenants with as many polls in progress as one may have.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    queues: HashMap<TenantId, Queue>,
    times: HashMap<WatchedSubject, Instant>,
    /// When the first subject of each tenant is due whose turn is not awaited.
    firsts: BTreeSet<(Instant, TenantId)>,
    /// The tenants with subjects that were due, in the order of their turns.
    turns: VecDeque<TenantId>,
    /// When turns were taken last.
    taken: Option<Instant>,
}

/// The subjects of a tenant.
#[derive(Debug, Default)]
struct Queue {
    subjects: BTreeSet<(Instant, WatchedSubject)>,
    /// How many were taken whose polls have not ended.
    polls: usize,
    is_in_turns: bool,
}

impl Queue {
    /// When the first subject is due that may be polled.
    fn first(&self) -> Option<Instant> {
        self.subjects.first().map(|(at, _)| *at).filter(|_| self.polls < MAX_OF_TENANT)
    }

    fn is_empty(&self) -> bool {
        self.subjects.is_empty() && self.polls == 0
    }
}

impl Schedule {
    /// Sets when a subject is due, in place of the time before.
    pub(super) fn set(&mut self, subject: &WatchedSubject, at: Instant) {
        self.remove(subject);
        self.times.insert(subject.clone(), at);
        self.change(subject.0.tenant, |queue| _ = queue.subjects.insert((at, subject.clone())));
    }

    /// Sets when a subject is due unless it is due earlier.
    pub(super) fn advance(&mut self, subject: &WatchedSubject, at: Instant) {
        if self.times.get(subject).is_none_or(|before| *before > at) {
            self.set(subject, at);
        }
    }

    pub(super) fn remove(&mut self, subject: &WatchedSubject) {
        if let Some(at) = self.times.remove(subject) {
            self.change(subject.0.tenant, |queue| _ = queue.subjects.remove(&(at, subject.clone())));
        }
    }

    /// Changes the queue of a tenant.
    fn change(&mut self, tenant: TenantId, change: impl FnOnce(&mut Queue)) {
        let queue = self.queues.entry(tenant).or_default();
        let before = queue.first();
        change(queue);
        if queue.is_in_turns {
            return;
        }
        let (after, is_empty) = (queue.first(), queue.is_empty());
        if let Some(before) = before {
            self.firsts.remove(&(before, tenant));
        }
        if let Some(after) = after {
            self.firsts.insert((after, tenant));
        }
        if is_empty {
            self.queues.remove(&tenant);
        }
    }

    /// A poll of a subject of a tenant that was taken ended.
    pub(super) fn ended(&mut self, tenant: TenantId) {
        self.change(tenant, |queue| queue.polls = queue.polls.saturating_sub(1));
    }

    /// When the next subject is due.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.turns.is_empty() { self.firsts.first().map(|(at, _)| *at) } else { self.taken }
    }

    /// Takes the subject of the next tenant in turn that has been due for longest. Its poll is in progress until it
    /// [`ended`](Self::ended).
    pub(super) fn take_due(&mut self, now: Instant) -> Option<WatchedSubject> {
        self.taken = Some(now);
        while self.firsts.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, tenant)) = self.firsts.pop_first()
        {
            self.turns.push_back(tenant);
            self.queues.entry(tenant).or_default().is_in_turns = true;
        }
        while let Some(tenant) = self.turns.pop_front() {
            let queue = self.queues.entry(tenant).or_default();
            let is_due = queue.first().is_some_and(|at| at <= now);
            let taken = if is_due { queue.subjects.pop_first() } else { None };
            queue.polls += usize::from(taken.is_some());
            match queue.first() {
                Some(at) if at <= now => self.turns.push_back(tenant),
                first => {
                    queue.is_in_turns = false;
                    let is_empty = queue.is_empty();
                    if let Some(at) = first {
                        self.firsts.insert((at, tenant));
                    }
                    if is_empty {
                        self.queues.remove(&tenant);
                    }
                }
            }
            if let Some((_, subject)) = taken {
                self.times.remove(&subject);
                return Some(subject);
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
        let taken = schedule.take_due(now)?;
        schedule.ended(taken.0.tenant);
        Some(taken)
    }

    #[test]
    fn polls_in_progress_of_a_tenant_leave_half_to_others() {
        let now = Instant::now();
        let many: Vec<_> = (0..=MAX_POLLS).map(|number| subject_of(1, &format!("a:{number}"))).collect();
        let others = ["b:0", "b:1"].map(|uri| subject_of(2, uri));
        let mut schedule = Schedule::default();
        for subject in &many {
            schedule.set(subject, now);
        }
        for subject in &many[..MAX_POLLS / 2] {
            assert_eq!(schedule.take_due(now).as_ref(), Some(subject));
        }
        // Nothing is waited for either, except the end of a poll.
        assert_eq!((schedule.take_due(now), schedule.next()), (None, None));
        schedule.set(&others[0], now);
        assert_eq!(schedule.take_due(now).as_ref(), Some(&others[0]));
        // Changes meanwhile do not pass the limit.
        schedule.remove(&many[MAX_POLLS]);
        schedule.set(&many[0], now);
        schedule.set(&others[1], now + Duration::from_secs(9));
        assert_eq!((schedule.take_due(now), schedule.next()), (None, Some(now + Duration::from_secs(9))));
        schedule.ended(many[0].0.tenant);
        assert_eq!((schedule.next(), schedule.take_due(now)), (Some(now), Some(many[0].clone())));
        assert_eq!(schedule.take_due(now), None);
    }

    #[test]
    fn subjects_that_are_due_are_taken_in_turn_between_tenants() {
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        let many = ["a:a", "a:b", "a:c", "a:d"].map(|uri| subject_of(1, uri));
        let few = ["a:e", "a:f"].map(|uri| subject_of(2, uri));
        let mut schedule = Schedule::default();
        for (subject, seconds) in many.iter().zip([1, 1, 2, 2]).chain(few.iter().zip([3, 9])) {
            schedule.set(subject, at(seconds));
        }
        let taken = [3, 3, 3].map(|seconds| taken_and_ended(&mut schedule, at(seconds)));
        assert_eq!(taken, [&many[0], &few[0], &many[1]].map(|subject| Some(subject.clone())));
        // Those whose turn is awaited may change.
        schedule.remove(&many[2]);
        schedule.set(&many[3], at(5));
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
        schedule.set(&a, at(3));
        schedule.set(&b, at(2));
        schedule.set(&c, at(9));
        schedule.set(&c, at(1));
        schedule.advance(&a, at(5));
        schedule.advance(&b, at(1));
        schedule.remove(&subject("a:d"));
        assert_eq!((schedule.next(), schedule.take_due(now)), (Some(at(1)), None));
        let taken = [2, 2, 2, 3, 9].map(|seconds| taken_and_ended(&mut schedule, at(seconds)));
        assert_eq!(taken, [Some(b), Some(c.clone()), None, Some(a), None]);
        schedule.set(&c, at(1));
        schedule.remove(&c);
        assert_eq!((schedule.next(), schedule.take_due(at(9))), (None, None));
    }
}
