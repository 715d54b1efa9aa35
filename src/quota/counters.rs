//! Usage counters: the usage since it was last persisted.

use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use foldhash::fast::RandomState;
use time::OffsetDateTime;

use crate::model::ids::AgentId;
use crate::model::usage::{Usage, UsageRow};
use crate::store::Store;

const HOUR: i64 = 3_600;
/// The maximum number of counts that wait for the database; above it new ones are lost, which is logged.
const MOST: usize = 100_000;
/// Rows per statement.
const BATCH: usize = 5_000;

/// Counts by agent, hour and method.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// The hour, counted from 1970.
    counts: DashMap<(AgentId, i64, &'static str), Usage, RandomState>,
    lost: AtomicU64,
}

impl Counters {
    pub(super) fn count(&self, agent: AgentId, method: &'static str, at: OffsetDateTime, usage: &Usage) {
        let key = (agent, at.unix_timestamp().div_euclid(HOUR), method);
        if let Some(mut present) = self.counts.get_mut(&key) {
            return present.add(usage);
        }
        if self.counts.len() >= MOST {
            self.lost.fetch_add(usage.calls, Ordering::Relaxed);
            return;
        }
        self.counts.entry(key).or_default().add(usage);
    }

    /// Persists the counts; those that cannot be written are kept.
    pub(super) async fn persist(&self, store: &Store) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::error!(calls = lost, "usage lost: too many counts wait for the database");
        }
        let keys: Vec<_> = self.counts.iter().map(|entry| *entry.key()).collect();
        for keys in keys.chunks(BATCH) {
            let taken: Vec<_> = keys.iter().filter_map(|key| self.counts.remove(key)).collect();
            let rows: Vec<_> = taken.iter().filter_map(|(key, usage)| row(*key, *usage)).collect();
            if let Err(error) = store.add_usage(&rows).await {
                tracing::warn!(%error, rows = rows.len(), "usage not persisted; retried later");
                for (key, usage) in &taken {
                    self.counts.entry(*key).or_default().add(usage);
                }
                return;
            }
        }
    }
}

fn row((agent, hour, method): (AgentId, i64, &'static str), usage: Usage) -> Option<UsageRow> {
    let at = OffsetDateTime::from_unix_timestamp(hour * HOUR).ok()?;
    Some(UsageRow { agent, at, method: method.into(), usage })
}
