//! `POST /{agent_id}/mcp`: from a request to an answer, by way of the dialect that it is written in.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};
use hyper::body::Incoming as IncomingBody;

use super::era::{self, Era, VersionSource};
use super::error::RpcError;
use super::headers::McpHeaders;
use super::legacy::decode::{self as legacy_decode, LegacyCall, LegacyMessage, LegacyMethod};
use super::modern::decode::{self as modern_decode, ModernMessage, ModernMethod};
use super::modern::encode as modern_encode;
use super::modern::error::ModernError;
use super::performer::{Dialect, Performer, around};
use super::version::ProtocolVersion;
use super::wire::{
    Incoming, Message, Rejected, RequestId, batch_message, error_message, parse, result_message,
    result_pieces,
};
use super::{accept, legacy};
use crate::http::body::{self, Body};
use crate::http::challenge;
use crate::http::credential::{self, Presented};
use crate::http::cursor::CursorSeal;
use crate::model::fault::Fault;
use crate::model::key::KeyHash;
use crate::registry::Registry;
use crate::registry::access::Caller;

/// What is read of a refused request, to answer with its id.
const REFUSED_BODY: usize = 64 * 1024;
const REFUSED_PATIENCE: Duration = Duration::from_secs(1);

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
}

/// The MCP endpoints of all agents.
#[derive(Debug)]
pub struct Endpoint {
    performer: Performer,
    operator: KeyHash,
    options: EndpointOptions,
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
    /// What was decided before it came here.
    pub admitted: Result<(), Fault>,
}

impl Endpoint {
    /// Builds the endpoints over the registry.
    pub fn new(
        registry: Arc<Registry>,
        seal: CursorSeal,
        operator: KeyHash,
        options: EndpointOptions,
    ) -> Self {
        Self { performer: Performer::new(registry, seal, options.result_bytes), operator, options }
    }

    /// Answers a request.
    pub async fn answer(&self, arrival: &Arrival<'_>, body: &mut IncomingBody) -> Response<Body> {
        if arrival.parts.method != Method::POST && arrival.admitted.is_ok() {
            return method_not_allowed();
        }
        let caller = match self.admit(arrival).await {
            Ok(caller) => caller,
            Err(fault) => return Box::pin(refuse(arrival, &fault, body)).await,
        };
        match body::read(body, self.options.body_bytes, self.options.patience).await {
            Ok(body) => self.converse(arrival, &caller, &body).await,
            Err(fault) => fail(arrival, &fault),
        }
    }

    async fn admit(&self, arrival: &Arrival<'_>) -> Result<Caller, Fault> {
        arrival.admitted.clone()?;
        let headers = &arrival.parts.headers;
        let caller = match credential::read(headers, self.operator)? {
            Presented::Operator => return Err(Fault::Forbidden),
            Presented::Nobody => self.performer.registry().admit(None, arrival.agent).await?,
            Presented::Key(key) => self.performer.registry().admit(Some(&key), arrival.agent).await?,
        };
        accept::check_content_type(headers)?;
        accept::check_accept(headers)?;
        Ok(caller)
    }

    async fn converse(&self, arrival: &Arrival<'_>, caller: &Caller, body: &[u8]) -> Response<Body> {
        let headers = McpHeaders::read(&arrival.parts.headers);
        let incoming = parse(body);
        let era = era::decide(&headers, &incoming);
        let version = era::named_version(&headers, &incoming);
        let reply = |id| Reply { arrival, era, version, id };
        let incoming = match incoming {
            Ok(incoming) => incoming,
            Err(Rejected { fault, id, .. }) => return reply(id).fault(&fault),
        };
        let reply = reply(incoming.id());
        match era {
            Era::Modern => self.modern(caller, &headers, &incoming, &reply).await,
            Era::Legacy(VersionSource::Session) => reply.fault(&Fault::SessionNotFound),
            Era::Legacy(VersionSource::Sessionless(version)) => {
                self.legacy(caller, &incoming, version, &reply).await
            }
            Era::Legacy(VersionSource::Negotiation) => {
                self.legacy(caller, &incoming, ProtocolVersion::NEWEST_LEGACY, &reply).await
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
        let result = match &call.method {
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

    async fn legacy(
        &self,
        caller: &Caller,
        incoming: &Incoming<'_>,
        version: ProtocolVersion,
        reply: &Reply<'_>,
    ) -> Response<Body> {
        match incoming {
            Incoming::Message(message) => match legacy_decode::decode(message) {
                Ok(LegacyMessage::Unanswered) => accepted(),
                Ok(LegacyMessage::Call(call)) => match self.call(caller, &call, version).await {
                    Ok(result) => ok(result_pieces(call.id, result)),
                    Err(fault) => reply.fault(&fault),
                },
                Err(fault) => reply.fault(&fault),
            },
            Incoming::Batch(members) => match legacy_decode::batch(members, version) {
                Ok(messages) => Box::pin(self.batch(caller, messages, version, reply)).await,
                Err(fault) => reply.fault(&fault),
            },
        }
    }

    async fn call(
        &self,
        caller: &Caller,
        call: &LegacyCall<'_>,
        version: ProtocolVersion,
    ) -> Result<Bytes, Fault> {
        match &call.method {
            LegacyMethod::Ping => Ok(Bytes::from_static(legacy::encode::EMPTY)),
            LegacyMethod::SessionOnly(method) => Err(Fault::SessionRequired(method)),
            LegacyMethod::Initialize(asked) => {
                let snapshot = self.performer.registry().snapshot(caller).await?;
                let mut out = Vec::new();
                legacy::encode::initialize(&mut out, asked.version, &snapshot.description)?;
                Ok(out.into())
            }
            LegacyMethod::Call(call) => self.performer.perform(caller, call, Dialect::Legacy(version)).await,
        }
    }

    async fn batch(
        &self,
        caller: &Caller,
        messages: Vec<Result<Message<'_>, Rejected<'_>>>,
        version: ProtocolVersion,
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
                        Ok(LegacyMessage::Call(call)) => (id, self.call(caller, &call, version).await),
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

/// How a request is answered when it fails: in its dialect, with its id.
struct Reply<'a> {
    arrival: &'a Arrival<'a>,
    era: Era,
    version: Option<ProtocolVersion>,
    id: Option<RequestId<'a>>,
}

impl<'a> Reply<'a> {
    /// For a request of which only so much is known.
    fn new(arrival: &'a Arrival<'a>, headers: &McpHeaders<'_>, body: &'a [u8]) -> Self {
        let incoming = parse(body);
        let (era, version) = (era::decide(headers, &incoming), era::named_version(headers, &incoming));
        let id = match incoming {
            Ok(incoming) => incoming.id(),
            Err(rejected) => rejected.id,
        };
        Self { arrival, era, version, id }
    }

    fn request_id(&self) -> &'a str {
        self.arrival.request_id.to_str().unwrap_or_default()
    }

    fn translate(&self, fault: &Fault) -> RpcError {
        if let Fault::Internal(detail) = fault {
            let request_id = self.request_id();
            tracing::error!(request_id, detail, "a request failed by a fault of the gateway");
        }
        match self.era {
            Era::Modern => ModernError::from(fault.clone()).answer(self.request_id()),
            Era::Legacy(_) => legacy::error::answer(fault, self.request_id()),
        }
    }

    fn fault(&self, fault: &Fault) -> Response<Body> {
        let mut response = self.error(&self.translate(fault));
        if let Some(challenge) = challenge::of(fault) {
            response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
        }
        response
    }

    fn error(&self, error: &RpcError) -> Response<Body> {
        let mut response = ok(Body::from(error_message(self.id, self.version, error)));
        *response.status_mut() = error.status;
        if let Some(wait) = error.retry_after {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(wait.as_secs().max(1)));
        }
        response
    }
}

/// Answers a request that failed without its body being read.
pub fn fail(arrival: &Arrival<'_>, fault: &Fault) -> Response<Body> {
    Reply::new(arrival, &McpHeaders::read(&arrival.parts.headers), b"").fault(fault)
}

/// Refuses a request before its body was wanted; the id is read all the same, as far as that is quickly done.
async fn refuse(arrival: &Arrival<'_>, fault: &Fault, body: &mut IncomingBody) -> Response<Body> {
    let body = body::read(body, REFUSED_BODY, REFUSED_PATIENCE).await.unwrap_or_default();
    Reply::new(arrival, &McpHeaders::read(&arrival.parts.headers), &body).fault(fault)
}

fn ok(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

fn method_not_allowed() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
    response
}
