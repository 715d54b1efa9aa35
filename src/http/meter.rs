//! Metrics of the requests of MCP endpoints: counts by method, era and outcome, and durations by method.
//!
//! All counters are allocated at the start, so counting a request is a few atomic additions.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::model::fault::Outcome;
use crate::model::method::{Era, Method};

/// The outcomes, and one for answers of HTTP without a name in the protocol.
const OUTCOMES: usize = Outcome::ALL.len() + 1;

/// The upper bounds of the duration buckets, in microseconds.
pub const BOUNDS: [u64; 15] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000, 5_000_000,
    30_000_000,
];

/// The label of a request's method in metrics. Unknown methods share one label.
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
    /// Any other request.
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

    /// The label.
    pub fn as_str(self) -> &'static str {
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

/// The labels of a request in metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestLabels {
    /// Its method.
    pub method: MethodLabel,
    /// Its era.
    pub era: Era,
    /// Its outcome; `None` for an answer of HTTP without a name in the protocol.
    pub outcome: Option<Outcome>,
}

impl RequestLabels {
    const COUNT: usize = MethodLabel::COUNT * Era::ALL.len() * OUTCOMES;

    /// Every combination, in the order of [`index`](Self::index).
    fn all() -> impl Iterator<Item = Self> {
        let outcomes = || Outcome::ALL.into_iter().map(Some).chain([None]);
        let eras = move |method| {
            let of = move |era| outcomes().map(move |outcome| Self { method, era, outcome });
            Era::ALL.into_iter().flat_map(of)
        };
        MethodLabel::all().flat_map(eras)
    }

    fn index(self) -> usize {
        let outcome = self.outcome.map_or(Outcome::ALL.len(), |outcome| outcome as usize);
        (self.method.index() * Era::ALL.len() + self.era as usize) * OUTCOMES + outcome
    }
}

/// The requests of a replica.
#[derive(Debug)]
pub struct Meter {
    /// By method, era and outcome.
    requests: Box<[AtomicU64]>,
    durations: [Durations; MethodLabel::COUNT],
}

/// A histogram of durations.
#[derive(Debug, Default)]
struct Durations {
    /// The number of durations in each bucket of [`BOUNDS`] (not cumulative), and above the last.
    buckets: [AtomicU64; BOUNDS.len() + 1],
    micros: AtomicU64,
}

/// The number of requests with the same labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Their method.
    pub method: &'static str,
    /// Their era.
    pub era: &'static str,
    /// Their outcome.
    pub outcome: &'static str,
    /// The number of requests.
    pub count: u64,
}

/// The durations of the requests of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Took {
    /// The method.
    pub method: &'static str,
    /// The cumulative number up to each of [`BOUNDS`].
    pub within: [u64; BOUNDS.len()],
    /// The number of requests.
    pub count: u64,
    /// The sum of the durations, in microseconds.
    pub micros: u64,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            requests: (0..RequestLabels::COUNT).map(|_| AtomicU64::new(0)).collect(),
            durations: std::array::from_fn(|_| Durations::default()),
        }
    }
}

impl Meter {
    /// Counts an answered request.
    pub fn count(&self, labels: RequestLabels, took: Duration) {
        if let Some(slot) = self.requests.get(labels.index()) {
            slot.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(durations) = self.durations.get(labels.method.index()) {
            durations.count(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        }
    }

    /// The counts by labels, without zeros.
    pub fn requests(&self) -> impl Iterator<Item = Requests> {
        let counts = self.requests.iter().map(|slot| slot.load(Ordering::Relaxed));
        RequestLabels::all().zip(counts).filter(|(_, count)| *count > 0).map(|(labels, count)| Requests {
            method: labels.method.as_str(),
            era: labels.era.as_str(),
            outcome: labels.outcome.map_or("other", Outcome::as_str),
            count,
        })
    }

    /// The durations by method, for methods that were called.
    pub fn took(&self) -> impl Iterator<Item = Took> {
        let all = MethodLabel::all()
            .zip(&self.durations)
            .map(|(method, durations)| durations.took(method.as_str()));
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

    use super::{BOUNDS, Era, Meter, Method, MethodLabel, Outcome, RequestLabels, Requests};

    fn labels(method: Option<Method>, era: Era, outcome: Option<Outcome>) -> RequestLabels {
        RequestLabels { method: method.into(), era, outcome }
    }

    #[test]
    fn each_combination_of_labels_has_its_own_slot() {
        let indexes: Vec<_> = RequestLabels::all().map(RequestLabels::index).collect();
        assert_eq!(indexes, (0..RequestLabels::COUNT).collect::<Vec<_>>());
    }

    #[test]
    fn a_request_is_counted_by_its_labels() {
        let meter = Meter::default();
        let read = labels(Some(Method::ReadResource), Era::Modern, Some(Outcome::Ok));
        let failed = labels(Some(Method::SetLevel), Era::Legacy, Some(Outcome::UnsupportedProtocolVersion));
        let made_up = labels(Method::parse("an/attacker's"), Era::Modern, Some(Outcome::MethodNotFound));
        let refused = RequestLabels { method: MethodLabel::Delete, era: Era::Legacy, outcome: None };
        for labels in [read, failed, made_up, refused, read] {
            meter.count(labels, Duration::ZERO);
        }
        let tuple = |Requests { method, era, outcome, count }| (method, era, outcome, count);
        assert_eq!(
            meter.requests().map(tuple).collect::<Vec<_>>(),
            [
                ("other", "modern", "method_not_found", 1),
                ("resources/read", "modern", "ok", 2),
                ("logging/setLevel", "legacy", "unsupported_protocol_version", 1),
                ("DELETE", "legacy", "other", 1),
            ]
        );
    }

    #[test]
    fn durations_are_counted_up_to_each_bound() {
        let meter = Meter::default();
        for micros in [50, 51, 2_000, 40_000_000] {
            meter.count(labels(None, Era::Legacy, None), Duration::from_micros(micros));
        }
        let took = meter.took().next().unwrap();
        assert_eq!((took.method, took.count, took.micros), ("other", 4, 40_002_101));
        assert_eq!(took.within[..6], [1, 2, 2, 2, 2, 3]);
        assert_eq!(took.within[BOUNDS.len() - 1], 3);
    }
}
