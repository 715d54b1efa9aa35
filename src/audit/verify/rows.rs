//! Verifies the chains row by row.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::chain_state::ChainStates;
use super::gaps::{Gap, GapReason};
use super::report::{MAX_FINDINGS, Report};
use crate::model::audit::chain::ChainPosition;
use crate::model::audit::checkpoint::Checkpoint;
use crate::model::audit::digest::Digest;
use crate::model::audit::encoding::{NEWEST, VERSION, day_of_micros, split};

/// Number of columns of a row.
const COLUMNS: usize = 29;

/// Verifies the rows of all chains, in order of chain and number.
pub(super) struct RowVerifier<'a> {
    states: &'a ChainStates,
    report: &'a mut Report,
    /// The rows recorded in checkpoints.
    known: BTreeMap<(Uuid, i64), BTreeSet<Digest>>,
    seen: BTreeSet<Uuid>,
    current: Option<CurrentChain>,
}

/// The chain being read.
struct CurrentChain {
    at: ChainPosition,
    broken: bool,
}

/// The columns of a row that verification needs.
struct ScannedRow {
    version: i16,
    chain: Uuid,
    seq: i64,
    previous: Digest,
    /// Day of the row, in days since 2000-01-01.
    day: i32,
    hash: Digest,
    /// The hash of its actual content.
    actual_hash: Digest,
}

impl<'a> RowVerifier<'a> {
    pub(super) fn new(states: &'a ChainStates, checkpoints: &[Checkpoint], report: &'a mut Report) -> Self {
        let mut known: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for head in checkpoints.iter().flat_map(|checkpoint| &checkpoint.chains) {
            known.entry((head.chain, head.seq)).or_default().insert(head.hash);
        }
        report.chains = states.chains.len();
        let gaps = |reason| states.gaps().filter(move |gap| gap.reason == reason);
        report.dropped = gaps(GapReason::Dropped).map(|gap| gap.last.seq - gap.first + 1).sum();
        let named = gaps(GapReason::Quarantined).map(|gap| (gap.last.id, gap.first)).take(MAX_FINDINGS);
        report.quarantined = (gaps(GapReason::Quarantined).count(), named.collect());
        report.retain_days =
            states.gaps().filter_map(|gap| gap.cutoff).map(|cutoff| cutoff.retain_days).min();
        Self { states, report, known, seen: BTreeSet::new(), current: None }
    }

    pub(super) fn row(&mut self, fields: &[u8]) {
        self.report.rows += 1;
        let Some(row) = decode(fields) else {
            return self.report.add("a row is malformed: unexpected columns");
        };
        if self.current.as_ref().is_none_or(|current| current.at.id != row.chain) {
            self.end_chain();
            self.seen.insert(row.chain);
            self.current = Some(CurrentChain { at: ChainPosition::new(row.chain), broken: false });
            if !self.states.chains.contains_key(&row.chain) {
                self.report_break(format!("chain {}: has rows, but was never opened", row.chain));
            }
        }
        if let Some(problem) = self.check_next(&row) {
            self.report_break(format!("chain {} row {}: {problem}", row.chain, row.seq));
        }
        let (chain, seq) = (row.chain, row.seq);
        if self.known.remove(&(chain, seq)).is_some_and(|known| known.iter().any(|hash| *hash != row.hash)) {
            self.report.add(format!("chain {chain} row {seq}: differs from the row in a checkpoint"));
        }
    }

    /// Checks a row and advances to it; returns what is wrong with it.
    fn check_next(&mut self, row: &ScannedRow) -> Option<String> {
        let current = self.current.as_mut()?;
        if current.broken {
            return None;
        }
        if !(VERSION..=NEWEST).contains(&row.version) {
            return Some(format!("unknown version {}", row.version));
        }
        if row.actual_hash != row.hash {
            return Some("content does not match its hash: it was edited or moved".to_owned());
        }
        if row.seq <= current.at.seq {
            return Some("duplicate row number: it was inserted".to_owned());
        }
        current.at = self.states.past_gaps(current.at, row.seq);
        if row.seq != current.at.seq + 1 {
            return Some(format!("missing before it: {}", span(current.at.seq + 1, row.seq - 1)));
        }
        if row.previous != current.at.head {
            return Some(format!(
                "does not follow row {}: one of the two was edited or exchanged, and rehashed",
                current.at.seq
            ));
        }
        current.at = ChainPosition { id: row.chain, seq: row.seq, head: row.hash };
        self.states
            .should_have_been_dropped(row.chain, row.seq, row.day)
            .then(|| "newer rows are declared expired, but this row remains: they were cut out".to_owned())
    }

    fn report_break(&mut self, finding: String) {
        if let Some(current) = &mut self.current
            && !current.broken
        {
            current.broken = true;
            self.report.add(finding);
        }
    }

    fn end_chain(&mut self) {
        if let Some(CurrentChain { at, broken: false }) = self.current.take() {
            self.check_end(at);
        }
    }

    /// Compares the last row of a chain with its recorded end.
    fn check_end(&mut self, at: ChainPosition) {
        let Some(state) = self.states.chains.get(&at.id) else { return };
        let at = self.states.past_gaps(at, i64::MAX);
        // A missing record was reported with the ledger.
        let Some(recorded) = state.head.or(state.end) else { return };
        let end = state.end.unwrap_or(recorded);
        if at.seq < end.seq.max(recorded.seq) {
            let missing = span(at.seq + 1, end.seq.max(recorded.seq));
            self.report.add(format!("chain {}: missing at its end: {missing}", at.id));
        } else if at != recorded || at != end {
            self.report.add(format!(
                "chain {} row {}: is not the recorded last row, row {}",
                at.id, at.seq, end.seq
            ));
        }
    }

    /// Checks the chains without rows, and the rows of checkpoints that were not found.
    pub(super) fn finish(mut self) {
        self.end_chain();
        for (id, state) in &self.states.chains {
            if !self.seen.contains(id) {
                self.check_end(ChainPosition::new(*id));
            }
            if let (None, Some(head)) = (state.end, state.head) {
                self.report.open.push((*id, head.seq));
            }
        }
        for ((chain, seq), hashes) in
            std::mem::take(&mut self.known).into_iter().filter(|((_, seq), _)| *seq > 0)
        {
            let gap = self.states.gap_of(chain, seq);
            let fits = |gap: &Gap| gap.last.seq != seq || hashes.iter().all(|hash| *hash == gap.last.head);
            if !gap.is_some_and(fits) {
                self.report.add(format!("chain {chain} row {seq}: recorded in a checkpoint, but missing"));
            }
        }
    }
}

fn span(first: i64, last: i64) -> String {
    if first == last { format!("row {first}") } else { format!("rows {first} to {last}") }
}

fn decode(fields: &[u8]) -> Option<ScannedRow> {
    let (version, rest) = split(fields)?;
    let (chain, rest) = split(rest)?;
    let (seq, rest) = split(rest)?;
    let (previous, rest) = split(rest)?;
    let (at, mut rest) = split(rest)?;
    for _ in 5..COLUMNS - 1 {
        (_, rest) = split(rest)?;
    }
    let hashed = &fields[..fields.len() - rest.len()];
    let (hash, _) = split(rest)?;
    Some(ScannedRow {
        version: i16::from_be_bytes(version?.try_into().ok()?),
        chain: Uuid::from_slice(chain?).ok()?,
        seq: i64::from_be_bytes(seq?.try_into().ok()?),
        previous: Digest::read(previous?)?,
        day: day_of_micros(i64::from_be_bytes(at?.try_into().ok()?)),
        hash: Digest::read(hash?)?,
        actual_hash: Digest::of(hashed),
    })
}
