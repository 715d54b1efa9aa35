//! Which point in the common order of messages every replica has acknowledged. An event is sent to clients only
//! once every replica that may answer from memory has acknowledged the revision it announces.
//!
//! All replicas receive messages in one order, so a replica that has received a request has received everything
//! before it. Each numbers the requests in the order in which it receives them. What the others have acknowledged is
//! read from their `LISTEN` connections ([`Replicas::evaluate`]) by the replica that sent the request, which then
//! notifies the others.
//!
//! A replica trusts its memory only while the probes of its connection are answered ([`super::health`]), and
//! registers a connection before it trusts it. A replica that may answer from memory is therefore registered, and
//! its connection has shown another probe within the trust period.

mod state;

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

use crate::model::scope::{Revision, Scope};
use crate::store::notify::{AckRequestId, ListenerId, ListenerState};
use state::State;

/// The replicas as seen by this one.
#[derive(Debug)]
pub(super) struct Replicas {
    /// How long a replica trusts its memory after its last answered probe, and a little more.
    trust_period: Duration,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    /// Notified when a request of this replica is received back, so that acknowledgements can be read.
    pub(super) collect: Notify,
}

impl Replicas {
    /// `instance` is unique to this process.
    pub(super) fn new(instance: Uuid, trust_period: Duration) -> Self {
        let state = Mutex::new(State::new(instance.as_u64_pair().1));
        Self { trust_period, state, changed: watch::Sender::new(()), collect: Notify::new() }
    }

    /// A new identifier of a connection.
    pub(super) fn new_listener(&self) -> ListenerId {
        ListenerId(self.state.lock().next())
    }

    /// A new identifier of a request.
    pub(super) fn new_request(&self) -> AckRequestId {
        AckRequestId(self.state.lock().next())
    }

    /// Records that this replica starts to receive messages, or does so again after it may have missed some.
    pub(super) fn start_listening(&self, listener: ListenerId, now: Instant) {
        let mut state = self.state.lock();
        state.listening = Some((listener, now));
        state.forget_revisions();
    }

    /// Forgets revisions, which belong to a timeline that ended.
    pub(super) fn forget_revisions(&self) {
        self.state.lock().forget_revisions();
    }

    /// Records a revision that was received.
    pub(super) fn record_raised(&self, scope: Scope, revision: Revision) {
        let mut state = self.state.lock();
        let received = state.received;
        if let Some(followed) = state.followed.get_mut(&scope) {
            followed.raise(revision, received);
        }
    }

    /// Records that a replica has streams on a scope.
    pub(super) fn record_followed(&self, scope: Scope, now: Instant) {
        self.state.lock().follow(scope, now);
    }

    /// Whether some replica has streams on a scope, so that a write requests acknowledgements.
    pub(super) fn is_followed(&self, scope: Scope, now: Instant) -> bool {
        self.state.lock().followed.get(&scope).is_some_and(|followed| followed.until > now)
    }

    /// The number of other replicas that were registered when acknowledgements were last read.
    pub(super) fn others(&self) -> usize {
        self.state.lock().others()
    }

    /// Records a request of this replica to acknowledge a revision.
    pub(super) fn record_own_request(
        &self,
        scope: Scope,
        revision: Revision,
        request: AckRequestId,
        now: Instant,
    ) {
        let mut state = self.state.lock();
        state.open.insert(request, now);
        if let Some(followed) = state.followed.get_mut(&scope) {
            followed.request(revision, request);
        }
        if state.number(request).is_some() {
            self.collect.notify_one();
        }
    }

    /// Records a request that was received.
    pub(super) fn record_request(&self, request: AckRequestId) {
        let mut state = self.state.lock();
        state.receive(request);
        if state.open.contains(request) {
            self.collect.notify_one();
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Records that all replicas have acknowledged a request.
    pub(super) fn record_acknowledged(&self, request: AckRequestId) {
        let mut state = self.state.lock();
        if let Some(number) = state.number(request) {
            state.acknowledged = state.acknowledged.max(number);
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Returns the number of requests received if one of this replica is among them and not acknowledged, so that
    /// acknowledgements should be read. Requests that are older than `longest` are given up.
    pub(super) fn collecting(&self, longest: Duration, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        state.is_collecting(longest, now).then_some(state.received)
    }

    /// Determines from what the registered connections show which requests all replicas have acknowledged. They were read
    /// after so many requests were received, and before `now`. Returns the newest such request of this replica, if there are others to notify, and
    /// the connections that no replica trusts any more.
    pub(super) fn evaluate(
        &self,
        shown: &[(ListenerId, Option<ListenerState>)],
        received: u64,
        now: Instant,
    ) -> (Option<AckRequestId>, Vec<ListenerId>) {
        let mut state = self.state.lock();
        let gone = state.see(shown, received, self.trust_period, now);
        let Some(acknowledged) = state.acknowledged_by_all(self.trust_period, now) else {
            return (None, gone);
        };
        state.acknowledged = state.acknowledged.max(acknowledged);
        let newest = state.take_acknowledged();
        drop(state);
        self.changed.send_replace(());
        (newest.filter(|_| shown.len() > 1), gone)
    }

    /// Waits until every replica has acknowledged a revision, by a request of any replica. Returns false if there is
    /// none, so that this replica should send one.
    pub(super) async fn wait_for_acks(&self, scope: Scope, revision: Revision) -> bool {
        let began = Instant::now();
        let mut changed = self.changed.subscribe();
        // Kept, so that newer revisions do not prolong the wait.
        let (mut before, mut requested) = (None, None);
        loop {
            changed.mark_unchanged();
            let expected_within = {
                let state = self.state.lock();
                let Some(followed) = state.followed.get(&scope) else { return false };
                before = before.or_else(|| followed.requests_before(revision));
                requested = requested.or_else(|| followed.requested(revision));
                if before.is_some_and(|before| state.acknowledged > before)
                    || requested.is_some_and(|request| state.is_acknowledged(request))
                {
                    return true;
                }
                let sent = requested.is_some() || before.is_some_and(|before| state.received > before);
                (!sent).then(|| state.spread())
            };
            let deadline = expected_within.map(|within| began + within);
            match deadline {
                Some(deadline) if timeout_at(deadline, changed.changed()).await.is_err() => return false,
                Some(_) => {}
                None => {
                    let _ = changed.changed().await;
                }
            }
        }
    }

    /// Waits until every replica has acknowledged a request of this replica.
    pub(super) async fn wait_for_request(&self, request: AckRequestId) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            if self.state.lock().is_acknowledged(request) {
                return;
            }
            let _ = changed.changed().await;
        }
    }
}

#[cfg(test)]
mod tests;
