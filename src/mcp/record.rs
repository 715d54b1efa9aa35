//! The completed record of a request, from which audit log, usage and metrics are fed, and the audit row of a stream's end.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderName, Response, StatusCode};
use hyper::body::Body as _;
use tokio::time::Instant;

use super::context::{Asked, Member, QuotaHolder, RequestContext};
use super::endpoint::Endpoint;
use super::reply::fail;
use super::streams::StreamEnd;
use crate::audit::AuditRecorder;
use crate::http::body::Body;
use crate::http::key_expiry;
use crate::http::meter::{Meter, RequestLabels};
use crate::model::audit::event::{ChangeHashes, ClientName, Event, named, trace};
use crate::model::fault::Fault;
use crate::model::outcome::Outcome;
use crate::model::usage::Usage;
use crate::quota::usage::UsageBook;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// An answered request, as audit log, usage and metrics know it.
struct CompletedRequest {
    event: Event,
    /// The messages of a batch, each with a row of its own.
    members: Vec<Member>,
    quotas: Option<QuotaHolder>,
    labels: RequestLabels,
}

impl CompletedRequest {
    /// Completes the record of a request with its answer.
    fn new(context: &mut RequestContext<'_>, audit: &AuditRecorder, response: &Response<Body>) -> Self {
        let progress = &mut context.progress;
        let (asked, client) = (std::mem::take(&mut progress.asked), progress.client.take());
        let (members, quotas) = (std::mem::take(&mut progress.members), progress.quotas.take());
        let mut event = event(context, audit, asked, client);
        event.status = Some(response.status().as_u16());
        event.bytes_out = response.body().size_hint().exact();
        let mut labels = context.progress.labels();
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            event.outcome = Outcome::MethodNotAllowed;
            labels.outcome = None;
        }
        Self { event, members, quotas, labels }
    }

    /// The rows of a batch: one a message, the first with the bytes of the whole body.
    fn member_events(&mut self) -> Vec<Event> {
        let whole = &self.event;
        let mut bytes_in = whole.bytes_in;
        let events = self.members.drain(..).map(|member| Event {
            method: member.asked.method.unwrap_or_else(|| whole.method.clone()),
            subject: member.asked.subject,
            outcome: member.outcome,
            bytes_in: std::mem::take(&mut bytes_in),
            bytes_out: Some(member.bytes_out),
            ..whole.clone()
        });
        events.collect()
    }
}

impl Endpoint {
    /// Completes a request: audit log, usage and metrics are fed from one record. With the durability `sync` the answer
    /// leaves once its rows are on disk.
    pub async fn complete(
        &self,
        context: &mut RequestContext<'_>,
        response: Response<Body>,
        meter: &Meter,
    ) -> Response<Body> {
        let mut completed = CompletedRequest::new(context, &self.audit, &response);
        let recorded = if completed.members.is_empty() {
            self.count(completed.quotas.as_ref(), &completed.event);
            self.audit.record(&completed.event).await
        } else {
            Box::pin(self.record_each(&mut completed)).await
        };
        let mut response = match recorded {
            Ok(()) => response,
            Err(fault) => {
                let response = fail(context, &fault);
                completed.labels = context.progress.labels();
                response
            }
        };
        meter.count(completed.labels, context.progress.elapsed());
        if let Some(end) = context.progress.key_expires {
            key_expiry::announce(end, response.headers_mut());
        }
        response
    }

    async fn record_each(&self, completed: &mut CompletedRequest) -> Result<(), Fault> {
        let events = completed.member_events();
        for event in &events {
            self.count(completed.quotas.as_ref(), event);
        }
        self.audit.record_all(&events).await
    }

    /// Counts the usage of an admitted request.
    fn count(&self, quotas: Option<&QuotaHolder>, event: &Event) {
        let Some(holders) = quotas.and_then(|quotas| quotas.of(event)) else { return };
        let denied = event.outcome.is_denied();
        let usage = Usage {
            calls: 1,
            errors: u64::from(!denied && event.outcome != Outcome::Ok),
            denied: u64::from(denied),
            bytes_in: event.bytes_in,
            bytes_out: event.bytes_out.unwrap_or(0),
        };
        self.usage.count(holders, usage_method(event), event.at, &usage);
    }

    /// The guard of the stream that a request opens.
    pub(super) fn stream_audit_guard(&self, context: &RequestContext<'_>) -> StreamAuditGuard {
        let progress = &context.progress;
        let asked = Asked { method: progress.asked.method.clone(), subject: None };
        let event = event(context, &self.audit, asked, progress.client.clone());
        let event = Event { bytes_in: 0, ..event };
        StreamAuditGuard {
            audit: Arc::clone(&self.audit),
            usage: Arc::clone(&self.usage),
            quotas: progress.quotas.clone(),
            event: Some(event),
            opened: Instant::now(),
            bytes: 0,
        }
    }
}

/// The row of a request, as far as it is known.
fn event(
    context: &RequestContext<'_>,
    audit: &AuditRecorder,
    asked: Asked,
    client_name: Option<ClientName>,
) -> Event {
    let progress = &context.progress;
    let headers = &context.parts.headers;
    Event {
        at: audit.now(),
        request: named(context.request_id()),
        trace: headers.get(TRACEPARENT).and_then(|header| trace(header.as_bytes())),
        tenant: progress.tenant,
        agent: progress.agent,
        slug: Some(named(context.agent)),
        actor: progress.actor,
        client: context.client,
        client_name,
        protocol: progress.protocol,
        session: progress.session,
        method: asked.method.unwrap_or_else(|| http_method(&context.parts.method)),
        subject: asked.subject,
        outcome: progress.outcome,
        status: None,
        micros: micros(progress.elapsed()),
        bytes_in: progress.bytes_in,
        bytes_out: None,
        revision: None,
        difference: ChangeHashes::default(),
    }
}

/// The method in usage: names that clients make up are one.
fn usage_method(event: &Event) -> &'static str {
    match event.method {
        Cow::Borrowed(known) => known,
        Cow::Owned(_) => "other",
    }
}

fn http_method(method: &http::Method) -> Cow<'static, str> {
    match *method {
        http::Method::POST => Cow::Borrowed("POST"),
        http::Method::GET => Cow::Borrowed("GET"),
        http::Method::DELETE => Cow::Borrowed("DELETE"),
        _ => Cow::Owned(named(method.as_str()).into()),
    }
}

fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// Writes the audit row of a stream's end when it is dropped.
#[derive(Debug)]
pub(super) struct StreamAuditGuard {
    audit: Arc<AuditRecorder>,
    usage: Arc<UsageBook>,
    quotas: Option<QuotaHolder>,
    event: Option<Event>,
    opened: Instant,
    bytes: u64,
}

impl StreamAuditGuard {
    /// Counts bytes that are sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Records why the gateway ends the stream. Without it the client has disconnected.
    pub(super) fn ended(&mut self, end: StreamEnd) {
        if let Some(event) = &mut self.event {
            event.outcome = end.outcome();
        }
    }
}

impl Drop for StreamAuditGuard {
    fn drop(&mut self) {
        let Some(mut event) = self.event.take() else { return };
        if event.outcome == Outcome::Ok {
            event.outcome = Outcome::EndedDisconnected;
        }
        event.at = self.audit.now();
        event.micros = micros(self.opened.elapsed());
        event.bytes_out = Some(self.bytes);
        if let Some(holders) = self.quotas.as_ref().and_then(|quotas| quotas.of(&event)) {
            let usage = Usage { bytes_out: self.bytes, ..Usage::default() };
            self.usage.count(holders, usage_method(&event), event.at, &usage);
        }
        self.audit.record_detached(&event);
    }
}
