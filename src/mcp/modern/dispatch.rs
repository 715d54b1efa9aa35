//! Answers modern requests: decodes their headers and body, and checks the rules of the era in their specified order.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Response;

use super::listen::Filter;
use super::prompt::PromptRequest;
use super::{ModernError, encode};
use crate::catalog::snapshot::AgentPart;
use crate::http::body::{Body, json_response};
use crate::http::media_type;
use crate::identity::grant::Caller;
use crate::mcp::call::{self, Call};
use crate::mcp::call_handler::envelope;
use crate::mcp::endpoint::Endpoint;
use crate::mcp::refusal::Refusal;
use crate::mcp::reply::{Reply, accepted};
use crate::mcp::request::McpRequest;
use crate::mcp::version::{Field, McpHeaders, ProtocolVersion};
use crate::mcp::wire::members::{META_CLIENT_CAPABILITIES, META_PROTOCOL_VERSION, Members, text_of};
use crate::mcp::wire::{Message, MessageBody, Request, RequestId, result_pieces};
use crate::model::fault::{Fault, shortened};
use crate::model::method::{Era, Method};

impl Endpoint {
    /// Answers a body of this era.
    pub(in crate::mcp) async fn answer_modern(
        &self,
        request: &mut McpRequest<'_>,
        caller: &Caller,
        headers: &McpHeaders<'_>,
        incoming: &MessageBody<'_>,
        reply: &Reply<'_>,
    ) -> Response<Body> {
        let call = match decode(headers, incoming, self.options.uris_per_stream) {
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
            _ if !request.admits_json(headers) => Err(media_type::NO_JSON.into()),
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
        encode::discover(&mut out, envelope(caller, view.snapshot(), self.call_handler.ttl))?;
        Ok(out.into())
    }
}

/// A body of this era.
#[derive(Debug)]
pub(in crate::mcp) enum ModernMessage<'a> {
    /// A request, to be answered.
    Call(ModernCall<'a>),
    /// A notification, such as `notifications/cancelled`, to be accepted and ignored.
    Notification,
}

/// A request that satisfies all rules of the era.
#[derive(Debug)]
pub(in crate::mcp) struct ModernCall<'a> {
    /// What the answer refers to.
    pub id: RequestId<'a>,
    /// The request.
    pub method: ModernMethod<'a>,
}

/// A modern request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::mcp) enum ModernMethod<'a> {
    /// `server/discover`.
    Discover,
    /// `subscriptions/listen`.
    Listen(Filter),
    /// `prompts/get`, which may ask for arguments.
    GetPrompt(PromptRequest<'a>),
    /// What both eras have.
    Call(Call<'a>),
}

/// Checks a body against the rules of the era; the first violation answers. A stream may name at most `most_uris` URIs.
///
/// # Errors
/// [`ModernError`], whose variants are the violations.
pub(in crate::mcp) fn decode<'a>(
    headers: &McpHeaders<'_>,
    incoming: &MessageBody<'a>,
    most_uris: usize,
) -> Result<ModernMessage<'a>, ModernError> {
    match incoming {
        MessageBody::Message(Message::Request(request)) => {
            call(headers, request, most_uris).map(ModernMessage::Call)
        }
        MessageBody::Message(Message::Notification { .. }) => Ok(ModernMessage::Notification),
        MessageBody::Message(Message::Response) => Err(refused("this revision has no responses of clients")),
        MessageBody::Batch(_) => Err(refused("this revision has no batches")),
    }
}

fn refused(why: &'static str) -> ModernError {
    Fault::InvalidRequest(why.into()).into()
}

fn call<'a>(
    headers: &McpHeaders<'_>,
    request: &Request<'a>,
    most_uris: usize,
) -> Result<ModernCall<'a>, ModernError> {
    let meta = request.params.meta();
    check_version(&headers.protocol_version, meta)?;
    if meta.get(META_CLIENT_CAPABILITIES).is_none_or(|raw| !raw.get().starts_with('{')) {
        return Err(ModernError::Meta(
            "params._meta must have io.modelcontextprotocol/clientCapabilities, an object",
        ));
    }
    check_method(&headers.method, request.method.as_str())?;
    check_name(&headers.name, request)?;
    let method = match request.method.in_era(Era::Modern)? {
        Method::Discover => ModernMethod::Discover,
        Method::Listen => ModernMethod::Listen(Filter::read(&request.params, most_uris)?),
        method => match call::decode(method, &request.params)? {
            Call::GetPrompt { name, arguments } => {
                ModernMethod::GetPrompt(PromptRequest::read(name, arguments, &request.params))
            }
            call => ModernMethod::Call(call),
        },
    };
    Ok(ModernCall { id: request.id, method })
}

fn check_version(header: &Field<'_>, meta: &Members<'_>) -> Result<(), ModernError> {
    let Some(version) = meta.get(META_PROTOCOL_VERSION).and_then(text_of) else {
        return Err(match unknown_version(header) {
            Some(requested) => ModernError::UnsupportedVersion { requested },
            None => {
                ModernError::Meta("params._meta must have io.modelcontextprotocol/protocolVersion, a string")
            }
        });
    };
    match header {
        Field::Absent => return Err(ModernError::HeaderMismatch("MCP-Protocol-Version is required")),
        Field::Value(value) if *value == version => {}
        _ => {
            let differs = "MCP-Protocol-Version does not match params._meta";
            return Err(ModernError::HeaderMismatch(differs));
        }
    }
    let served = ProtocolVersion::parse(&version).filter(|version| version.era() == Era::Modern);
    served.map(|_| ()).ok_or_else(|| ModernError::UnsupportedVersion { requested: shortened(&version) })
}

/// The version that the header names, if it is none that is served in any era.
fn unknown_version(header: &Field<'_>) -> Option<String> {
    match header {
        Field::Absent => None,
        Field::Value(value) => ProtocolVersion::parse(value).is_none().then(|| shortened(value)),
        Field::Malformed(text) => Some(text.clone()),
    }
}

fn check_method(header: &Field<'_>, method: &str) -> Result<(), ModernError> {
    match header {
        Field::Absent => Err(ModernError::HeaderMismatch("Mcp-Method is required")),
        Field::Value(value) if *value == method => Ok(()),
        _ => Err(ModernError::HeaderMismatch("Mcp-Method does not match the method")),
    }
}

fn check_name(header: &Field<'_>, request: &Request<'_>) -> Result<(), ModernError> {
    let Some(parameter) = request.method.known().and_then(Method::name_header) else { return Ok(()) };
    // A parameter that is absent or no string is repeated by no header at all.
    let named = request.params.string(parameter).ok().flatten();
    match (header, named) {
        (Field::Absent, _) => Err(ModernError::HeaderMismatch("Mcp-Name is required for this method")),
        (Field::Value(value), Some(name)) if decoded(value).as_deref() == Some(name.as_bytes()) => Ok(()),
        _ => Err(ModernError::HeaderMismatch("Mcp-Name does not match params.uri or params.name")),
    }
}

/// The value of a header that may be wrapped in base64; `None` if it is wrapped and not valid base64.
fn decoded(value: &str) -> Option<Cow<'_, [u8]>> {
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(wrapped) => STANDARD.decode(wrapped).ok().map(Cow::Owned),
        None => Some(Cow::Borrowed(value.as_bytes())),
    }
}
