//! The parts of a message: the id of a request, kept as its JSON text, the parameters with their validation errors, and the
//! answers: an encoded result spliced behind the id, an error, a batch.

use std::borrow::Cow;

use bytes::Bytes;
use serde_json::Value;
use serde_json::value::RawValue;

use super::members::{Members, Shape, text_of};
use crate::http::body::Body;
use crate::mcp::error::RpcError;
use crate::mcp::version::ProtocolVersion;
use crate::model::fault::Fault;

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

/// The member of `params._meta` that only modern requests have.
pub const META_PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The member of `_meta` with the capabilities of the client.
pub const META_CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The member of `_meta` with the name and version of the client.
pub const META_CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";

/// The member of `_meta` with the trace context of the client (SEP-414).
pub const META_TRACEPARENT: &str = "traceparent";

/// The parameters of a request or notification.
#[derive(Debug, Default)]
pub struct Params<'a> {
    pub(super) members: Members<'a>,
    pub(super) meta: Members<'a>,
}

impl<'a> Params<'a> {
    /// The members of `_meta`.
    pub fn meta(&self) -> &Members<'a> {
        &self.meta
    }

    /// Whether `_meta` names a protocol version, of any type.
    pub fn declares_version(&self) -> bool {
        self.meta.has(META_PROTOCOL_VERSION)
    }

    /// Refuses positional parameters, and a `_meta` that is not an object.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`].
    pub fn check_shape(&self) -> Result<(), Fault> {
        if self.members.shape() == Shape::Array {
            return Err(Fault::invalid_params("params must be an object"));
        }
        let has_meta = self.members.has("_meta");
        if has_meta && self.meta.shape() != Shape::Object {
            return Err(Fault::invalid_params("params._meta must be an object"));
        }
        Ok(())
    }

    /// The value of a member, of any type.
    pub fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.members.get(name)
    }

    /// An optional string.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], naming the member.
    pub fn string(&self, name: &'static str) -> Result<Option<Cow<'a, str>>, Fault> {
        match self.members.get(name) {
            None => Ok(None),
            Some(raw) => match text_of(raw) {
                None => Err(Fault::invalid_params(format!("params.{name} must be a string"))),
                text => Ok(text),
            },
        }
    }

    /// A required string.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], naming the member.
    pub fn required_string(&self, name: &'static str) -> Result<Cow<'a, str>, Fault> {
        self.string(name)?.ok_or_else(|| missing(name))
    }

    /// An optional object.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], naming the member.
    pub fn object(&self, name: &'static str) -> Result<Option<&'a RawValue>, Fault> {
        match self.members.get(name) {
            Some(raw) if !raw.get().starts_with('{') => {
                Err(Fault::invalid_params(format!("params.{name} must be an object")))
            }
            raw => Ok(raw),
        }
    }

    /// A required object.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], naming the member.
    pub fn required_object(&self, name: &'static str) -> Result<&'a RawValue, Fault> {
        self.object(name)?.ok_or_else(|| missing(name))
    }
}

fn missing(name: &str) -> Fault {
    Fault::invalid_params(format!("params.{name} is required"))
}

const HEAD: &[u8] = br#"{"jsonrpc":"2.0""#;
const ID: &[u8] = br#","id":"#;
const RESULT: &[u8] = br#","result":"#;

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

/// An error. If no id could be read, the revision decides how it is represented; without a revision it is `null`.
pub fn error_message(id: Option<RequestId<'_>>, version: Option<ProtocolVersion>, error: &RpcError) -> Bytes {
    let omitted = version.is_some_and(ProtocolVersion::omits_unreadable_ids);
    let id = match id {
        Some(id) => format!(r#","id":{}"#, id.as_json()),
        None if omitted => String::new(),
        None => r#","id":null"#.to_owned(),
    };
    let (code, message, data) = (error.code, Value::from(&*error.message), error.data());
    format!(r#"{{"jsonrpc":"2.0"{id},"error":{{"code":{code},"message":{message},"data":{data}}}}}"#).into()
}

/// The answers to the members of a batch, in order.
#[derive(Debug, Default)]
pub struct BatchAnswers {
    /// Long results, and what precedes each.
    pieces: Vec<Bytes>,
    /// What follows the last piece.
    text: Vec<u8>,
    bytes: usize,
}

impl BatchAnswers {
    /// Appends an answer with a result; returns its length.
    pub fn push_result(&mut self, id: RequestId<'_>, result: Bytes) -> usize {
        if result.len() <= COPIED {
            return self.push(&result_message(id, &result));
        }
        let head = [HEAD, ID, id.as_json().as_bytes(), RESULT].concat();
        let length = head.len() + result.len() + 1;
        self.push(&head);
        self.bytes += result.len() + 1;
        self.pieces.extend([std::mem::take(&mut self.text).into(), result]);
        self.text.push(b'}');
        length
    }

    /// Appends an answer; returns its length.
    pub fn push(&mut self, answer: &[u8]) -> usize {
        let separator = if self.bytes == 0 { b'[' } else { b',' };
        self.text.push(separator);
        self.text.extend_from_slice(answer);
        self.bytes += 1 + answer.len();
        answer.len()
    }

    /// The length of all answers so far.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The body of the answer; `None` if no member has one.
    pub fn into_body(mut self) -> Option<Body> {
        if self.bytes == 0 {
            return None;
        }
        self.text.push(b']');
        if self.pieces.is_empty() {
            return Some(Bytes::from(self.text).into());
        }
        self.pieces.push(self.text.into());
        Some(Body::Pieces(self.pieces.into()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::{MAX_ID_BYTES, RequestId};

    fn echo(text: &str) -> Option<String> {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        RequestId::read(&raw).map(|id| id.to_owned().as_id().as_json().to_owned())
    }

    #[test]
    fn strings_and_integers_are_returned_unchanged() {
        let long = format!("\"{}\"", "a".repeat(MAX_ID_BYTES));
        for id in [
            "0",
            "1",
            "-7",
            "-0",
            "9007199254740993",
            "123456789012345678901234567890",
            "\"\"",
            "\"a\"",
            "\"1\"",
            r#""\u00e4\/\n""#,
            r#""\ud800""#,
            "\"ä\"",
            &long,
        ] {
            assert_eq!(echo(id).as_deref(), Some(id));
        }
    }

    #[test]
    fn everything_else_is_no_id() {
        let long = format!("\"{}\"", "a".repeat(MAX_ID_BYTES + 1));
        let big = "1".repeat(MAX_ID_BYTES + 1);
        for bad in
            ["null", "true", "false", "1.0", "1.5", "1e3", "1E3", "-1.0", "[]", "{}", "[1]", &long, &big]
        {
            assert_eq!(echo(bad), None, "{bad}");
        }
    }
}
