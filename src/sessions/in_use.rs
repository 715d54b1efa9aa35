//! A session with an open stream on this replica is in use while the stream is open.

use std::sync::Arc;

use super::Sessions;
use crate::model::ids::SessionUid;

/// Keeps a session in use until dropped.
pub struct SessionInUse {
    sessions: Arc<Sessions>,
    session: SessionUid,
}

impl Drop for SessionInUse {
    fn drop(&mut self) {
        self.sessions.open_streams.remove(self.session);
        // The idle timeout starts now.
        self.sessions.note_use(self.session);
    }
}

impl Sessions {
    /// Keeps a session in use while a stream of it is open, also if its connection is idle.
    pub fn keep_in_use(self: &Arc<Self>, session: SessionUid) -> SessionInUse {
        self.open_streams.add(session);
        self.note_use(session);
        SessionInUse { sessions: Arc::clone(self), session }
    }

    /// Records a use of every session with an open stream.
    pub(super) fn note_streaming(&self) {
        for session in self.open_streams.sessions() {
            self.note_use(session);
        }
    }
}
