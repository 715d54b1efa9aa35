//! What the chain of chains says of each chain: that it was opened, where it ended, which rows were dropped.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::gaps::{Gap, Gaps, Why, doubt};
use super::signatures::{Doubt, Signatures};
use crate::model::audit::chain::{Chain, Digest};
use crate::model::audit::checkpoint::LedgerHead;
use crate::model::audit::encoding::split;
use crate::model::audit::ledger::{Cutoff, RESERVED, VERSION};
use crate::model::audit::signature::{PublicKey, Signature};

/// What is known of one chain.
#[derive(Debug, Clone, Default)]
pub(super) struct ChainFacts {
    /// When it was opened, in microseconds since 2000, and in which entry.
    opened: (i64, i64),
    /// Whether that entry is of version 1.
    is_old: bool,
    /// Where it ended; `None` where it has not.
    pub(super) end: Option<Chain>,
    /// In which entry that was.
    ended: Option<i64>,
    /// How far it goes, as its writer recorded.
    pub(super) head: Option<Chain>,
    gaps: Gaps,
}

/// What is known of all.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) chains: BTreeMap<Uuid, ChainFacts>,
    /// What is wrong with the chain of chains.
    pub(super) findings: Vec<String>,
    /// Of each entry that declares rows to be dropped, the latest cut-off day of it and those after it.
    cutoffs: BTreeMap<i64, i32>,
}

impl Facts {
    /// Where a chain stands once the dropped rows that follow are passed, up to before row `until`.
    pub(super) fn past_gaps(&self, mut at: Chain, until: i64) -> Chain {
        let Some(facts) = self.chains.get(&at.id) else { return at };
        while let Some(gap) = facts.gaps.beginning_with(at.seq + 1)
            && gap.last.seq < until
            && gap.before == at.head
        {
            at = gap.last;
        }
        at
    }

    pub(super) fn gaps(&self) -> impl Iterator<Item = &Gap> {
        self.chains.values().flat_map(|facts| facts.gaps.iter())
    }

    /// The gap in which a row was.
    pub(super) fn gap_of(&self, chain: Uuid, seq: i64) -> Option<&Gap> {
        self.chains.get(&chain)?.gaps.around(seq)
    }

    /// Whether a row of a day should have been dropped with others: it is older than their cut-off day, and was in the
    /// log before them. Rows that came later, from a spill file, are not meant, nor those that are about to be dropped.
    pub(super) fn was_left(&self, chain: Uuid, seq: i64, day: i32) -> bool {
        let Some(facts) = self.chains.get(&chain) else { return false };
        // Of other chains not all may be entered yet that the partition of one day takes away.
        let others = facts.ended.and_then(|ended| self.cutoffs.range(ended..).next());
        let others = others.map(|(_, cutoff)| cutoff.saturating_sub(1));
        let cutoff = facts.gaps.cutoff_behind(seq).max(others);
        cutoff.is_some_and(|cutoff| day < cutoff) && facts.gaps.around(seq).is_none()
    }

    fn finish(&mut self) {
        for facts in self.chains.values_mut() {
            facts.gaps.finish();
        }
        let mut latest = i32::MIN;
        for cutoff in self.cutoffs.values_mut().rev() {
            latest = latest.max(*cutoff);
            *cutoff = latest;
        }
    }
}

/// The chain of chains, as its entries come.
pub(super) struct Ledger {
    at: Chain,
    facts: Facts,
    /// The entries that checkpoints know.
    known: BTreeMap<i64, BTreeSet<Digest>>,
    signatures: Signatures,
    /// Kinds of doubts about signatures that were told.
    doubts: BTreeSet<Doubt>,
    /// Chains of version 1 that have not ended, and whether entries of version 2 have begun.
    old: (usize, bool),
    /// When it is verified, in microseconds since 2000.
    now: i64,
    broken: bool,
}

/// An entry, as it stands in the table.
pub(super) struct Entry<'a> {
    version: i16,
    pub(super) number: i64,
    previous: Digest,
    pub(super) at: i64,
    kind: &'a [u8],
    chain: Uuid,
    first: Option<i64>,
    before: Option<Digest>,
    last: Chain,
    cutoff: Option<Cutoff>,
    pub(super) key: Option<PublicKey>,
    pub(super) signer: Option<PublicKey>,
    hash: Digest,
    pub(super) signature: Option<Signature>,
    /// The hash of what it holds.
    pub(super) real: Digest,
}

impl Ledger {
    /// With the entries that checkpoints know, and the keys that are trusted; `now` in microseconds since 2000.
    pub(super) fn new(known: impl Iterator<Item = LedgerHead>, trusted: &[PublicKey], now: i64) -> Self {
        let mut by_number: BTreeMap<i64, BTreeSet<Digest>> = BTreeMap::new();
        for head in known.filter(|head| head.number > 0) {
            by_number.entry(head.number).or_default().insert(head.hash);
        }
        Self {
            at: Chain::new(Uuid::nil()),
            facts: Facts::default(),
            known: by_number,
            signatures: Signatures::new(trusted),
            doubts: BTreeSet::new(),
            old: (0, false),
            now,
            broken: false,
        }
    }

    pub(super) fn read(&mut self, fields: &[u8]) {
        let Some(entry) = read(fields) else {
            return self.find("an entry cannot be read");
        };
        let number = entry.number;
        if entry.version < 1 || entry.version > VERSION {
            self.find(&format!(
                "entry {number}: it is of version {}, which this program does not know",
                entry.version
            ));
        } else if entry.real != entry.hash {
            self.find(&format!("entry {number}: what it holds is not what was hashed: it was edited"));
        } else if number != self.at.seq + 1 {
            let before = number - self.at.seq - 1;
            self.find(&format!(
                "entry {number}: {before} before it are missing: a chain may have been removed"
            ));
        } else if entry.previous != self.at.head {
            self.find(&format!("entry {number}: it does not follow the one before"));
        }
        if self.known.remove(&number).is_some_and(|known| known.iter().any(|hash| *hash != entry.hash)) {
            self.find(&format!("entry {number}: it is not the one of the checkpoint"));
        }
        self.at = Chain { id: Uuid::nil(), seq: number, head: entry.hash };
        let signed = self.check_signature(&entry);
        self.note(&entry, signed);
        self.old.1 |= entry.version > 1;
    }

    /// Whether an entry is signed as it should be; each kind of doubt is told once.
    fn check_signature(&mut self, entry: &Entry<'_>) -> Result<(), Doubt> {
        let ends = matches!(entry.kind, b"closed" | b"interrupted");
        let opened = self.facts.chains.get(&entry.chain).filter(|_| ends).map(|facts| facts.opened.1);
        let checked = self.signatures.check(entry, opened);
        if let Err(doubt) = &checked
            && !matches!(entry.kind, b"dropped" | b"quarantined")
            && self.doubts.insert(*doubt)
        {
            let finding = format!("the chain of chains: entry {}: {doubt}", entry.number);
            self.facts.findings.push(finding);
        }
        checked
    }

    fn note(&mut self, entry: &Entry<'_>, signed: Result<(), Doubt>) {
        let Entry { number, chain, last, .. } = *entry;
        let facts = self.facts.chains.get_mut(&chain);
        match (entry.kind, facts, entry.first.zip(entry.before)) {
            (b"opened", None, _) => {
                let is_old = entry.version == 1;
                self.old.0 += usize::from(is_old);
                let opened = (entry.at, number);
                self.facts.chains.insert(chain, ChainFacts { opened, is_old, ..ChainFacts::default() });
            }
            (b"closed" | b"interrupted", Some(facts), _) if facts.end.is_none() => {
                (facts.end, facts.ended) = (Some(last), Some(number));
                self.old.0 -= usize::from(facts.is_old);
            }
            (b"dropped", Some(facts), Some((first, before))) => {
                let doubt = match (signed, entry.cutoff) {
                    (Err(doubt), _) => Some(doubt.to_string()),
                    (Ok(()), Some(cutoff)) => doubt(entry, cutoff, facts.opened.0, self.now),
                    // Of a gateway of the version before, while one may run.
                    (Ok(()), None) if !self.old.1 || self.old.0 > 0 => None,
                    (Ok(()), None) => Some("it does not say under which retention".to_owned()),
                };
                if let Some(doubt) = doubt {
                    self.facts.findings.push(format!(
                        "chain {chain}: entry {number} declares rows {first} to {} dropped for their age: {doubt}",
                        last.seq
                    ));
                    return;
                }
                facts.gaps.insert(Gap { why: Why::Dropped, first, before, last, cutoff: entry.cutoff });
                if let Some(cutoff) = entry.cutoff {
                    self.facts.cutoffs.insert(number, cutoff.day);
                }
            }
            // One row each: an entry cannot hide that several are gone.
            (b"quarantined", Some(facts), Some((first, before))) if first == last.seq => {
                if let Err(doubt) = signed {
                    let finding =
                        format!("chain {chain}: entry {number} declares row {first} quarantined: {doubt}");
                    return self.facts.findings.push(finding);
                }
                facts.gaps.insert(Gap { why: Why::Quarantined, first, before, last, cutoff: None });
            }
            (b"damaged", Some(facts), Some((first, before))) => {
                if first <= last.seq {
                    facts.gaps.insert(Gap { why: Why::Damaged, first, before, last, cutoff: None });
                }
                self.facts.findings.push(damage(chain, first, last.seq));
            }
            (b"key", None, _) if entry.key.is_some() => {}
            (kind, _, _) if RESERVED.iter().any(|reserved| reserved.as_bytes() == kind) => {}
            _ => {
                self.find(&format!(
                    "entry {number}: it does not fit what was entered of chain {chain} before"
                ));
            }
        }
    }

    fn find(&mut self, finding: &str) {
        if !self.broken {
            self.broken = true;
            self.facts.findings.push(format!("the chain of chains: {finding}"));
        }
    }

    /// All that is known, with how far each chain goes as its writer recorded it, and who signed.
    pub(super) fn finish(mut self, heads: &[Chain]) -> (Facts, Signatures) {
        let recorded = heads.iter().find(|head| head.id.is_nil());
        if recorded.is_none_or(|recorded| recorded.seq > self.at.seq) {
            self.find(&format!("entries after {} are missing: a chain may have been removed", self.at.seq));
        } else if recorded.is_some_and(|recorded| *recorded != self.at) {
            self.find(&format!("entry {}: it is not the last one that was recorded", self.at.seq));
        }
        if let Some((number, _)) = std::mem::take(&mut self.known).pop_first() {
            self.find(&format!("entry {number}: the checkpoint knows it, and it is missing"));
        }
        for head in heads.iter().filter(|head| !head.id.is_nil()) {
            match self.facts.chains.get_mut(&head.id) {
                Some(facts) => facts.head = Some(*head),
                None => self.facts.findings.push(format!("chain {}: it was never opened", head.id)),
            }
        }
        let lost = |(id, facts): (&Uuid, &ChainFacts)| facts.head.is_none().then_some(*id);
        let lost: Vec<_> = self.facts.chains.iter().filter_map(lost).collect();
        let say = |id| format!("chain {id}: the record of how far it goes is missing");
        self.facts.findings.extend(lost.into_iter().map(say));
        self.facts.finish();
        (self.facts, self.signatures)
    }
}

fn damage(chain: Uuid, first: i64, last: i64) -> String {
    let missing = match last - first {
        ..0 => format!("rows after row {last} may be lost"),
        0 => format!("row {first} is lost"),
        1.. => format!("rows {first} to {last} are lost"),
    };
    format!("chain {chain}: a spill file was corrupt: {missing}; the file is kept beside it as *.damaged")
}

fn read(fields: &[u8]) -> Option<Entry<'_>> {
    let mut rest = fields;
    let mut next = || {
        let (value, others) = split(rest)?;
        let start = fields.len() - rest.len();
        rest = others;
        Some((value, start))
    };
    let version = i16::from_be_bytes(next()?.0?.try_into().ok()?);
    let (number, numbered) = next()?;
    let (number, previous) = (int8(number?)?, Digest::read(next()?.0?)?);
    let at = int8(next()?.0?)?;
    let kind = next()?.0?;
    let chain = Uuid::from_slice(next()?.0?).ok()?;
    let first = next()?.0.and_then(int8);
    let before = next()?.0.and_then(Digest::read);
    let (seq, head) = (int8(next()?.0?)?, Digest::read(next()?.0?)?);
    let (day, headed) = next()?;
    let retain_days = next()?.0.and_then(int4);
    let cutoff = day.and_then(int4).zip(retain_days).map(|(day, retain_days)| Cutoff { day, retain_days });
    let key = next()?.0.and_then(|bytes| bytes.try_into().ok()).map(PublicKey);
    let signer = next()?.0.and_then(|bytes| bytes.try_into().ok()).map(PublicKey);
    let (hash, hashed) = next()?;
    let signature = next()?.0.and_then(|bytes| bytes.try_into().ok()).map(Signature);
    // Version 1 hashes neither its version nor what it does not have.
    let range = if version == 1 { numbered..headed } else { 0..hashed };
    let real = Digest::of(fields.get(range)?);
    let last = Chain { id: chain, seq, head };
    let hash = Digest::read(hash?)?;
    let (cutoff, key, signer) = if version == 1 { (None, None, None) } else { (cutoff, key, signer) };
    Some(Entry {
        version,
        number,
        previous,
        at,
        kind,
        chain,
        first,
        before,
        last,
        cutoff,
        key,
        signer,
        hash,
        signature,
        real,
    })
}

fn int8(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}

fn int4(bytes: &[u8]) -> Option<i32> {
    bytes.try_into().ok().map(i32::from_be_bytes)
}

#[cfg(test)]
mod tests;
