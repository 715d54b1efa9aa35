//! The context of a request to an MCP endpoint: created when it arrives, filled on the way, completed with its answer.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::request::Parts;
use time::OffsetDateTime;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::client::ClientInfo;
use super::version::ProtocolVersion;
use super::wire::params::META_CLIENT_INFO;
use super::wire::{Incoming, Message, MethodName};
use crate::http::key_expiry;
use crate::http::meter::{MethodLabel, RequestLabels};
use crate::http::refusals::Refusals;
use crate::identity::grant::{Caller, Grant};
use crate::model::agent::AccessLimits;
use crate::model::audit::event::{Actor, ClientName, Event, named, subject};
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, SessionUid, TenantId};
use crate::model::method::{Era, Method};
use crate::model::outcome::Outcome;
use crate::model::session::Session;
use crate::quota::usage::QuotaSubject;
use crate::telemetry::span;

/// A request to an MCP endpoint, from admission to its answer.
#[derive(Debug)]
pub struct RequestContext<'a> {
    /// The agent that the path names.
    pub agent: &'a str,
    /// Method, URI and headers.
    pub parts: &'a Parts,
    /// The request's id.
    pub request_id: &'a HeaderValue,
    /// The address of the client.
    pub client: ClientAddress,
    /// `Host` is not allowed, so that a valid credential is required.
    pub foreign_host: bool,
    /// The decision of the checks before the endpoint.
    pub admitted: Result<(), Fault>,
    /// Permits of the requests that are worked on.
    pub permits: &'a Semaphore,
    /// Reads the bodies of refused requests.
    pub refusals: &'a Refusals,
    /// What is known of the request so far.
    pub progress: Progress,
}

/// What is known of a request so far.
#[derive(Debug)]
pub struct Progress {
    began: Instant,
    pub(super) actor: Actor,
    pub(super) tenant: Option<TenantId>,
    pub(super) agent: Option<AgentId>,
    /// The quotas that the request counts against, once it is admitted.
    pub(super) quotas: Option<QuotaHolder>,
    /// The expiry of the presented key, where the answer must announce it.
    pub(super) key_expires: Option<OffsetDateTime>,
    pub(super) client: Option<ClientName>,
    pub(super) protocol: Option<&'static str>,
    pub(super) session: Option<SessionUid>,
    pub(super) asked: Asked,
    /// The method in metrics.
    pub(super) label: MethodLabel,
    pub(super) era: Era,
    pub(super) awaits_body: bool,
    pub(super) bytes_in: u64,
    pub(super) outcome: Outcome,
    /// The messages of a batch that are answered.
    pub(super) members: Vec<Member>,
}

/// The quotas that a request counts against: those of the agent that its event names, and of the tenant.
#[derive(Debug, Clone)]
pub(super) struct QuotaHolder {
    limits: Arc<AccessLimits>,
    /// Whether the credential is one of the agent or its tenant.
    own: bool,
}

impl QuotaHolder {
    pub(super) fn of(&self, event: &Event) -> Option<QuotaSubject<'_>> {
        let (agent, tenant) = (event.agent?, event.tenant?);
        Some(QuotaSubject { agent, tenant, limits: &self.limits, own: self.own })
    }
}

/// What one message asks for, as the audit log names it.
#[derive(Debug, Clone, Default)]
pub(super) struct Asked {
    /// Borrowed for a method of the table; `None` where none could be read.
    pub(super) method: Option<Cow<'static, str>>,
    pub(super) subject: Option<Box<str>>,
}

/// An answered message of a batch.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) asked: Asked,
    pub(super) outcome: Outcome,
    pub(super) bytes_out: u64,
}

impl Asked {
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

impl Default for Progress {
    fn default() -> Self {
        Self {
            began: Instant::now(),
            actor: Actor::default(),
            tenant: None,
            agent: None,
            quotas: None,
            key_expires: None,
            client: None,
            protocol: None,
            session: None,
            asked: Asked::default(),
            label: MethodLabel::Other,
            era: Era::Legacy,
            awaits_body: false,
            bytes_in: 0,
            outcome: Outcome::Ok,
            members: Vec::new(),
        }
    }
}

impl Progress {
    /// The time since the request arrived.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Records the caller of an agent that may use it.
    pub(super) fn admitted(&mut self, caller: &Caller) {
        span::record_tenant(caller.tenant);
        (self.tenant, self.agent) = (Some(caller.tenant), Some(caller.agent));
        let own = caller.is_own();
        self.quotas = Some(QuotaHolder { limits: Arc::clone(&caller.limits), own });
    }

    /// Records the grant of the presented credential, `None` where none was presented.
    pub(super) fn identified(&mut self, grant: Option<&Grant>, now: impl FnOnce() -> OffsetDateTime) {
        self.actor = grant.map_or_else(Actor::anybody, Actor::from);
        self.key_expires = key_expiry::soon(grant, now);
    }

    /// The labels of the request in metrics.
    pub(super) fn labels(&self) -> RequestLabels {
        RequestLabels { method: self.label, era: self.era, outcome: Some(self.outcome) }
    }

    /// Records that the body is read.
    pub(super) fn body(&mut self, length: usize) {
        self.awaits_body = false;
        self.bytes_in = length as u64;
    }

    /// Records the method and the era that metrics count the request under.
    pub(super) fn classified(&mut self, label: MethodLabel, era: Era) {
        span::record_method(label.as_str());
        (self.label, self.era) = (label, era);
    }

    /// Records what is asked for, and by which client, as far as one message says so.
    pub(super) fn read(&mut self, incoming: &Incoming<'_>, version: Option<ProtocolVersion>) {
        self.protocol = version.map(ProtocolVersion::as_str);
        let Incoming::Message(message) = incoming else { return };
        self.asked = Asked::of(message);
        let info = match message {
            Message::Request(request) => request.params.meta().get(META_CLIENT_INFO),
            Message::Notification { .. } | Message::Response => None,
        };
        self.client = info.and_then(ClientInfo::read).map(|info| ClientName::new(&info.name, &info.version));
    }

    /// Records the session that the request belongs to.
    pub(super) fn session(&mut self, session: &Session) {
        self.session = Some(session.uid);
        self.client = Some(ClientName::new(&session.client_name, &session.client_version));
        self.protocol = ProtocolVersion::parse(&session.version).map(ProtocolVersion::as_str);
    }

    /// Records the session that the request opened.
    pub(super) fn opened(&mut self, session: SessionUid, version: ProtocolVersion, client: &ClientInfo<'_>) {
        self.session = Some(session);
        self.client = Some(ClientName::new(&client.name, &client.version));
        self.protocol = Some(version.as_str());
    }

    /// Records a failure.
    pub(super) fn failed(&mut self, outcome: Outcome, era: Era) {
        (self.outcome, self.era) = (outcome, era);
    }

    /// Records the answer to a message of a batch.
    pub(super) fn member(&mut self, asked: Asked, outcome: Outcome, bytes_out: usize) {
        self.members.push(Member { asked, outcome, bytes_out: bytes_out as u64 });
    }
}

impl RequestContext<'_> {
    /// The request's id as text.
    pub(super) fn request_id(&self) -> &str {
        self.request_id.to_str().unwrap_or_default()
    }

    /// Whether the body is still awaited.
    pub fn is_awaiting_body(&self) -> bool {
        self.progress.awaits_body
    }
}
