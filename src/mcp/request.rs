//! A request to an MCP endpoint: its context, headers and permits, and the cost of its body by its methods.

use std::borrow::Cow;
use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use http::request::Parts;
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::tools;
use super::version::{McpHeaders, ProtocolVersion};
use super::wire::members::{META_CLIENT_INFO, META_TRACEPARENT, Members, text_of};
use super::wire::{Message, MessageBody, MethodName, Rejected, Request, message};
use crate::catalog::read::SourceUse;
use crate::config::Costs;
use crate::http::context::{BatchMessage, HiddenCheck, MethodLabel, RequestContext};
use crate::http::media_type;
use crate::http::refusals::{REFUSED_BODY, Refusals};
use crate::identity::grant::Caller;
use crate::model::audit::event::{ClientName, Outcome, named, subject};
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::ids::{SessionUid, Slug};
use crate::model::method::{CostClass, Era, Method};
use crate::model::session::Session;
use crate::quota::limits::RateLimitStatus;
use crate::telemetry::span;
use crate::telemetry::trace::{self, TraceContext};

/// A request to an MCP endpoint, from admission to its answer.
#[derive(Debug)]
pub struct McpRequest<'a> {
    /// The context of the request.
    pub context: RequestContext,
    /// The agent that the path names.
    pub agent: Cow<'a, str>,
    /// Method, URI and headers.
    pub parts: &'a Parts,
    /// The headers of MCP, until the message is dispatched.
    pub(super) headers: McpHeaders<'a>,
    /// The decision of the checks before the endpoint.
    pub prior_checks: Result<(), Fault>,
    /// Permits of the requests that are worked on.
    pub permits: &'a Semaphore,
    /// The permit of this one.
    pub(super) work: WorkInProgress<'a>,
    /// Reads the bodies of refused requests.
    pub refusals: &'a Refusals,
    /// The state of the caller's rates, once the request is charged. Every answer from then on has it.
    pub rate_limit: Option<RateLimitStatus>,
    /// Whether the body is still awaited.
    pub awaits_body: bool,
    /// The body, for the id of an answer to a failure; empty if it is not read, or too long for that.
    pub(super) received: Bytes,
}

impl AsMut<RequestContext> for McpRequest<'_> {
    fn as_mut(&mut self) -> &mut RequestContext {
        &mut self.context
    }
}

/// The permit of a request that is worked on, which all requests share. It is released while the request waits for a source.
/// Remembers the connection of the source.
#[derive(Debug, Default)]
pub(super) struct WorkInProgress<'a>(Mutex<(Option<SemaphorePermit<'a>>, Option<Slug>)>);

impl<'a> WorkInProgress<'a> {
    /// Holds a permit.
    pub(super) fn hold(&self, permit: SemaphorePermit<'a>) {
        self.0.lock().0 = Some(permit);
    }

    /// Releases it, if it is held.
    pub(super) fn release(&self) {
        drop(self.0.lock().0.take());
    }

    /// The first connection that content was taken from since the last call.
    pub(super) fn take_connection(&self) -> Option<Slug> {
        self.0.lock().1.take()
    }
}

impl SourceUse for WorkInProgress<'_> {
    fn takes_from(&self, connection: &Slug) {
        self.0.lock().1.get_or_insert_with(|| connection.clone());
    }

    fn before_wait(&self) {
        self.release();
    }
}

impl<'a> McpRequest<'a> {
    /// A request that arrives.
    pub fn new(
        (agent, parts, request_id): (Cow<'a, str>, &'a Parts, &HeaderValue),
        client: ClientAddress,
        (permits, refusals): (&'a Semaphore, &'a Refusals),
    ) -> Self {
        let counted = Some((MethodLabel::Other, Era::Legacy));
        let id = request_id.to_str().unwrap_or_default();
        let method = http_method(&parts.method);
        let mut context = RequestContext::new(id, client, method, counted);
        context.event.slug = Some(named(&agent));
        let headers = McpHeaders::read(&parts.headers);
        Self {
            context,
            agent,
            parts,
            headers,
            prior_checks: Ok(()),
            permits,
            work: WorkInProgress::default(),
            refusals,
            rate_limit: None,
            awaits_body: false,
            received: Bytes::new(),
        }
    }

    /// The request's id as text.
    pub(super) fn request_id(&self) -> &str {
        &self.context.event.request
    }

    /// The address of the client.
    pub(super) fn client(&self) -> ClientAddress {
        self.context.event.client
    }

    /// Whether the client accepts JSON. The headers of MCP are no longer part of a request that is dispatched.
    pub(super) fn admits_json(&self, headers: &McpHeaders<'_>) -> bool {
        headers.accepts_usual || media_type::admits_json(&self.parts.headers)
    }

    /// Records the caller of an agent that may use it.
    pub(super) fn admitted(&mut self, caller: &Arc<Caller>) {
        span::record_tenant(caller.tenant);
        self.context.admitted(caller);
    }

    /// Records that the body is read.
    pub(super) fn body(&mut self, body: &Bytes) {
        self.awaits_body = false;
        self.context.event.bytes_in = body.len() as u64;
        if body.len() <= REFUSED_BODY {
            self.received = body.clone();
        }
    }

    /// Records the method and the era that metrics count the request under.
    pub(super) fn classified(&mut self, label: MethodLabel, era: Era) {
        span::record_method(label.as_str());
        self.context.counted = Some((label, era));
    }

    /// Records the method, subject and client of a message, as far as the message contains them.
    pub(super) fn read(&mut self, incoming: &MessageBody<'_>, version: Option<ProtocolVersion>) {
        let event = &mut self.context.event;
        event.protocol = version.map(ProtocolVersion::as_str);
        let MessageBody::Message(message) = incoming else { return };
        (event.method, event.subject) = asked(message);
        let Message::Request(request) = message else {
            event.client_name = None;
            return;
        };
        let meta = request.params.meta();
        // SEP-414: before the header, which a proxy may have set.
        let caller = meta.get(META_TRACEPARENT).and_then(text_of);
        if let Some(caller) = caller.and_then(|text| TraceContext::parse(text.as_bytes())) {
            event.trace = Some(caller.trace.to_be_bytes());
            trace::adopt(caller);
        }
        trace::record_request(request.id.as_json());
        let info = meta.get(META_CLIENT_INFO);
        event.client_name =
            info.and_then(ClientInfo::read).map(|info| ClientName::new(&info.name, &info.version));
    }

    /// Records the session that the request belongs to.
    pub(super) fn session(&mut self, session: &Session) {
        let event = &mut self.context.event;
        event.session = Some(session.uid);
        event.client_name = Some(ClientName::new(&session.client_name, &session.client_version));
        event.protocol = ProtocolVersion::parse(&session.version).map(ProtocolVersion::as_str);
    }

    /// Records the session that the request opened.
    pub(super) fn opened(&mut self, session: SessionUid, version: ProtocolVersion, client: &ClientInfo<'_>) {
        let event = &mut self.context.event;
        event.session = Some(session);
        event.client_name = Some(ClientName::new(&client.name, &client.version));
        event.protocol = Some(version.as_str());
    }

    /// Records a failure.
    pub(super) fn failed(&mut self, outcome: Outcome, era: Era) {
        self.context.event.outcome = outcome;
        if let Some((_, counted)) = &mut self.context.counted {
            *counted = era;
        }
    }

    /// Records the answer to a message of a batch; `None` for one that could not be read. `hidden` finds out whether
    /// it was refused since what it names is hidden.
    pub(super) fn answered(
        &mut self,
        message: Option<&Message<'_>>,
        (outcome, hidden): (Outcome, Option<HiddenCheck>),
        bytes_out: usize,
    ) {
        let (method, subject) = message.map(asked).unzip();
        let (subject, bytes_out) = (subject.flatten(), bytes_out as u64);
        let connection = self.work.take_connection();
        self.context.messages.push(BatchMessage { method, subject, connection, outcome, bytes_out, hidden });
    }
}

/// The method and subject of a message, as the audit log names them. The name is borrowed for a method of the table.
fn asked(message: &Message<'_>) -> (Cow<'static, str>, Option<Box<str>>) {
    match message {
        Message::Request(request) => {
            let method = match &request.method {
                MethodName::Known(method) => Cow::Borrowed(method.name()),
                MethodName::Unknown(name) => Cow::Owned(named(name).into()),
            };
            let text = match request.method.known() {
                Some(Method::CallTool) => tools::subject_of(&request.params),
                method => method
                    .and_then(Method::subject)
                    .and_then(|name| request.params.string(name).ok().flatten()),
            };
            (method, text.map(|text| subject(&text)))
        }
        Message::Notification { method, .. } => (Cow::Owned(named(method).into()), None),
        Message::Response => (Cow::Borrowed("response"), None),
    }
}

fn http_method(method: &http::Method) -> Cow<'static, str> {
    match *method {
        http::Method::POST => Cow::Borrowed("POST"),
        http::Method::GET => Cow::Borrowed("GET"),
        http::Method::DELETE => Cow::Borrowed("DELETE"),
        _ => Cow::Owned(named(method.as_str()).into()),
    }
}

/// Name and version as sent by the client: for logs and the audit log, never for decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientInfo<'a> {
    /// Its name.
    pub name: Cow<'a, str>,
    /// Its version.
    pub version: Cow<'a, str>,
}

impl<'a> ClientInfo<'a> {
    /// Reads an `Implementation` of the specification; `None` if it is none.
    pub fn read(raw: &'a RawValue) -> Option<Self> {
        let members = Members::read(raw.get()).ok()?;
        Some(Self { name: text_of(members.get("name")?)?, version: text_of(members.get("version")?)? })
    }
}

/// The label of a body in metrics.
pub(super) fn label_of(incoming: Result<&MessageBody<'_>, &Rejected<'_>>) -> MethodLabel {
    match incoming {
        Ok(MessageBody::Message(Message::Request(request))) => request.method.known().into(),
        Ok(MessageBody::Batch(_)) => MethodLabel::Batch,
        Ok(MessageBody::Message(_)) | Err(_) => MethodLabel::Other,
    }
}

/// The costs of requests to MCP endpoints, computed from the settings once.
#[derive(Debug, Clone)]
pub struct RequestCosts {
    /// By [`CostClass`].
    by_class: [u32; CostClass::ALL.len()],
    /// The lowest cost of a request that is not free.
    pub(super) least: Option<NonZeroU32>,
}

impl From<&Costs> for RequestCosts {
    fn from(costs: &Costs) -> Self {
        Self { by_class: CostClass::ALL.map(|class| costs.of(class)), least: costs.least() }
    }
}

impl RequestCosts {
    /// The cost of a request of this class.
    pub(super) fn of_class(&self, class: CostClass) -> u32 {
        self.by_class[class as usize]
    }

    /// The cost of every other request: of an unknown method, of a notification, of one that is refused for its body.
    pub(super) fn other(&self) -> u32 {
        self.of_class(CostClass::Other)
    }

    /// The cost of a body, by its era and its methods alone; of a batch, the sum of its members, unless its era has none.
    pub(super) fn of(&self, era: Era, incoming: &Result<MessageBody<'_>, Rejected<'_>>) -> u32 {
        let cost = |message: &Message<'_>| match message {
            Message::Request(request) => self.of_class(class_of(request, era)),
            Message::Notification { .. } | Message::Response => self.other(),
        };
        match incoming {
            Ok(MessageBody::Message(message)) => cost(message),
            Ok(MessageBody::Batch(members)) if era == Era::Legacy => members
                .iter()
                .map(|member| message(member.get()).map_or(self.other(), |message| cost(&message)))
                .sum(),
            Ok(MessageBody::Batch(_)) | Err(_) => self.other(),
        }
    }
}

/// A method that the era lacks costs what an unknown one does: a legacy `server/discover` is not free.
fn class_of(request: &Request<'_>, era: Era) -> CostClass {
    match request.method.known() {
        Some(method) if !method.exists_in(era) => CostClass::Other,
        Some(Method::CallTool) => tools::cost_of(&request.params),
        _ => request.method.cost(),
    }
}

/// The number of requests in a body. Notifications, responses and discovery do not count.
pub(super) fn calls_of(era: Era, incoming: &MessageBody<'_>) -> u32 {
    let one = |message: &Message<'_>| match message {
        Message::Request(request) => u32::from(class_of(request, era).takes_quota()),
        Message::Notification { .. } | Message::Response => 0,
    };
    match incoming {
        MessageBody::Message(message) => one(message),
        MessageBody::Batch(members) => {
            members.iter().map(|member| message(member.get()).map_or(1, |message| one(&message))).sum()
        }
    }
}
