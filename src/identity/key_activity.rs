//! The last uses of keys until they are written to the database, and the number of keys that expire soon.

use std::sync::atomic::{AtomicI64, Ordering};

use dashmap::DashMap;
use time::OffsetDateTime;

use crate::model::ids::KeyId;

/// The maximum number of keys recorded between two writes; further uses are not recorded.
const MOST_KEYS: usize = 100_000;

/// The activity of keys on this replica.
#[derive(Debug)]
pub(super) struct KeyActivity {
    uses: DashMap<KeyId, OffsetDateTime>,
    /// -1 until counted.
    expiring: AtomicI64,
}

impl Default for KeyActivity {
    fn default() -> Self {
        Self { uses: DashMap::new(), expiring: AtomicI64::new(-1) }
    }
}

impl KeyActivity {
    /// Records a use.
    pub(super) fn note(&self, key: KeyId, at: OffsetDateTime) {
        if self.uses.len() < MOST_KEYS {
            self.uses.insert(key, at);
        }
    }

    /// Removes and returns the uses that are not written yet.
    pub(super) fn take(&self) -> Vec<(KeyId, OffsetDateTime)> {
        let keys: Vec<_> = self.uses.iter().map(|entry| *entry.key()).collect();
        keys.into_iter().filter_map(|key| self.uses.remove(&key)).collect()
    }

    /// Sets how many keys expire soon.
    pub(super) fn set_expiring(&self, count: i64) {
        self.expiring.store(count, Ordering::Relaxed);
    }

    /// How many keys expire soon; `None` until counted.
    pub(super) fn expiring(&self) -> Option<u64> {
        self.expiring.load(Ordering::Relaxed).try_into().ok()
    }
}
