//! From a body that was let in to its answer: parsed, charged, and handed to the dialect that it is written in.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};

use super::counted::label_of;
use super::endpoint::{Arrival, Endpoint};
use super::era::{self, RequestEra, VersionSource};
use super::headers::McpHeaders;
use super::legacy::decode::{
    self as legacy_decode, Initialize, LegacyCall, LegacyMessage, LegacyMethod, SessionCall,
};
use super::modern::decode::{self as modern_decode, ModernMessage, ModernMethod};
use super::modern::encode as modern_encode;
use super::performer::{Dialect, around};
use super::reply::{Reply, accepted, ok};
use super::trail::Asked;
use super::version::ProtocolVersion;
use super::wire::{
    Incoming, Message, Rejected, RequestId, batch_message, error_message, parse, result_message,
    result_pieces,
};
use super::{accept, costs, legacy};
use crate::http::body::Body;
use crate::http::limits::{Admission, Standing};
use crate::model::fault::Fault;
use crate::model::session::Session;
use crate::registry::access::Caller;
use crate::registry::sessions::NewSession;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

impl Endpoint {
    /// Answers the body of a caller.
    pub(super) async fn converse(
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
        arrival.noted.asks(label_of(&incoming), era.era());
        if let Ok(incoming) = &incoming {
            arrival.trail.read(incoming, named_or(version, era));
        }
        let charged = self.charge(caller, admission, &incoming).await;
        let id = incoming.as_ref().map_or_else(|rejected| rejected.id, Incoming::id);
        let version = match (&incoming, &charged, era) {
            // What cannot be read is answered in the revision of the session that it was sent in.
            (Err(_), Ok(_), RequestEra::Legacy(VersionSource::Session)) => {
                let session = Box::pin(self.session(caller, &headers, &arrival.trail)).await.ok();
                session.and_then(|session| ProtocolVersion::parse(&session.version)).or(version)
            }
            _ => version,
        };
        let reply = Reply { arrival, era, version, id };
        let mut response = match (&incoming, &charged) {
            (_, Err(fault)) => reply.fault(fault),
            (Err(rejected), Ok(_)) => reply.fault(&rejected.fault),
            (Ok(incoming), Ok(_)) => self.respond(caller, &headers, incoming, reply).await,
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
        let standing = admission.charge(costs::of(&self.options.costs, incoming))?;
        if let Ok(incoming) = incoming {
            self.usage.take_calls(costs::holders(caller), costs::calls(incoming)).await?;
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
            RequestEra::Modern => self.modern(caller, headers, incoming, &reply).await,
            RequestEra::Legacy(VersionSource::Session) => {
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
            RequestEra::Legacy(VersionSource::Sessionless(version)) => {
                self.legacy(Within { caller, version, session: None }, incoming, &reply).await
            }
            RequestEra::Legacy(VersionSource::Negotiation) => {
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
        let call = match modern_decode::decode(headers, incoming, self.options.uris_per_stream) {
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
                    let opened = Box::pin(self.initialize(within.caller, &asked, id, reply.arrival)).await;
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
        arrival: &Arrival<'_>,
    ) -> Result<Response<Body>, Fault> {
        let registry = self.performer.registry();
        let snapshot = registry.snapshot(caller).await?;
        let new = NewSession {
            version: asked.version.as_str(),
            client_name: &asked.client.name,
            client_version: &asked.client.version,
            capabilities: asked.capabilities.get(),
        };
        let session = registry.open_session(caller, arrival.client, new).await?;
        // What is listed from now on, on any replica, is not older than what the session is told of.
        self.feed.settled_head(caller.agent).await?;
        arrival.trail.opened(session.id().uid(), asked.version, &asked.client);
        let mut result = Vec::new();
        legacy::encode::initialize(&mut result, asked.version, &snapshot.description)?;
        let mut response = ok(result_pieces(id, result.into()));
        let mut header = HeaderValue::try_from(session.id().reveal())
            .map_err(|_| Fault::Internal("a session's id is no header".to_owned()))?;
        header.set_sensitive(true);
        response.headers_mut().insert(SESSION_ID, header);
        Ok(response.map(|body| body.when_taken(move || drop(session.into_id()))))
    }

    async fn call(&self, within: Within<'_>, call: &LegacyCall<'_>) -> Result<Bytes, Fault> {
        match &call.method {
            LegacyMethod::Ping => Ok(Bytes::from_static(legacy::encode::EMPTY)),
            LegacyMethod::InSession(method, call) => {
                let session = within.session.ok_or(Fault::SessionRequired(method.name()))?;
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
            let trail = &reply.arrival.trail;
            let mut asked = Asked::default();
            let (id, result) = match message {
                Err(Rejected { fault, id, .. }) => (id, Err(fault)),
                Ok(message) => {
                    asked = Asked::of(&message);
                    let id = match &message {
                        Message::Request(request) => Some(request.id),
                        Message::Notification { .. } | Message::Response => None,
                    };
                    match legacy_decode::decode(&message) {
                        Ok(LegacyMessage::Unanswered) => {
                            trail.member(asked, None, 0);
                            continue;
                        }
                        Ok(LegacyMessage::Call(call)) => (id, self.call(within, &call).await),
                        Err(fault) => (id, Err(fault)),
                    }
                }
            };
            let outcome = result.as_ref().err().map(Fault::name);
            let answer = match (id, result) {
                (Some(id), Ok(result)) => result_message(id, &result),
                (id, Err(fault)) => error_message(id, reply.version, &reply.translate(&fault)),
                (None, Ok(_)) => continue,
            };
            trail.member(asked, outcome, answer.len());
            answers.push(answer);
        }
        batch_message(&answers).map_or_else(accepted, |answers| ok(Body::from(answers)))
    }
}

/// The revision that a request names or, without a session, is taken to be in.
fn named_or(named: Option<ProtocolVersion>, era: RequestEra) -> Option<ProtocolVersion> {
    match era {
        RequestEra::Legacy(VersionSource::Sessionless(version)) => Some(version),
        _ => named,
    }
}

/// Who speaks in the legacy era, in which revision, and in which session, if in any.
#[derive(Clone, Copy)]
struct Within<'a> {
    caller: &'a Caller,
    version: ProtocolVersion,
    session: Option<&'a Session>,
}
