//! The JSON-RPC envelope: from the bytes of a body to a request, a notification, a response or a batch of them; the id of a
//! request, kept as its JSON text; and the answer, an encoded result spliced behind the id.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::{Deserializer, IgnoredAny, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::members::{Members, Params, Shape, text_of, walk};
use crate::http::body::{Body, MAX_DEPTH, is_too_deep};
use crate::model::fault::{Fault, shortened};
use crate::model::method::{CostClass, Era, Method};

/// The maximum number of messages in a batch.
pub const MAX_BATCH: usize = 50;

/// A body with a valid JSON-RPC envelope.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation on every request; it is never stored"
)]
pub enum MessageBody<'a> {
    /// One message.
    Message(Message<'a>),
    /// From 1 to [`MAX_BATCH`] values, to be read by [`message`] one by one.
    Batch(Vec<&'a RawValue>),
}

/// One message.
#[derive(Debug)]
pub enum Message<'a> {
    /// A request, which has an answer.
    Request(Request<'a>),
    /// A notification, which has no answer.
    Notification {
        /// The method.
        method: Cow<'a, str>,
        /// The parameters.
        params: Params<'a>,
    },
    /// A response to a request of the server.
    Response,
}

/// A request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The id, which the answer repeats.
    pub id: RequestId<'a>,
    /// The method.
    pub method: MethodName<'a>,
    /// The parameters; empty if absent.
    pub params: Params<'a>,
}

/// The method of a request, looked up in the method table when the message is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MethodName<'a> {
    /// A row of the method table.
    Known(Method),
    /// A name that no served revision has.
    Unknown(Cow<'a, str>),
}

impl<'a> MethodName<'a> {
    fn read(name: Cow<'a, str>) -> Self {
        Method::parse(&name).map_or(Self::Unknown(name), Self::Known)
    }

    /// The name as the client sent it.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(method) => method.name(),
            Self::Unknown(name) => name,
        }
    }

    /// The row of the method table, if there is one.
    pub fn known(&self) -> Option<Method> {
        match self {
            Self::Known(method) => Some(*method),
            Self::Unknown(_) => None,
        }
    }

    /// The cost class of the method table.
    pub fn cost(&self) -> CostClass {
        self.known().map_or(CostClass::Other, Method::cost)
    }

    /// The method, if the era has it.
    ///
    /// # Errors
    /// [`Fault::MethodNotFound`].
    pub fn in_era(&self, era: Era) -> Result<Method, Fault> {
        self.known()
            .filter(|method| method.exists_in(era))
            .ok_or_else(|| Fault::MethodNotFound(shortened(self.as_str())))
    }
}

/// An invalid body, with the parts that could be read.
#[derive(Debug)]
pub struct Rejected<'a> {
    /// The reason: [`Fault::ParseError`] or [`Fault::InvalidRequest`].
    pub fault: Fault,
    /// The id that the error answer carries, if one could be read.
    pub id: Option<RequestId<'a>>,
    /// Whether `params._meta` names a version of the protocol.
    pub declares_version: bool,
}

impl<'a> MessageBody<'a> {
    /// The id, if the body is a single request.
    pub fn id(&self) -> Option<RequestId<'a>> {
        match self {
            Self::Message(Message::Request(request)) => Some(request.id),
            _ => None,
        }
    }

    /// Whether it has an answer: not if there are only notifications and responses.
    pub fn is_answered(&self) -> bool {
        let is_answered = |message: &Message<'_>| matches!(message, Message::Request(_));
        match self {
            Self::Message(message) => is_answered(message),
            Self::Batch(members) => {
                members.iter().any(|member| message(member.get()).as_ref().map_or(true, is_answered))
            }
        }
    }

    /// Whether `params._meta` names a version of the protocol; a batch does not.
    pub fn declares_version(&self) -> bool {
        match self {
            Self::Message(
                Message::Request(Request { params, .. }) | Message::Notification { params, .. },
            ) => params.declares_version(),
            _ => false,
        }
    }
}

impl Rejected<'_> {
    fn unread(fault: Fault) -> Self {
        Self { fault, id: None, declares_version: false }
    }
}

/// Reads a body.
///
/// # Errors
/// If the body is not JSON, not a message, or nested too deeply.
pub fn parse(body: &[u8]) -> Result<MessageBody<'_>, Rejected<'_>> {
    let text = std::str::from_utf8(body)
        .map_err(|_| Rejected::unread(Fault::ParseError("the body is not UTF-8".into())))?;
    if is_too_deep(body) {
        let fault = invalid(format!("the body nests deeper than {MAX_DEPTH} levels"));
        return Err(Rejected { fault, id: readable_id(body), declares_version: false });
    }
    if text.trim_ascii_start().starts_with('[') {
        batch(text).map(MessageBody::Batch).map_err(Rejected::unread)
    } else {
        message(text).map(MessageBody::Message)
    }
}

/// Reads one message, from a whole body or from a batch.
///
/// # Errors
/// If the text is not JSON or not a message.
pub fn message(text: &str) -> Result<Message<'_>, Rejected<'_>> {
    let (mut envelope, mut params) = (Members::default(), Params::default());
    let mut nested = [("params", &mut params.members), ("_meta", &mut params.meta)];
    if walk(text, &mut envelope, &mut nested).is_err() {
        return Err(unwalkable(text));
    }
    let declares_version = params.declares_version();
    classify(&envelope, params).map_err(|fault| Rejected { fault, id: id_of(&envelope), declares_version })
}

/// The id for an error about this body, even if the rest of it is invalid: for refusals before the body is parsed.
/// `None` if it is not a JSON object, is a response, or does not have exactly one valid id. Takes time linear in the length
/// of the body, without recursion.
pub fn readable_id(body: &[u8]) -> Option<RequestId<'_>> {
    let envelope = Members::read(std::str::from_utf8(body).ok()?).ok()?;
    id_of(&envelope)
}

/// The id that an error about a message carries. None for a response, whose id was chosen by the server: an error with it
/// could be taken for the answer to a client's request.
fn id_of<'a>(envelope: &Members<'a>) -> Option<RequestId<'a>> {
    let request = envelope.has("method") || !is_response(envelope);
    envelope.get("id").filter(|_| request).and_then(RequestId::read)
}

fn is_response(envelope: &Members<'_>) -> bool {
    envelope.has("result") || envelope.has("error")
}

/// The fault of a body that is not JSON, or contains a scalar that has no value, such as a lone surrogate.
fn unwalkable(text: &str) -> Rejected<'_> {
    match serde_json::from_str::<IgnoredAny>(text) {
        Err(error) => Rejected::unread(not_json(&error)),
        Ok(_) => Rejected {
            fault: invalid("a message and its params must be objects"),
            id: readable_id(text.as_bytes()),
            declares_version: false,
        },
    }
}

fn classify<'a>(envelope: &Members<'a>, params: Params<'a>) -> Result<Message<'a>, Fault> {
    check_names(envelope, &params)?;
    if envelope.get("jsonrpc").and_then(text_of).as_deref() != Some("2.0") {
        return Err(invalid("jsonrpc must be \"2.0\""));
    }
    let Some(method) = envelope.get("method") else {
        return response(envelope);
    };
    if is_response(envelope) {
        return Err(invalid("a message has either a method or a result or an error"));
    }
    let method = text_of(method).ok_or_else(|| invalid("method must be a string"))?;
    // JSON-RPC 2.0 has parameters by name and by position. Positional ones are therefore a valid envelope, but invalid
    // parameters of every method; the methods refuse them.
    if params.members.shape() == Shape::Scalar {
        return Err(invalid("params must be an object"));
    }
    match envelope.get("id") {
        Some(id) => {
            let id = request_id(id)?;
            Ok(Message::Request(Request { id, method: MethodName::read(method), params }))
        }
        // A known method is no notification: without an id it is a mistake.
        None if Method::parse(&method).is_some() => Err(invalid("a request needs an id")),
        None => Ok(Message::Notification { method, params }),
    }
}

fn check_names(envelope: &Members<'_>, params: &Params<'_>) -> Result<(), Fault> {
    let levels = [("the message", envelope), ("params", &params.members), ("params._meta", &params.meta)];
    if envelope.shape() != Shape::Object {
        return Err(invalid("a message must be an object"));
    }
    match levels.iter().find_map(|(level, members)| Some((level, members.error()?))) {
        Some((level, error)) => Err(invalid(format!("{level} {error}"))),
        None => Ok(()),
    }
}

fn response<'a>(envelope: &Members<'a>) -> Result<Message<'a>, Fault> {
    match (envelope.has("result"), envelope.has("error"), envelope.get("id")) {
        (false, false, _) => Err(invalid("method is required")),
        (true, true, _) => Err(invalid("a response has either a result or an error")),
        // An error response may lack an id.
        (false, true, None) => Ok(Message::Response),
        (false, true, Some(id)) if id.get() == "null" => Ok(Message::Response),
        (_, _, Some(id)) => request_id(id).map(|_| Message::Response),
        (true, false, None) => Err(invalid("a response needs an id")),
    }
}

fn request_id(raw: &RawValue) -> Result<RequestId<'_>, Fault> {
    RequestId::read(raw)
        .ok_or_else(|| invalid(format!("id must be an integer or a string of at most {MAX_ID_BYTES} bytes")))
}

/// The members of a batch, not parsed further.
fn batch(text: &str) -> Result<Vec<&RawValue>, Fault> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let read = deserializer.deserialize_seq(BatchVisitor).and_then(|read| deserializer.end().map(|()| read));
    let (members, count) = read.map_err(|error| not_json(&error))?;
    if (1..=MAX_BATCH).contains(&count) {
        Ok(members)
    } else {
        Err(invalid(format!("a batch has from 1 to {MAX_BATCH} messages")))
    }
}

struct BatchVisitor;

impl<'a> Visitor<'a> for BatchVisitor {
    type Value = (Vec<&'a RawValue>, usize);

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a batch")
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut members = Vec::new();
        while members.len() < MAX_BATCH
            && let Some(member) = seq.next_element()?
        {
            members.push(member);
        }
        let mut count = members.len();
        while seq.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        Ok((members, count))
    }
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Fault {
    Fault::InvalidRequest(message.into())
}

fn not_json(error: &serde_json::Error) -> Fault {
    Fault::ParseError(format!("the body is not JSON: {error}").into())
}

/// The maximum length of an id in bytes, without quotation marks.
pub const MAX_ID_BYTES: usize = 1_024;

/// The id of a request: the JSON text of a string or of an integer of any size, answered byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId<'a>(&'a str);

/// A [`RequestId`] that outlives its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestIdOwned(Box<str>);

impl<'a> RequestId<'a> {
    /// Parses an id: a string, or an integer without fraction or exponent, of at most [`MAX_ID_BYTES`]. `None` for
    /// anything else.
    pub fn read(raw: &'a RawValue) -> Option<Self> {
        let text = raw.get();
        let inner = match text.strip_prefix('"') {
            Some(rest) => rest.strip_suffix('"')?,
            None => text.strip_prefix('-').or(Some(text)).filter(is_integer)?,
        };
        (inner.len() <= MAX_ID_BYTES).then_some(Self(text))
    }

    /// The id as JSON.
    pub fn as_json(self) -> &'a str {
        self.0
    }

    /// The id, owned.
    pub fn to_owned(self) -> RequestIdOwned {
        RequestIdOwned(self.0.into())
    }
}

impl RequestIdOwned {
    /// The id, borrowed.
    pub fn as_id(&self) -> RequestId<'_> {
        RequestId(&self.0)
    }
}

/// Among unsigned JSON values, only integers consist of digits alone.
fn is_integer(text: &&str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

pub(super) const HEAD: &[u8] = br#"{"jsonrpc":"2.0""#;
pub(super) const ID: &[u8] = br#","id":"#;
pub(super) const RESULT: &[u8] = br#","result":"#;

/// Results up to this size are copied behind the id; longer ones are sent from the cache without a copy.
pub(super) const COPIED: usize = 64 * 1024;

/// The answer to a request, from an encoded result.
pub fn result_message(id: RequestId<'_>, result: &[u8]) -> Bytes {
    let parts = [HEAD, ID, id.as_json().as_bytes(), RESULT, result, b"}"];
    parts.concat().into()
}

/// The answer to a request, as a body.
pub fn result_pieces(id: RequestId<'_>, result: Bytes) -> Body {
    if result.len() <= COPIED {
        return result_message(id, &result).into();
    }
    let head = [HEAD, ID, id.as_json().as_bytes(), RESULT].concat();
    Body::Pieces(Box::new([head.into(), result, Bytes::from_static(b"}")]))
}

#[cfg(test)]
mod tests;
