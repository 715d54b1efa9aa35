//! The labels of requests in metrics.

use crate::model::fault::Outcome;
use crate::model::method::{Era, Method};

/// The outcomes, and one for answers of HTTP without a name in the protocol.
const OUTCOMES: usize = Outcome::ALL.len() + 1;

/// Refusals by credential, agent or origin, which precede the reading of a message, and so the knowledge of its method.
const ACCESS: [Outcome; 5] = [
    Outcome::AgentDisabled,
    Outcome::Forbidden,
    Outcome::ForbiddenOrigin,
    Outcome::InsufficientScope,
    Outcome::Unauthenticated,
];

/// Refusals by limit or for lack of capacity, and faults of the gateway, which any request can meet.
const CAPACITY: [Outcome; 5] = [
    Outcome::Internal,
    Outcome::QuotaExceeded,
    Outcome::RateLimited,
    Outcome::StorageUnavailable,
    Outcome::Unavailable,
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
    pub(super) const COUNT: usize = Method::ALL.len() + 4;

    /// Every label, in the order of [`index`](Self::index).
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let known = Method::ALL.into_iter().map(Self::Known);
        [Self::Other].into_iter().chain(known).chain([Self::Batch, Self::Get, Self::Delete])
    }

    pub(super) fn index(self) -> usize {
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
    pub(super) const COUNT: usize = MethodLabel::COUNT * Era::ALL.len() * OUTCOMES;

    /// Every combination, in the order of [`index`](Self::index).
    pub(super) fn all() -> impl Iterator<Item = Self> {
        let outcomes = || Outcome::ALL.into_iter().map(Some).chain([None]);
        let eras = move |method| {
            let of = move |era| outcomes().map(move |outcome| Self { method, era, outcome });
            Era::ALL.into_iter().flat_map(of)
        };
        MethodLabel::all().flat_map(eras)
    }

    /// Whether the series is exposed before the first such request, as 0: `increase()` and `rate()` of a series that begins
    /// with its first request do not see that request.
    ///
    /// These are the refusals and the faults that operators watch, for methods that can end so: about a ninth of all
    /// combinations, of which most never occur.
    pub(super) fn begins_at_zero(self) -> bool {
        let is_of = |outcomes: &[Outcome]| self.outcome.is_some_and(|outcome| outcomes.contains(&outcome));
        match self.method {
            MethodLabel::Known(method) => method.exists_in(self.era) && is_of(&CAPACITY),
            MethodLabel::Batch => self.era == Era::Legacy && is_of(&CAPACITY),
            MethodLabel::Get | MethodLabel::Delete => {
                self.era == Era::Legacy && (is_of(&ACCESS) || is_of(&CAPACITY))
            }
            MethodLabel::Other => is_of(&ACCESS) || is_of(&CAPACITY),
        }
    }

    pub(super) fn index(self) -> usize {
        let outcome = self.outcome.map_or(Outcome::ALL.len(), |outcome| outcome as usize);
        (self.method.index() * Era::ALL.len() + self.era as usize) * OUTCOMES + outcome
    }
}
