//! Answers an admitted body: parses it, charges it to rates and quotas, and dispatches it to the dialect of its era.

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Response};

use super::call_handler::{Dialect, envelope};
use super::endpoint::Endpoint;
use super::era::{self, McpHeaders, RequestEra, VersionSource};
use super::legacy;
use super::legacy::decode::{
    self as legacy_decode, Initialize, LegacyCall, LegacyMessage, LegacyMethod, SessionCall,
};
use super::modern::decode::{self as modern_decode, ModernMessage, ModernMethod};
use super::modern::encode as modern_encode;
use super::refusal::Refusal;
use super::reply::{Reply, accepted};
use super::request::{McpRequest, WorkInProgress, calls_of, label_of};
use super::version::ProtocolVersion;
use super::wire::{
    BatchAnswers, Incoming, Message, Rejected, RequestId, error_message, parse, result_pieces,
};
use crate::catalog::snapshot::AgentPart;
use crate::http::body::{Body, json_response};
use crate::http::media_type;
use crate::identity::grant::Caller;
use crate::model::audit::event::Outcome;
use crate::model::client_address::ClientAddress;
use crate::model::fault::Fault;
use crate::model::method::Era;
use crate::model::scope::Scope;
use crate::model::session::Session;
use crate::quota::limits::Admission;
use crate::sessions::open::NewSession;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");

impl Endpoint {
    /// Answers the body of an admitted caller.
    pub(super) async fn dispatch(
        &self,
        request: &mut McpRequest<'_>,
        caller: &Caller,
        admission: &Admission<'_>,
        body: &[u8],
    ) -> Response<Body> {
        let headers = std::mem::take(&mut request.headers);
        let incoming = parse(body);
        let era = era::decide(&headers, &incoming);
        let version = era::named_version(&headers, &incoming);
        request.classified(label_of(incoming.as_ref()), era.era());
        if let Ok(incoming) = &incoming {
            request.read(incoming, named_or(version, era));
        }
        let charged = self.charge(request, caller, admission, (era.era(), &incoming)).await;
        let id = incoming.as_ref().map_or_else(|rejected| rejected.id, Incoming::id);
        let version = match (&incoming, &charged, era) {
            // A body that cannot be read is answered in the revision of its session.
            (Err(_), Ok(()), RequestEra::Legacy(VersionSource::Session)) => {
                let session = Box::pin(self.session(caller, &headers, request)).await.ok();
                session.and_then(|session| ProtocolVersion::parse(&session.version)).or(version)
            }
            _ => version,
        };
        let reply = Reply { era, version, id };
        let accepted = if headers.accepts_usual {
            Ok(())
        } else {
            media_type::check_accept(&request.parts.headers).or_else(|fault| match &incoming {
                Ok(incoming) if !incoming.is_answered() => Ok(()),
                _ => Err(fault),
            })
        };
        let response = match (&incoming, charged.as_ref().and(accepted.as_ref())) {
            (_, Err(fault)) => reply.fault(request, fault),
            (Err(rejected), Ok(())) => reply.fault(request, &rejected.fault),
            (Ok(incoming), Ok(())) => self.respond(request, caller, &headers, incoming, reply).await,
        };
        request.context.event.connection = request.work.take_connection();
        response
    }

    /// Charges a body to the rates and the quotas of its caller.
    async fn charge(
        &self,
        request: &mut McpRequest<'_>,
        caller: &Caller,
        admission: &Admission<'_>,
        (era, incoming): (Era, &Result<Incoming<'_>, Rejected<'_>>),
    ) -> Result<(), Fault> {
        request.rate_limit = admission.charge(self.options.costs.of(era, incoming))?;
        if let Ok(incoming) = incoming {
            self.recorder.usage().take_calls(caller.into(), calls_of(era, incoming)).await?;
        }
        Ok(())
    }

    async fn respond(
        &self,
        request: &mut McpRequest<'_>,
        caller: &Caller,
        headers: &McpHeaders<'_>,
        incoming: &Incoming<'_>,
        reply: Reply<'_>,
    ) -> Response<Body> {
        let source = match reply.era {
            RequestEra::Modern => return self.modern(request, caller, headers, incoming, &reply).await,
            RequestEra::Legacy(source) => source,
        };
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
        if !admits_json(request, headers) && incoming.is_answered() {
            return reply.fault(request, &media_type::NO_JSON);
        }
        let legacy = LegacyContext { caller, version, session: session.as_deref() };
        self.legacy(request, legacy, incoming, &reply).await
    }

    async fn modern(
        &self,
        request: &mut McpRequest<'_>,
        caller: &Caller,
        headers: &McpHeaders<'_>,
        incoming: &Incoming<'_>,
        reply: &Reply<'_>,
    ) -> Response<Body> {
        let call = match modern_decode::decode(headers, incoming, self.options.uris_per_stream) {
            Ok(ModernMessage::Call(call)) => call,
            Ok(ModernMessage::Notification) => return accepted(),
            Err(error) => {
                let error = error.answer(request.request_id());
                return reply.error(request, &error);
            }
        };
        let result: Result<_, Refusal> = match &call.method {
            ModernMethod::Listen(filter) => {
                let listening = Box::pin(self.listen(request, caller, filter, call.id)).await;
                return listening.unwrap_or_else(|fault| reply.fault(request, &fault));
            }
            _ if !admits_json(request, headers) => Err(media_type::NO_JSON.into()),
            ModernMethod::Discover => Box::pin(self.discover(caller)).await.map_err(Refusal::from),
            ModernMethod::GetPrompt(prompt) => {
                let answered = self.call_handler.handle_prompt(caller, prompt, &request.work).await;
                answered.map(|(result, outcome)| {
                    request.context.event.outcome = outcome;
                    result
                })
            }
            ModernMethod::Call(call) => {
                let dialect = self.call_handler.modern();
                self.call_handler.handle(caller, call, dialect, &request.work).await
            }
        };
        match result {
            Ok(result) => json_response(result_pieces(call.id, result)),
            Err(refusal) => reply.refused(request, refusal),
        }
    }

    async fn discover(&self, caller: &Caller) -> Result<Bytes, Fault> {
        let view = self.catalog.view_of_part(caller, || Some(AgentPart::Description)).await?;
        let mut out = Vec::new();
        modern_encode::discover(&mut out, envelope(caller, view.snapshot(), self.call_handler.ttl))?;
        Ok(out.into())
    }

    async fn legacy(
        &self,
        request: &mut McpRequest<'_>,
        legacy: LegacyContext<'_>,
        incoming: &Incoming<'_>,
        reply: &Reply<'_>,
    ) -> Response<Body> {
        match incoming {
            Incoming::Message(message) => match legacy_decode::decode(message) {
                Ok(LegacyMessage::Unanswered) => accepted(),
                Ok(LegacyMessage::Call(LegacyCall { id, method: LegacyMethod::Initialize(asked) })) => {
                    let client = request.client();
                    let opened = self.initialize(request, (legacy.caller, client), &asked, id);
                    Box::pin(opened).await.unwrap_or_else(|fault| reply.fault(request, &fault))
                }
                Ok(LegacyMessage::Call(call)) => match self.call(legacy, &call, &request.work).await {
                    Ok(result) => json_response(result_pieces(call.id, result)),
                    Err(refusal) => reply.refused(request, refusal),
                },
                Err(fault) => reply.fault(request, &fault),
            },
            Incoming::Batch(members) => match legacy_decode::batch(members, legacy.version) {
                Ok(messages) => Box::pin(self.batch(request, legacy, messages, reply)).await,
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
        legacy::encode::initialize(&mut result, asked.version, &view.snapshot().description)?;
        let mut response = json_response(result_pieces(id, result.into()));
        let mut header = HeaderValue::try_from(session.id().reveal())
            .map_err(|_| Fault::Internal("session id is not a header value".to_owned()))?;
        header.set_sensitive(true);
        response.headers_mut().insert(SESSION_ID, header);
        Ok(response.map(|body| body.when_taken(move || drop(session.into_id()))))
    }

    async fn call(
        &self,
        legacy: LegacyContext<'_>,
        call: &LegacyCall<'_>,
        work: &WorkInProgress<'_>,
    ) -> Result<Bytes, Refusal> {
        match &call.method {
            LegacyMethod::Ping => Ok(Bytes::from_static(legacy::encode::EMPTY)),
            LegacyMethod::InSession(method, call) => {
                let session = legacy.session.ok_or(Fault::SessionRequired(method.name()))?;
                Box::pin(self.call_session(legacy.caller, session, call.clone()?)).await
            }
            LegacyMethod::Initialize(_) => Err(legacy_decode::initialize_in_batch().into()),
            LegacyMethod::Call(call) => {
                let dialect = Dialect::Legacy(legacy.version);
                self.call_handler.handle(legacy.caller, call, dialect, work).await
            }
        }
    }

    async fn call_session(
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
        Ok(Bytes::from_static(legacy::encode::EMPTY))
    }

    async fn batch(
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
                    match legacy_decode::decode(message) {
                        Ok(LegacyMessage::Unanswered) => {
                            request.answered(Some(message), (Outcome::Ok, None), 0);
                            continue;
                        }
                        Ok(LegacyMessage::Call(_)) if answers.bytes() > most => {
                            (id, Err(Fault::BatchTooLarge(most).into()))
                        }
                        Ok(LegacyMessage::Call(call)) => (id, self.call(legacy, &call, &request.work).await),
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

/// Whether the client accepts JSON.
fn admits_json(request: &McpRequest<'_>, headers: &McpHeaders<'_>) -> bool {
    headers.accepts_usual || media_type::admits_json(&request.parts.headers)
}

/// The revision that a request names or, without a session, is assumed to be in.
fn named_or(named: Option<ProtocolVersion>, era: RequestEra) -> Option<ProtocolVersion> {
    match era {
        RequestEra::Legacy(VersionSource::Sessionless(version)) => Some(version),
        _ => named,
    }
}

/// The caller of a legacy request, its revision, and its session, if it has one.
#[derive(Clone, Copy)]
struct LegacyContext<'a> {
    caller: &'a Caller,
    version: ProtocolVersion,
    session: Option<&'a Session>,
}
