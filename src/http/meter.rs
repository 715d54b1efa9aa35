//! What is counted of the requests of MCP endpoints: which method, of which era, with which outcome, and how long it took.
//!
//! Everything is a slot that is there from the start, so that counting a request is a few additions.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// The methods that are told apart, as they are told. A client makes up others: they are one.
const METHODS: [&str; 19] = [
    "other",
    "initialize",
    "ping",
    "server/discover",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "tools/list",
    "tools/call",
    "subscriptions/listen",
    "resources/subscribe",
    "resources/unsubscribe",
    "logging/setLevel",
    "batch",
    // Of a session, without a message.
    "GET",
    "DELETE",
];
const ERAS: [&str; 2] = ["legacy", "modern"];
/// How requests end: well, or by the contract's names of failures.
const OUTCOMES: [&str; 27] = [
    "ok",
    "other",
    "agent_disabled",
    "forbidden",
    "forbidden_origin",
    "header_mismatch",
    "insufficient_scope",
    "internal",
    "invalid_params",
    "invalid_request",
    "method_not_found",
    "not_acceptable",
    "not_found",
    "parse_error",
    "payload_too_large",
    "quota_exceeded",
    "rate_limited",
    "resource_not_found",
    "session_not_found",
    "session_required",
    "source_failed",
    "source_timeout",
    "storage_unavailable",
    "unauthenticated",
    "unavailable",
    "unsupported_media_type",
    "unsupported_protocol_version",
];
const OTHER_OUTCOME: u8 = 1;
/// In microseconds: the upper ends of the buckets of durations.
pub const BOUNDS: [u64; 15] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// What one request turned out to be, as far as it is known yet.
#[derive(Debug, Default)]
pub struct Noted {
    method: AtomicU8,
    era: AtomicU8,
    outcome: AtomicU8,
}

impl Noted {
    /// It asks for this.
    pub fn asks(&self, method: &str, modern: bool) {
        let method = METHODS.iter().position(|known| *known == method);
        self.method.store(index(method, 0), Ordering::Relaxed);
        self.era.store(u8::from(modern), Ordering::Relaxed);
    }

    /// It failed, by the name that the contract has for it.
    pub fn failed(&self, name: &str, modern: bool) {
        let outcome = OUTCOMES.iter().position(|known| *known == name);
        self.outcome.store(index(outcome, OTHER_OUTCOME), Ordering::Relaxed);
        self.era.store(u8::from(modern), Ordering::Relaxed);
    }

    /// It was refused over HTTP, by something that has no name there.
    pub fn refused(&self) {
        _ = self.outcome.compare_exchange(0, OTHER_OUTCOME, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn index(position: Option<usize>, otherwise: u8) -> u8 {
    position.and_then(|position| u8::try_from(position).ok()).unwrap_or(otherwise)
}

/// The requests of a replica.
#[derive(Debug)]
pub struct Meter {
    /// By method, era and outcome.
    requests: Box<[AtomicU64]>,
    durations: [Durations; METHODS.len()],
}

/// How long requests took.
#[derive(Debug, Default)]
struct Durations {
    /// How many within each of [`BOUNDS`] and not within the one before, and how many above all.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// A number of requests, and what they have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Their method.
    pub method: &'static str,
    /// Their era.
    pub era: &'static str,
    /// How they ended.
    pub outcome: &'static str,
    /// How many they are.
    pub count: u64,
}

/// How long the requests of a method took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Took {
    /// The method.
    pub method: &'static str,
    /// How many took at most as long as each of [`BOUNDS`] says.
    pub within: [u64; BOUNDS.len()],
    /// How many there were.
    pub count: u64,
    /// In microseconds, together.
    pub micros: u64,
}

impl Default for Meter {
    fn default() -> Self {
        let slots = METHODS.len() * ERAS.len() * OUTCOMES.len();
        Self {
            requests: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            durations: std::array::from_fn(|_| Durations::default()),
        }
    }
}

impl Meter {
    /// Counts a request that is answered.
    pub fn count(&self, noted: &Noted, took: Duration) {
        let [method, era, outcome] = [&noted.method, &noted.era, &noted.outcome]
            .map(|noted| usize::from(noted.load(Ordering::Relaxed)));
        if let Some(slot) = self.requests.get((method * ERAS.len() + era) * OUTCOMES.len() + outcome) {
            slot.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(durations) = self.durations.get(method) {
            durations.count(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// What was counted, without what never happened.
    pub fn requests(&self) -> impl Iterator<Item = Requests> {
        let counts = self.requests.iter().map(|slot| slot.load(Ordering::Relaxed)).enumerate();
        counts.filter(|(_, count)| *count > 0).map(|(slot, count)| Requests {
            method: METHODS.get(slot / OUTCOMES.len() / ERAS.len()).copied().unwrap_or_default(),
            era: ERAS.get(slot / OUTCOMES.len() % ERAS.len()).copied().unwrap_or_default(),
            outcome: OUTCOMES.get(slot % OUTCOMES.len()).copied().unwrap_or_default(),
            count,
        })
    }

    /// How long it took, by methods that were asked for.
    pub fn took(&self) -> impl Iterator<Item = Took> {
        let all = METHODS.iter().zip(&self.durations).map(|(method, durations)| durations.took(method));
        all.filter(|took| took.count > 0)
    }
}

impl Durations {
    fn count(&self, micros: u64) {
        let bucket = BOUNDS.iter().position(|bound| micros <= *bound).unwrap_or(BOUNDS.len());
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn took(&self, method: &'static str) -> Took {
        let mut count = 0;
        let counts = self.buckets.each_ref().map(|bucket| {
            count += bucket.load(Ordering::Relaxed);
            count
        });
        let within = std::array::from_fn(|bound| counts.get(bound).copied().unwrap_or_default());
        Took { method, within, count, micros: self.micros.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BOUNDS, Meter, Noted, OTHER_OUTCOME, OUTCOMES, Requests};

    fn counted(notes: &[&Noted]) -> Vec<(&'static str, &'static str, &'static str, u64)> {
        let meter = Meter::default();
        for noted in notes {
            meter.count(noted, Duration::ZERO);
        }
        let tuple = |Requests { method, era, outcome, count }| (method, era, outcome, count);
        meter.requests().map(tuple).collect()
    }

    #[test]
    fn a_request_is_counted_by_what_it_turned_out_to_be() {
        let (read, failed, made_up, refused) =
            (Noted::default(), Noted::default(), Noted::default(), Noted::default());
        read.asks("resources/read", true);
        failed.asks("logging/setLevel", false);
        failed.failed("unsupported_protocol_version", false);
        failed.refused();
        made_up.asks("an/attacker's", true);
        made_up.failed("what?", true);
        refused.refused();
        assert_eq!(
            counted(&[&read, &failed, &made_up, &refused, &read]),
            [
                ("other", "legacy", "other", 1),
                ("other", "modern", "other", 1),
                ("resources/read", "modern", "ok", 2),
                ("logging/setLevel", "legacy", "unsupported_protocol_version", 1),
            ]
        );
        assert_eq!(OUTCOMES.get(usize::from(OTHER_OUTCOME)), Some(&"other"));
    }

    #[test]
    fn durations_are_counted_up_to_each_bound() {
        let (meter, noted) = (Meter::default(), Noted::default());
        for micros in [50, 51, 2_000, 40_000_000] {
            meter.count(&noted, Duration::from_micros(micros));
        }
        let took = meter.took().next().unwrap();
        assert_eq!((took.method, took.count, took.micros), ("other", 4, 40_002_101));
        assert_eq!(took.within[..6], [1, 2, 2, 2, 2, 3]);
        assert_eq!(took.within[BOUNDS.len() - 1], 3);
    }
}
