//! Gaps: rows that the ledger declares missing, and whether that declaration is valid.

use std::collections::BTreeMap;

use super::entry::ScannedEntry;
use crate::model::audit::chain::ChainPosition;
use crate::model::audit::digest::Digest;
use crate::model::audit::encoding::day_of_micros;
use crate::model::audit::ledger::Cutoff;

const MICROS_A_DAY: i64 = 86_400_000_000;

/// Why rows are missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GapReason {
    /// They were dropped because they expired.
    Dropped,
    /// The database rejected the row; it is in a quarantine file.
    Quarantined,
    /// They were lost with a corrupt spill file.
    Damaged,
}

/// A range of missing rows that a ledger entry declares.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// Why they are missing.
    pub(super) reason: GapReason,
    /// The first missing row.
    pub(super) first: i64,
    /// The hash before it.
    pub(super) before: Digest,
    /// The last missing row and its hash.
    pub(super) last: ChainPosition,
    /// For dropped rows, the retention applied; entries of version 1 do not contain it.
    pub(super) cutoff: Option<Cutoff>,
}

/// The gaps of one chain, by their first row.
#[derive(Debug, Clone, Default)]
pub(super) struct Gaps {
    by_first: BTreeMap<i64, Gap>,
    /// For each gap, the latest cutoff day of that gap and those after it.
    cutoffs: BTreeMap<i64, i32>,
}

impl Gaps {
    pub(super) fn insert(&mut self, gap: Gap) {
        self.by_first.insert(gap.first, gap);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Gap> {
        self.by_first.values()
    }

    /// The gap that starts with a row.
    pub(super) fn beginning_with(&self, seq: i64) -> Option<&Gap> {
        self.by_first.get(&seq)
    }

    /// The gap that contains a row.
    pub(super) fn around(&self, seq: i64) -> Option<&Gap> {
        let (_, gap) = self.by_first.range(..=seq).next_back()?;
        (gap.last.seq >= seq).then_some(gap)
    }

    /// Completes the set, once all gaps are known.
    pub(super) fn finish(&mut self) {
        let mut latest = None;
        for (first, gap) in self.by_first.iter().rev() {
            latest = latest.max(gap.cutoff.map(|cutoff| cutoff.day));
            if let Some(day) = latest {
                self.cutoffs.insert(*first, day);
            }
        }
    }

    /// The latest cutoff day of the gaps after a row. The row was in the log when they were made.
    pub(super) fn cutoff_behind(&self, seq: i64) -> Option<i32> {
        self.cutoffs.range(seq.saturating_add(1)..).next().map(|(_, day)| *day)
    }
}

/// Why an entry that declares rows as expired is invalid, if it is. `opened` is the time at which their chain
/// was opened, and `now` that of the verification.
pub(super) fn drop_objection(
    entry: &ScannedEntry<'_>,
    cutoff: Cutoff,
    opened: i64,
    now: i64,
) -> Option<String> {
    let Cutoff { day, retain_days } = cutoff;
    let retention = i64::from(retain_days).saturating_mul(MICROS_A_DAY);
    if retain_days < 1 {
        return Some(format!("invalid retention of {retain_days} days"));
    }
    if day > day_of_micros(entry.at).saturating_sub(retain_days) {
        return Some(format!("its cutoff day is less than the retention of {retain_days} days before it"));
    }
    if entry.at < opened.saturating_add(retention) {
        return Some(format!("its chain was opened less than the retention of {retain_days} days before it"));
    }
    (entry.at > now.saturating_add(MICROS_A_DAY)).then(|| "its time is in the future".to_owned())
}
