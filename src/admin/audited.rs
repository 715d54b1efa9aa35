//! Audit events of administration calls.

use std::borrow::Cow;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, RawPathParams};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, Method, Request};

use crate::http::context::RequestContext;
use crate::http::intake::SharedContext;
use crate::model::audit::event::{Event, named, subject};
use crate::model::client_address::ClientAddress;
use crate::telemetry::span;

/// The prefix of audited calls; the API document and its browser are outside of it.
const CALLS: &str = "/admin/v1";

/// Whether a request is a call, which is recorded in the audit log.
pub(crate) fn is_call(parts: &Parts) -> bool {
    let path = parts.uri.path().strip_prefix(CALLS);
    parts.method != Method::OPTIONS && path.is_some_and(|path| path.is_empty() || path.starts_with('/'))
}

/// The context of a request that arrives. Its route is not known yet.
pub(crate) fn context(parts: &Parts, id: &HeaderValue, client: ClientAddress) -> RequestContext {
    let method = format!("{} -", named(parts.method.as_str()));
    let id = id.to_str().unwrap_or_default();
    RequestContext::new(id, client, method.into(), None)
}

/// Records the route, once it is known.
pub(super) async fn name(request: Request<Body>, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    if let Ok(call) = SharedContext::of(&parts.extensions).cloned() {
        let template = parts.extensions.get::<MatchedPath>().map_or("-", MatchedPath::as_str).to_owned();
        let params = RawPathParams::from_request_parts(&mut parts, &()).await.ok();
        let method = format!("{} {template}", parts.method);
        span::record_method(method.clone());
        call.with(|RequestContext { event, .. }| {
            event.method = Cow::Owned(method);
            if let Some(params) = &params {
                place(event, params);
            }
            event.subject = asked_for(&parts).or(event.subject.take());
        });
    }
    next.run(Request::from_parts(parts, body)).await
}

fn place(event: &mut Event, params: &RawPathParams) {
    for (param, value) in params {
        match param {
            "agent" => event.slug = Some(named(value)),
            _ => event.subject = Some(subject(value)),
        }
    }
}

/// The object named by the query.
fn asked_for(parts: &Parts) -> Option<Box<str>> {
    let query = url::form_urlencoded::parse(parts.uri.query()?.as_bytes());
    let mut named = query.filter(|(name, _)| matches!(&**name, "uri" | "uriTemplate"));
    named.next().map(|(_, value)| subject(&value))
}
