//! Answers legacy requests: decodes their messages, and finds the session and the revision that they belong to.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};
use serde_json::value::RawValue;

use super::encode;
use crate::catalog::snapshot::AgentPart;
use crate::http::body::{Body, json_response};
use crate::http::media_type;
use crate::identity::grant::Caller;
use crate::mcp::call::{self, Call, uri};
use crate::mcp::call_handler::Dialect;
use crate::mcp::endpoint::Endpoint;
use crate::mcp::refusal::Refusal;
use crate::mcp::reply::{Reply, accepted};
use crate::mcp::request::{ClientInfo, McpRequest, WorkInProgress};
use crate::mcp::version::{McpHeaders, ProtocolVersion, VersionSource};
use crate::mcp::wire::{
    BatchAnswers, Message, MessageBody, MethodName, Params, Rejected, Request, RequestId, error_message,
    message, result_pieces,
};
use crate::model::audit::event::Outcome;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::method::{Era, Method};
use crate::model::scope::Scope;
use crate::model::session::{LogLevel, Session, SessionId};
use crate::sessions::open::NewSession;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

impl Endpoint {
    /// Answers a body of this era.
    pub(in crate::mcp) async fn answer_legacy(
        &self,
        request: &mut McpRequest<'_>,
        (caller, headers, source): (&Caller, &McpHeaders<'_>, VersionSource),
        incoming: &MessageBody<'_>,
        reply: Reply<'_>,
    ) -> Response<Body> {
        let (version, session) = match source {
            VersionSource::Session => match self.session(caller, headers, request).await {
                Ok(session) => (ProtocolVersion::parse(&session.version), Some(session)),
                Err(fault) => return reply.fault(request, &fault),
            },
            VersionSource::Sessionless(version) => (Some(version), None),
            VersionSource::Negotiation => (None, None),
        };
        let version = version.unwrap_or(ProtocolVersion::NEWEST_LEGACY);
        let reply = Reply { version: session.as_ref().map_or(reply.version, |_| Some(version)), ..reply };
        if !request.admits_json(headers) && incoming.is_answered() {
            return reply.fault(request, &media_type::NO_JSON);
        }
        let legacy = LegacyContext { caller, version, session: session.as_deref() };
        self.answer_body(request, legacy, incoming, &reply).await
    }

    /// The session that the headers name, if it is the caller's.
    pub(in crate::mcp) async fn session(
        &self,
        caller: &Caller,
        headers: &McpHeaders<'_>,
        request: &mut McpRequest<'_>,
    ) -> Result<Arc<Session>, Fault> {
        let id = headers.session_id.value().and_then(SessionId::parse).ok_or(Fault::SessionNotFound)?;
        let session = self.sessions.find(caller, &id).await?;
        request.session(&session);
        Ok(session)
    }

    /// Answers a message or a batch, in a session or without one.
    async fn answer_body(
        &self,
        request: &mut McpRequest<'_>,
        legacy: LegacyContext<'_>,
        incoming: &MessageBody<'_>,
        reply: &Reply<'_>,
    ) -> Response<Body> {
        match incoming {
            MessageBody::Message(message) => match decode(message) {
                Ok(LegacyMessage::Unanswered) => accepted(),
                Ok(LegacyMessage::Call(LegacyCall { id, method: LegacyMethod::Initialize(asked) })) => {
                    let client = request.client();
                    let opened = self.initialize(request, (legacy.caller, client), &asked, id);
                    Box::pin(opened).await.unwrap_or_else(|fault| reply.fault(request, &fault))
                }
                Ok(LegacyMessage::Call(call)) => match self.answer_call(legacy, &call, &request.work).await {
                    Ok(result) => json_response(result_pieces(call.id, result)),
                    Err(refusal) => reply.refused(request, refusal),
                },
                Err(fault) => reply.fault(request, &fault),
            },
            MessageBody::Batch(members) => match decode_batch(members, legacy.version) {
                Ok(messages) => Box::pin(self.answer_batch(request, legacy, messages, reply)).await,
                Err(fault) => reply.fault(request, &fault),
            },
        }
    }

    /// Opens a session. Its id is a header of the answer.
    async fn initialize(
        &self,
        request: &mut McpRequest<'_>,
        (caller, client): (&Caller, ClientAddress),
        asked: &Initialize<'_>,
        id: RequestId<'_>,
    ) -> Result<Response<Body>, Fault> {
        let view = self.catalog.view_of_part(caller, || Some(AgentPart::Description)).await?;
        let new = NewSession {
            version: asked.version.as_str(),
            client_name: &asked.client.name,
            client_version: &asked.client.version,
            capabilities: asked.capabilities.get(),
        };
        let session = self.sessions.open(caller, client, new).await?;
        // A list that is read from now on, on any replica, is not older than the revision from which the session
        // notifies.
        self.feed.wait_for_acks_of_streamed_scope(Scope::from(caller.agent), session.since()).await;
        request.opened(session.id().uid(), asked.version, &asked.client);
        let mut result = Vec::new();
        encode::initialize(&mut result, asked.version, &view.snapshot().description)?;
        let mut response = json_response(result_pieces(id, result.into()));
        let mut header = HeaderValue::try_from(session.id().reveal())
            .map_err(|_| Fault::Internal("session id is not a header value".to_owned()))?;
        header.set_sensitive(true);
        response.headers_mut().insert(SESSION_ID, header);
        Ok(response.map(|body| body.when_taken(move || drop(session.into_id()))))
    }

    /// The encoded result of a request, alone or in a batch.
    async fn answer_call(
        &self,
        legacy: LegacyContext<'_>,
        call: &LegacyCall<'_>,
        work: &WorkInProgress<'_>,
    ) -> Result<Bytes, Refusal> {
        match &call.method {
            LegacyMethod::Ping => Ok(Bytes::from_static(encode::EMPTY)),
            LegacyMethod::InSession(method, call) => {
                let session = legacy.session.ok_or(Fault::SessionRequired(method.name()))?;
                Box::pin(self.answer_session_call(legacy.caller, session, call.clone()?)).await
            }
            LegacyMethod::Initialize(_) => Err(initialize_in_batch().into()),
            LegacyMethod::Call(call) => {
                let dialect = Dialect::Legacy(legacy.version);
                self.call_handler.handle(legacy.caller, call, dialect, work).await
            }
        }
    }

    /// The encoded result of a request that only a session has.
    async fn answer_session_call(
        &self,
        caller: &Caller,
        session: &Session,
        call: SessionCall,
    ) -> Result<Bytes, Refusal> {
        match call {
            SessionCall::Subscribe(uri) => {
                let view = self.catalog.view_of_part(caller, || Some(AgentPart::Uri(uri.clone()))).await?;
                view.check_readable(&uri).map_err(|fault| Refusal::of_read(&view, fault))?;
                self.sessions.subscribe(session, &uri).await?;
                // A read from now on, on any replica, is not older than the revision from which the session notifies.
                self.feed.acknowledged_head(caller.agent).await?;
            }
            SessionCall::Unsubscribe(uri) => self.sessions.unsubscribe(session, &uri).await?,
            SessionCall::SetLevel(level) => self.sessions.set_level(session, level).await?,
        }
        Ok(Bytes::from_static(encode::EMPTY))
    }

    /// Answers the messages of a batch, one after the other: each is refused or answered by itself.
    async fn answer_batch(
        &self,
        request: &mut McpRequest<'_>,
        legacy: LegacyContext<'_>,
        messages: Vec<Result<Message<'_>, Rejected<'_>>>,
        reply: &Reply<'_>,
    ) -> Response<Body> {
        let (mut answers, most) = (BatchAnswers::default(), self.options.batch_answer_bytes);
        for message in messages {
            let (id, mut result) = match &message {
                Err(Rejected { fault, id, .. }) => (*id, Err(fault.clone().into())),
                Ok(message) => {
                    let id = match message {
                        Message::Request(request) => Some(request.id),
                        Message::Notification { .. } | Message::Response => None,
                    };
                    match decode(message) {
                        Ok(LegacyMessage::Unanswered) => {
                            request.answered(Some(message), (Outcome::Ok, None), 0);
                            continue;
                        }
                        Ok(LegacyMessage::Call(_)) if answers.bytes() > most => {
                            (id, Err(Fault::BatchTooLarge(most).into()))
                        }
                        Ok(LegacyMessage::Call(call)) => {
                            (id, self.answer_call(legacy, &call, &request.work).await)
                        }
                        Err(fault) => (id, Err(fault.into())),
                    }
                }
            };
            let outcome = match &mut result {
                Ok(_) => (Outcome::Ok, None),
                Err(refusal) => (refusal.fault.outcome(), refusal.hidden.take()),
            };
            let length = match (id, result) {
                (Some(id), Ok(result) | Err(Refusal { result: Some(result), .. })) => {
                    answers.push_result(id, result)
                }
                (id, Err(refusal)) => {
                    let error = reply.translate(request.request_id(), &refusal.fault);
                    answers.push(&error_message(id, reply.version, &error))
                }
                (None, Ok(_)) => continue,
            };
            request.answered(message.as_ref().ok(), outcome, length);
        }
        answers.into_body().map_or_else(accepted, json_response)
    }
}

/// The caller of a legacy request, its revision, and its session, if it has one.
#[derive(Clone, Copy)]
struct LegacyContext<'a> {
    caller: &'a Caller,
    version: ProtocolVersion,
    session: Option<&'a Session>,
}

/// A message of this era.
#[derive(Debug)]
pub(in crate::mcp) enum LegacyMessage<'a> {
    /// A request, to be answered.
    Call(LegacyCall<'a>),
    /// A notification, such as `notifications/cancelled`, or a response, to be accepted and ignored.
    Unanswered,
}

/// A request.
#[derive(Debug)]
pub(in crate::mcp) struct LegacyCall<'a> {
    /// What the answer refers to.
    pub id: RequestId<'a>,
    /// The request.
    pub method: LegacyMethod<'a>,
}

/// A legacy request.
#[derive(Debug)]
pub(in crate::mcp) enum LegacyMethod<'a> {
    /// `initialize`.
    Initialize(Initialize<'a>),
    /// `ping`.
    Ping,
    /// A method that is [`Fault::SessionRequired`] without a session, with any parameters.
    InSession(Method, Result<SessionCall, Fault>),
    /// What both eras have.
    Call(Call<'a>),
}

/// A request in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mcp) enum SessionCall {
    /// `resources/subscribe`.
    Subscribe(ResourceUri),
    /// `resources/unsubscribe`.
    Unsubscribe(ResourceUri),
    /// `logging/setLevel`.
    SetLevel(LogLevel),
}

/// The parameters of `initialize`.
#[derive(Debug)]
pub(in crate::mcp) struct Initialize<'a> {
    /// The negotiated revision: the requested one if it is served and of this era.
    pub version: ProtocolVersion,
    /// What the client is capable of, as sent.
    pub capabilities: &'a RawValue,
    /// The name and version that the client sends.
    pub client: ClientInfo<'a>,
}

/// Reads a message.
///
/// # Errors
/// [`Fault::MethodNotFound`] and [`Fault::InvalidParams`].
pub(in crate::mcp) fn decode<'a>(message: &Message<'a>) -> Result<LegacyMessage<'a>, Fault> {
    match message {
        Message::Request(request) => {
            Ok(LegacyMessage::Call(LegacyCall { id: request.id, method: method(request)? }))
        }
        Message::Notification { .. } | Message::Response => Ok(LegacyMessage::Unanswered),
    }
}

/// Decodes the messages of a batch. Each is refused or answered separately.
///
/// # Errors
/// [`Fault::InvalidRequest`] for the whole batch, if the revision has no batches or a message in it is `initialize`.
pub(super) fn decode_batch<'a>(
    members: &[&'a RawValue],
    version: ProtocolVersion,
) -> Result<Vec<Result<Message<'a>, Rejected<'a>>>, Fault> {
    if !version.knows_batches() {
        return Err(Fault::InvalidRequest("this revision has no batches".into()));
    }
    let messages: Vec<_> = members.iter().map(|raw| message(raw.get())).collect();
    let initialize = MethodName::Known(Method::Initialize);
    let opens =
        |message: &_| matches!(message, Ok(Message::Request(request)) if request.method == initialize);
    if messages.iter().any(opens) {
        return Err(initialize_in_batch());
    }
    Ok(messages)
}

/// Why a batch with `initialize` in it is refused.
fn initialize_in_batch() -> Fault {
    Fault::InvalidRequest("initialize must not be part of a batch".into())
}

fn method<'a>(request: &Request<'a>) -> Result<LegacyMethod<'a>, Fault> {
    let params = &request.params;
    match request.method.in_era(Era::Legacy)? {
        Method::Initialize => decode_initialize(params).map(LegacyMethod::Initialize),
        Method::Ping => params.check_shape().map(|()| LegacyMethod::Ping),
        method if method.needs_session() => Ok(LegacyMethod::InSession(method, in_session(method, params))),
        method => call::decode(method, params).map(LegacyMethod::Call),
    }
}

fn in_session(method: Method, params: &Params<'_>) -> Result<SessionCall, Fault> {
    params.check_shape()?;
    match method {
        Method::Subscribe => uri(params).map(SessionCall::Subscribe),
        Method::Unsubscribe => uri(params).map(SessionCall::Unsubscribe),
        Method::SetLevel => level(params).map(SessionCall::SetLevel),
        _ => Err(Fault::MethodNotFound(method.name().to_owned())),
    }
}

fn decode_initialize<'a>(params: &Params<'a>) -> Result<Initialize<'a>, Fault> {
    params.check_shape()?;
    let version = negotiate(&params.required_string("protocolVersion")?);
    let capabilities = params.required_object("capabilities")?;
    let client = ClientInfo::read(params.required_object("clientInfo")?).ok_or_else(|| {
        Fault::invalid_params("params.clientInfo must have a name and a version, both strings")
    })?;
    Ok(Initialize { version, capabilities, client })
}

fn level(params: &Params<'_>) -> Result<LogLevel, Fault> {
    let wrong = || {
        Fault::invalid_params(
            "params.level must be debug, info, notice, warning, error, critical, alert or emergency",
        )
    };
    LogLevel::parse(&params.required_string("level")?).ok_or_else(wrong)
}

fn negotiate(asked_for: &str) -> ProtocolVersion {
    ProtocolVersion::parse(asked_for)
        .filter(|version| version.era() == Era::Legacy)
        .unwrap_or(ProtocolVersion::NEWEST_LEGACY)
}
