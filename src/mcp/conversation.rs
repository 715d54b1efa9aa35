//! Messages of the legacy era answered: alone and in batches, in a session or without.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};

use super::endpoint::Endpoint;
use super::legacy::decode::{
    self as legacy_decode, Initialize, LegacyCall, LegacyMessage, LegacyMethod, SessionCall,
};
use super::performer::Dialect;
use super::reply::{Reply, accepted, ok};
use super::trail::{Asked, Trail};
use super::version::ProtocolVersion;
use super::wire::{
    Incoming, Message, Rejected, RequestId, batch_message, error_message, result_message, result_pieces,
};
use super::{accept, legacy};
use crate::http::body::Body;
use crate::model::fault::Fault;
use crate::model::session::Session;
use crate::registry::access::Caller;
use crate::registry::sessions::NewSession;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

/// Who speaks in the legacy era, in which revision, and in which session, if in any.
#[derive(Clone, Copy)]
pub(super) struct Within<'a> {
    pub(super) caller: &'a Caller,
    pub(super) version: ProtocolVersion,
    pub(super) session: Option<&'a Session>,
}

impl Endpoint {
    pub(super) async fn legacy(
        &self,
        within: Within<'_>,
        incoming: &Incoming<'_>,
        reply: &Reply<'_>,
    ) -> Response<Body> {
        if !accept::admits_json(&reply.arrival.parts.headers) {
            return reply.fault(&accept::NO_JSON);
        }
        match incoming {
            Incoming::Message(message) => match legacy_decode::decode(message) {
                Ok(LegacyMessage::Unanswered) => accepted(),
                Ok(LegacyMessage::Call(LegacyCall { id, method: LegacyMethod::Initialize(asked) })) => {
                    let opened =
                        Box::pin(self.initialize(within.caller, &asked, id, &reply.arrival.trail)).await;
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
        trail: &Trail,
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
        trail.opened(session.uid(), asked.version, &asked.client);
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
