//! `WWW-Authenticate`: what a refused caller is asked for (RFC 6750).

use http::HeaderValue;

use crate::model::fault::Fault;

/// The challenge that goes with a refusal, if it takes one.
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
