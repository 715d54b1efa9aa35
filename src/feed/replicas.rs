//! The other replicas, and up to which point each has received this replica's messages. An event is sent to
//! clients only once every replica that may answer from memory has acknowledged the revision it announces.
//!
//! All replicas receive messages in one order. A replica answers from memory without asking the database only
//! while it receives its own heartbeats ([`super::health`]). Any such replica is therefore known here by a
//! heartbeat that preceded the request, or has received the request itself.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::store::notify::ReplicaId;

/// The replicas known to this one.
#[derive(Debug)]
pub(super) struct Replicas {
    /// Identifies this replica.
    pub(super) me: ReplicaId,
    /// How long a heartbeat is valid.
    lease: Duration,
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct State {
    /// Since when this replica receives every message. Replicas that existed before are known one lease later.
    since: Instant,
    /// The newest acknowledgement request of this replica that it has itself received.
    own_request: u64,
    others: HashMap<ReplicaId, Replica>,
}

#[derive(Debug)]
struct Replica {
    seen: Instant,
    /// The newest acknowledgement request of this replica that it has acknowledged.
    acknowledged: u64,
}

impl Replicas {
    pub(super) fn new(me: ReplicaId, lease: Duration) -> Self {
        let state = State { since: Instant::now(), own_request: 0, others: HashMap::new() };
        Self { me, lease, state: Mutex::new(state), changed: watch::Sender::new(()) }
    }

    /// Records that this replica starts to receive messages, or does so again after it may have missed some.
    pub(super) fn start_listening(&self, now: Instant) {
        self.state.lock().since = now;
    }

    /// Records a heartbeat of another replica. A new replica need not acknowledge earlier requests, since it
    /// has nothing older in memory.
    pub(super) fn record_heartbeat(&self, replica: ReplicaId, now: Instant) {
        let mut state = self.state.lock();
        let own_request = state.own_request;
        state.others.retain(|_, replica| now.duration_since(replica.seen) <= self.lease);
        state.others.entry(replica).or_insert(Replica { seen: now, acknowledged: own_request }).seen = now;
    }

    /// Records that this replica received its own acknowledgement request.
    pub(super) fn record_own_request(&self, request: u64) {
        let mut state = self.state.lock();
        state.own_request = state.own_request.max(request);
        self.changed.send_replace(());
    }

    /// Records that another replica has received everything before a request of this one.
    pub(super) fn record_ack(&self, by: ReplicaId, request: u64) {
        if let Some(replica) = self.state.lock().others.get_mut(&by) {
            replica.acknowledged = replica.acknowledged.max(request);
        }
        self.changed.send_replace(());
    }

    /// Waits until every replica has acknowledged a request, or its last heartbeat has expired.
    pub(super) async fn wait_for_acks(&self, request: u64) {
        let mut changed = self.changed.subscribe();
        while !self.is_acknowledged(request, Instant::now()) {
            changed.mark_unchanged();
            // Wakes up regularly, since a heartbeat expires without a message.
            let _ = tokio::time::timeout(self.lease / 4, changed.changed()).await;
        }
    }

    fn is_acknowledged(&self, request: u64, now: Instant) -> bool {
        let state = self.state.lock();
        let silent = |replica: &Replica| now.duration_since(replica.seen) > self.lease;
        state.own_request >= request
            && now.duration_since(state.since) > self.lease
            && state.others.values().all(|replica| replica.acknowledged >= request || silent(replica))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;
    use uuid::Uuid;

    use super::{ReplicaId, Replicas};

    const LEASE: Duration = Duration::from_millis(500);

    fn replica(number: u128) -> ReplicaId {
        ReplicaId(Uuid::from_u128(number))
    }

    #[test]
    fn request_is_acknowledged_once_all_live_replicas_answered() {
        let replicas = Replicas::new(replica(0), LEASE);
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(1_000 + millis);
        assert!(!replicas.is_acknowledged(1, at(0)), "own request not received yet");
        replicas.record_own_request(1);
        replicas.start_listening(at(0) - LEASE);
        assert!(
            !replicas.is_acknowledged(1, at(0)),
            "a replica may exist whose heartbeat was not received yet"
        );
        replicas.start_listening(start);
        assert!(replicas.is_acknowledged(1, at(0)), "no other replica");

        replicas.record_heartbeat(replica(1), at(0));
        assert!(
            replicas.is_acknowledged(1, at(0)),
            "a replica that joined after the request need not acknowledge it"
        );
        replicas.record_own_request(2);
        assert!(!replicas.is_acknowledged(2, at(0)));
        replicas.record_ack(replica(1), 1);
        assert!(!replicas.is_acknowledged(2, at(0)));
        replicas.record_ack(replica(1), 3);
        assert!(replicas.is_acknowledged(2, at(0)));

        replicas.record_heartbeat(replica(2), at(400));
        replicas.record_own_request(4);
        replicas.record_ack(replica(2), 4);
        assert!(!replicas.is_acknowledged(4, at(500)), "the first replica's lease is still valid");
        assert!(replicas.is_acknowledged(4, at(501)));
    }

    #[tokio::test]
    async fn silent_replica_is_waited_for_until_its_lease_expires() {
        let replicas = Replicas::new(replica(0), LEASE);
        replicas.record_heartbeat(replica(1), Instant::now());
        replicas.record_own_request(1);
        let asked = Instant::now();
        replicas.wait_for_acks(1).await;
        assert!(asked.elapsed() > LEASE, "{:?}", asked.elapsed());
    }
}
