//! Sessions with an open stream on this replica: in use for as long as the stream is open.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::model::ids::SessionUid;
use crate::registry::Registry;

/// How many streams of this replica each session has open. A session has two for as long as one takes over from the
/// other.
#[derive(Debug, Default)]
pub(in crate::registry) struct OpenStreams(DashMap<SessionUid, usize>);

impl OpenStreams {
    /// Whether a session has one.
    pub(super) fn has(&self, session: SessionUid) -> bool {
        self.0.contains_key(&session)
    }

    fn sessions(&self) -> Vec<SessionUid> {
        self.0.iter().map(|entry| *entry.key()).collect()
    }
}

/// Keeps a session in use until dropped.
pub struct SessionInUse {
    registry: Arc<Registry>,
    session: SessionUid,
}

impl Drop for SessionInUse {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.registry.open_streams.0.entry(self.session) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
        // From now on it may be idle.
        self.registry.keep_session(self.session);
    }
}

impl Registry {
    /// Keeps a session in use for as long as a stream of it is open, whatever its connection does.
    pub fn use_session(self: &Arc<Self>, session: SessionUid) -> SessionInUse {
        *self.open_streams.0.entry(session).or_default() += 1;
        self.keep_session(session);
        SessionInUse { registry: Arc::clone(self), session }
    }

    /// Notes a use of every session with an open stream.
    pub(super) fn keep_streaming_sessions(&self) {
        for session in self.open_streams.sessions() {
            self.keep_session(session);
        }
    }
}
