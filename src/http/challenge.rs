//! `WWW-Authenticate`: what a refused caller is asked for (RFC 6750), and where he can get it (RFC 9728).

use http::header::{AUTHORIZATION, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue};

use super::credential::bearer;
use super::metadata::{Metadata, Protected};
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

/// Adds to the challenge of an answer, if it has one, what a gateway says that takes access tokens: where its metadata
/// is, and, unless the challenge is about a scope, which scope to ask for and whether a token was refused.
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
    let told = format!(r#"{challenge}, resource_metadata="{}"{more}{error}"#, metadata.url(what));
    if let Ok(told) = HeaderValue::try_from(told) {
        answer.insert(WWW_AUTHENTICATE, told);
    }
}
