//! The state of each chain according to the ledger: when it was opened, where it ends, and which rows are missing.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::gaps::{Gap, Gaps};
use crate::model::audit::chain::ChainPosition;

/// State of one chain according to the ledger.
#[derive(Debug, Clone, Default)]
pub(super) struct ChainState {
    /// Time of the opening in microseconds since 2000, and number of its entry.
    pub(super) opened: (i64, i64),
    /// Whether the chain was opened by an entry of version 1.
    pub(super) is_old: bool,
    /// The last row, if the chain was ended.
    pub(super) end: Option<ChainPosition>,
    /// Number of the entry that ended it.
    pub(super) ended: Option<i64>,
    /// The last row as recorded by the writer.
    pub(super) head: Option<ChainPosition>,
    pub(super) gaps: Gaps,
}

/// State of all chains according to the ledger.
#[derive(Debug, Default)]
pub(super) struct ChainStates {
    pub(super) chains: BTreeMap<Uuid, ChainState>,
    /// Inconsistencies in the ledger.
    pub(super) findings: Vec<String>,
    /// For each entry that declares rows as expired, the latest cutoff day of that entry and those after it.
    pub(super) cutoffs: BTreeMap<i64, i32>,
}

impl ChainStates {
    /// Skips the gaps that follow `at`, up to before row `until`.
    pub(super) fn past_gaps(&self, mut at: ChainPosition, until: i64) -> ChainPosition {
        let Some(state) = self.chains.get(&at.id) else { return at };
        while let Some(gap) = state.gaps.beginning_with(at.seq + 1)
            && gap.last.seq < until
            && gap.before == at.head
        {
            at = gap.last;
        }
        at
    }

    pub(super) fn gaps(&self) -> impl Iterator<Item = &Gap> {
        self.chains.values().flat_map(|state| state.gaps.iter())
    }

    /// The gap that contains a row.
    pub(super) fn gap_of(&self, chain: Uuid, seq: i64) -> Option<&Gap> {
        self.chains.get(&chain)?.gaps.around(seq)
    }

    /// Whether a row should have been dropped together with others, because it is older than their cutoff day
    /// and was in the log at that time. Rows that were appended later from a spill file do not count, nor do
    /// rows that are about to be dropped.
    pub(super) fn should_have_been_dropped(&self, chain: Uuid, seq: i64, day: i32) -> bool {
        let Some(state) = self.chains.get(&chain) else { return false };
        // The ledger may not contain yet all chains in the partition of the cutoff day.
        let others = state.ended.and_then(|ended| self.cutoffs.range(ended..).next());
        let others = others.map(|(_, cutoff)| cutoff.saturating_sub(1));
        let cutoff = state.gaps.cutoff_behind(seq).max(others);
        cutoff.is_some_and(|cutoff| day < cutoff) && state.gaps.around(seq).is_none()
    }

    /// Completes the states, once all entries are known.
    pub(super) fn finish(&mut self) {
        for state in self.chains.values_mut() {
            state.gaps.finish();
        }
        let mut latest = i32::MIN;
        for cutoff in self.cutoffs.values_mut().rev() {
            latest = latest.max(*cutoff);
            *cutoff = latest;
        }
    }
}
