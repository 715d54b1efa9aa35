//! Shared records of all clients and writers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many failures of a kind are printed.
const SHOWN: usize = 20;

/// Counters and failures.
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
    /// The number of the last text; texts are numbered in ascending order.
    next: AtomicU64,
    subjects: Mutex<HashMap<(String, String), UriState>>,
    pub(crate) stale: Failures,
    pub(crate) foreign: Failures,
    pub(crate) refused: Failures,
}

/// The state of one URI of an agent.
#[derive(Debug, Default)]
struct UriState {
    /// Acknowledged writes: the number that each revision wrote; `None` for a deletion.
    written: BTreeMap<i64, Option<u64>>,
    /// The last number at the start of a deletion.
    deleted: u64,
    /// The highest number of which a client was notified.
    notified: u64,
}

/// Failures of a kind.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Vec<String>>);

impl Failures {
    pub(crate) fn add(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The first failures, one per line.
    pub(crate) fn shown(&self, kind: &str) -> String {
        let faults = self.0.lock().unwrap();
        faults.iter().take(SHOWN).map(|fault| format!("{kind}: {fault}\n")).collect()
    }
}

pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Ledger {
    /// A new number, above all earlier ones.
    pub(crate) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn with<T>(&self, agent: &str, uri: &str, then: impl FnOnce(&mut UriState) -> T) -> T {
        then(self.subjects.lock().unwrap().entry((agent.to_owned(), uri.to_owned())).or_default())
    }

    /// Records an acknowledged write.
    pub(crate) fn written(&self, agent: &str, uri: &str, revision: i64, number: Option<u64>) {
        self.with(agent, uri, |state| state.written.insert(revision, number));
    }

    /// Records the start of a deletion: from now on the URI may be missing.
    pub(crate) fn deleting(&self, agent: &str, uri: &str) {
        let number = self.number();
        self.with(agent, uri, |state| state.deleted = state.deleted.max(number));
    }

    /// Records a notification about a URI, whose cursor says that everything up to `watermark` was sent.
    pub(crate) fn notified(&self, agent: &str, uri: &str, watermark: i64) {
        self.with(agent, uri, |state| {
            if let Some((_, Some(number))) = state.written.range(..=watermark).next_back() {
                state.notified = state.notified.max(*number);
            }
        });
    }

    /// The lowest number that a read which starts now may return.
    pub(crate) fn required(&self, agent: &str, uri: &str) -> u64 {
        self.with(agent, uri, |state| state.notified)
    }

    /// Whether an answer is older than the number that was required when the read started.
    pub(crate) fn is_stale(&self, agent: &str, uri: &str, required: u64, found: Option<u64>) -> bool {
        match found {
            Some(number) => number < required,
            None => self.with(agent, uri, |state| state.deleted) < required,
        }
    }
}
