//! Errors of the modern era: violations of its own rules, and the faults that both eras have.

use axum::http::StatusCode;

use crate::mcp::error::{Detail, EraCodes, RpcError, code};
use crate::model::audit::event::Outcome;
use crate::model::fault::Fault;

const CODES: EraCodes =
    EraCodes { method_not_found: StatusCode::NOT_FOUND, resource_not_found: code::INVALID_PARAMS };

/// Why a modern request is refused or failed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModernError {
    /// The version is not served in this era.
    #[error("unsupported protocol version: {requested}")]
    UnsupportedVersion {
        /// The version.
        requested: String,
    },
    /// A header is absent, malformed, or differs from the body.
    #[error("header mismatch: {0}")]
    HeaderMismatch(&'static str),
    /// `params._meta` lacks something.
    #[error("{0}")]
    Meta(&'static str),
    /// A fault that both eras have.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl ModernError {
    /// The error in the form of an answer. `request_id` is the HTTP request's.
    pub fn answer(&self, request_id: &str) -> RpcError {
        let (code, outcome, detail) = match self {
            Self::Fault(fault) => return RpcError::of(fault, CODES, request_id),
            Self::Meta(_) => (code::INVALID_PARAMS, Outcome::InvalidParams, None),
            Self::HeaderMismatch(_) => (code::HEADER_MISMATCH, Outcome::HeaderMismatch, None),
            Self::UnsupportedVersion { requested } => {
                let detail = Detail::Versions { requested: requested.clone() };
                (code::UNSUPPORTED_PROTOCOL_VERSION, Outcome::UnsupportedProtocolVersion, Some(detail))
            }
        };
        let (status, message) = (StatusCode::BAD_REQUEST, self.to_string().into());
        RpcError { status, code, outcome, message, detail, retry_after: None }
    }
}
