//! Shared records of all clients and writers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many faults of a kind are printed.
const SHOWN: usize = 20;

/// What was counted, and what went wrong.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) writes: AtomicU64,
    pub(crate) unclear: AtomicU64,
    pub(crate) events: AtomicU64,
    pub(crate) reads: AtomicU64,
    pub(crate) reconnects: AtomicU64,
    pub(crate) kills: AtomicU64,
    pub(crate) cuts: AtomicU64,
    pub(crate) swallows: AtomicU64,
    /// The number that the next text is given; it only rises.
    next: AtomicU64,
    subjects: Mutex<HashMap<(String, String), Known>>,
    pub(crate) stale: Faults,
    pub(crate) foreign: Faults,
    pub(crate) refused: Faults,
}

/// What is known of one URI of an agent.
#[derive(Debug, Default)]
struct Known {
    /// What was acknowledged: the number that a revision wrote; none where it deleted.
    written: BTreeMap<i64, Option<u64>>,
    /// The last number when a deletion began.
    deleted: u64,
    /// Somebody was told of this number, or of a newer one.
    told: u64,
}

/// Faults of a kind.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<String>>);

impl Faults {
    pub(crate) fn add(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The first of them, a line each.
    pub(crate) fn shown(&self, kind: &str) -> String {
        let faults = self.0.lock().unwrap();
        faults.iter().take(SHOWN).map(|fault| format!("{kind}: {fault}\n")).collect()
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Ledger {
    /// A number above all that were given.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn with<T>(&self, agent: &str, uri: &str, then: impl FnOnce(&mut Known) -> T) -> T {
        then(self.subjects.lock().unwrap().entry((agent.to_owned(), uri.to_owned())).or_default())
    }

    /// A write was acknowledged.
    pub(crate) fn written(&self, agent: &str, uri: &str, revision: i64, number: Option<u64>) {
        self.with(agent, uri, |known| known.written.insert(revision, number));
    }

    /// From here on it may not be found.
    pub(crate) fn deleting(&self, agent: &str, uri: &str) {
        let number = self.number();
        self.with(agent, uri, |known| known.deleted = known.deleted.max(number));
    }

    /// Somebody was told of a change of a URI, and that everything up to a revision was told.
    pub(crate) fn told(&self, agent: &str, uri: &str, watermark: i64) {
        self.with(agent, uri, |known| {
            if let Some((_, Some(number))) = known.written.range(..=watermark).next_back() {
                known.told = known.told.max(*number);
            }
        });
    }

    /// The number that whoever reads from now on must not be below.
    pub(crate) fn owed(&self, agent: &str, uri: &str) -> u64 {
        self.with(agent, uri, |known| known.told)
    }

    /// Whether an answer is older than what was owed when it was asked for.
    pub(crate) fn is_stale(&self, agent: &str, uri: &str, owed: u64, found: Option<u64>) -> bool {
        match found {
            Some(number) => number < owed,
            None => self.with(agent, uri, |known| known.deleted) < owed,
        }
    }
}
