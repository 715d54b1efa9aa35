//! Which replicas there are, and how far each has heard: an event leaves once everybody who may answer from memory
//! has heard of what it tells.
//!
//! Messages reach all replicas in one order. A replica may answer from memory without asking the database only for as
//! long as it hears its own heartbeats (`proof`), so whoever may do so is known here by a heartbeat of its own that
//! came before the question, or heard the question itself.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::wakes::ReplicaId;

/// The replicas as this one hears of them.
#[derive(Debug)]
pub(super) struct Members {
    /// Who this replica is.
    pub(super) me: ReplicaId,
    /// For how long a heartbeat stands for a replica.
    lease: Duration,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    /// Since when this replica hears everything. Who was there before is known a lease later.
    since: Instant,
    /// The newest question of this replica that it has heard itself.
    own: u64,
    others: HashMap<ReplicaId, Member>,
}

#[derive(Debug)]
struct Member {
    seen: Instant,
    /// The newest question of this replica before which it has heard everything.
    heard: u64,
}

impl Members {
    pub(super) fn new(me: ReplicaId, lease: Duration) -> Self {
        let state = State { since: Instant::now(), own: 0, others: HashMap::new() };
        Self { me, lease, state: Mutex::new(state), changed: watch::Sender::new(()) }
    }

    /// This replica begins to hear, or does so again after it may have missed something.
    pub(super) fn begin(&self, now: Instant) {
        self.state.lock().since = now;
    }

    /// Another replica is there. What was asked before it came it need not answer: it knows nothing older.
    pub(super) fn alive(&self, replica: ReplicaId, now: Instant) {
        let mut state = self.state.lock();
        let own = state.own;
        state.others.retain(|_, member| now.duration_since(member.seen) <= self.lease);
        state.others.entry(replica).or_insert(Member { seen: now, heard: own }).seen = now;
    }

    /// This replica heard a question of its own.
    pub(super) fn heard_self(&self, question: u64) {
        let mut state = self.state.lock();
        state.own = state.own.max(question);
        self.changed.send_replace(());
    }

    /// Another replica says that it has heard everything before a question of this one.
    pub(super) fn heard(&self, by: ReplicaId, question: u64) {
        if let Some(member) = self.state.lock().others.get_mut(&by) {
            member.heard = member.heard.max(question);
        }
        self.changed.send_replace(());
    }

    /// Waits until everybody has heard everything before a question, for as long as a heartbeat stands for those who
    /// do not answer.
    pub(super) async fn all_heard(&self, question: u64) {
        let mut changed = self.changed.subscribe();
        while !self.have_heard(question, Instant::now()) {
            changed.mark_unchanged();
            // A silent replica is waited for until its heartbeat is too old.
            let _ = tokio::time::timeout(self.lease / 4, changed.changed()).await;
        }
    }

    fn have_heard(&self, question: u64, now: Instant) -> bool {
        let state = self.state.lock();
        let silent = |member: &Member| now.duration_since(member.seen) > self.lease;
        state.own >= question
            && now.duration_since(state.since) > self.lease
            && state.others.values().all(|member| member.heard >= question || silent(member))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;
    use uuid::Uuid;

    use super::{Members, ReplicaId};

    const LEASE: Duration = Duration::from_millis(500);

    fn replica(number: u128) -> ReplicaId {
        ReplicaId(Uuid::from_u128(number))
    }

    #[test]
    fn everybody_has_heard_once_all_who_are_there_say_so_or_are_silent_for_too_long() {
        let members = Members::new(replica(0), LEASE);
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(1_000 + millis);
        assert!(!members.have_heard(1, at(0)), "not even this replica");
        members.heard_self(1);
        members.begin(at(0) - LEASE);
        assert!(!members.have_heard(1, at(0)), "somebody may be there who was not heard yet");
        members.begin(start);
        assert!(members.have_heard(1, at(0)), "there is nobody else");

        members.alive(replica(1), at(0));
        assert!(members.have_heard(1, at(0)), "who comes after the question need not answer it");
        members.heard_self(2);
        assert!(!members.have_heard(2, at(0)));
        members.heard(replica(1), 1);
        assert!(!members.have_heard(2, at(0)));
        members.heard(replica(1), 3);
        assert!(members.have_heard(2, at(0)));

        members.alive(replica(2), at(400));
        members.heard_self(4);
        members.heard(replica(2), 4);
        assert!(!members.have_heard(4, at(500)), "the first has still its lease");
        assert!(members.have_heard(4, at(501)));
    }

    #[tokio::test]
    async fn a_replica_that_fell_silent_is_waited_for_until_its_heartbeat_is_too_old() {
        let members = Members::new(replica(0), LEASE);
        members.alive(replica(1), Instant::now());
        members.heard_self(1);
        let asked = Instant::now();
        members.all_heard(1).await;
        assert!(asked.elapsed() > LEASE, "{:?}", asked.elapsed());
    }
}
