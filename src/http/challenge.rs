//! `WWW-Authenticate`: which credential a refused caller needs (RFC 6750). The metadata of protected resources extends it.

use http::HeaderValue;

use crate::model::fault::Fault;

/// The challenge of a refusal, if it has one.
pub fn of(fault: &Fault) -> Option<HeaderValue> {
    match fault {
        Fault::Unauthenticated => Some(HeaderValue::from_static(r#"Bearer realm="MCP""#)),
        Fault::InsufficientScope(scope) => HeaderValue::try_from(format!(
            r#"Bearer realm="MCP", error="insufficient_scope", scope="{scope}""#
        ))
        .ok(),
        _ => None,
    }
}
