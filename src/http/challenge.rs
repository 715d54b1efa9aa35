//! `WWW-Authenticate`: which credential a refused caller needs (RFC 6750), and where to get it (RFC 9728).

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue};

use super::credential::bearer;
use super::metadata::{Metadata, Protected};
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

/// Extends the challenge of an answer, if it has one, for a gateway that accepts access tokens: the URL of its metadata
/// and, unless the challenge is about a scope, the scope to request and whether a token was refused.
pub fn complete(metadata: &Metadata, what: Protected<'_>, request: &HeaderMap, answer: &mut HeaderMap) {
    let Some(challenge) = answer.get(WWW_AUTHENTICATE).and_then(|value| value.to_str().ok()) else { return };
    let mut shown = request.get_all(AUTHORIZATION).iter().filter_map(|value| value.to_str().ok());
    let more = match what {
        _ if challenge.contains("error=") => "",
        Protected::Gateway => r#", scope="registry""#,
        Protected::Endpoint(_) => r#", scope="mcp""#,
    };
    let refused = !more.is_empty() && shown.any(|value| bearer(value).is_some());
    let error = if refused { r#", error="invalid_token""# } else { "" };
    let value = format!(r#"{challenge}, resource_metadata="{}"{more}{error}"#, metadata.url(what));
    if let Ok(value) = HeaderValue::try_from(value) {
        answer.insert(WWW_AUTHENTICATE, value);
    }
}
