//! How what a scan found differs from what is recorded.

use std::cmp::Ordering;

/// A path at which both differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Difference<K, V> {
    /// It is found, and not recorded.
    Appeared(K, V),
    /// It is found with another value than recorded.
    Changed(K, V),
    /// It is recorded, and not found.
    Vanished(K),
}

/// The differences between two sequences in ascending order of their keys, in this order.
pub fn differences<K: Ord, R, F>(
    recorded: impl IntoIterator<Item = (K, R)>,
    found: impl IntoIterator<Item = (K, F)>,
    is_same: impl Fn(&R, &F) -> bool,
) -> impl Iterator<Item = Difference<K, F>> {
    let (mut recorded, mut found) = (recorded.into_iter().peekable(), found.into_iter().peekable());
    std::iter::from_fn(move || {
        loop {
            let order = match (recorded.peek(), found.peek()) {
                (Some((old, _)), Some((new, _))) => old.cmp(new),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return None,
            };
            match order {
                Ordering::Less => return recorded.next().map(|(key, _)| Difference::Vanished(key)),
                Ordering::Greater => {
                    return found.next().map(|(key, value)| Difference::Appeared(key, value));
                }
                Ordering::Equal => {
                    let ((_, old), (key, new)) = (recorded.next()?, found.next()?);
                    if !is_same(&old, &new) {
                        return Some(Difference::Changed(key, new));
                    }
                }
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::{Difference, differences};

    proptest! {
        #[test]
        fn differences_make_one_of_the_other(
            recorded in prop::collection::btree_map("[a-d]{1,2}", 0..3_u8, 0..12),
            found in prop::collection::btree_map("[a-d]{1,2}", 0..3_u8, 0..12),
        ) {
            let mut patched: BTreeMap<_, _> = recorded.clone();
            let mut count = 0;
            for difference in differences(recorded.clone(), found.clone(), |old, new| old == new) {
                count += 1;
                match difference {
                    Difference::Appeared(key, value) => prop_assert_eq!(patched.insert(key, value), None),
                    Difference::Changed(key, value) => prop_assert_ne!(patched.insert(key, value), Some(value)),
                    Difference::Vanished(key) => prop_assert!(patched.remove(&key).is_some()),
                }
            }
            prop_assert_eq!(&patched, &found);
            let all = recorded.keys().chain(found.keys()).collect::<std::collections::BTreeSet<_>>();
            prop_assert_eq!(count, all.iter().filter(|key| recorded.get(**key) != found.get(**key)).count());
        }
    }
}
