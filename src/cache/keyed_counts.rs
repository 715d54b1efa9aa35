//! Counters by key, such as of open streams or of waiting requests. A key is in memory only while something is counted for it.

use std::hash::Hash;
use std::sync::Arc;

use dashmap::DashMap;

/// Counts by key.
#[derive(Debug)]
pub struct KeyedCounts<K: Eq + Hash>(DashMap<K, usize>);

/// A counted item, no longer counted once this is dropped.
#[derive(Debug)]
pub struct CountGuard<K: Eq + Hash> {
    counts: Arc<KeyedCounts<K>>,
    key: K,
}

impl<K: Eq + Hash> Default for KeyedCounts<K> {
    fn default() -> Self {
        Self(DashMap::new())
    }
}

impl<K: Eq + Hash + Copy> KeyedCounts<K> {
    /// Counts one more of a key; `None` if there are `most` already.
    pub fn try_add(self: &Arc<Self>, key: K, most: usize) -> Option<CountGuard<K>> {
        if most == 0 {
            return None;
        }
        let mut count = self.0.entry(key).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        drop(count);
        Some(CountGuard { counts: Arc::clone(self), key })
    }

    /// The count of a key.
    pub fn get(&self, key: K) -> usize {
        self.0.get(&key).map_or(0, |count| *count)
    }

    /// The keys that something is counted for.
    pub fn keys(&self) -> Vec<K> {
        self.0.iter().map(|entry| *entry.key()).collect()
    }
}

impl<K: Eq + Hash> Drop for CountGuard<K> {
    fn drop(&mut self) {
        self.counts.0.remove_if_mut(&self.key, |_, count| {
            *count -= 1;
            *count == 0
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::KeyedCounts;

    #[test]
    fn keys_are_limited_separately_and_forgotten_at_zero() {
        let counts = Arc::new(KeyedCounts::default());
        assert!(counts.try_add('a', 0).is_none());
        assert_eq!(counts.keys(), [' '; 0]);
        let first = counts.try_add('a', 2);
        let second = counts.try_add('a', 2);
        assert!(first.is_some() && second.is_some() && counts.try_add('a', 2).is_none());
        assert!(counts.try_add('b', 1).is_some());
        assert_eq!((counts.get('a'), counts.get('b')), (2, 0));
        drop(first);
        assert_eq!((counts.get('a'), counts.keys()), (1, vec!['a']));
        assert!(counts.try_add('a', 2).is_some());
        drop(second);
        assert_eq!((counts.get('a'), counts.keys()), (0, vec![]));
    }
}
