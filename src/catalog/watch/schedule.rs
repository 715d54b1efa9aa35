//! When watched content is polled.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use crate::store::watching::WatchedSubject;

/// The times at which subjects are due, each at most once.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    queue: BTreeSet<(Instant, WatchedSubject)>,
    times: HashMap<WatchedSubject, Instant>,
}

impl Schedule {
    /// Sets when a subject is due, in place of the time before.
    pub(super) fn set(&mut self, subject: &WatchedSubject, at: Instant) {
        self.remove(subject);
        self.times.insert(subject.clone(), at);
        self.queue.insert((at, subject.clone()));
    }

    /// Sets when a subject is due unless it is due earlier.
    pub(super) fn advance(&mut self, subject: &WatchedSubject, at: Instant) {
        if self.times.get(subject).is_none_or(|before| *before > at) {
            self.set(subject, at);
        }
    }

    pub(super) fn remove(&mut self, subject: &WatchedSubject) {
        if let Some(at) = self.times.remove(subject) {
            self.queue.remove(&(at, subject.clone()));
        }
    }

    /// When the next subject is due.
    pub(super) fn next(&self) -> Option<Instant> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// Takes the subject that has been due for longest.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<WatchedSubject> {
        if self.next()? > now {
            return None;
        }
        let (_, subject) = self.queue.pop_first()?;
        self.times.remove(&subject);
        Some(subject)
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
        let agent = AgentRef { tenant: TenantId(Uuid::nil()), uid: AgentId(Uuid::nil()) };
        (agent, ResourceUri::parse(uri).unwrap().into())
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
