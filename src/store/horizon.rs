//! The point from which a read of the `changes` table continues: the transactions that the previous read has not seen.

use super::StoreError;

/// Maximum number of transactions in progress that are named one by one.
const NAMED: usize = 1_000;

/// The transactions that a read has not seen: some that were in progress, and all from a later one on.
///
/// A transaction that stays open, in any database of the server, is one of those in progress. What commits after
/// it is read once, not again by each read until it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Horizon {
    /// Ascending.
    in_progress: Vec<u64>,
    /// Everything from here on is unseen.
    from: u64,
    /// The first unassigned transaction id.
    next_xid: u64,
}

impl Horizon {
    /// Parses `pg_current_snapshot()`, whose text is `xmin:xmax:xip,…`. Subtransactions are not listed there, and
    /// changes do not have their ids. A server `in_recovery` lists none of the transactions in progress: everything
    /// from the oldest on counts as unseen then.
    pub(super) fn parse(snapshot: &str, in_recovery: bool) -> Result<Self, StoreError> {
        Self::of(snapshot, in_recovery).ok_or(StoreError::Unreadable("snapshot"))
    }

    fn of(snapshot: &str, in_recovery: bool) -> Option<Self> {
        let mut parts = snapshot.splitn(3, ':');
        let (oldest, next_xid): (u64, u64) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        let listed = parts.next()?.split(',').filter(|xid| !xid.is_empty());
        let mut in_progress = listed.map(str::parse).collect::<Result<Vec<u64>, _>>().ok()?;
        in_progress.sort_unstable();
        let mut from = if in_recovery { oldest } else { next_xid };
        if let Some(first) = in_progress.get(NAMED) {
            from = from.min(*first);
            in_progress.truncate(NAMED);
        }
        Some(Self { in_progress, from, next_xid })
    }

    /// The named transactions, as a literal of type `xid8[]`.
    pub(super) fn named(&self) -> String {
        let named: Vec<_> = self.in_progress.iter().map(u64::to_string).collect();
        format!("{{{}}}", named.join(","))
    }

    /// The transaction from which on all are unseen, as a literal of type `xid8`.
    pub(super) fn from(&self) -> String {
        self.from.to_string()
    }

    /// The first transaction id that was not assigned yet.
    pub fn next_xid(&self) -> u64 {
        self.next_xid
    }

    /// The transactions that were in progress, in any database of the server: the oldest ones, ascending.
    pub fn in_progress(&self) -> &[u64] {
        &self.in_progress
    }
}

#[cfg(test)]
mod tests {
    use super::{Horizon, NAMED};

    fn literals(snapshot: &str, in_recovery: bool) -> Option<(String, String, u64)> {
        let horizon = Horizon::of(snapshot, in_recovery)?;
        Some((horizon.named(), horizon.from(), horizon.next_xid()))
    }

    #[test]
    fn transactions_in_progress_are_named() {
        let expect = |named: &str, from: &str, next| Some((named.to_owned(), from.to_owned(), next));
        assert_eq!(literals("7:7:", false), expect("{}", "7", 7));
        assert_eq!(literals("7:12:9,7", false), expect("{7,9}", "12", 12));
        let epochs = "4294967295:8589934593:4294967295,8589934592";
        assert_eq!(literals(epochs, false), expect("{4294967295,8589934592}", "8589934593", 8_589_934_593));
        for other in ["", "7", "7:8", "7:x:", "7:8:x", "7:8:7:8", "-1:8:"] {
            assert_eq!(literals(other, false), None, "{other}");
        }
    }

    #[test]
    fn everything_in_progress_counts_as_unseen_where_it_is_not_listed() {
        assert_eq!(literals("7:12:", true), Some(("{}".to_owned(), "7".to_owned(), 12)));
    }

    #[test]
    fn the_oldest_of_many_transactions_in_progress_are_named() {
        let snapshot = |count: u64| {
            let listed: Vec<_> = (1..=count).map(|n| (10 * n).to_string()).collect();
            format!("10:100000:{}", listed.join(","))
        };
        let horizon = |count| Horizon::of(&snapshot(count), false).unwrap();
        let most = NAMED as u64;
        let (full, more) = (horizon(most), horizon(most + 1));
        assert_eq!((full.in_progress.len(), full.from), (NAMED, 100_000));
        assert_eq!(
            (more.in_progress, more.from, more.next_xid),
            (full.in_progress, 10 * (most + 1), 100_000)
        );
    }
}
