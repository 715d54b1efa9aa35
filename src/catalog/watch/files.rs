//! The files of mounts whose content is watched: a change is one of the content, which scans do not compare.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::store::watching::WatchedSubject;

/// The watched files of mounts of all connections whose leases this replica holds.
#[derive(Debug, Default)]
pub struct WatchedFiles(Mutex<HashMap<WatchedSubject, Arc<ChangedFiles>>>);

impl WatchedFiles {
    /// Whether the content of a file is watched.
    pub fn contains(&self, subject: &WatchedSubject) -> bool {
        self.0.lock().contains_key(subject)
    }

    /// Has the content of a file looked at, if it is watched.
    pub fn look(&self, subject: WatchedSubject) {
        if let Some(changed) = self.0.lock().get(&subject) {
            changed.subjects.lock().insert(subject);
            changed.notify.notify_one();
        }
    }
}

/// The files of a connection that a scan found changed, and their watch has not looked at.
#[derive(Debug, Default)]
struct ChangedFiles {
    subjects: Mutex<HashSet<WatchedSubject>>,
    notify: Notify,
}

/// Those of one connection, until it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionFiles {
    all: Arc<WatchedFiles>,
    own: HashSet<WatchedSubject>,
    changed: Arc<ChangedFiles>,
}

impl ConnectionFiles {
    pub(super) fn new(all: Arc<WatchedFiles>) -> Self {
        Self { all, own: HashSet::new(), changed: Arc::default() }
    }

    pub(super) fn insert(&mut self, subject: &WatchedSubject) {
        if self.own.insert(subject.clone()) {
            self.all.0.lock().insert(subject.clone(), Arc::clone(&self.changed));
        }
    }

    pub(super) fn remove(&mut self, subject: &WatchedSubject) {
        if self.own.remove(subject) {
            self.all.0.lock().remove(subject);
        }
    }

    /// Waits for files to look at. Cancel-safe.
    pub(super) async fn changed(&self) -> HashSet<WatchedSubject> {
        loop {
            let changed = std::mem::take(&mut *self.changed.subjects.lock());
            if !changed.is_empty() {
                return changed;
            }
            self.changed.notify.notified().await;
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
