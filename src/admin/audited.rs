//! Audit events of administration calls.

use std::borrow::Cow;

use axum::extract::{FromRequestParts, MatchedPath, RawPathParams, Request};
use axum::middleware::Next;
use axum::response::Response;
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode};
use time::OffsetDateTime;

use crate::cache::audited::AuditedCall;
use crate::model::agent::{Agent, Tenant};
use crate::model::audit::event::{Actor, Event, named, subject, trace};
use crate::model::client_address::ClientAddress;
use crate::telemetry::span;

/// The prefix of audited calls; the API document and its browser are outside of it.
const CALLS: &str = "/admin/v1";

/// The event of a new call; `None` for a request that is not a call.
pub(crate) fn arrived<B>(
    request: &http::Request<B>,
    id: &HeaderValue,
    client: ClientAddress,
    at: OffsetDateTime,
) -> Option<Event> {
    let path = request.uri().path().strip_prefix(CALLS)?;
    if request.method() == Method::OPTIONS || !(path.is_empty() || path.starts_with('/')) {
        return None;
    }
    let method = format!("{} -", named(request.method().as_str()));
    let trace = request.headers().get("traceparent").and_then(|header| trace(header.as_bytes()));
    let request = named(id.to_str().unwrap_or_default());
    Some(Event { trace, ..Event::new(at, request, client, method.into()) })
}

/// Records the route, once it is known.
pub(super) async fn name(request: Request, next: Next) -> Response {
    let (mut parts, body) = request.into_parts();
    if AuditedCall::current().is_some() {
        let template = parts.extensions.get::<MatchedPath>().map_or("-", MatchedPath::as_str).to_owned();
        let params = RawPathParams::from_request_parts(&mut parts, &()).await.ok();
        let method = format!("{} {template}", parts.method);
        span::record_method(method.clone());
        AuditedCall::describe(|event| {
            event.method = Cow::Owned(method);
            if let Some(params) = &params {
                place(event, params);
            }
            event.subject = asked_for(&parts).or(event.subject.take());
        });
    }
    next.run(Request::from_parts(parts, body)).await
}

/// Declares the status that a handler answers with once its write is committed: the row of the change carries it.
pub(super) fn answers(status: StatusCode) -> StatusCode {
    AuditedCall::declare(status.as_u16(), status.as_u16());
    status
}

/// As [`answers`], for a handler that creates or replaces: answers the status of either.
pub(super) fn answers_put() -> impl Fn(bool) -> StatusCode {
    let status = |created| if created { StatusCode::CREATED } else { StatusCode::OK };
    AuditedCall::declare(status(true).as_u16(), status(false).as_u16());
    status
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

/// Records the caller.
pub(super) fn identify(actor: Actor) {
    AuditedCall::describe(|event| event.actor = actor);
}

/// Records the agent of the call.
pub(super) fn about_agent(agent: &Agent) {
    span::record_agent(agent.slug.as_str());
    span::record_tenant(agent.tenant);
    AuditedCall::describe(|event| (event.agent, event.tenant) = (Some(agent.uid), Some(agent.tenant)));
}

/// Records the tenant of the call.
pub(super) fn about_tenant(tenant: &Tenant) {
    span::record_tenant(tenant.uid);
    AuditedCall::describe(|event| event.tenant = Some(tenant.uid));
}
