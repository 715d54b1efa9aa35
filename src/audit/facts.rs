//! What the chain of chains says of each chain: that it was opened, where it ended, which rows were dropped.

use std::collections::BTreeMap;

use uuid::Uuid;

use crate::model::audit::chain::{Chain, Digest};
use crate::model::audit::checkpoint::LedgerHead;
use crate::model::audit::encoding::split;

/// Rows that were dropped for their age.
#[derive(Debug, Clone, Copy)]
pub(super) struct Gap {
    /// The first that is gone.
    pub(super) first: i64,
    /// The hash before it.
    pub(super) before: Digest,
    /// The last that is gone, and its hash.
    pub(super) last: Chain,
}

/// What is known of one chain.
#[derive(Debug, Clone, Default)]
pub(super) struct ChainFacts {
    /// Where it ended; `None` where it has not.
    pub(super) end: Option<Chain>,
    /// How far it goes, as its writer recorded.
    pub(super) head: Option<Chain>,
    /// In the order of their rows.
    gaps: BTreeMap<i64, Gap>,
}

/// What is known of all.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) chains: BTreeMap<Uuid, ChainFacts>,
    /// What is wrong with the chain of chains.
    pub(super) findings: Vec<String>,
}

impl Facts {
    /// Where a chain stands once the dropped rows that follow are passed, up to before row `until`.
    pub(super) fn past_gaps(&self, mut at: Chain, until: i64) -> Chain {
        let Some(facts) = self.chains.get(&at.id) else { return at };
        while let Some(gap) = facts.gaps.get(&(at.seq + 1))
            && gap.last.seq < until
            && gap.before == at.head
        {
            at = gap.last;
        }
        at
    }

    pub(super) fn gaps(&self) -> impl Iterator<Item = &Gap> {
        self.chains.values().flat_map(|facts| facts.gaps.values())
    }

    /// The gap in which a row was.
    pub(super) fn gap_of(&self, chain: Uuid, seq: i64) -> Option<&Gap> {
        let (_, gap) = self.chains.get(&chain)?.gaps.range(..=seq).next_back()?;
        (gap.last.seq >= seq).then_some(gap)
    }
}

/// The chain of chains, as its entries come.
pub(super) struct Ledger {
    at: Chain,
    facts: Facts,
    known: Option<LedgerHead>,
    broken: bool,
}

struct Entry<'a> {
    number: i64,
    previous: Digest,
    kind: &'a [u8],
    chain: Uuid,
    first: Option<i64>,
    before: Option<Digest>,
    last: Chain,
    hash: Digest,
    real: Digest,
}

impl Ledger {
    /// With the entry that a checkpoint knows.
    pub(super) fn new(known: Option<LedgerHead>) -> Self {
        let known = known.filter(|known| known.number > 0);
        Self { at: Chain::new(Uuid::nil()), facts: Facts::default(), known, broken: false }
    }

    pub(super) fn read(&mut self, fields: &[u8]) {
        let Some(entry) = read(fields) else {
            return self.find("an entry cannot be read");
        };
        let number = entry.number;
        if entry.real != entry.hash {
            self.find(&format!("entry {number}: what it holds is not what was hashed: it was edited"));
        } else if number != self.at.seq + 1 {
            let before = number - self.at.seq - 1;
            self.find(&format!(
                "entry {number}: {before} before it are missing: a chain may have been removed"
            ));
        } else if entry.previous != self.at.head {
            self.find(&format!("entry {number}: it does not follow the one before"));
        }
        if self.known.is_some_and(|known| known.number == number)
            && self.known.take().is_some_and(|known| known.hash != entry.hash)
        {
            self.find(&format!("entry {number}: it is not the one of the checkpoint"));
        }
        self.at = Chain { id: Uuid::nil(), seq: number, head: entry.hash };
        self.note(&entry);
    }

    fn note(&mut self, entry: &Entry<'_>) {
        let Entry { number, chain, last, .. } = *entry;
        let facts = self.facts.chains.get_mut(&chain);
        match (entry.kind, facts, entry.first.zip(entry.before)) {
            (b"opened", None, _) => {
                self.facts.chains.insert(chain, ChainFacts::default());
            }
            (b"closed" | b"interrupted", Some(facts), _) if facts.end.is_none() => facts.end = Some(last),
            (b"dropped", Some(facts), Some((first, before))) => {
                facts.gaps.insert(first, Gap { first, before, last });
            }
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

    /// All that is known, with how far each chain goes as its writer recorded it.
    pub(super) fn finish(mut self, heads: &[Chain]) -> Facts {
        let recorded = heads.iter().find(|head| head.id.is_nil());
        if recorded.is_none_or(|recorded| recorded.seq > self.at.seq) {
            self.find(&format!("entries after {} are missing: a chain may have been removed", self.at.seq));
        } else if recorded.is_some_and(|recorded| *recorded != self.at) {
            self.find(&format!("entry {}: it is not the last one that was recorded", self.at.seq));
        }
        if let Some(known) = self.known.take() {
            self.find(&format!("entry {}: the checkpoint knows it, and it is missing", known.number));
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
        self.facts
    }
}

fn read(fields: &[u8]) -> Option<Entry<'_>> {
    let mut rest = fields;
    let mut next = || {
        let (value, others) = split(rest)?;
        let start = fields.len() - rest.len();
        rest = others;
        Some((value, start))
    };
    let number = int8(next()?.0?)?;
    let previous = Digest::read(next()?.0?)?;
    next()?;
    let kind = next()?.0?;
    let chain = Uuid::from_slice(next()?.0?).ok()?;
    let first = next()?.0.and_then(int8);
    let before = next()?.0.and_then(Digest::read);
    let (seq, head) = (int8(next()?.0?)?, Digest::read(next()?.0?)?);
    let (hash, hashed) = next()?;
    let real = Digest::of(fields.get(..hashed)?);
    let last = Chain { id: chain, seq, head };
    Some(Entry { number, previous, kind, chain, first, before, last, hash: Digest::read(hash?)?, real })
}

fn int8(bytes: &[u8]) -> Option<i64> {
    bytes.try_into().ok().map(i64::from_be_bytes)
}
