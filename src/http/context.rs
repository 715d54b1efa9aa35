//! The context of a request: created when the request arrives, extended by each stage, and completed with the answer. It
//! also determines the rates and quotas that the caller is charged to.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Response, StatusCode};
use hyper::body::Body as HttpBody;
use time::OffsetDateTime;
use tokio::time::Instant;

use super::credential::expiry_to_announce;
use crate::identity::grant::{Caller, Grant};
use crate::model::audit::event::{Actor, Event, Outcome, named};
use crate::model::client_address::ClientAddress;
use crate::model::ids::Slug;
use crate::model::method::{Era, Method};
use crate::quota::limits::RateLimitSubject;
use crate::quota::usage::QuotaSubject;
use crate::telemetry::trace;

/// The header of W3C Trace Context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

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

/// A request from admission to its answer, on any surface.
#[derive(Debug, Clone)]
pub struct RequestContext {
    began: Instant,
    /// The audit event of the request, as far as it is known.
    pub event: Event,
    /// Whether `Host` is not allowed, so that a valid credential is required.
    pub foreign_host: bool,
    /// The expiry of the presented key, if the answer must announce it.
    pub key_expires: Option<OffsetDateTime>,
    /// The method and the era that metrics count the request under; `None` if it is not counted.
    pub counted: Option<(MethodLabel, Era)>,
    /// The quotas that the request counts against, once it is admitted.
    pub quotas: Option<ChargedQuotas>,
    /// Whether it was refused since what it names is hidden from the caller; `None`: it was not.
    pub hidden: Option<HiddenCheck>,
    /// The answered messages of a batch.
    pub messages: Vec<BatchMessage>,
}

/// Finds out whether what a refused call names is hidden from its caller. It runs once the call is answered, since how long
/// it takes depends on what is hidden.
#[derive(Clone)]
pub struct HiddenCheck(Arc<dyn Fn() -> bool + Send + Sync>);

impl HiddenCheck {
    /// A check to be run later.
    pub fn new(check: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    fn run(&self) -> bool {
        self.0()
    }
}

impl fmt::Debug for HiddenCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HiddenCheck")
    }
}

/// The quotas that a request counts against: those of the agent that its event names, and of the tenant.
#[derive(Debug, Clone)]
pub struct ChargedQuotas(Arc<Caller>);

impl ChargedQuotas {
    /// The quotas that a request with this event counts against.
    pub fn of(&self, event: &Event) -> Option<QuotaSubject<'_>> {
        let (agent, tenant) = (event.agent?, event.tenant?);
        Some(QuotaSubject { agent, tenant, ..QuotaSubject::from(&*self.0) })
    }
}

/// An answered message of a batch.
#[derive(Debug, Clone)]
pub struct BatchMessage {
    /// Its method; `None` if none could be read.
    pub method: Option<Cow<'static, str>>,
    /// Its subject.
    pub subject: Option<Box<str>>,
    /// The connection that content was taken from.
    pub connection: Option<Slug>,
    /// How it ended.
    pub outcome: Outcome,
    /// The bytes of its answer.
    pub bytes_out: u64,
    /// Whether it was refused since what it names is hidden from the caller; `None`: it was not.
    pub hidden: Option<HiddenCheck>,
}

impl AsMut<Self> for RequestContext {
    fn as_mut(&mut self) -> &mut Self {
        self
    }
}

impl RequestContext {
    /// The context of a new request. Its method is that of HTTP until a message is parsed.
    pub fn new(
        request_id: &str,
        client: ClientAddress,
        method: Cow<'static, str>,
        counted: Option<(MethodLabel, Era)>,
    ) -> Self {
        // The time of an event is that of its completion.
        let event = Event::new(OffsetDateTime::UNIX_EPOCH, named(request_id), client, method);
        Self {
            began: Instant::now(),
            event: Event { trace: trace::trace_id(), ..event },
            foreign_host: false,
            key_expires: None,
            counted,
            quotas: None,
            hidden: None,
            messages: Vec::new(),
        }
    }

    /// The time since the request arrived.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The time since the request arrived, in microseconds.
    pub fn micros(&self) -> u64 {
        micros(self.elapsed())
    }

    /// Records the grant of the presented credential, `None` if none was presented.
    pub fn identified(&mut self, grant: Option<&Grant>, now: impl FnOnce() -> OffsetDateTime) {
        self.event.actor = grant.map_or_else(Actor::anybody, Actor::from);
        self.key_expires = expiry_to_announce(grant, now);
    }

    /// Records the caller of an agent that may use it.
    pub fn admitted(&mut self, caller: &Arc<Caller>) {
        (self.event.tenant, self.event.agent) = (Some(caller.tenant), Some(caller.agent));
        self.quotas = Some(ChargedQuotas(Arc::clone(caller)));
    }

    /// The labels of the request in metrics. An unsupported HTTP method is not an outcome of the protocol.
    pub fn labels(&self) -> Option<RequestLabels> {
        let outcome = Some(self.event.outcome).filter(|outcome| *outcome != Outcome::MethodNotAllowed);
        self.counted.map(|(method, era)| RequestLabels { method, era, outcome })
    }

    /// Records how the request ended, as far as its answer says that: by an extension, or an unsupported method of HTTP.
    pub fn ended(&mut self, response: &Response<impl HttpBody>) {
        if let Some(outcome) = response.extensions().get() {
            self.event.outcome = *outcome;
        }
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            self.event.outcome = Outcome::MethodNotAllowed;
        }
    }

    /// Completes the request with its answer.
    pub fn complete(
        &mut self,
        response: &Response<impl HttpBody>,
        at: OffsetDateTime,
    ) -> CompletedRequest<'_> {
        self.ended(response);
        let micros = self.micros();
        let event = &mut self.event;
        event.at = at;
        event.micros = micros;
        event.status = Some(response.status().as_u16());
        event.bytes_out = response.body().size_hint().exact();
        CompletedRequest {
            event: &self.event,
            hidden: &mut self.hidden,
            messages: &mut self.messages,
            quotas: self.quotas.as_ref(),
            is_free: matches!(
                self.counted,
                Some((MethodLabel::Known(method), era)) if method.exists_in(era) && !method.cost().takes_quota()
            ),
        }
    }
}

/// An answered request, for the audit log and usage.
#[derive(Debug)]
pub struct CompletedRequest<'a> {
    event: &'a Event,
    hidden: &'a mut Option<HiddenCheck>,
    /// The messages of a batch, each with a row of its own.
    messages: &'a mut Vec<BatchMessage>,
    /// The quotas that it counts against.
    pub quotas: Option<&'a ChargedQuotas>,
    /// Whether it takes nothing from them.
    pub is_free: bool,
}

impl CompletedRequest<'_> {
    /// The only event; `None` for a batch, and if it remains to be found out whether something hidden is named.
    pub fn event(&self) -> Option<&Event> {
        (self.messages.is_empty() && self.hidden.is_none()).then_some(self.event)
    }

    /// The events: of a batch one per message, the first with the bytes of the whole body.
    pub fn events(&mut self) -> CompletedEvents {
        let whole = self.event;
        if self.messages.is_empty() {
            return CompletedEvents { events: vec![whole.clone()], hidden: vec![self.hidden.take()] };
        }
        let mut bytes_in = whole.bytes_in;
        let events = self.messages.drain(..).map(|message| {
            let event = Event {
                method: message.method.unwrap_or_else(|| whole.method.clone()),
                subject: message.subject,
                connection: message.connection,
                outcome: message.outcome,
                bytes_in: std::mem::take(&mut bytes_in),
                bytes_out: Some(message.bytes_out),
                ..whole.clone()
            };
            (event, message.hidden)
        });
        let (events, hidden) = events.unzip();
        CompletedEvents { events, hidden }
    }
}

/// The events of an answered request.
#[derive(Debug)]
pub struct CompletedEvents {
    /// The events, without what the checks find.
    pub events: Vec<Event>,
    /// The check of each event.
    hidden: Vec<Option<HiddenCheck>>,
}

impl CompletedEvents {
    /// Whether there is something to check.
    pub fn have_checks(&self) -> bool {
        self.hidden.iter().any(Option::is_some)
    }

    /// Runs the checks.
    pub fn checked(self) -> Vec<Event> {
        let checked = self.events.into_iter().zip(self.hidden);
        checked
            .map(|(event, check)| Event { hidden: check.is_some_and(|check| check.run()), ..event })
            .collect()
    }
}

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

/// A duration in the unit of events.
pub fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

impl<'a> From<&'a Caller> for RateLimitSubject<'a> {
    fn from(caller: &'a Caller) -> Self {
        let Caller { tenant, agent, limits, is_own, handles, .. } = caller;
        let (credential, limiters) = (caller.credential(), handles.as_ref().map(|handles| &handles.limiters));
        Self { credential, tenant: *tenant, agent: *agent, limits, is_own: *is_own, limiters }
    }
}

impl<'a> From<&'a Caller> for QuotaSubject<'a> {
    fn from(caller: &'a Caller) -> Self {
        let Caller { tenant, agent, limits, has_quota, is_own, .. } = caller;
        Self { agent: *agent, tenant: *tenant, limits: has_quota.then_some(limits), is_own: *is_own }
    }
}
