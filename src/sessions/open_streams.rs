//! How many streams of this replica each session has open.

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;

use crate::model::ids::SessionUid;

/// Counts the open streams of each session: one, or two while a new stream supersedes the old one.
#[derive(Debug, Default)]
pub(super) struct OpenStreams(DashMap<SessionUid, usize>);

impl OpenStreams {
    /// Counts a stream that opens.
    pub(super) fn add(&self, session: SessionUid) {
        *self.0.entry(session).or_default() += 1;
    }

    /// Counts a stream that ends.
    pub(super) fn remove(&self, session: SessionUid) {
        if let Entry::Occupied(mut entry) = self.0.entry(session) {
            *entry.get_mut() -= 1;
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }

    /// Whether a session has an open stream.
    pub(super) fn has(&self, session: SessionUid) -> bool {
        self.0.contains_key(&session)
    }

    /// The sessions with an open stream.
    pub(super) fn sessions(&self) -> Vec<SessionUid> {
        self.0.iter().map(|entry| *entry.key()).collect()
    }
}
