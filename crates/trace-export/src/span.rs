//! A span, and its form in OpenTelemetry's protocol.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::common::v1::any_value::Value as AnyKind;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::Link as WireLink;
use opentelemetry_proto::tonic::trace::v1::{Span as WireSpan, Status};

/// `SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK`: whether the parent is remote is known.
const KNOWN_REMOTE: u32 = 0x100;
/// `SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK`.
const REMOTE: u32 = 0x200;
/// The flag of W3C Trace Context.
const SAMPLED: u32 = 1;
/// `STATUS_CODE_ERROR`.
const ERROR: i32 = 2;

/// What a span is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// An operation within the service.
    Internal = 1,
    /// The answer to a remote request.
    Server = 2,
    /// A request to another service.
    Client = 3,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(Cow<'static, str>),
    /// A number.
    Integer(i64),
}

/// A span that another one refers to, of the same trace or of another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Link {
    /// The id of its trace.
    pub trace: u128,
    /// Its id.
    pub span: u64,
}

/// An ended span.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The id of the trace.
    pub trace: u128,
    /// The id of the span.
    pub id: u64,
    /// The id of the parent; `None` for the root of a trace.
    pub parent: Option<u64>,
    /// Whether the parent is in another process.
    pub is_parent_remote: bool,
    /// The name.
    pub name: Cow<'static, str>,
    /// What it is of.
    pub kind: Kind,
    /// When it began.
    pub began: SystemTime,
    /// How long it took.
    pub took: Duration,
    /// The attributes.
    pub attributes: Vec<(&'static str, Value)>,
    /// The spans that caused it and are not its parent, all of which are sampled.
    pub links: Vec<Link>,
    /// Whether it failed.
    pub is_error: bool,
}

impl From<Span> for WireSpan {
    fn from(span: Span) -> Self {
        let attributes = span.attributes.into_iter().map(|(name, value)| attribute(name, value));
        Self {
            trace_id: span.trace.to_be_bytes().to_vec(),
            span_id: span.id.to_be_bytes().to_vec(),
            parent_span_id: span.parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
            flags: SAMPLED | KNOWN_REMOTE | if span.is_parent_remote { REMOTE } else { 0 },
            name: span.name.into_owned(),
            kind: span.kind as i32,
            start_time_unix_nano: nanos(span.began),
            end_time_unix_nano: nanos(span.began + span.took),
            attributes: attributes.collect(),
            links: span.links.into_iter().map(WireLink::from).collect(),
            status: span.is_error.then(|| Status { code: ERROR, ..Status::default() }),
            ..Self::default()
        }
    }
}

impl From<Link> for WireLink {
    fn from(Link { trace, span }: Link) -> Self {
        Self {
            trace_id: trace.to_be_bytes().to_vec(),
            span_id: span.to_be_bytes().to_vec(),
            flags: SAMPLED,
            ..Self::default()
        }
    }
}

pub(crate) fn attribute(name: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => AnyKind::StringValue(text.into_owned()),
        Value::Integer(number) => AnyKind::IntValue(number),
    };
    KeyValue { key: name.to_owned(), value: Some(AnyValue { value: Some(value) }), ..KeyValue::default() }
}

fn nanos(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
