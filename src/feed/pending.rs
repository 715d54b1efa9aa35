//! The messages of this replica that are not sent yet.

use std::collections::HashMap;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::scope::{Revision, Scope};
use crate::store::notify::ReplicaId;

/// Maximum number of scopes with unsent revisions; further ones are dropped, and found by the sweeps of the
/// other replicas.
const MAX_PENDING: usize = 10_000;

/// Messages to be sent.
#[derive(Debug, Default)]
pub(super) struct PendingMessages {
    state: Mutex<UnsentMessages>,
    pub(super) changed: Notify,
}

#[derive(Debug, Default)]
pub(super) struct UnsentMessages {
    /// The newest unsent revision of each scope.
    pub(super) revisions: HashMap<Scope, Revision>,
    /// Number of acknowledgement requests so far, and whether the last is unsent.
    pub(super) last_request: u64,
    pub(super) request_pending: bool,
    /// The newest unacknowledged request of each replica.
    pub(super) acks: HashMap<ReplicaId, u64>,
}

impl PendingMessages {
    /// Adds revisions to announce.
    pub(super) fn add(&self, revisions: &[(Scope, Revision)]) {
        let mut state = self.state.lock();
        for (scope, revision) in revisions {
            if state.revisions.len() < MAX_PENDING || state.revisions.contains_key(scope) {
                state.raise(*scope, *revision);
            }
        }
        self.changed.notify_one();
    }

    /// Adds a revision and a request to acknowledge it. Returns the number of the request. Not bounded by
    /// [`MAX_PENDING`]: there are no more of these scopes than agents and sessions with streams.
    pub(super) fn request_ack(&self, scope: Scope, revision: Revision) -> u64 {
        let mut state = self.state.lock();
        state.raise(scope, revision);
        state.last_request += 1;
        state.request_pending = true;
        self.changed.notify_one();
        state.last_request
    }

    /// Adds an acknowledgement of another replica's request.
    pub(super) fn acknowledge(&self, of: ReplicaId, request: u64) {
        let mut state = self.state.lock();
        let newest = state.acks.entry(of).or_default();
        *newest = (*newest).max(request);
        self.changed.notify_one();
    }

    /// Drops unsent revisions, which belong to a timeline that ended.
    pub(super) fn drop_revisions(&self) {
        self.state.lock().revisions.clear();
    }

    /// Requests a heartbeat now.
    pub(super) fn request_heartbeat(&self) {
        self.changed.notify_one();
    }

    /// Takes everything unsent; the number of the last request is kept.
    pub(super) fn take(&self) -> UnsentMessages {
        let mut state = self.state.lock();
        let last_request = state.last_request;
        std::mem::replace(&mut *state, UnsentMessages { last_request, ..UnsentMessages::default() })
    }
}

impl UnsentMessages {
    fn raise(&mut self, scope: Scope, revision: Revision) {
        let newest = self.revisions.entry(scope).or_default();
        *newest = (*newest).max(revision);
    }
}
