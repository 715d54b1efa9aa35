//! `POST /{agent_id}/mcp`: from a request to an answer, by way of the dialect that it is written in.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response};
use hyper::body::Incoming as IncomingBody;
use tokio_util::sync::CancellationToken;

use super::accept;
use super::conversation::Within;
use super::costs::Costs;
use super::era::{self, Era, VersionSource};
use super::headers::McpHeaders;
use super::modern::decode::{self as modern_decode, ModernMessage, ModernMethod};
use super::modern::encode as modern_encode;
use super::performer::{Dialect, Performer, around};
use super::reply::{Reply, accepted, fail, method_not_allowed, no_content, ok, refuse};
use super::streams::Streams;
use super::trail::Trail;
use super::version::ProtocolVersion;
use super::wire::{Incoming, Rejected, parse, result_pieces};
use crate::audit::Audit;
use crate::feed::Feed;
use crate::http::body::{self, Body};
use crate::http::credential::{self, Presented};
use crate::http::cursor::CursorSeal;
use crate::http::key_expiry::KeyExpiry;
use crate::http::limits::{Admission, Limits, Standing};
use crate::model::audit::event::ActorKind;
use crate::model::fault::Fault;
use crate::model::key::KeyHash;
use crate::model::session::{Session, SessionId};
use crate::registry::Registry;
use crate::registry::access::{Caller, Shown};
use crate::usage::{Holders, UsageBook};

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
    pub(super) audit: Arc<Audit>,
    limits: Arc<Limits>,
    pub(super) usage: Arc<UsageBook>,
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
    /// Where it is noted that the key which it shows expires.
    pub expiry: &'a KeyExpiry,
    /// What was decided before it came here.
    pub admitted: Result<(), Fault>,
    /// What the audit log will say of it.
    pub trail: Trail,
}

/// What the surfaces stand on.
#[derive(Debug, Clone)]
pub struct Grounds {
    /// The use cases.
    pub registry: Arc<Registry>,
    /// What changes.
    pub feed: Arc<Feed>,
    /// The audit log.
    pub audit: Arc<Audit>,
    /// How much may be asked for.
    pub limits: Arc<Limits>,
    /// How much was.
    pub usage: Arc<UsageBook>,
}

impl Endpoint {
    /// Builds the endpoints over the registry. Their streams end with `closing`.
    pub fn new(
        grounds: Grounds,
        (seal, operator): (CursorSeal, KeyHash),
        options: EndpointOptions,
        closing: CancellationToken,
    ) -> Self {
        let Grounds { registry, feed, audit, limits, usage } = grounds;
        let streams = Streams::new(options.streams_per_key, options.streams);
        let performer = Performer::new(registry, seal, options.result_bytes);
        Self { performer, feed, streams, audit, limits, usage, options, closing, operator }
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
            Ok(body) => {
                arrival.trail.body(body.len());
                self.converse(arrival, &caller, &admission, &body).await
            }
            Err(fault) => fail(arrival, &fault),
        }
    }

    /// Answers `GET` and `DELETE`, which only a session has.
    async fn without_message(&self, arrival: &Arrival<'_>, body: &mut IncomingBody) -> Response<Body> {
        let headers = McpHeaders::read(&arrival.parts.headers);
        if era::is_modern(&headers) || !headers.session_id.is_present() {
            return method_not_allowed("POST");
        }
        let streams = arrival.parts.method == Method::GET && accept::wants_events(&arrival.parts.headers);
        if !streams && arrival.parts.method != Method::DELETE {
            return method_not_allowed("GET, POST, DELETE");
        }
        let answered = async {
            let caller = self.admit(arrival).await?;
            let admission = self.limits.admit(&caller, arrival.client)?;
            let session = self.session(&caller, &headers, &arrival.trail).await?;
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
    async fn session(
        &self,
        caller: &Caller,
        headers: &McpHeaders<'_>,
        trail: &Trail,
    ) -> Result<Arc<Session>, Fault> {
        let id = headers.session_id.value().and_then(SessionId::parse).ok_or(Fault::SessionNotFound)?;
        let session = self.performer.registry().session(caller, &id).await?;
        trail.session(&session);
        Ok(session)
    }

    /// Who asks, if he may. A credential that does not hold is charged to its address.
    async fn admit(&self, arrival: &Arrival<'_>) -> Result<Caller, Fault> {
        arrival.admitted.clone()?;
        self.audit.admit()?;
        let admitted = self.identify(arrival).await;
        if let Err(Fault::Unauthenticated | Fault::Forbidden) = &admitted {
            self.limits.charge_failure(arrival.client)?;
        }
        admitted.inspect(|caller| arrival.trail.admitted(caller))
    }

    async fn identify(&self, arrival: &Arrival<'_>) -> Result<Caller, Fault> {
        let presented = credential::read(&arrival.parts.headers, self.operator)?;
        let shown = match &presented {
            Presented::Operator => {
                arrival.trail.kind(ActorKind::Operator);
                return Err(Fault::Forbidden);
            }
            Presented::Nobody => {
                arrival.trail.kind(ActorKind::Anybody);
                Shown::Nobody
            }
            Presented::Key(key) => Shown::Key(key),
            Presented::Token(token) => Shown::Token(token, Some(arrival.agent)),
        };
        let registry = self.performer.registry();
        if !registry.remembers(&shown) {
            self.limits.check_address(arrival.client)?;
        }
        let grant = registry.identify(shown, arrival.client).await?;
        arrival.expiry.note(grant.as_deref(), registry.now());
        arrival.trail.identified(grant.as_deref());
        registry.admit(grant, arrival.agent).await
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
        if let Ok(incoming) = &incoming {
            arrival.trail.read(incoming, named_or(version, era));
        }
        let charged = self.charge(caller, admission, &incoming).await;
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

    /// Takes what a body costs from the rates and the quotas of whoever sends it.
    async fn charge(
        &self,
        caller: &Caller,
        admission: &Admission<'_>,
        incoming: &Result<Incoming<'_>, Rejected<'_>>,
    ) -> Result<Option<Standing>, Fault> {
        let standing = admission.charge(self.options.costs.of(incoming))?;
        if let Ok(incoming) = incoming {
            let holders = Holders { agent: caller.agent, tenant: caller.tenant, limits: &caller.limits };
            self.usage.take_calls(holders, Costs::calls(incoming)).await?;
        }
        Ok(standing)
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
            Era::Legacy(VersionSource::Session) => {
                match self.session(caller, headers, &reply.arrival.trail).await {
                    Ok(session) => {
                        let version = ProtocolVersion::parse(&session.version);
                        let version = version.unwrap_or(ProtocolVersion::NEWEST_LEGACY);
                        let within = Within { caller, version, session: Some(&session) };
                        self.legacy(within, incoming, &Reply { version: Some(version), ..reply }).await
                    }
                    Err(fault) => reply.fault(&fault),
                }
            }
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
}

/// The revision that a request names or, without a session, is taken to be in.
fn named_or(named: Option<ProtocolVersion>, era: Era) -> Option<ProtocolVersion> {
    match era {
        Era::Legacy(VersionSource::Sessionless(version)) => Some(version),
        _ => named,
    }
}
