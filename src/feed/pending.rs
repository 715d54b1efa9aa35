//! The messages of this replica that are not sent yet.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::scope::{Revision, Scope};
use crate::model::trace::WriteSpan;
use crate::store::notify::AckRequestId;

/// Maximum number of scopes with unsent revisions; further ones are dropped, and found by the sweeps of the
/// other replicas.
const MAX_PENDING: usize = 10_000;
/// Maximum number of unsent spans of writes; the events of further writes have no link.
const MAX_SPANS: usize = 256;

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
    /// The spans of the writes that made unsent revisions.
    pub(super) spans: Vec<WriteSpan>,
    /// Scopes with streams of this replica.
    pub(super) followed: HashSet<Scope>,
    /// The request to acknowledge what is sent.
    pub(super) request: Option<AckRequestId>,
    /// The newest request that all replicas have acknowledged.
    pub(super) acknowledged: Option<AckRequestId>,
}

impl PendingMessages {
    /// Adds a revision to announce.
    pub(super) fn add(&self, scope: Scope, revision: Revision) {
        let mut state = self.state.lock();
        if state.revisions.len() < MAX_PENDING || state.revisions.contains_key(&scope) {
            state.raise(scope, revision);
        }
        self.changed.notify_one();
    }

    /// Adds the span of a write. Sent with its revision.
    pub(super) fn add_span(&self, span: WriteSpan) {
        let mut state = self.state.lock();
        if state.spans.len() < MAX_SPANS {
            state.spans.push(span);
        }
    }

    /// Adds a revision and a request to acknowledge it: the unsent one if there is one, otherwise `new`. Returns the
    /// request. Not bounded by [`MAX_PENDING`]: there are no more of these scopes than agents and sessions with streams.
    pub(super) fn request_ack(&self, scope: Scope, revision: Revision, new: AckRequestId) -> AckRequestId {
        let mut state = self.state.lock();
        state.raise(scope, revision);
        self.changed.notify_one();
        *state.request.get_or_insert(new)
    }

    /// Adds that this replica has streams on a scope. Sent with what is sent next.
    pub(super) fn follow(&self, scope: Scope) {
        self.state.lock().followed.insert(scope);
    }

    /// Adds that all replicas have acknowledged a request.
    pub(super) fn acknowledge(&self, request: AckRequestId) {
        self.state.lock().acknowledged = Some(request);
    }

    /// Drops unsent revisions, which belong to a timeline that ended.
    pub(super) fn drop_revisions(&self) {
        let mut state = self.state.lock();
        state.revisions.clear();
        state.spans.clear();
    }

    /// Takes everything unsent.
    pub(super) fn take(&self) -> UnsentMessages {
        std::mem::take(&mut *self.state.lock())
    }
}

impl UnsentMessages {
    fn raise(&mut self, scope: Scope, revision: Revision) {
        let newest = self.revisions.entry(scope).or_default();
        *newest = (*newest).max(revision);
    }
}
