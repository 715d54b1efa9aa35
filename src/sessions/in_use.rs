//! A session with an open stream on this replica is in use while the stream is open.

use std::sync::Arc;

use super::Sessions;
use crate::cache::CountGuard;
use crate::model::ids::SessionUid;

/// Keeps a session in use until dropped.
pub struct SessionInUse {
    sessions: Arc<Sessions>,
    session: SessionUid,
    counted: Option<CountGuard<SessionUid>>,
}

impl Drop for SessionInUse {
    fn drop(&mut self) {
        drop(self.counted.take());
        // The idle timeout starts now.
        self.sessions.note_use(self.session);
    }
}

impl Sessions {
    /// Keeps a session in use while a stream of it is open, also if its connection is idle.
    pub fn keep_in_use(self: &Arc<Self>, session: SessionUid) -> SessionInUse {
        let counted = self.open_streams.try_add(session, usize::MAX);
        self.note_use(session);
        SessionInUse { sessions: Arc::clone(self), session, counted }
    }

    /// Records a use of every session with an open stream.
    pub(super) fn note_streaming(&self) {
        for session in self.open_streams.keys() {
            self.note_use(session);
        }
    }
}
