//! Verification: every chain is read from its first row to its last, hashed anew, and held against what is known of it.
//! Memory grows with the chains, not with their rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use uuid::Uuid;

use super::facts::{Facts, Gap, Ledger};
use crate::model::audit::chain::{Chain, Digest};
use crate::model::audit::checkpoint::{ChainHead, Checkpoint};
use crate::model::audit::encoding::{VERSION, split};
use crate::store::StoreError;
use crate::store::audit::scan::Scan;

/// Most findings that are told one by one.
const MOST_FINDINGS: usize = 100;
const COLUMNS: usize = 29;

/// What verification found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// How many rows there are.
    pub rows: u64,
    /// How many chains there are.
    pub chains: usize,
    /// The chains that have not ended, and how far they go.
    pub open: Vec<(Uuid, i64)>,
    /// How many rows were dropped for their age.
    pub dropped: i64,
    /// Rows that wait in the outbox, and the first of them.
    pub unmoved: (i64, Option<Uuid>),
    /// What is wrong: of each chain the first thing.
    pub findings: Vec<String>,
}

impl Report {
    fn find(&mut self, finding: impl fmt::Display) {
        if self.findings.len() < MOST_FINDINGS {
            self.findings.push(finding.to_string());
        }
    }
}

/// Verifies the log, against a checkpoint where there is one.
///
/// # Errors
/// When the database cannot be read to the end.
pub async fn verify(scan: &mut Scan, checkpoint: Option<&Checkpoint>) -> Result<Report, StoreError> {
    let mut report = Report::default();
    let heads = scan.heads().await?;
    let mut ledger = Ledger::new(checkpoint.map(|checkpoint| checkpoint.ledger));
    scan.ledger(|fields| ledger.read(fields)).await?;
    let mut facts = ledger.finish(&heads);
    facts.findings.drain(..).for_each(|finding| report.find(finding));
    let mut reading = Reading::new(&facts, checkpoint, &mut report);
    scan.rows(|fields| reading.row(fields)).await?;
    reading.finish();
    report.unmoved = scan.outbox().await?;
    Ok(report)
}

/// The chains, as their rows come.
struct Reading<'a> {
    facts: &'a Facts,
    report: &'a mut Report,
    /// Rows that the checkpoint knows.
    known: BTreeMap<Uuid, ChainHead>,
    seen: BTreeSet<Uuid>,
    present: Option<Present>,
}

/// The chain that is being read.
struct Present {
    at: Chain,
    broken: bool,
}

/// A row, as far as verification looks into it.
struct Row {
    version: i16,
    chain: Uuid,
    seq: i64,
    previous: Digest,
    hash: Digest,
    /// The hash of what it holds.
    real: Digest,
}

impl<'a> Reading<'a> {
    fn new(facts: &'a Facts, checkpoint: Option<&Checkpoint>, report: &'a mut Report) -> Self {
        let chains = checkpoint.map(|checkpoint| checkpoint.chains.as_slice()).unwrap_or_default();
        let known = chains.iter().map(|head| (head.chain, *head)).collect();
        report.chains = facts.chains.len();
        report.dropped = facts.gaps().map(|gap| gap.last.seq - gap.first + 1).sum();
        Self { facts, report, known, seen: BTreeSet::new(), present: None }
    }

    fn row(&mut self, fields: &[u8]) {
        self.report.rows += 1;
        let Some(row) = read(fields) else {
            return self.report.find("a row cannot be read: it has not the columns of the log");
        };
        if self.present.as_ref().is_none_or(|present| present.at.id != row.chain) {
            self.end_chain();
            self.seen.insert(row.chain);
            self.present = Some(Present { at: Chain::new(row.chain), broken: false });
            if !self.facts.chains.contains_key(&row.chain) {
                self.break_off(format!("chain {}: it has rows and was never opened", row.chain));
            }
        }
        if let Some(wrong) = self.next(&row) {
            self.break_off(format!("chain {} row {}: {wrong}", row.chain, row.seq));
        }
        if self.known.get(&row.chain).is_some_and(|head| head.seq == row.seq)
            && let Some(head) = self.known.remove(&row.chain)
            && head.hash != row.hash
        {
            let (chain, seq) = (row.chain, row.seq);
            self.report.find(format!("chain {chain} row {seq}: it is not the one of the checkpoint"));
        }
    }

    /// Goes on to a row; answers what is wrong with it.
    fn next(&mut self, row: &Row) -> Option<String> {
        let present = self.present.as_mut()?;
        if present.broken {
            return None;
        }
        if row.version != VERSION {
            return Some(format!("it is of version {}, which this program does not know", row.version));
        }
        if row.real != row.hash {
            return Some("what it holds is not what was hashed: it was edited or moved".to_owned());
        }
        if row.seq <= present.at.seq {
            return Some("there is another row in its place: it was inserted".to_owned());
        }
        present.at = self.facts.past_gaps(present.at, row.seq);
        if row.seq != present.at.seq + 1 {
            return Some(format!("missing before it: {}", span(present.at.seq + 1, row.seq - 1)));
        }
        if row.previous != present.at.head {
            return Some(format!(
                "it does not follow row {}: one of the two was edited or exchanged, and hashed anew",
                present.at.seq
            ));
        }
        present.at = Chain { id: row.chain, seq: row.seq, head: row.hash };
        None
    }

    fn break_off(&mut self, finding: String) {
        if let Some(present) = &mut self.present
            && !present.broken
        {
            present.broken = true;
            self.report.find(finding);
        }
    }

    fn end_chain(&mut self) {
        if let Some(Present { at, broken: false }) = self.present.take() {
            self.check_end(at);
        }
    }

    /// Holds the last row of a chain against where it is known to end.
    fn check_end(&mut self, at: Chain) {
        let Some(facts) = self.facts.chains.get(&at.id) else { return };
        let at = self.facts.past_gaps(at, i64::MAX);
        // Where nobody knows any more, that has been said.
        let Some(recorded) = facts.head.or(facts.end) else { return };
        let end = facts.end.unwrap_or(recorded);
        if at.seq < end.seq.max(recorded.seq) {
            let missing = span(at.seq + 1, end.seq.max(recorded.seq));
            self.report.find(format!("chain {}: missing at its end: {missing}", at.id));
        } else if at != recorded || at != end {
            self.report.find(format!(
                "chain {} row {}: it is not the last row that was recorded, row {}",
                at.id, at.seq, end.seq
            ));
        }
    }

    /// After the last row: chains without rows, and what the checkpoint knows that was not met.
    fn finish(mut self) {
        self.end_chain();
        for (id, facts) in &self.facts.chains {
            if !self.seen.contains(id) {
                self.check_end(Chain::new(*id));
            }
            if let (None, Some(head)) = (facts.end, facts.head) {
                self.report.open.push((*id, head.seq));
            }
        }
        for head in std::mem::take(&mut self.known).into_values().filter(|head| head.seq > 0) {
            let gap = self.facts.gap_of(head.chain, head.seq);
            let proven = gap.is_some_and(|gap: &Gap| gap.last.seq != head.seq || gap.last.head == head.hash);
            if !proven {
                let ChainHead { chain, seq, .. } = head;
                self.report
                    .find(format!("chain {chain} row {seq}: the checkpoint knows it, and it is missing"));
            }
        }
    }
}

fn span(first: i64, last: i64) -> String {
    if first == last { format!("row {first}") } else { format!("rows {first} to {last}") }
}

fn read(fields: &[u8]) -> Option<Row> {
    let (version, rest) = split(fields)?;
    let (chain, rest) = split(rest)?;
    let (seq, rest) = split(rest)?;
    let (previous, mut rest) = split(rest)?;
    for _ in 4..COLUMNS - 1 {
        (_, rest) = split(rest)?;
    }
    let hashed = &fields[..fields.len() - rest.len()];
    let (hash, _) = split(rest)?;
    Some(Row {
        version: i16::from_be_bytes(version?.try_into().ok()?),
        chain: Uuid::from_slice(chain?).ok()?,
        seq: i64::from_be_bytes(seq?.try_into().ok()?),
        previous: Digest::read(previous?)?,
        hash: Digest::read(hash?)?,
        real: Digest::of(hashed),
    })
}
