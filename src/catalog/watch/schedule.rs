//! When watched content is polled.

use std::collections::{BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

use crate::model::ids::TenantId;
use crate::store::watching::WatchedSubject;

/// The times at which subjects are due, each at most once. Those that are due are taken in turn between tenants.
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
    is_in_turns: bool,
}

impl Queue {
    fn first(&self) -> Option<Instant> {
        self.subjects.first().map(|(at, _)| *at)
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
        let after = queue.first();
        if let Some(before) = before {
            self.firsts.remove(&(before, tenant));
        }
        match after {
            Some(after) => _ = self.firsts.insert((after, tenant)),
            None => _ = self.queues.remove(&tenant),
        }
    }

    /// When the next subject is due.
    pub(super) fn next(&self) -> Option<Instant> {
        if self.turns.is_empty() { self.firsts.first().map(|(at, _)| *at) } else { self.taken }
    }

    /// Takes the subject of the next tenant in turn that has been due for longest.
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
            match queue.first() {
                Some(at) if at <= now => self.turns.push_back(tenant),
                Some(at) => {
                    queue.is_in_turns = false;
                    self.firsts.insert((at, tenant));
                }
                None => _ = self.queues.remove(&tenant),
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

    use super::Schedule;
    use crate::model::ids::{AgentId, AgentRef, ResourceUri, TenantId};
    use crate::store::watching::WatchedSubject;

    fn subject(uri: &str) -> WatchedSubject {
        subject_of(0, uri)
    }

    fn subject_of(tenant: u128, uri: &str) -> WatchedSubject {
        let agent = AgentRef { tenant: TenantId(Uuid::from_u128(tenant)), uid: AgentId(Uuid::nil()) };
        (agent, ResourceUri::parse(uri).unwrap().into())
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
        let taken = [3, 3, 3].map(|seconds| schedule.take_due(at(seconds)));
        assert_eq!(taken, [&many[0], &few[0], &many[1]].map(|subject| Some(subject.clone())));
        // Those whose turn is awaited may change.
        schedule.remove(&many[2]);
        schedule.set(&many[3], at(5));
        assert!(schedule.next().is_some_and(|next| next <= at(3)));
        assert_eq!((schedule.take_due(at(4)), schedule.next()), (None, Some(at(5))));
        let taken = [5, 8, 9].map(|seconds| schedule.take_due(at(seconds)));
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
        let taken = [2, 2, 2, 3, 9].map(|seconds| schedule.take_due(at(seconds)));
        assert_eq!(taken, [Some(b), Some(c.clone()), None, Some(a), None]);
        schedule.set(&c, at(1));
        schedule.remove(&c);
        assert_eq!((schedule.next(), schedule.take_due(at(9))), (None, None));
    }
}
