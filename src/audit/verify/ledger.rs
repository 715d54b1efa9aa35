//! Verifies the ledger entry by entry, and derives the [`ChainStates`] from it.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::chain_state::{ChainState, ChainStates};
use super::entry::ScannedEntry;
use super::gaps::{Gap, GapReason, drop_objection};
use super::signatures::{SignatureError, Signatures};
use crate::model::audit::chain::ChainPosition;
use crate::model::audit::checkpoint::LedgerHead;
use crate::model::audit::digest::Digest;
use crate::model::audit::ledger::{RESERVED, VERSION};
use crate::model::audit::signature::PublicKey;

/// Verifies the ledger entry by entry.
pub(super) struct LedgerVerifier {
    at: ChainPosition,
    states: ChainStates,
    /// The entries recorded in checkpoints.
    known: BTreeMap<i64, BTreeSet<Digest>>,
    signatures: Signatures,
    /// The kinds of signature errors reported so far.
    signature_errors: BTreeSet<SignatureError>,
    /// Number of open chains of version 1, and whether there was an entry of version 2.
    old: (usize, bool),
    /// The time of verification, in microseconds since 2000.
    now: i64,
    broken: bool,
}

impl LedgerVerifier {
    /// `known` are the entries recorded in checkpoints, `trusted` the trusted keys, and `now` is in
    /// microseconds since 2000.
    pub(super) fn new(known: impl Iterator<Item = LedgerHead>, trusted: &[PublicKey], now: i64) -> Self {
        let mut by_number: BTreeMap<i64, BTreeSet<Digest>> = BTreeMap::new();
        for head in known.filter(|head| head.number > 0) {
            by_number.entry(head.number).or_default().insert(head.hash);
        }
        Self {
            at: ChainPosition::new(Uuid::nil()),
            states: ChainStates::default(),
            known: by_number,
            signatures: Signatures::new(trusted),
            signature_errors: BTreeSet::new(),
            old: (0, false),
            now,
            broken: false,
        }
    }

    pub(super) fn read(&mut self, fields: &[u8]) {
        let Some(entry) = ScannedEntry::decode(fields) else {
            return self.report("an entry is malformed");
        };
        let number = entry.number;
        if entry.version < 1 || entry.version > VERSION {
            self.report(&format!("entry {number}: unknown version {}", entry.version));
        } else if entry.actual_hash != entry.hash {
            self.report(&format!("entry {number}: content does not match its hash: it was edited"));
        } else if number != self.at.seq + 1 {
            let before = number - self.at.seq - 1;
            self.report(&format!(
                "entry {number}: {before} entries before it are missing: a chain may have been removed"
            ));
        } else if entry.previous != self.at.head {
            self.report(&format!("entry {number}: does not follow the previous entry"));
        }
        if self.known.remove(&number).is_some_and(|known| known.iter().any(|hash| *hash != entry.hash)) {
            self.report(&format!("entry {number}: differs from the entry in a checkpoint"));
        }
        self.at = ChainPosition { id: Uuid::nil(), seq: number, head: entry.hash };
        let signed = self.check_signature(&entry);
        self.apply(&entry, signed);
        self.old.1 |= entry.version > 1;
    }

    /// Checks the signature of an entry; reports each kind of error once.
    fn check_signature(&mut self, entry: &ScannedEntry<'_>) -> Result<(), SignatureError> {
        let ends = matches!(entry.kind, b"closed" | b"interrupted");
        let opened = self.states.chains.get(&entry.chain).filter(|_| ends).map(|state| state.opened.1);
        let checked = self.signatures.check(entry, opened);
        if let Err(error) = &checked
            && !matches!(entry.kind, b"dropped" | b"quarantined")
            && self.signature_errors.insert(*error)
        {
            let finding = format!("ledger: entry {}: {error}", entry.number);
            self.states.findings.push(finding);
        }
        checked
    }

    fn apply(&mut self, entry: &ScannedEntry<'_>, signed: Result<(), SignatureError>) {
        let ScannedEntry { number, chain, last, .. } = *entry;
        let state = self.states.chains.get_mut(&chain);
        match (entry.kind, state, entry.first.zip(entry.before)) {
            (b"opened", None, _) => {
                let is_old = entry.version == 1;
                self.old.0 += usize::from(is_old);
                let opened = (entry.at, number);
                self.states.chains.insert(chain, ChainState { opened, is_old, ..ChainState::default() });
            }
            (b"closed" | b"interrupted", Some(state), _) if state.end.is_none() => {
                (state.end, state.ended) = (Some(last), Some(number));
                self.old.0 -= usize::from(state.is_old);
            }
            (b"dropped", Some(state), Some((first, before))) => {
                let objection = match (signed, entry.cutoff) {
                    (Err(error), _) => Some(error.to_string()),
                    (Ok(()), Some(cutoff)) => drop_objection(entry, cutoff, state.opened.0, self.now),
                    // From a gateway of the previous version, as long as one may run.
                    (Ok(()), None) if !self.old.1 || self.old.0 > 0 => None,
                    (Ok(()), None) => Some("it does not name a retention".to_owned()),
                };
                if let Some(objection) = objection {
                    self.states.findings.push(format!(
                        "chain {chain}: entry {number} declares rows {first} to {} expired: {objection}",
                        last.seq
                    ));
                    return;
                }
                state.gaps.insert(Gap {
                    reason: GapReason::Dropped,
                    first,
                    before,
                    last,
                    cutoff: entry.cutoff,
                });
                if let Some(cutoff) = entry.cutoff {
                    self.states.cutoffs.insert(number, cutoff.day);
                }
            }
            // A single row, so that an entry cannot hide several.
            (b"quarantined", Some(state), Some((first, before))) if first == last.seq => {
                if let Err(error) = signed {
                    let finding =
                        format!("chain {chain}: entry {number} declares row {first} quarantined: {error}");
                    return self.states.findings.push(finding);
                }
                state.gaps.insert(Gap { reason: GapReason::Quarantined, first, before, last, cutoff: None });
            }
            (b"damaged", Some(state), Some((first, before))) => {
                if first <= last.seq {
                    state.gaps.insert(Gap { reason: GapReason::Damaged, first, before, last, cutoff: None });
                }
                self.states.findings.push(damage(chain, first, last.seq));
            }
            (b"key", None, _) if entry.key.is_some() => {}
            (kind, _, _) if RESERVED.iter().any(|reserved| reserved.as_bytes() == kind) => {}
            _ => {
                self.report(&format!("entry {number}: inconsistent with earlier entries of chain {chain}"));
            }
        }
    }

    fn report(&mut self, finding: &str) {
        if !self.broken {
            self.broken = true;
            self.states.findings.push(format!("ledger: {finding}"));
        }
    }

    /// Completes the verification with the recorded heads of the chains.
    pub(super) fn finish(mut self, heads: &[ChainPosition]) -> (ChainStates, Signatures) {
        let recorded = heads.iter().find(|head| head.id.is_nil());
        if recorded.is_none_or(|recorded| recorded.seq > self.at.seq) {
            self.report(&format!("entries after {} are missing: a chain may have been removed", self.at.seq));
        } else if recorded.is_some_and(|recorded| *recorded != self.at) {
            self.report(&format!("entry {}: differs from the recorded last entry", self.at.seq));
        }
        if let Some((number, _)) = std::mem::take(&mut self.known).pop_first() {
            self.report(&format!("entry {number}: recorded in a checkpoint, but missing"));
        }
        for head in heads.iter().filter(|head| !head.id.is_nil()) {
            match self.states.chains.get_mut(&head.id) {
                Some(state) => state.head = Some(*head),
                None => self.states.findings.push(format!("chain {}: never opened", head.id)),
            }
        }
        let lost = |(id, state): (&Uuid, &ChainState)| state.head.is_none().then_some(*id);
        let lost: Vec<_> = self.states.chains.iter().filter_map(lost).collect();
        let finding = |id| format!("chain {id}: the record of its last row is missing");
        self.states.findings.extend(lost.into_iter().map(finding));
        self.states.finish();
        (self.states, self.signatures)
    }
}

fn damage(chain: Uuid, first: i64, last: i64) -> String {
    let missing = match last - first {
        ..0 => format!("rows after row {last} may be lost"),
        0 => format!("row {first} is lost"),
        1.. => format!("rows {first} to {last} are lost"),
    };
    format!("chain {chain}: corrupt spill file: {missing}; the file is kept as *.damaged")
}

#[cfg(test)]
mod tests;
