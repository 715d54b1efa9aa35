//! How many sessions holders have. The database counts them when one is opened, which takes time in proportion to their
//! number. Where there are many, a count is used again for a second, for up to half of what the holder may still have.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cache::{MemoryBudget, WeighedCache};
use crate::model::ids::{AgentId, TenantId};
use crate::model::session::SessionHolder;
use crate::store::sessions::{PlacedSession, SessionRow};

/// How long a count is used again: other replicas open sessions meanwhile.
const USED_FOR: Duration = Duration::from_secs(1);
/// Fewer sessions than these are counted each time: that takes no longer than to open one.
const MANY: i64 = 64;

/// A holder with an agent.
type Holder = (AgentId, SessionHolder);

/// The sessions of holders with agents, as counted last.
#[derive(Debug)]
pub(super) struct HolderCounts {
    kept: Arc<WeighedCache<Holder, HolderCount>>,
    /// Sessions that a holder has with an agent before some of them end.
    most: i64,
}

/// How many sessions a holder has with an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct HolderCount {
    /// Those counted, and those that this replica opened since.
    open: i64,
    /// Those counted.
    counted: i64,
    /// When they were counted.
    at: Instant,
}

/// The counts that a batch of new sessions uses.
pub(super) struct BatchCounts {
    began: Instant,
    of_holders: HashMap<Holder, (TenantId, Option<HolderCount>)>,
}

impl HolderCounts {
    /// No counts yet, of holders that have at most `most` sessions with an agent before some of them end.
    pub(super) fn new(budget: &Arc<MemoryBudget>, most: i64) -> Self {
        Self { kept: WeighedCache::new(budget, "session_counts", |_| false), most }
    }

    fn is_usable(&self, count: &HolderCount) -> bool {
        let added = count.open - count.counted;
        count.counted >= MANY && added <= (self.most - count.counted) / 2 && count.at.elapsed() < USED_FOR
    }

    /// The counts for a batch of new sessions.
    pub(super) fn of(&self, batch: &[Arc<SessionRow>]) -> BatchCounts {
        let began = Instant::now();
        let usable =
            |holder: &Holder| self.kept.get_with(holder, |count| self.is_usable(count).then_some(*count));
        let mut of_holders = HashMap::new();
        for new in batch {
            let of_holder = of_holders.entry(holder(new));
            of_holder.or_insert_with_key(|holder| (new.tenant, usable(holder)));
        }
        BatchCounts { began, of_holders }
    }

    /// Keeps the counts of a batch after it was written, where they can be used again.
    pub(super) fn keep(&self, used: BatchCounts, batch: &[Arc<SessionRow>], placed: &[PlacedSession]) {
        let mut open = HashMap::new();
        for (new, placed) in batch.iter().zip(placed) {
            open.entry(holder(new)).or_insert((placed.counted, placed.open)).1 = placed.open;
        }
        for (holder, (tenant, used_count)) in used.of_holders {
            let Some((counted, open)) = open.get(&holder).copied() else { continue };
            let (counted, at) = used_count.map_or((counted, used.began), |used| (used.counted, used.at));
            let count = HolderCount { open, counted, at };
            // Removed also where it is replaced: without room for the new one, the old one must not be used again.
            self.kept.remove(&holder);
            if self.is_usable(&count) {
                self.kept.insert(holder, count, Some(tenant), 0);
            }
        }
    }
}

impl BatchCounts {
    /// The sessions of the holder of a new session, unless the database has to count them.
    pub(super) fn of_holder(&self, new: &SessionRow) -> Option<i64> {
        let (_, count) = self.of_holders.get(&holder(new))?;
        count.map(|count| count.open)
    }
}

fn holder(new: &SessionRow) -> Holder {
    (new.agent, new.holder)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use time::OffsetDateTime;
    use tokio::time::advance;
    use uuid::Uuid;

    use super::HolderCounts;
    use crate::cache::MemoryBudget;
    use crate::model::ids::{AgentId, SessionUid, TenantId};
    use crate::model::label::LabelsDigest;
    use crate::model::scope::Revision;
    use crate::model::session::SessionHolder;
    use crate::store::sessions::{OpenOutcome, PlacedSession, SessionRow};

    fn session(holder: u128) -> Arc<SessionRow> {
        Arc::new(SessionRow {
            hash: [0; 32],
            uid: SessionUid(Uuid::nil()),
            tenant: TenantId(Uuid::nil()),
            agent: AgentId(Uuid::nil()),
            principal: None,
            holder: SessionHolder(Uuid::from_u128(holder)),
            version: String::new(),
            client_name: String::new(),
            client_version: String::new(),
            capabilities: String::new(),
            labels: LabelsDigest([0; 8]),
            now: OffsetDateTime::UNIX_EPOCH,
        })
    }

    fn counts() -> HolderCounts {
        HolderCounts::new(&MemoryBudget::new(1 << 20), 1_000)
    }

    /// Opens a session of each of the holders, of whom the database counts so many where it has to.
    fn open(counts: &HolderCounts, holders: &[u128], present: i64) -> Vec<Option<i64>> {
        let batch: Vec<_> = holders.iter().map(|holder| session(*holder)).collect();
        let used = counts.of(&batch);
        let known: Vec<_> = batch.iter().map(|new| used.of_holder(new)).collect();
        let place = |(place, known): (usize, &Option<i64>)| {
            let before = holders[..=place].iter().filter(|holder| **holder == holders[place]).count();
            let counted = known.unwrap_or(present);
            let outcome = OpenOutcome::Opened(Revision(1));
            PlacedSession { outcome, counted, open: counted + i64::try_from(before).unwrap() }
        };
        let placed: Vec<_> = known.iter().enumerate().map(place).collect();
        counts.keep(used, &batch, &placed);
        known
    }

    #[tokio::test(start_paused = true)]
    async fn count_of_many_is_used_for_half_of_what_is_left() {
        let counts = counts();
        assert_eq!(open(&counts, &[1], 63), [None]);
        assert_eq!(open(&counts, &[1], 990), [None], "63 are counted again");
        for open_now in 991..=995 {
            assert_eq!(open(&counts, &[1], 0), [Some(open_now)]);
        }
        assert_eq!(open(&counts, &[1], 1_000), [None]);
        assert_eq!(open(&counts, &[1], 70), [None], "nothing is left");
        assert_eq!(open(&counts, &[2, 1, 2, 1], 100), [None, Some(71), None, Some(71)]);
        assert_eq!(open(&counts, &[2, 1, 2, 3], 0), [Some(102), Some(73), Some(102), None]);
    }

    #[tokio::test(start_paused = true)]
    async fn count_is_used_for_a_second() {
        let counts = counts();
        assert_eq!(open(&counts, &[1], 100), [None]);
        advance(Duration::from_millis(600)).await;
        assert_eq!(open(&counts, &[1], 0), [Some(101)]);
        advance(Duration::from_millis(399)).await;
        assert_eq!(open(&counts, &[1], 0), [Some(102)]);
        advance(Duration::from_millis(1)).await;
        assert_eq!(open(&counts, &[1], 500), [None]);
    }
}
