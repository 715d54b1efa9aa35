//! Errors of the legacy era.

use axum::http::StatusCode;

use crate::mcp::error::{EraCodes, RpcError, code};
use crate::model::fault::Fault;

/// Clients of this era take any `404` in a session for a lost session, so an unknown method has another status.
const CODES: EraCodes =
    EraCodes { method_not_found: StatusCode::OK, resource_not_found: code::RESOURCE_NOT_FOUND };

/// The error in the form of an answer. `request_id` is the HTTP request's.
pub fn answer(fault: &Fault, request_id: &str) -> RpcError {
    RpcError::of(fault, CODES, request_id)
}
