//! What is counted of the requests of MCP endpoints: which method, of which era, with which outcome, and how long it took.
//!
//! Everything is a slot that is there from the start, so that counting a request is a few additions.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use crate::model::method::{Era, Method};

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
const ERAS: usize = Era::ALL.len();
/// In microseconds: the upper ends of the buckets of durations.
pub const BOUNDS: [u64; 15] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// The label of a request's method in metrics. Names that clients make up are one label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodLabel {
    /// A row of the method table.
    Known(Method),
    /// A batch.
    Batch,
    /// `GET`, the stream of a session.
    Get,
    /// `DELETE`, the end of a session.
    Delete,
    /// Everything else.
    Other,
}

impl MethodLabel {
    const COUNT: usize = Method::ALL.len() + 4;

    /// Every label, in the order of [`index`](Self::index).
    fn all() -> impl Iterator<Item = Self> {
        let known = Method::ALL.into_iter().map(Self::Known);
        [Self::Other].into_iter().chain(known).chain([Self::Batch, Self::Get, Self::Delete])
    }

    fn index(self) -> usize {
        match self {
            Self::Other => 0,
            Self::Known(method) => 1 + method as usize,
            Self::Batch => Method::ALL.len() + 1,
            Self::Get => Method::ALL.len() + 2,
            Self::Delete => Method::ALL.len() + 3,
        }
    }

    /// The label of a request without a message.
    pub fn of_http(method: &http::Method) -> Self {
        match *method {
            http::Method::GET => Self::Get,
            http::Method::DELETE => Self::Delete,
            _ => Self::Other,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Known(method) => method.name(),
            Self::Batch => "batch",
            Self::Get => "GET",
            Self::Delete => "DELETE",
            Self::Other => "other",
        }
    }
}

impl From<Option<Method>> for MethodLabel {
    fn from(method: Option<Method>) -> Self {
        method.map_or(Self::Other, Self::Known)
    }
}

/// What one request turned out to be, as far as it is known yet.
#[derive(Debug, Default)]
pub struct Noted {
    method: AtomicU8,
    era: AtomicU8,
    outcome: AtomicU8,
}

impl Noted {
    /// It asks for this.
    pub fn asks(&self, method: MethodLabel, era: Era) {
        self.method.store(index(Some(method.index()), 0), Ordering::Relaxed);
        self.era.store(era as u8, Ordering::Relaxed);
    }

    /// It failed, by the name that the contract has for it.
    pub fn failed(&self, name: &str, era: Era) {
        let outcome = OUTCOMES.iter().position(|known| *known == name);
        self.outcome.store(index(outcome, OTHER_OUTCOME), Ordering::Relaxed);
        self.era.store(era as u8, Ordering::Relaxed);
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
    durations: [Durations; MethodLabel::COUNT],
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
        let slots = MethodLabel::COUNT * ERAS * OUTCOMES.len();
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
        if let Some(slot) = self.requests.get((method * ERAS + era) * OUTCOMES.len() + outcome) {
            slot.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(durations) = self.durations.get(method) {
            durations.count(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// What was counted, without what never happened.
    pub fn requests(&self) -> impl Iterator<Item = Requests> {
        let labels = MethodLabel::all().flat_map(|method| {
            let eras = Era::ALL.into_iter();
            eras.flat_map(move |era| OUTCOMES.into_iter().map(move |outcome| (method, era, outcome)))
        });
        let counts = self.requests.iter().map(|slot| slot.load(Ordering::Relaxed));
        labels.zip(counts).filter(|(_, count)| *count > 0).map(|((method, era, outcome), count)| Requests {
            method: method.as_str(),
            era: era.as_str(),
            outcome,
            count,
        })
    }

    /// How long it took, by methods that were asked for.
    pub fn took(&self) -> impl Iterator<Item = Took> {
        let all = MethodLabel::all().zip(&self.durations).map(|(method, durations)| durations.took(method.as_str()));
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

    use super::{BOUNDS, Era, Meter, Method, MethodLabel, Noted, OTHER_OUTCOME, OUTCOMES, Requests};

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
        read.asks(MethodLabel::Known(Method::ReadResource), Era::Modern);
        failed.asks(MethodLabel::Known(Method::SetLevel), Era::Legacy);
        failed.failed("unsupported_protocol_version", Era::Legacy);
        failed.refused();
        made_up.asks(Method::parse("an/attacker's").into(), Era::Modern);
        made_up.failed("what?", Era::Modern);
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
