//! What the audit log says of a request: noted on its way, put together when it is answered.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Response};
use hyper::body::Body as _;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::client::ClientInfo;
use super::costs;
use super::endpoint::{Arrival, Endpoint};
use super::live::End;
use super::modern::decode::META_CLIENT_INFO;
use super::reply::fail;
use super::version::ProtocolVersion;
use super::wire::{Incoming, Message, MethodName};
use crate::audit::Audit;
use crate::http::body::Body;
use crate::model::agent::AccessLimits;
use crate::model::audit::event::{Actor, ClientName, Difference, Event, named, subject, trace};
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, SessionUid, TenantId};
use crate::model::method::Method;
use crate::model::session::Session;
use crate::model::usage::Usage;
use crate::registry::access::{Caller, Grant};
use crate::usage::{Holders, UsageBook};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// The notes on one HTTP request.
#[derive(Debug)]
pub struct Trail {
    began: Instant,
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    actor: Actor,
    tenant: Option<TenantId>,
    agent: Option<AgentId>,
    /// Whose quotas the request counts against, where it is admitted.
    quotas: Option<QuotaHolder>,
    client: Option<ClientName>,
    protocol: Option<&'static str>,
    session: Option<SessionUid>,
    asked: Asked,
    /// The body is on its way.
    awaits_body: bool,
    bytes_in: u64,
    outcome: Option<&'static str>,
    members: Vec<Member>,
}

/// Whose quotas a request counts against: those of the agent that its event names, and of the tenant.
#[derive(Debug, Clone)]
struct QuotaHolder {
    limits: Arc<AccessLimits>,
    /// Whether the credential is one of the agent or its tenant.
    own: bool,
}

impl QuotaHolder {
    fn of(&self, event: &Event) -> Option<Holders<'_>> {
        let (agent, tenant) = (event.agent?, event.tenant?);
        Some(Holders { agent, tenant, limits: &self.limits, own: self.own })
    }
}

/// What one message asks for.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    /// `None` where none could be read.
    method: Option<Cow<'static, str>>,
    subject: Option<Box<str>>,
}

/// One message of a batch, answered.
#[derive(Debug)]
struct Member {
    asked: Asked,
    outcome: &'static str,
    bytes_out: u64,
}

impl Asked {
    /// What a message asks for.
    pub(super) fn of(message: &Message<'_>) -> Self {
        match message {
            Message::Request(request) => {
                let method = match &request.method {
                    MethodName::Known(method) => Cow::Borrowed(method.name()),
                    MethodName::Unknown(name) => Cow::Owned(named(name).into()),
                };
                let parameter = request.method.known().and_then(Method::subject);
                let text = parameter.and_then(|name| request.params.string(name).ok().flatten());
                Self { method: Some(method), subject: text.map(|text| subject(&text)) }
            }
            Message::Notification { method, .. } => {
                Self { method: Some(Cow::Owned(named(method).into())), subject: None }
            }
            Message::Response => Self { method: Some(Cow::Borrowed("response")), subject: None },
        }
    }
}

impl Trail {
    /// Of a request that has just arrived.
    pub fn begin() -> Self {
        Self { began: Instant::now(), notes: Mutex::default() }
    }

    /// How long it has taken so far.
    pub fn took(&self) -> Duration {
        self.began.elapsed()
    }

    /// The agent that is asked, by somebody who may.
    pub(super) fn admitted(&self, caller: &Caller) {
        let mut notes = self.notes.lock();
        (notes.tenant, notes.agent) = (Some(caller.tenant), Some(caller.agent));
        notes.quotas =
            Some(QuotaHolder { limits: Arc::clone(&caller.limits), own: costs::holders(caller).own });
    }

    /// Who asks, whether he may or not.
    pub(super) fn identified(&self, grant: Option<&Grant>) {
        self.notes.lock().actor = grant.map_or_else(Actor::anybody, Actor::from);
    }

    /// Records a caller without a grant.
    pub(super) fn actor(&self, actor: Actor) {
        self.notes.lock().actor = actor;
    }

    /// The body is wanted.
    pub(super) fn await_body(&self) {
        self.notes.lock().awaits_body = true;
    }

    /// The body is there, so long.
    pub(super) fn body(&self, length: usize) {
        let mut notes = self.notes.lock();
        notes.awaits_body = false;
        notes.bytes_in = length as u64;
    }

    /// Whether the body is still on its way.
    pub fn is_awaiting_body(&self) -> bool {
        self.notes.lock().awaits_body
    }

    /// What is asked for, and by which client, as far as one message says so.
    pub(super) fn read(&self, incoming: &Incoming<'_>, version: Option<ProtocolVersion>) {
        let Incoming::Message(message) = incoming else {
            return self.version(version);
        };
        let asked = Asked::of(message);
        let info = match message {
            Message::Request(request) => request.params.meta().get(META_CLIENT_INFO),
            Message::Notification { .. } | Message::Response => None,
        };
        let client = info.and_then(ClientInfo::read);
        let mut notes = self.notes.lock();
        notes.asked = asked;
        notes.client = client.map(|client| ClientName::new(&client.name, &client.version));
        notes.protocol = version.map(ProtocolVersion::as_str);
    }

    /// Which revision it is written in.
    pub(super) fn version(&self, version: Option<ProtocolVersion>) {
        self.notes.lock().protocol = version.map(ProtocolVersion::as_str);
    }

    /// The session that it belongs to.
    pub(super) fn session(&self, session: &Session) {
        let mut notes = self.notes.lock();
        notes.session = Some(session.uid);
        notes.client = Some(ClientName::new(&session.client_name, &session.client_version));
        notes.protocol = ProtocolVersion::parse(&session.version).map(ProtocolVersion::as_str);
    }

    /// The session that it opened, by a client that calls itself so.
    pub(super) fn opened(&self, session: SessionUid, version: ProtocolVersion, client: &ClientInfo<'_>) {
        let mut notes = self.notes.lock();
        notes.session = Some(session);
        notes.client = Some(ClientName::new(&client.name, &client.version));
        notes.protocol = Some(version.as_str());
    }

    /// What went wrong.
    pub(super) fn failed(&self, name: &'static str) {
        self.notes.lock().outcome = Some(name);
    }

    /// A message of a batch is answered.
    pub(super) fn member(&self, asked: Asked, outcome: Option<&'static str>, bytes_out: usize) {
        let outcome = outcome.unwrap_or("ok");
        self.notes.lock().members.push(Member { asked, outcome, bytes_out: bytes_out as u64 });
    }
}

impl Endpoint {
    /// Counts what was used by a request, and hands what was noted of it to the audit log; with its durability `sync`,
    /// the answer leaves when that is on disk.
    pub async fn record(&self, arrival: &Arrival<'_>, response: Response<Body>) -> Response<Body> {
        let mut event = self.event(arrival);
        event.status = Some(response.status().as_u16());
        event.bytes_out = response.body().size_hint().exact();
        if response.status() == http::StatusCode::METHOD_NOT_ALLOWED {
            event.outcome = "method_not_allowed";
        }
        let (members, quotas) = {
            let mut notes = arrival.trail.notes.lock();
            (std::mem::take(&mut notes.members), notes.quotas.take())
        };
        let recorded = if members.is_empty() {
            self.count(quotas.as_ref(), &event);
            self.audit.record(&event).await
        } else {
            Box::pin(self.record_each(event, members, quotas.as_ref())).await
        };
        recorded.map_or_else(|fault| fail(arrival, &fault), |()| response)
    }

    /// One row a message; the first has the bytes of the whole body.
    async fn record_each(
        &self,
        whole: Event,
        members: Vec<Member>,
        quotas: Option<&QuotaHolder>,
    ) -> Result<(), Fault> {
        let mut bytes_in = whole.bytes_in;
        let events = members.into_iter().map(|member| Event {
            method: member.asked.method.unwrap_or_else(|| whole.method.clone()),
            subject: member.asked.subject,
            outcome: member.outcome,
            bytes_in: std::mem::take(&mut bytes_in),
            bytes_out: Some(member.bytes_out),
            ..whole.clone()
        });
        let events: Vec<_> = events.inspect(|event| self.count(quotas, event)).collect();
        self.audit.record_all(&events).await
    }

    /// Counts what was used by whoever may use anything.
    fn count(&self, quotas: Option<&QuotaHolder>, event: &Event) {
        let Some(holders) = quotas.and_then(|quotas| quotas.of(event)) else { return };
        let outcome = event.outcome;
        let denied = matches!(outcome, "rate_limited" | "quota_exceeded" | "unavailable");
        let usage = Usage {
            calls: 1,
            errors: u64::from(!denied && outcome != "ok"),
            denied: u64::from(denied),
            bytes_in: event.bytes_in,
            bytes_out: event.bytes_out.unwrap_or(0),
        };
        self.usage.count(holders, counted(event), event.at, &usage);
    }

    /// What is known of a request so far.
    fn event(&self, arrival: &Arrival<'_>) -> Event {
        let headers = &arrival.parts.headers;
        let trail = &arrival.trail;
        let mut notes = trail.notes.lock();
        Event {
            at: self.audit.now(),
            request: named(arrival.request_id.to_str().unwrap_or_default()),
            trace: headers.get(TRACEPARENT).and_then(|header| trace(header.as_bytes())),
            tenant: notes.tenant,
            agent: notes.agent,
            slug: Some(named(arrival.agent)),
            actor: notes.actor,
            client: arrival.client,
            client_name: notes.client.take(),
            protocol: notes.protocol,
            session: notes.session,
            method: notes.asked.method.take().unwrap_or_else(|| http_method(&arrival.parts.method)),
            subject: notes.asked.subject.take(),
            outcome: notes.outcome.unwrap_or("ok"),
            status: None,
            micros: micros(trail.took()),
            bytes_in: notes.bytes_in,
            bytes_out: None,
            revision: None,
            difference: Difference::default(),
        }
    }

    /// What will be said when the stream ends that a request opens.
    pub(super) fn farewell(&self, arrival: &Arrival<'_>) -> Farewell {
        let notes = &arrival.trail.notes;
        let (asked, client, quotas) = {
            let notes = notes.lock();
            (notes.asked.clone(), notes.client.clone(), notes.quotas.clone())
        };
        let event = Event { bytes_in: 0, subject: None, ..self.event(arrival) };
        let mut notes = notes.lock();
        (notes.asked, notes.client) = (asked, client);
        let (audit, usage) = (Arc::clone(&self.audit), Arc::clone(&self.usage));
        Farewell { audit, usage, quotas, event: Some(event), opened: Instant::now(), bytes: 0 }
    }
}

/// What a method is counted as: one of those that are known, or one more.
fn counted(event: &Event) -> &'static str {
    match event.method {
        Cow::Borrowed(known) => known,
        Cow::Owned(_) => "other",
    }
}

fn http_method(method: &http::Method) -> Cow<'static, str> {
    let known = [http::Method::POST, http::Method::GET, http::Method::DELETE];
    let names = ["POST", "GET", "DELETE"];
    let found = known.iter().zip(names).find(|(known, _)| *known == method);
    found.map_or_else(|| Cow::Owned(named(method.as_str()).into()), |(_, name)| Cow::Borrowed(name))
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// The row of a stream's end, written when it is dropped, however that comes.
#[derive(Debug)]
pub(super) struct Farewell {
    audit: Arc<Audit>,
    usage: Arc<UsageBook>,
    quotas: Option<QuotaHolder>,
    event: Option<Event>,
    opened: Instant,
    bytes: u64,
}

impl Farewell {
    /// Counts what is sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Why it ends, if not because the client went away.
    pub(super) fn because(&mut self, end: End) {
        if let Some(event) = &mut self.event {
            event.outcome = match end {
                End::Shutdown => "ended:shutdown",
                End::NotAllowed => "ended:not_allowed",
                End::Session => "ended:session",
                End::Superseded => "ended:superseded",
            };
        }
    }
}

impl Drop for Farewell {
    fn drop(&mut self) {
        let Some(mut event) = self.event.take() else { return };
        if event.outcome == "ok" {
            event.outcome = "ended:disconnected";
        }
        event.at = self.audit.now();
        event.micros = micros(self.opened.elapsed());
        event.bytes_out = Some(self.bytes);
        if let Some(holders) = self.quotas.as_ref().and_then(|quotas| quotas.of(&event)) {
            let usage = Usage { bytes_out: self.bytes, ..Usage::default() };
            self.usage.count(holders, counted(&event), event.at, &usage);
        }
        self.audit.note(&event);
    }
}
