//! The files of mounts whose content is watched: a change is one of the content, which scans do not compare.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::store::watching::WatchedSubject;

/// The watched files of mounts of all connections whose leases this replica holds.
#[derive(Debug, Default)]
pub struct WatchedFiles(Mutex<HashSet<WatchedSubject>>);

impl WatchedFiles {
    /// Whether the content of a file is watched.
    pub fn contains(&self, subject: &WatchedSubject) -> bool {
        self.0.lock().contains(subject)
    }
}

/// Those of one connection, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionFiles {
    all: Arc<WatchedFiles>,
    own: HashSet<WatchedSubject>,
}

impl ConnectionFiles {
    pub(super) fn new(all: Arc<WatchedFiles>) -> Self {
        Self { all, own: HashSet::new() }
    }

    pub(super) fn insert(&mut self, subject: &WatchedSubject) {
        if self.own.insert(subject.clone()) {
            self.all.0.lock().insert(subject.clone());
        }
    }

    pub(super) fn remove(&mut self, subject: &WatchedSubject) {
        if self.own.remove(subject) {
            self.all.0.lock().remove(subject);
        }
    }
}

impl Drop for ConnectionFiles {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        for subject in &self.own {
            all.remove(subject);
        }
    }
}
