//! `POST /{agent_id}/mcp`: from a request to an answer, by way of the dialect that it is written in.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Response};
use hyper::body::Incoming as IncomingBody;
use tokio_util::sync::CancellationToken;

use super::costs::Costs;
use super::counted::{EndpointStats, method_of};
use super::era::{self, Era, VersionSource};
use super::headers::McpHeaders;
use super::legacy::decode::{
    self as legacy_decode, Initialize, LegacyCall, LegacyMessage, LegacyMethod, SessionCall,
};
use super::modern::decode::{self as modern_decode, ModernMessage, ModernMethod};
use super::modern::encode as modern_encode;
use super::performer::{Dialect, Performer, around};
use super::reply::{Reply, accepted, fail, method_not_allowed, no_content, ok, refuse};
use super::streams::Streams;
use super::version::ProtocolVersion;
use super::wire::{
    Incoming, Message, Rejected, RequestId, batch_message, error_message, parse, result_message,
    result_pieces,
};
use super::{accept, legacy};
use crate::feed::Feed;
use crate::http::body::{self, Body};
use crate::http::credential::{self, Presented};
use crate::http::cursor::CursorSeal;
use crate::http::limits::{Admission, Limits};
use crate::http::meter::Noted;
use crate::model::fault::Fault;
use crate::model::key::KeyHash;
use crate::model::session::{Session, SessionId};
use crate::registry::Registry;
use crate::registry::access::Caller;
use crate::registry::sessions::NewSession;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// The bounds of the endpoint.
#[derive(Debug, Clone)]
pub struct EndpointOptions {
    /// Most bytes of a body.
    pub body_bytes: usize,
    /// Bytes of encoded results held in memory.
    pub result_bytes: u64,
    /// For how long a modern client may take a result for fresh.
    pub ttl: Duration,
    /// How long a body may take to arrive.
    pub patience: Duration,
    /// How often a stream without news gives a sign of life.
    pub keep_alive: Duration,
    /// Most streams of one key, and of one address without a key.
    pub streams_per_key: usize,
    /// Most streams of the replica.
    pub streams: usize,
    /// Most URIs that one stream is told of.
    pub uris_per_stream: usize,
    /// What a request takes of what one may use.
    pub costs: Costs,
}

/// The MCP endpoints of all agents.
#[derive(Debug)]
pub struct Endpoint {
    pub(super) performer: Performer,
    pub(super) feed: Arc<Feed>,
    pub(super) streams: Streams,
    limits: Arc<Limits>,
    pub(super) options: EndpointOptions,
    /// Ends all streams.
    pub(super) closing: CancellationToken,
    operator: KeyHash,
}

/// A request at the door.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// The agent that the path names.
    pub agent: &'a str,
    /// Method and headers.
    pub parts: &'a Parts,
    /// The request's id.
    pub request_id: &'a HeaderValue,
    /// Who is at the other end.
    pub client: IpAddr,
    /// What was decided before it came here.
    pub admitted: Result<(), Fault>,
    /// What it turns out to be, for those who count.
    pub noted: &'a Noted,
}

impl Endpoint {
    /// Builds the endpoints over the registry. Their streams end with `closing`.
    pub fn new(
        registry: Arc<Registry>,
        feed: Arc<Feed>,
        (seal, operator): (CursorSeal, KeyHash),
        limits: Arc<Limits>,
        options: EndpointOptions,
        closing: CancellationToken,
    ) -> Self {
        let streams = Streams::new(options.streams_per_key, options.streams);
        let performer = Performer::new(registry, seal, options.result_bytes);
        Self { performer, feed, streams, limits, options, closing, operator }
    }

    /// What the endpoints hold, in numbers.
    pub fn stats(&self) -> EndpointStats {
        EndpointStats { results: self.performer.results(), streams: self.streams.stats() }
    }

    /// Answers a request.
    pub async fn answer(&self, arrival: &Arrival<'_>, body: &mut IncomingBody) -> Response<Body> {
        if arrival.parts.method != Method::POST && arrival.admitted.is_ok() {
            return Box::pin(self.without_message(arrival, body)).await;
        }
        let caller = match self.admit_message(arrival).await {
            Ok(caller) => caller,
            Err(fault) => return Box::pin(refuse(arrival, &fault, body)).await,
        };
        let admission = match self.limits.admit(&caller, arrival.client) {
            Ok(admission) => admission,
            Err(fault) => return Box::pin(refuse(arrival, &fault, body)).await,
        };
        match body::read(body, self.options.body_bytes, self.options.patience).await {
            Ok(body) => self.converse(arrival, &caller, &admission, &body).await,
            Err(fault) => fail(arrival, &fault),
        }
    }

    /// Answers `GET` and `DELETE`, which only a session has.
    async fn without_message(&self, arrival: &Arrival<'_>, body: &mut IncomingBody) -> Response<Body> {
        let headers = McpHeaders::read(&arrival.parts.headers);
        let modern = era::is_modern(&headers);
        arrival.noted.asks(arrival.parts.method.as_str(), modern);
        if modern || !headers.session_id.is_present() {
            return method_not_allowed("POST");
        }
        let streams = arrival.parts.method == Method::GET && accept::wants_events(&arrival.parts.headers);
        if !streams && arrival.parts.method != Method::DELETE {
            return method_not_allowed("GET, POST, DELETE");
        }
        let answered = async {
            let caller = self.admit(arrival).await?;
            let admission = self.limits.admit(&caller, arrival.client)?;
            let session = self.session(&caller, &headers).await?;
            let costs = &self.options.costs;
            let standing = admission.charge(if streams { costs.stream } else { costs.other })?;
            let mut response = if streams {
                self.stream(arrival, caller, &session).await?
            } else {
                self.performer.registry().end_session(&session).await.map(|()| no_content())?
            };
            standing.inspect(|standing| standing.tell(response.headers_mut()));
            Ok(response)
        };
        match answered.await {
            Ok(response) => response,
            Err(fault) => refuse(arrival, &fault, body).await,
        }
    }

    async fn admit_message(&self, arrival: &Arrival<'_>) -> Result<Caller, Fault> {
        let caller = self.admit(arrival).await?;
        let headers = &arrival.parts.headers;
        accept::check_content_type(headers)?;
        accept::check_accept(headers)?;
        Ok(caller)
    }

    /// The session that the headers name, if it is the caller's.
    async fn session(&self, caller: &Caller, headers: &McpHeaders<'_>) -> Result<Arc<Session>, Fault> {
        let id = headers.session_id.value().and_then(SessionId::parse).ok_or(Fault::SessionNotFound)?;
        self.performer.registry().session(caller, &id).await
    }

    /// Who asks, if he may. A credential that does not hold is charged to its address.
    async fn admit(&self, arrival: &Arrival<'_>) -> Result<Caller, Fault> {
        arrival.admitted.clone()?;
        let admitted = self.identify(arrival).await;
        if let Err(Fault::Unauthenticated | Fault::Forbidden) = &admitted {
            self.limits.charge_failure(arrival.client)?;
        }
        admitted
    }

    async fn identify(&self, arrival: &Arrival<'_>) -> Result<Caller, Fault> {
        let registry = self.performer.registry();
        match credential::read(&arrival.parts.headers, self.operator)? {
            Presented::Operator => Err(Fault::Forbidden),
            Presented::Nobody => {
                self.limits.check_address(arrival.client)?;
                registry.admit(None, arrival.agent).await
            }
            Presented::Key(key) => {
                if !registry.remembers(&key) {
                    self.limits.check_address(arrival.client)?;
                }
                registry.admit(Some(&key), arrival.agent).await
            }
        }
    }

    async fn converse(
        &self,
        arrival: &Arrival<'_>,
        caller: &Caller,
        admission: &Admission<'_>,
        body: &[u8],
    ) -> Response<Body> {
        let headers = McpHeaders::read(&arrival.parts.headers);
        let incoming = parse(body);
        let era = era::decide(&headers, &incoming);
        let version = era::named_version(&headers, &incoming);
        arrival.noted.asks(method_of(&incoming), era == Era::Modern);
        let charged = admission.charge(self.options.costs.of(&incoming));
        let (id, asked) = match (incoming, &charged) {
            (Ok(incoming), Ok(_)) => (incoming.id(), Ok(incoming)),
            (Ok(incoming), Err(fault)) => (incoming.id(), Err(fault.clone())),
            (Err(rejected), Err(fault)) => (rejected.id, Err(fault.clone())),
            (Err(rejected), Ok(_)) => (rejected.id, Err(rejected.fault)),
        };
        let reply = Reply { arrival, era, version, id };
        let mut response = match asked {
            Ok(incoming) => self.respond(caller, &headers, &incoming, reply).await,
            Err(fault) => reply.fault(&fault),
        };
        if let Ok(Some(standing)) = charged {
            standing.tell(response.headers_mut());
        }
        response
    }

    async fn respond(
        &self,
        caller: &Caller,
        headers: &McpHeaders<'_>,
        incoming: &Incoming<'_>,
        reply: Reply<'_>,
    ) -> Response<Body> {
        match reply.era {
            Era::Modern => self.modern(caller, headers, incoming, &reply).await,
            Era::Legacy(VersionSource::Session) => match self.session(caller, headers).await {
                Ok(session) => {
                    let version = ProtocolVersion::parse(&session.version);
                    let version = version.unwrap_or(ProtocolVersion::NEWEST_LEGACY);
                    let within = Within { caller, version, session: Some(&session) };
                    self.legacy(within, incoming, &Reply { version: Some(version), ..reply }).await
                }
                Err(fault) => reply.fault(&fault),
            },
            Era::Legacy(VersionSource::Sessionless(version)) => {
                self.legacy(Within { caller, version, session: None }, incoming, &reply).await
            }
            Era::Legacy(VersionSource::Negotiation) => {
                let version = ProtocolVersion::NEWEST_LEGACY;
                self.legacy(Within { caller, version, session: None }, incoming, &reply).await
            }
        }
    }

    async fn modern(
        &self,
        caller: &Caller,
        headers: &McpHeaders<'_>,
        incoming: &Incoming<'_>,
        reply: &Reply<'_>,
    ) -> Response<Body> {
        let call = match modern_decode::decode(headers, incoming) {
            Ok(ModernMessage::Call(call)) => call,
            Ok(ModernMessage::Notification) => return accepted(),
            Err(error) => return reply.error(&error.answer(reply.request_id())),
        };
        let headers = &reply.arrival.parts.headers;
        let result = match &call.method {
            ModernMethod::Listen(filter) => {
                let listening = Box::pin(self.listen(reply.arrival, caller, filter, call.id)).await;
                return listening.unwrap_or_else(|fault| reply.fault(&fault));
            }
            _ if !accept::admits_json(headers) => Err(accept::NO_JSON),
            ModernMethod::Discover => self.discover(caller).await,
            ModernMethod::Call(call) => {
                self.performer.perform(caller, call, Dialect::Modern { ttl: self.options.ttl }).await
            }
        };
        match result {
            Ok(result) => ok(result_pieces(call.id, result)),
            Err(fault) => reply.fault(&fault),
        }
    }

    async fn discover(&self, caller: &Caller) -> Result<Bytes, Fault> {
        let snapshot = self.performer.registry().snapshot(caller).await?;
        let mut out = Vec::new();
        modern_encode::discover(&mut out, around(caller, &snapshot, self.options.ttl))?;
        Ok(out.into())
    }

    async fn legacy(&self, within: Within<'_>, incoming: &Incoming<'_>, reply: &Reply<'_>) -> Response<Body> {
        if !accept::admits_json(&reply.arrival.parts.headers) {
            return reply.fault(&accept::NO_JSON);
        }
        match incoming {
            Incoming::Message(message) => match legacy_decode::decode(message) {
                Ok(LegacyMessage::Unanswered) => accepted(),
                Ok(LegacyMessage::Call(LegacyCall { id, method: LegacyMethod::Initialize(asked) })) => {
                    let opened = Box::pin(self.initialize(within.caller, &asked, id)).await;
                    opened.unwrap_or_else(|fault| reply.fault(&fault))
                }
                Ok(LegacyMessage::Call(call)) => match self.call(within, &call).await {
                    Ok(result) => ok(result_pieces(call.id, result)),
                    Err(fault) => reply.fault(&fault),
                },
                Err(fault) => reply.fault(&fault),
            },
            Incoming::Batch(members) => match legacy_decode::batch(members, within.version) {
                Ok(messages) => Box::pin(self.batch(within, messages, reply)).await,
                Err(fault) => reply.fault(&fault),
            },
        }
    }

    /// Opens a session, whose id goes with the answer.
    async fn initialize(
        &self,
        caller: &Caller,
        asked: &Initialize<'_>,
        id: RequestId<'_>,
    ) -> Result<Response<Body>, Fault> {
        let registry = self.performer.registry();
        let snapshot = registry.snapshot(caller).await?;
        let new = NewSession {
            version: asked.version.as_str(),
            client_name: &asked.client.name,
            client_version: &asked.client.version,
            capabilities: asked.capabilities.get(),
        };
        let session = registry.open_session(caller, new).await?;
        // What is listed from now on, on any replica, is not older than what the session is told of.
        self.feed.settled_head(caller.agent).await?;
        let mut result = Vec::new();
        legacy::encode::initialize(&mut result, asked.version, &snapshot.description)?;
        let mut response = ok(result_pieces(id, result.into()));
        let mut session = HeaderValue::try_from(session.reveal())
            .map_err(|_| Fault::Internal("a session's id is no header".to_owned()))?;
        session.set_sensitive(true);
        response.headers_mut().insert(SESSION_ID, session);
        Ok(response)
    }

    async fn call(&self, within: Within<'_>, call: &LegacyCall<'_>) -> Result<Bytes, Fault> {
        match &call.method {
            LegacyMethod::Ping => Ok(Bytes::from_static(legacy::encode::EMPTY)),
            LegacyMethod::InSession(method, call) => {
                let session = within.session.ok_or(Fault::SessionRequired(method))?;
                Box::pin(self.call_session(within.caller, session, call.clone()?)).await
            }
            LegacyMethod::Initialize(_) => Err(legacy_decode::initialize_in_batch()),
            LegacyMethod::Call(call) => {
                self.performer.perform(within.caller, call, Dialect::Legacy(within.version)).await
            }
        }
    }

    async fn call_session(
        &self,
        caller: &Caller,
        session: &Session,
        call: SessionCall,
    ) -> Result<Bytes, Fault> {
        let registry = self.performer.registry();
        match call {
            SessionCall::Subscribe(uri) => {
                registry.subscribe(caller, session, &uri).await?;
                // What is read from now on, on any replica, is not older than what the session is told of.
                self.feed.settled_head(caller.agent).await?;
            }
            SessionCall::Unsubscribe(uri) => registry.unsubscribe(session, &uri).await?,
            SessionCall::SetLevel(level) => registry.set_level(session, level).await?,
        }
        Ok(Bytes::from_static(legacy::encode::EMPTY))
    }

    async fn batch(
        &self,
        within: Within<'_>,
        messages: Vec<Result<Message<'_>, Rejected<'_>>>,
        reply: &Reply<'_>,
    ) -> Response<Body> {
        let mut answers = Vec::with_capacity(messages.len());
        for message in messages {
            let (id, result) = match message {
                Err(Rejected { fault, id, .. }) => (id, Err(fault)),
                Ok(message) => {
                    let id = match &message {
                        Message::Request(request) => Some(request.id),
                        Message::Notification { .. } | Message::Response => None,
                    };
                    match legacy_decode::decode(&message) {
                        Ok(LegacyMessage::Unanswered) => continue,
                        Ok(LegacyMessage::Call(call)) => (id, self.call(within, &call).await),
                        Err(fault) => (id, Err(fault)),
                    }
                }
            };
            answers.push(match (id, result) {
                (Some(id), Ok(result)) => result_message(id, &result),
                (id, Err(fault)) => error_message(id, reply.version, &reply.translate(&fault)),
                (None, Ok(_)) => continue,
            });
        }
        batch_message(&answers).map_or_else(accepted, |answers| ok(Body::from(answers)))
    }
}

/// Who speaks in the legacy era, in which revision, and in which session, if in any.
#[derive(Clone, Copy)]
struct Within<'a> {
    caller: &'a Caller,
    version: ProtocolVersion,
    session: Option<&'a Session>,
}
