//! Rows that the chain of chains declares to be missing for a reason, and when that is to be believed of their age.

use std::collections::BTreeMap;

use super::facts::Entry;
use crate::model::audit::chain::{Chain, Digest};
use crate::model::audit::encoding::day_of_micros;
use crate::model::audit::ledger::Cutoff;

const MICROS_A_DAY: i64 = 86_400_000_000;

/// Why rows are not in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// They were dropped for their age.
    Dropped,
    /// The database refused the row, which is in a file.
    Quarantined,
    /// They were lost with a corrupt spill file.
    Damaged,
}

/// Rows that are not in the log, and an entry says why.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// Why they are not.
    pub(super) why: Why,
    /// The first that is gone.
    pub(super) first: i64,
    /// The hash before it.
    pub(super) before: Digest,
    /// The last that is gone, and its hash.
    pub(super) last: Chain,
    /// Of dropped rows, which were too old; entries of version 1 do not say so.
    pub(super) cutoff: Option<Cutoff>,
}

/// The gaps of one chain, by their first row.
#[derive(Debug, Clone, Default)]
pub(super) struct Gaps {
    by_first: BTreeMap<i64, Gap>,
    /// Of each gap the latest cut-off day of it and those behind it.
    cutoffs: BTreeMap<i64, i32>,
}

impl Gaps {
    pub(super) fn insert(&mut self, gap: Gap) {
        self.by_first.insert(gap.first, gap);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Gap> {
        self.by_first.values()
    }

    /// The gap that begins with a row.
    pub(super) fn beginning_with(&self, seq: i64) -> Option<&Gap> {
        self.by_first.get(&seq)
    }

    /// The gap in which a row was.
    pub(super) fn around(&self, seq: i64) -> Option<&Gap> {
        let (_, gap) = self.by_first.range(..=seq).next_back()?;
        (gap.last.seq >= seq).then_some(gap)
    }

    /// Finishes the set: all gaps are known.
    pub(super) fn finish(&mut self) {
        let mut latest = None;
        for (first, gap) in self.by_first.iter().rev() {
            latest = latest.max(gap.cutoff.map(|cutoff| cutoff.day));
            if let Some(day) = latest {
                self.cutoffs.insert(*first, day);
            }
        }
    }

    /// The latest cut-off day of the gaps behind a row: it was in the log when they were made.
    pub(super) fn cutoff_behind(&self, seq: i64) -> Option<i32> {
        self.cutoffs.range(seq.saturating_add(1)..).next().map(|(_, day)| *day)
    }
}

/// Why an entry that declares rows to be dropped is not believed. `opened` is when their chain began, and `now` the
/// time of the verification.
pub(super) fn doubt(entry: &Entry<'_>, cutoff: Cutoff, opened: i64, now: i64) -> Option<String> {
    let Cutoff { day, retain_days } = cutoff;
    let retention = i64::from(retain_days).saturating_mul(MICROS_A_DAY);
    if retain_days < 1 {
        return Some(format!("a retention of {retain_days} days is none"));
    }
    if day > day_of_micros(entry.at).saturating_sub(retain_days) {
        return Some(format!("its cut-off day is less than the retention of {retain_days} days before it"));
    }
    if entry.at < opened.saturating_add(retention) {
        return Some(format!("its chain was opened less than the retention of {retain_days} days before it"));
    }
    (entry.at > now.saturating_add(MICROS_A_DAY)).then(|| "it was entered in the future".to_owned())
}
