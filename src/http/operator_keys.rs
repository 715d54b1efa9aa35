//! The operator keys in force: several at once, so that one can be replaced, and replaceable while the gateway runs.

use std::sync::Arc;

use arc_swap::ArcSwap;
use subtle::ConstantTimeEq;

use crate::model::ids::{KeyId, uuid_of_digest};
use crate::model::key::{KeyHash, SecretKey};

/// The operator keys in force. Clones share them.
#[derive(Debug, Clone)]
pub struct OperatorKeys(Arc<ArcSwap<Vec<OperatorKey>>>);

/// The public part of an operator key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OperatorKey {
    /// The id that audit rows hold, derived from the key: it is the same on every replica and after each restart.
    pub id: KeyId,
    /// The first 12 characters of the key.
    pub display: String,
    hash: KeyHash,
}

impl OperatorKey {
    fn of(key: &SecretKey) -> Self {
        let hash = key.hash();
        Self { id: KeyId(uuid_of_digest(&hash.0)), display: key.display().to_owned(), hash }
    }
}

impl OperatorKeys {
    /// Puts these keys in force.
    pub fn new<'a>(keys: impl IntoIterator<Item = &'a SecretKey>) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(unique(keys))))
    }

    /// Replaces the keys in force, for all clones.
    pub fn replace<'a>(&self, keys: impl IntoIterator<Item = &'a SecretKey>) {
        self.0.store(Arc::new(unique(keys)));
    }

    /// The keys in force.
    pub fn list(&self) -> Vec<OperatorKey> {
        self.0.load().to_vec()
    }

    /// The id of a presented key that is in force. Compares in constant time.
    pub fn verify(&self, key: &SecretKey) -> Option<KeyId> {
        let hash = key.hash();
        let keys = self.0.load();
        keys.iter()
            .fold(None, |found, one| if bool::from(one.hash.0.ct_eq(&hash.0)) { Some(one.id) } else { found })
    }
}

fn unique<'a>(keys: impl IntoIterator<Item = &'a SecretKey>) -> Vec<OperatorKey> {
    let mut unique: Vec<OperatorKey> = Vec::new();
    for key in keys.into_iter().map(OperatorKey::of) {
        if !unique.contains(&key) {
            unique.push(key);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::OperatorKeys;
    use crate::model::key::{KeyKind, SecretKey};

    #[test]
    fn replaced_keys_are_refused_and_each_key_has_its_own_id() {
        let keys =
            [1, 2, 3].map(|seed| SecretKey::generate(KeyKind::Operator, &mut StdRng::seed_from_u64(seed)));
        let [first, second, third] = &keys;
        let operators = OperatorKeys::new([first, second, first]);
        let shared = operators.clone();
        assert_eq!(operators.list().len(), 2);
        let ids = [first, second].map(|key| shared.verify(key).unwrap());
        assert_ne!(ids[0], ids[1]);
        operators.replace([second, third]);
        assert_eq!(shared.verify(first), None);
        assert_eq!(shared.verify(second), Some(ids[1]), "the id of a key does not depend on the others");
        assert!(shared.verify(third).is_some());
    }
}
