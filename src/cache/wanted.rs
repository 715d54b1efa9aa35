//! The newest revision of a scope that is known to exist, which nothing older than it may be answered for.

use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;

use crate::model::scope::Revision;

/// The newest announced revision of a scope.
///
/// It rises with announcements. A read of the database that began after all of them and finds a lower revision proves
/// that the announced one does not exist: an announcement from before the database was set back arrived late. Then it is
/// lowered to what was read; otherwise the scope would be behind, and read again, for ever.
#[derive(Debug, Default)]
pub struct WantedRevision {
    revision: AtomicI64,
    /// Number of announcements. Held while the revision changes, so that none is lost to a read in progress.
    announcements: Mutex<u64>,
}

/// What was announced before a read began.
#[derive(Debug, Clone, Copy)]
pub struct Announced {
    revision: Revision,
    announcements: u64,
}

impl WantedRevision {
    /// The newest announced revision; 0 before the first announcement.
    pub fn get(&self) -> Revision {
        Revision(self.revision.load(Ordering::Acquire))
    }

    /// Raises the revision, unless it is as high already.
    pub fn raise(&self, revision: Revision) {
        let mut announcements = self.announcements.lock();
        *announcements += 1;
        self.revision.fetch_max(revision.0, Ordering::AcqRel);
    }

    /// What is announced now; taken before a read whose result is passed to [`lower`](Self::lower).
    pub fn announced(&self) -> Announced {
        let announcements = self.announcements.lock();
        Announced { revision: self.get(), announcements: *announcements }
    }

    /// Lowers the revision to the head that was read, if it is lower and nothing was announced since before the read: not
    /// even the same revision, which may exist by now.
    pub fn lower(&self, before: Announced, head: Revision) {
        let announcements = self.announcements.lock();
        if head < before.revision && *announcements == before.announcements {
            self.revision.store(head.0, Ordering::Release);
        }
    }

    /// Forgets all announcements: the database is on another timeline.
    pub fn reset(&self) {
        let mut announcements = self.announcements.lock();
        *announcements += 1;
        self.revision.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{Revision, WantedRevision};

    #[test]
    fn announced_revision_that_does_not_exist_is_lowered() {
        let wanted = WantedRevision::default();
        wanted.raise(Revision(8));
        wanted.lower(wanted.announced(), Revision(7));
        assert_eq!(wanted.get(), Revision(7));
        wanted.lower(wanted.announced(), Revision(9));
        assert_eq!(wanted.get(), Revision(7), "a read raises nothing");
    }

    #[test]
    fn announcement_during_a_read_is_not_lowered() {
        let wanted = WantedRevision::default();
        wanted.raise(Revision(8));
        for announced in [8, 9] {
            let before = wanted.announced();
            wanted.raise(Revision(announced));
            wanted.lower(before, Revision(7));
            assert_eq!(wanted.get(), Revision(announced));
        }
        let before = wanted.announced();
        wanted.reset();
        wanted.lower(before, Revision(7));
        assert_eq!(wanted.get(), Revision(0), "the read was of another timeline");
    }
}
