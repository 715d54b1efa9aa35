//! Verification: every chain is read from its first row to its last, hashed anew, and held against what is known of it.
//! Memory grows with the chains, not with their rows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use uuid::Uuid;

use super::facts::{Facts, Ledger};
use super::gaps::{Gap, Why};
pub use super::signatures::Signing;
use super::signatures::{Doubt, Signatures};
use crate::model::audit::chain::{Chain, Digest};
use crate::model::audit::checkpoint::Checkpoint;
use crate::model::audit::encoding::{VERSION, day_of_micros, micros, split};
use crate::model::audit::signature::PublicKey;
use crate::store::StoreError;
use crate::store::audit::scan::Scan;

/// Most findings that are told one by one.
const MOST_FINDINGS: usize = 100;
const COLUMNS: usize = 29;

/// What the log is held against.
#[derive(Debug, Clone, Default)]
pub struct Evidence {
    /// Checkpoints that were made before.
    pub checkpoints: Vec<Checkpoint>,
    /// The keys that may sign; none: those that entered themselves.
    pub trusted: Vec<PublicKey>,
}

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
    /// The shortest retention under which that was, in days.
    pub retain_days: Option<i32>,
    /// Who signed.
    pub signing: Signing,
    /// How many rows the database refused, and the first of them: their places and hashes are entered, and they are in
    /// files.
    pub quarantined: (usize, Vec<(Uuid, i64)>),
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

/// Verifies the log, against what is known of it elsewhere.
///
/// # Errors
/// When the database cannot be read to the end.
pub async fn verify(scan: &mut Scan, evidence: &Evidence) -> Result<Report, StoreError> {
    let mut report = Report::default();
    let now = micros(scan.now().await?);
    let heads = scan.heads().await?;
    let known = evidence.checkpoints.iter().map(|checkpoint| checkpoint.ledger);
    let mut ledger = Ledger::new(known, &evidence.trusted, now);
    scan.ledger(|fields| ledger.read(fields)).await?;
    let (mut facts, signatures) = ledger.finish(&heads);
    facts.findings.drain(..).for_each(|finding| report.find(finding));
    check_checkpoints(&evidence.checkpoints, &signatures, &mut report);
    report.signing = signatures.into_signing();
    if report.signing.since.is_none() && !evidence.trusted.is_empty() {
        report
            .find("the chain of chains: no entry is signed, and keys are trusted that should have signed it");
    }
    let mut reading = Reading::new(&facts, &evidence.checkpoints, &mut report);
    scan.rows(|fields| reading.row(fields)).await?;
    reading.finish();
    report.unmoved = scan.outbox().await?;
    Ok(report)
}

/// Holds the signatures of checkpoints against the keys that are known.
fn check_checkpoints(checkpoints: &[Checkpoint], signatures: &Signatures, report: &mut Report) {
    for checkpoint in checkpoints {
        let doubt = match (checkpoint.is_authentic(), checkpoint.signer) {
            (Some(true), Some(key)) => (!signatures.vouches_for(&key)).then_some(Doubt::Untrusted(key)),
            (Some(_), _) => Some(Doubt::Forged),
            (None, _) => {
                let since = signatures.since();
                since.is_some_and(|since| since <= checkpoint.ledger.number).then_some(Doubt::Unsigned)
            }
        };
        if let Some(doubt) = doubt {
            report.find(format!("the checkpoint of {}: {doubt}", checkpoint.at));
        }
    }
}

/// The chains, as their rows come.
struct Reading<'a> {
    facts: &'a Facts,
    report: &'a mut Report,
    /// Rows that checkpoints know.
    known: BTreeMap<(Uuid, i64), BTreeSet<Digest>>,
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
    /// The day of its time, counted from the first of 2000.
    day: i32,
    hash: Digest,
    /// The hash of what it holds.
    real: Digest,
}

impl<'a> Reading<'a> {
    fn new(facts: &'a Facts, checkpoints: &[Checkpoint], report: &'a mut Report) -> Self {
        let mut known: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for head in checkpoints.iter().flat_map(|checkpoint| &checkpoint.chains) {
            known.entry((head.chain, head.seq)).or_default().insert(head.hash);
        }
        report.chains = facts.chains.len();
        let gaps = |why| facts.gaps().filter(move |gap| gap.why == why);
        report.dropped = gaps(Why::Dropped).map(|gap| gap.last.seq - gap.first + 1).sum();
        let named = gaps(Why::Quarantined).map(|gap| (gap.last.id, gap.first)).take(MOST_FINDINGS);
        report.quarantined = (gaps(Why::Quarantined).count(), named.collect());
        report.retain_days = facts.gaps().filter_map(|gap| gap.cutoff).map(|cutoff| cutoff.retain_days).min();
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
        let (chain, seq) = (row.chain, row.seq);
        if self.known.remove(&(chain, seq)).is_some_and(|known| known.iter().any(|hash| *hash != row.hash)) {
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
        self.facts.was_left(row.chain, row.seq, row.day).then(|| {
            "rows that were not older than it were dropped for their age, and it was left: they were cut out"
                .to_owned()
        })
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
        for ((chain, seq), hashes) in
            std::mem::take(&mut self.known).into_iter().filter(|((_, seq), _)| *seq > 0)
        {
            let gap = self.facts.gap_of(chain, seq);
            let fits = |gap: &Gap| gap.last.seq != seq || hashes.iter().all(|hash| *hash == gap.last.head);
            if !gap.is_some_and(fits) {
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
    let (previous, rest) = split(rest)?;
    let (at, mut rest) = split(rest)?;
    for _ in 5..COLUMNS - 1 {
        (_, rest) = split(rest)?;
    }
    let hashed = &fields[..fields.len() - rest.len()];
    let (hash, _) = split(rest)?;
    Some(Row {
        version: i16::from_be_bytes(version?.try_into().ok()?),
        chain: Uuid::from_slice(chain?).ok()?,
        seq: i64::from_be_bytes(seq?.try_into().ok()?),
        previous: Digest::read(previous?)?,
        day: day_of_micros(i64::from_be_bytes(at?.try_into().ok()?)),
        hash: Digest::read(hash?)?,
        real: Digest::of(hashed),
    })
}
