//! How long transactions of the database server have been in progress, as seen by sweeps.
//!
//! A transaction that stays open keeps vacuum from removing the row versions that later writes replace, so that every
//! update of `heads` and every pruned change slows down reads until it ends. Sweeps see it in any database and state, of
//! any user; no privilege is required.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The age at which a transaction is logged.
const LONG: Duration = Duration::from_mins(5);

/// The transactions in progress at the last sweep.
#[derive(Debug, Default)]
pub(super) struct OpenTransactions {
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// When a sweep first saw each.
    since: BTreeMap<u64, Instant>,
    oldest: Duration,
    /// The newest transaction that was logged; its predecessors were logged before.
    logged: u64,
}

impl OpenTransactions {
    /// Records the transactions in progress during a sweep, in ascending order. Returns the oldest with its age, once, if
    /// it has been in progress for [`LONG`].
    pub(super) fn record(&self, in_progress: &[u64], now: Instant) -> Option<(u64, Duration)> {
        let mut seen = self.seen.lock();
        seen.since.retain(|xid, _| in_progress.binary_search(xid).is_ok());
        for xid in in_progress {
            seen.since.entry(*xid).or_insert(now);
        }
        let oldest = seen.since.first_key_value().map(|(xid, since)| (*xid, now.duration_since(*since)));
        seen.oldest = oldest.map(|(_, age)| age).unwrap_or_default();
        let (xid, age) = oldest.filter(|(xid, age)| *age >= LONG && *xid > seen.logged)?;
        seen.logged = xid;
        Some((xid, age))
    }

    /// How long the oldest transaction has been seen in progress; zero without one.
    pub(super) fn oldest(&self) -> Duration {
        self.seen.lock().oldest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn age_counts_from_the_first_sweep_that_saw_the_transaction() {
        let open = OpenTransactions::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let oldest = || open.oldest().as_secs();
        assert_eq!((open.record(&[], at(0)), oldest()), (None, 0));
        assert_eq!((open.record(&[7], at(10)), oldest()), (None, 0));
        assert_eq!((open.record(&[7, 9], at(12)), oldest()), (None, 2));
        assert_eq!((open.record(&[9], at(20)), oldest()), (None, 8), "not from when it became the oldest");
        assert_eq!((open.record(&[], at(21)), oldest()), (None, 0));
    }

    #[test]
    fn each_long_transaction_is_returned_once() {
        let open = OpenTransactions::default();
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(open.record(&[7, 9], at(0)), None);
        assert_eq!(open.record(&[7, 9], at(299)), None);
        assert_eq!(open.record(&[7, 9], at(300)), Some((7, LONG)));
        assert_eq!(open.record(&[7, 9], at(301)), None);
        assert_eq!(open.record(&[9], at(302)), Some((9, Duration::from_secs(302))));
        assert_eq!(open.record(&[9], at(303)), None);
    }
}
