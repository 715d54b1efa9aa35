//! Faults as JSON-RPC errors: the only mapping of [`Fault`] to HTTP status and JSON-RPC code.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::version::ProtocolVersion;
use crate::model::audit::event::Outcome;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::limits::LimitScope;

/// The codes of JSON-RPC 2.0, of the MCP specification, and of the gateway (-31010 to -31019).
pub(super) mod code {
    pub(in crate::mcp) const PARSE_ERROR: i32 = -32700;
    pub(in crate::mcp) const INVALID_REQUEST: i32 = -32600;
    pub(in crate::mcp) const METHOD_NOT_FOUND: i32 = -32601;
    pub(in crate::mcp) const INVALID_PARAMS: i32 = -32602;
    pub(in crate::mcp) const INTERNAL: i32 = -32603;
    pub(in crate::mcp) const SESSION_NOT_FOUND: i32 = -32001;
    pub(in crate::mcp) const RESOURCE_NOT_FOUND: i32 = -32002;
    pub(in crate::mcp) const HEADER_MISMATCH: i32 = -32020;
    pub(in crate::mcp) const UNSUPPORTED_PROTOCOL_VERSION: i32 = -32022;
    pub(in crate::mcp) const UNAUTHENTICATED: i32 = -31010;
    pub(in crate::mcp) const FORBIDDEN: i32 = -31011;
    pub(in crate::mcp) const AGENT_DISABLED: i32 = -31012;
    pub(in crate::mcp) const FORBIDDEN_ORIGIN: i32 = -31013;
    pub(in crate::mcp) const PAYLOAD_TOO_LARGE: i32 = -31014;
    pub(in crate::mcp) const RATE_LIMITED: i32 = -31015;
    pub(in crate::mcp) const QUOTA_EXCEEDED: i32 = -31016;
    pub(in crate::mcp) const UNAVAILABLE: i32 = -31017;
    pub(in crate::mcp) const SOURCE: i32 = -31018;
}

/// The codes of the faults that the eras answer differently.
#[derive(Debug, Clone, Copy)]
pub struct EraCodes {
    /// The status of an unknown method.
    pub method_not_found: StatusCode,
    /// The code of an unknown resource.
    pub resource_not_found: i32,
}

/// A fault in the form of an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct RpcError {
    /// The HTTP status.
    pub status: StatusCode,
    /// The JSON-RPC code.
    pub code: i32,
    /// The outcome, whose name is `data.code`.
    pub outcome: Outcome,
    /// One sentence for people.
    pub message: Cow<'static, str>,
    /// Further members of `data`.
    pub detail: Option<Detail>,
    /// The delay before a retry, if a retry may succeed.
    pub retry_after: Option<Duration>,
}

/// The members of `data` besides `code`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    /// `uri`: the resource that was not found.
    Uri(ResourceUri),
    /// `missing`: the names of the missing arguments.
    Missing(Vec<String>),
    /// `reason`: why a source of content failed, by its stable name.
    Reason(&'static str),
    /// `requestId`, which the log entry of the fault has too.
    RequestId(String),
    /// `retryAfterMs` and `scope`: the delay before a retry, and the holder of the limit.
    Limit(Duration, LimitScope),
    /// `supported` and `requested`: the versions.
    Versions {
        /// The unsupported version.
        requested: String,
    },
}

impl RpcError {
    /// A fault in the form of an era. `request_id` is that of the HTTP request, sent for faults whose cause is only
    /// logged.
    pub fn of(fault: &Fault, codes: EraCodes, request_id: &str) -> Self {
        let (status, code) = classify(fault, codes);
        let (outcome, message) = match status {
            StatusCode::INTERNAL_SERVER_ERROR => (Outcome::Internal, "internal error".into()),
            _ => (fault.outcome(), fault.to_string().into()),
        };
        let detail = match fault {
            Fault::ResourceNotFound(uri) | Fault::UnknownUri { uri, .. } => Some(Detail::Uri(uri.clone())),
            Fault::MissingArguments(names) => Some(Detail::Missing(names.clone())),
            Fault::RateLimited { scope, retry_after, .. }
            | Fault::QuotaExceeded { scope, retry_after, .. } => Some(Detail::Limit(*retry_after, *scope)),
            Fault::SourceFailed(error) => Some(Detail::Reason(error.as_str())),
            _ if code == code::INTERNAL => Some(Detail::RequestId(request_id.to_owned())),
            _ => None,
        };
        Self { status, code, outcome, message, detail, retry_after: fault.retry_after() }
    }

    /// The `data` member.
    pub fn data(&self) -> Value {
        let code = self.outcome.as_str();
        match &self.detail {
            None => json!({"code": code}),
            Some(Detail::Uri(uri)) => json!({"code": code, "uri": uri.as_str()}),
            Some(Detail::Missing(names)) => json!({"code": code, "missing": names}),
            Some(Detail::Reason(reason)) => json!({"code": code, "reason": reason}),
            Some(Detail::RequestId(id)) => json!({"code": code, "requestId": id}),
            Some(Detail::Limit(wait, scope)) => {
                // Rounded up: a retry that is early by a moment is refused again.
                let millis = wait.as_nanos().div_ceil(1_000_000).max(1);
                let millis = u64::try_from(millis).unwrap_or(u64::MAX);
                json!({"code": code, "retryAfterMs": millis, "scope": scope.as_str()})
            }
            Some(Detail::Versions { requested }) => {
                let supported = ProtocolVersion::SUPPORTED.map(ProtocolVersion::as_str);
                json!({"code": code, "supported": supported, "requested": requested})
            }
        }
    }
}

fn classify(fault: &Fault, codes: EraCodes) -> (StatusCode, i32) {
    match fault {
        Fault::ParseError(_) => (StatusCode::BAD_REQUEST, code::PARSE_ERROR),
        Fault::InvalidRequest(_) | Fault::SlowBody(_) | Fault::SessionRequired(_) => {
            (StatusCode::BAD_REQUEST, code::INVALID_REQUEST)
        }
        Fault::InvalidParams(_) | Fault::MissingArguments(_) | Fault::UnknownUri { .. } => {
            (StatusCode::OK, code::INVALID_PARAMS)
        }
        Fault::MethodNotFound(_) => (codes.method_not_found, code::METHOD_NOT_FOUND),
        Fault::ResourceNotFound(_) => (StatusCode::OK, codes.resource_not_found),
        Fault::SessionNotFound => (StatusCode::NOT_FOUND, code::SESSION_NOT_FOUND),
        Fault::Unauthenticated | Fault::ConflictingCredentials => {
            (StatusCode::UNAUTHORIZED, code::UNAUTHENTICATED)
        }
        Fault::Forbidden | Fault::NotPermitted(_) | Fault::InsufficientScope(_) => {
            (StatusCode::FORBIDDEN, code::FORBIDDEN)
        }
        Fault::AgentDisabled => (StatusCode::FORBIDDEN, code::AGENT_DISABLED),
        Fault::ForbiddenOrigin(_) => (StatusCode::FORBIDDEN, code::FORBIDDEN_ORIGIN),
        Fault::UnsupportedMediaType(_) | Fault::UnsupportedContentEncoding => {
            (StatusCode::UNSUPPORTED_MEDIA_TYPE, code::INVALID_REQUEST)
        }
        Fault::NotAcceptable(_) => (StatusCode::NOT_ACCEPTABLE, code::INVALID_REQUEST),
        Fault::PayloadTooLarge(_) | Fault::ResultTooLarge { .. } | Fault::BatchTooLarge(_) => {
            (StatusCode::PAYLOAD_TOO_LARGE, code::PAYLOAD_TOO_LARGE)
        }
        Fault::RateLimited { .. } => (StatusCode::TOO_MANY_REQUESTS, code::RATE_LIMITED),
        Fault::QuotaExceeded { .. } => (StatusCode::TOO_MANY_REQUESTS, code::QUOTA_EXCEEDED),
        Fault::Unavailable { .. } | Fault::Starting | Fault::StorageUnavailable => {
            (StatusCode::SERVICE_UNAVAILABLE, code::UNAVAILABLE)
        }
        Fault::SourceTimeout | Fault::SourceFailed(_) => (StatusCode::OK, code::SOURCE),
        // The last six belong to the administration API: one of them here is a bug as well.
        Fault::Internal(_)
        | Fault::NotFound(_)
        | Fault::KeyExpired(_)
        | Fault::AlreadyExists(_)
        | Fault::InUse(_)
        | Fault::RevisionMismatch(_)
        | Fault::SlugRetired => (StatusCode::INTERNAL_SERVER_ERROR, code::INTERNAL),
    }
}

#[cfg(test)]
mod tests;
