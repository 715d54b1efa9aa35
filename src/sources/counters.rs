//! Counts reads of content from connections, fetches, and what happens to watched content.

use std::sync::atomic::{AtomicU64, Ordering};

use content_source::{FetchError, Fetched};

/// Where a read was answered from.
#[derive(Debug, Clone, Copy)]
pub(super) enum ReadFrom {
    /// From memory.
    Fresh,
    /// From memory, while the content is revalidated.
    Stale,
    /// From a fetch.
    Fetched,
}

/// The outcomes of failed fetches.
const REASONS: [FetchError; 9] = [
    FetchError::NotFound,
    FetchError::Timeout,
    FetchError::Unreachable,
    FetchError::Denied,
    FetchError::Status { retry_after: None },
    FetchError::TooLarge,
    FetchError::BadContent,
    FetchError::NotAllowed,
    FetchError::Busy,
];

/// What happens to watched content.
#[derive(Debug, Clone, Copy)]
pub enum WatchEvent {
    /// It was looked at.
    Polled,
    /// The source said that it may have changed.
    Hinted,
    /// It changed.
    Changed,
    /// What the watching replica found was answered in place of a fetch.
    Answered,
}

/// Counts reads and fetches.
#[derive(Debug, Default)]
pub(super) struct Counters {
    reads: [AtomicU64; 3],
    fetched: AtomicU64,
    unchanged: AtomicU64,
    failed: [AtomicU64; REASONS.len()],
    watched: [AtomicU64; 4],
}

/// The counters, by their stable names.
#[derive(Debug)]
pub struct FetchStats {
    /// Reads by where they were answered from: fresh or stale memory, or a fetch.
    pub reads: [(&'static str, u64); 3],
    /// Fetches by outcome.
    pub fetches: Vec<(&'static str, u64)>,
    /// What happened to watched content.
    pub watched: [(&'static str, u64); 4],
    /// Fetches in progress.
    pub in_flight: usize,
}

impl Counters {
    /// Counts a read.
    pub(super) fn read(&self, from: ReadFrom) {
        count(&self.reads[from as usize]);
    }

    /// Counts what happens to watched content.
    pub(super) fn watched(&self, event: WatchEvent) {
        count(&self.watched[event as usize]);
    }

    /// Counts a fetch.
    pub(super) fn record(&self, outcome: &Result<Fetched, FetchError>) {
        count(match outcome {
            Ok(Fetched::Unchanged) => &self.unchanged,
            Ok(Fetched::Contents { .. }) => &self.fetched,
            Err(error) => {
                let of = REASONS.iter().position(|known| known.as_str() == error.as_str());
                &self.failed[of.unwrap_or_default()]
            }
        });
    }

    /// The counters.
    pub(super) fn stats(&self, in_flight: usize) -> FetchStats {
        let [fresh, stale, fetched] = &self.reads;
        let [polled, hinted, changed, answered] = &self.watched;
        let served = [("ok", value(&self.fetched)), ("unchanged", value(&self.unchanged))];
        let failed =
            REASONS.iter().zip(&self.failed).map(|(error, counter)| (error.as_str(), value(counter)));
        FetchStats {
            reads: [("fresh", value(fresh)), ("stale", value(stale)), ("fetched", value(fetched))],
            watched: [
                ("polled", value(polled)),
                ("hinted", value(hinted)),
                ("changed", value(changed)),
                ("answered", value(answered)),
            ],
            fetches: served.into_iter().chain(failed).collect(),
            in_flight,
        }
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn value(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
