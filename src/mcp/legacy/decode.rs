//! Decodes messages of the legacy era.

use serde_json::value::RawValue;

use crate::mcp::call::{self, Call, uri};
use crate::mcp::request::ClientInfo;
use crate::mcp::version::ProtocolVersion;
use crate::mcp::wire::{Message, MethodName, Params, Rejected, Request, RequestId, message};
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::method::{Era, Method};
use crate::model::session::LogLevel;

/// A message of this era.
#[derive(Debug)]
pub enum LegacyMessage<'a> {
    /// A request, to be answered.
    Call(LegacyCall<'a>),
    /// A notification, such as `notifications/cancelled`, or a response, to be accepted and ignored.
    Unanswered,
}

/// A request.
#[derive(Debug)]
pub struct LegacyCall<'a> {
    /// What the answer refers to.
    pub id: RequestId<'a>,
    /// The request.
    pub method: LegacyMethod<'a>,
}

/// A legacy request.
#[derive(Debug)]
pub enum LegacyMethod<'a> {
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
pub enum SessionCall {
    /// `resources/subscribe`.
    Subscribe(ResourceUri),
    /// `resources/unsubscribe`.
    Unsubscribe(ResourceUri),
    /// `logging/setLevel`.
    SetLevel(LogLevel),
}

/// The parameters of `initialize`.
#[derive(Debug)]
pub struct Initialize<'a> {
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
pub fn decode<'a>(message: &Message<'a>) -> Result<LegacyMessage<'a>, Fault> {
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
pub fn batch<'a>(
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
pub fn initialize_in_batch() -> Fault {
    Fault::InvalidRequest("initialize must not be part of a batch".into())
}

fn method<'a>(request: &Request<'a>) -> Result<LegacyMethod<'a>, Fault> {
    let params = &request.params;
    match request.method.in_era(Era::Legacy)? {
        Method::Initialize => initialize(params).map(LegacyMethod::Initialize),
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

fn initialize<'a>(params: &Params<'a>) -> Result<Initialize<'a>, Fault> {
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
