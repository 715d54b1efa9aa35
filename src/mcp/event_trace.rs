//! The span of an event on a stream: by the semantic conventions for MCP, with a link to each write that caused it.

use std::borrow::Cow;
use std::sync::Arc;

use super::notification;
use super::request::McpRequest;
use crate::feed::hub::ChangeEvent;
use crate::http::recorder::RequestRecorder;
use crate::model::audit::event::Event;
use crate::model::subject::Subject;
use crate::telemetry::trace::{EventSpan, Tracer, Value};

/// Exports the spans of a stream's events, where traces are exported.
#[derive(Debug)]
pub(super) struct EventTrace {
    tracer: Arc<Tracer>,
    recorder: Arc<RequestRecorder>,
    /// The attributes of the stream.
    attributes: Vec<(&'static str, Value)>,
}

impl EventTrace {
    /// For the stream that a request opens.
    pub(super) fn new(
        tracer: &Arc<Tracer>,
        recorder: &Arc<RequestRecorder>,
        request: &McpRequest<'_>,
    ) -> Self {
        let Event { protocol, session, tenant, slug, .. } = &request.context.event;
        let texts = [
            ("mcp.protocol.version", protocol.map(Cow::Borrowed)),
            // The id of its row, not the secret that its client sends.
            ("mcp.session.id", session.map(|session| session.to_string().into())),
            ("waggle.tenant", tenant.map(|tenant| tenant.to_string().into())),
            ("waggle.agent", slug.as_deref().map(|slug| slug.to_owned().into())),
        ];
        let attributes = texts.into_iter().filter_map(|(name, text)| Some((name, Value::Text(text?))));
        let (tracer, recorder) = (Arc::clone(tracer), Arc::clone(recorder));
        Self { tracer, recorder, attributes: attributes.collect() }
    }

    /// Exports the span of an event that was sent, if the trace of one of its writes is exported.
    pub(super) fn sent(&self, change: ChangeEvent) {
        let ChangeEvent { subject, cause: Some(cause), .. } = change else { return };
        let name = notification::method(&subject);
        let mut attributes = vec![("mcp.method.name", Value::Text(name.into()))];
        if let Subject::Resource(resource) = &subject
            && self.tracer.resource_uri
        {
            attributes.push(("mcp.resource.uri", Value::Text(resource.uri.as_str().to_owned().into())));
        }
        attributes.extend(self.attributes.iter().cloned());
        let (took, ended) = (cause.since.elapsed(), self.recorder.audit().now().into());
        self.tracer.export_event(EventSpan { name, took, ended, attributes, writes: cause.writes });
    }
}
