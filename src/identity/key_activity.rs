//! The last uses of keys until they are written to the database, and the keys that expire soon: their number, and which of
//! them the log has named.

use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, Ordering};

use dashmap::DashMap;
use parking_lot::Mutex;
use time::OffsetDateTime;

use crate::model::ids::KeyId;
use crate::store::keys::ExpiringKey;

/// The maximum number of keys recorded between two writes; further uses are not recorded.
const MAX_KEYS: usize = 100_000;

/// The activity of keys on this replica.
#[derive(Debug)]
pub(super) struct KeyActivity {
    uses: DashMap<KeyId, OffsetDateTime>,
    /// -1 until counted.
    expiring: AtomicI64,
    /// Those that the log has named, with the expiry that it has named.
    named: Mutex<HashSet<(KeyId, OffsetDateTime)>>,
}

impl Default for KeyActivity {
    fn default() -> Self {
        Self { uses: DashMap::new(), expiring: AtomicI64::new(-1), named: Mutex::default() }
    }
}

impl KeyActivity {
    /// Records a use.
    pub(super) fn note(&self, key: KeyId, at: OffsetDateTime) {
        if self.uses.len() < MAX_KEYS {
            self.uses.insert(key, at);
        }
    }

    /// Removes and returns the uses that are not written yet.
    pub(super) fn take(&self) -> Vec<(KeyId, OffsetDateTime)> {
        let keys: Vec<_> = self.uses.iter().map(|entry| *entry.key()).collect();
        keys.into_iter().filter_map(|key| self.uses.remove(&key)).collect()
    }

    /// Records uses again that could not be written, unless there is a newer one.
    pub(super) fn put_back(&self, uses: Vec<(KeyId, OffsetDateTime)>) {
        for (key, at) in uses {
            if self.uses.len() < MAX_KEYS {
                self.uses.entry(key).or_insert(at);
            }
        }
    }

    /// Sets how many keys expire soon.
    pub(super) fn set_expiring(&self, count: i64) {
        self.expiring.store(count, Ordering::Relaxed);
    }

    /// Those of the keys that expire soon which were not among the previous ones.
    pub(super) fn not_named(&self, keys: Vec<ExpiringKey>) -> Vec<ExpiringKey> {
        let identified = |key: &ExpiringKey| (key.key, key.expires_at);
        let current = keys.iter().map(identified).collect();
        let previous = std::mem::replace(&mut *self.named.lock(), current);
        keys.into_iter().filter(|key| !previous.contains(&identified(key))).collect()
    }

    /// How many keys expire soon; `None` until counted.
    pub(super) fn expiring(&self) -> Option<u64> {
        self.expiring.load(Ordering::Relaxed).try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use time::{Duration, OffsetDateTime};
    use uuid::Uuid;

    use super::KeyActivity;
    use crate::model::ids::KeyId;

    #[test]
    fn uses_that_were_not_written_are_kept_unless_there_are_newer_ones() {
        let activity = KeyActivity::default();
        let [first, second] = [1, 2].map(|id| KeyId(Uuid::from_u128(id)));
        let at = |seconds| OffsetDateTime::UNIX_EPOCH + Duration::seconds(seconds);
        activity.note(first, at(1));
        activity.note(second, at(1));
        let taken = activity.take();
        activity.note(second, at(2));
        activity.put_back(taken);
        let mut kept = activity.take();
        kept.sort_unstable();
        assert_eq!(kept, [(first, at(1)), (second, at(2))]);
    }
}
