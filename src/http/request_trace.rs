//! The root span of an answered request, by the semantic conventions for MCP and HTTP.

use std::borrow::Cow;

use http::{Method as HttpMethod, StatusCode};

use super::context::RequestContext;
use crate::model::audit::event::Event;
use crate::model::method::Method;
use crate::telemetry::trace::{ActiveTrace, RootSpan, Tracer, Value};

/// An answered request, as its span shows it.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a> {
    /// The context of the request.
    pub context: &'a RequestContext,
    /// The method of HTTP.
    pub method: &'a HttpMethod,
    /// The status of the answer.
    pub status: StatusCode,
}

impl Answered<'_> {
    /// Exports the trace of the request, if it is sampled.
    pub fn export(self, tracer: &Tracer, active: &ActiveTrace, now: time::OffsetDateTime) {
        if active.sampled(self.context.event.actor.kind.has_credential()).is_some() {
            let is_error = !self.context.event.outcome.is_served() || self.status.is_server_error();
            let attributes = self.attributes(tracer, is_error);
            let root = RootSpan { name: self.name(), ended: now.into(), attributes, is_error };
            tracer.export(active, root);
        }
    }

    /// The method, with the name of a prompt or tool that exists; names that clients make up would be too many.
    fn name(self) -> Cow<'static, str> {
        let Event { method, subject, outcome, .. } = &self.context.event;
        match (named_subject(method), subject) {
            (Some(_), Some(subject)) if outcome.is_served() => format!("{method} {subject}").into(),
            _ if Method::parse(method).is_some() || matches!(method, Cow::Borrowed(_)) => method.clone(),
            _ if method.starts_with(self.method.as_str()) => method.clone(),
            _ => Cow::Borrowed("unknown method"),
        }
    }

    fn attributes(self, tracer: &Tracer, is_error: bool) -> Vec<(&'static str, Value)> {
        let Event { method, subject, protocol, session, request, tenant, slug, outcome, .. } =
            &self.context.event;
        let is_message = Method::parse(method).is_some();
        let known = is_message.then(|| method.clone());
        let session = session.map(|session| session.to_string().into());
        let read = subject.as_deref().filter(|_| tracer.resource_uri && is_read(method));
        let named = named_subject(method).zip(subject.as_deref());
        let texts = [
            ("mcp.method.name", known),
            ("mcp.protocol.version", protocol.map(Cow::Borrowed)),
            // The id of its row, not the secret that its client sends.
            ("mcp.session.id", session),
            ("mcp.resource.uri", read.map(owned)),
            ("http.request.method", Some(owned(self.method.as_str()))),
            ("error.type", is_error.then(|| Cow::Borrowed(outcome.as_str()))),
            ("waggle.request_id", Some(owned(request))),
            ("waggle.tenant", tenant.map(|tenant| tenant.to_string().into())),
            ("waggle.agent", slug.as_deref().map(owned)),
        ];
        let texts = texts.into_iter().filter_map(|(name, text)| Some((name, Value::Text(text?))));
        let named = named.map(|(name, subject)| (name, Value::Text(owned(subject))));
        let status = Value::Integer(self.status.as_u16().into());
        texts.chain(named).chain([("http.response.status_code", status)]).collect()
    }
}

fn owned(text: &str) -> Cow<'static, str> {
    Cow::Owned(text.to_owned())
}

/// The attribute that names the subject of a method with a name.
fn named_subject(method: &str) -> Option<&'static str> {
    match Method::parse(method)? {
        Method::GetPrompt => Some("gen_ai.prompt.name"),
        Method::CallTool => Some("gen_ai.tool.name"),
        _ => None,
    }
}

fn is_read(method: &str) -> bool {
    Method::parse(method).is_some_and(|method| method.subject() == Some("uri"))
}
