//! The filter of issued keys: whether a key that is not in memory was issued, as far as this replica knows.
//!
//! It decides only what a look-up is charged to: the look-up of a key that is not in the filter is charged to the
//! client's address. The filter holds the first 64 bits of the hash of each key that was not revoked when it was
//! loaded: 8 bytes per key, and up to 18 for the keys since the last merge. A client cannot choose the hash of a key,
//! so forged keys do not match.
//!
//! It is loaded at startup and follows the log of changes: whenever a scope is raised that may be a tenant's, the keys
//! that changed since are added. Until it is loaded it contains no key.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use foldhash::fast::RandomState;
use parking_lot::RwLock;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::cache::Charge;
use crate::model::allocated::{allocated, table};
use crate::model::key::KeyHash;
use crate::store::horizon::Horizon;
use crate::store::{Store, StoreError};

/// The maximum number of keys: 64 MiB. Further keys count as not issued.
const MAX_KEYS: usize = 8 << 20;
/// The number of keys since the last merge at which they are merged.
const MAX_RECENT: usize = 1 << 12;
/// Keys read per query.
const PAGE: u32 = 50_000;
/// The minimum interval between two queries for changes.
const PAUSE: Duration = Duration::from_millis(250);
/// The delay after a failed query.
const RETRY: Duration = Duration::from_secs(1);
/// The interval at which the filter is loaded again, without the keys that were revoked since.
const RELOAD: Duration = Duration::from_hours(24);

/// The filter of issued keys.
#[derive(Debug)]
pub(super) struct IssuedKeys {
    prefixes: RwLock<Option<Prefixes>>,
    changed: Notify,
    /// Whether it must be loaded again.
    outdated: AtomicBool,
    /// Of `prefixes`.
    charge: Charge,
}

/// The first 64 bits of hashes.
#[derive(Debug, Default)]
struct Prefixes {
    sorted: Vec<u64>,
    recent: HashSet<u64, RandomState>,
}

impl Prefixes {
    #[expect(clippy::stable_sort_primitive, reason = "merges the sorted run instead of sorting it again")]
    fn merge(&mut self) {
        self.sorted.extend(self.recent.drain());
        self.sorted.sort();
    }

    fn heap(&self) -> usize {
        allocated(self.sorted.capacity() * size_of::<u64>()) + table::<u64>(self.recent.capacity())
    }

    fn contains(&self, prefix: u64) -> bool {
        self.recent.contains(&prefix) || self.sorted.binary_search(&prefix).is_ok()
    }

    fn insert(&mut self, prefix: u64) {
        if self.sorted.len() + self.recent.len() >= MAX_KEYS || self.contains(prefix) {
            return;
        }
        self.recent.insert(prefix);
        if self.recent.len() >= MAX_RECENT {
            self.merge();
        }
    }
}

impl IssuedKeys {
    /// A filter that is not loaded, whose memory is charged to `charge`.
    pub(super) fn new(charge: Charge) -> Self {
        Self { prefixes: RwLock::new(None), changed: Notify::new(), outdated: AtomicBool::new(false), charge }
    }

    /// The bytes that it takes.
    pub(super) fn charged(&self) -> usize {
        self.charge.bytes()
    }

    /// Whether this replica knows that the key was issued.
    pub(super) fn contains(&self, hash: KeyHash) -> bool {
        self.prefixes.read().as_ref().is_some_and(|prefixes| prefixes.contains(prefix(hash)))
    }

    /// Adds a key; ignored before the filter is loaded.
    pub(super) fn insert(&self, hash: KeyHash) {
        let heap = self.prefixes.write().as_mut().map_or(0, |prefixes| {
            prefixes.insert(prefix(hash));
            prefixes.heap()
        });
        if heap != self.charge.bytes() {
            self.charge.resize(heap);
        }
    }

    /// Requests a new load: on another timeline of the database the horizon is invalid.
    pub(super) fn reload(&self) {
        self.outdated.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Requests a query of the log of changes: another replica may have issued keys.
    pub(super) fn touch(&self) {
        self.changed.notify_one();
    }

    /// Loads the filter; returns the horizon up to which it covers the log of changes.
    ///
    /// # Errors
    /// If the database cannot be read.
    pub(super) async fn load(&self, store: &Store) -> Result<Horizon, StoreError> {
        let horizon = store.horizon().await?;
        let mut sorted = Vec::new();
        let mut after = Vec::new();
        while sorted.len() < MAX_KEYS {
            let page = store.issued_hashes(&after, PAGE.into()).await?;
            let Some(last) = page.last() else { break };
            after = last.0.to_vec();
            sorted.extend(page.iter().map(|hash| prefix(*hash)));
        }
        sorted.truncate(MAX_KEYS);
        if sorted.len() == MAX_KEYS {
            tracing::warn!(keys = MAX_KEYS, "filter of issued keys is full");
        }
        sorted.shrink_to_fit();
        let loaded = Prefixes { sorted, recent: HashSet::default() };
        let heap = loaded.heap();
        *self.prefixes.write() = Some(loaded);
        self.charge.resize(heap);
        Ok(horizon)
    }

    /// Keeps the filter up to date until `stop`.
    pub(super) async fn follow(&self, store: &Store, loaded: Option<Horizon>, stop: &CancellationToken) {
        stop.run_until_cancelled(async {
            let mut horizon = loaded;
            loop {
                horizon = self.follow_from(store, horizon).await;
                if horizon.is_none() {
                    tokio::time::sleep(RETRY).await;
                }
            }
        })
        .await;
    }

    /// Loads the filter unless it is loaded, and adds keys until it must be loaded again.
    async fn follow_from(&self, store: &Store, horizon: Option<Horizon>) -> Option<Horizon> {
        let mut horizon = match horizon {
            Some(horizon) => horizon,
            None => match self.load(store).await {
                Ok(horizon) => horizon,
                Err(error) => {
                    tracing::debug!(%error, "issued keys cannot be loaded");
                    return None;
                }
            },
        };
        let reload = tokio::time::Instant::now() + RELOAD;
        while tokio::time::timeout_at(reload, self.changed.notified()).await.is_ok() {
            if self.outdated.swap(false, Ordering::AcqRel) {
                return None;
            }
            match store.issued_since(&horizon, PAGE.into()).await {
                Ok(since) if since.pruned || since.hashes.len() >= PAGE as usize => {
                    return None;
                }
                Ok(since) => {
                    since.hashes.into_iter().for_each(|hash| self.insert(hash));
                    horizon = since.horizon;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => {
                    tracing::debug!(%error, "keys issued elsewhere cannot be read");
                    self.touch();
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        None
    }
}

fn prefix(hash: KeyHash) -> u64 {
    hash.0.first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{IssuedKeys, MAX_RECENT, Prefixes};
    use crate::cache::MemoryBudget;
    use crate::model::key::KeyHash;

    fn issued() -> IssuedKeys {
        IssuedKeys::new(MemoryBudget::new(1 << 20).pin("issued_keys"))
    }

    fn hash(number: u64) -> KeyHash {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&number.to_be_bytes());
        KeyHash(bytes)
    }

    #[test]
    fn filter_is_empty_before_it_is_loaded() {
        let issued = issued();
        issued.insert(hash(1));
        assert!(!issued.contains(hash(1)));
        *issued.prefixes.write() = Some(Prefixes::default());
        issued.insert(hash(1));
        assert!(issued.contains(hash(1)) && !issued.contains(hash(2)));
    }

    #[test]
    fn merged_keys_take_eight_bytes_each() {
        let mut prefixes = Prefixes::default();
        let keys = u64::try_from(MAX_RECENT).unwrap() * 3;
        (0..keys).for_each(|key| prefixes.insert(key.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        assert_eq!((prefixes.sorted.len(), prefixes.recent.len()), (3 * MAX_RECENT, 0));
        assert!(prefixes.sorted.is_sorted());
    }

    proptest! {
        #[test]
        fn filter_contains_exactly_the_added_keys(
            loaded in prop::collection::btree_set(any::<u64>(), 0..200),
            added in prop::collection::vec(any::<u64>(), 0..200),
            others in prop::collection::vec(any::<u64>(), 0..200),
        ) {
            let issued = issued();
            let sorted: Vec<_> = loaded.iter().copied().collect();
            *issued.prefixes.write() = Some(Prefixes { sorted, ..Prefixes::default() });
            for key in &added {
                issued.insert(hash(*key));
            }
            for key in loaded.iter().chain(&added).chain(&others) {
                prop_assert_eq!(issued.contains(hash(*key)), loaded.contains(key) || added.contains(key));
            }
        }
    }
}
