//! What was used since it was last written down.

use std::sync::atomic::{AtomicU64, Ordering};

use dashmap::DashMap;
use foldhash::fast::RandomState;
use time::OffsetDateTime;

use crate::model::ids::AgentId;
use crate::model::usage::{Usage, UsageRow};
use crate::store::Store;

const HOUR: i64 = 3_600;
/// Counts that wait to be written down; past it, while the database is away, new ones are lost, and that is said.
const MOST: usize = 100_000;
/// Written down at once.
const BATCH: usize = 5_000;

/// Counts by agent, hour and method.
#[derive(Debug, Default)]
pub(super) struct Counters {
    /// The hour is counted from 1970.
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

    /// Writes down what was counted; what cannot be is kept for later.
    pub(super) async fn settle(&self, store: &Store) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if lost > 0 {
            tracing::error!(calls = lost, "usage was lost: too much of it waits for the database");
        }
        let keys: Vec<_> = self.counts.iter().map(|entry| *entry.key()).collect();
        for keys in keys.chunks(BATCH) {
            let taken: Vec<_> = keys.iter().filter_map(|key| self.counts.remove(key)).collect();
            let rows: Vec<_> = taken.iter().filter_map(|(key, usage)| row(*key, *usage)).collect();
            if let Err(error) = store.add_usage(&rows).await {
                tracing::warn!(%error, rows = rows.len(), "usage is written down later");
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
