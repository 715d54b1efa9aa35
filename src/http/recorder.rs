//! Records completed requests of all surfaces: audit log, usage and metrics are fed here and nowhere else.

use std::borrow::Cow;
use std::sync::Arc;

use http::Response;
use hyper::body::Body as HttpBody;

use super::context::{CompletedRequest, QuotaHolder, RequestContext};
use super::meter::Meter;
use crate::audit::AuditRecorder;
use crate::model::audit::event::Event;
use crate::model::fault::{Fault, Outcome};
use crate::model::limits::Usage;
use crate::quota::usage::UsageBook;

/// Feeds audit log, usage and metrics from completed requests.
#[derive(Debug)]
pub struct RequestRecorder {
    audit: Arc<AuditRecorder>,
    usage: Arc<UsageBook>,
    meter: Meter,
}

impl RequestRecorder {
    /// Creates a recorder that has counted nothing.
    pub fn new(audit: Arc<AuditRecorder>, usage: Arc<UsageBook>) -> Self {
        Self { audit, usage, meter: Meter::default() }
    }

    /// The audit log.
    pub fn audit(&self) -> &Arc<AuditRecorder> {
        &self.audit
    }

    /// The usage.
    pub fn usage(&self) -> &Arc<UsageBook> {
        &self.usage
    }

    /// The counted requests.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Completes a request with its answer, or with that of `refuse` where its audit row cannot be made durable: with the
    /// durability `sync`, an answer leaves once its rows are on disk.
    pub async fn complete<C, B>(
        &self,
        context: &mut C,
        response: Response<B>,
        refuse: impl FnOnce(&mut C, &Fault) -> Response<B>,
    ) -> Response<B>
    where
        C: AsMut<RequestContext>,
        B: HttpBody,
    {
        let completed = context.as_mut().complete(&response, self.audit.now());
        let response = match self.record(completed).await {
            Ok(()) => response,
            Err(fault) => refuse(context, &fault),
        };
        let context = context.as_mut();
        if let Some(labels) = context.labels() {
            self.meter.count(labels, context.elapsed());
        }
        response
    }

    async fn record(&self, mut completed: CompletedRequest<'_>) -> Result<(), Fault> {
        let Some(event) = completed.event() else {
            let events = completed.message_events();
            for event in &events {
                self.count_call(completed.quotas, event);
            }
            return Box::pin(self.audit.record_all(&events)).await;
        };
        self.count_call(completed.quotas, event);
        self.audit.record(event).await
    }

    /// Records the end of a stream, whose bytes count against the quotas of the request that opened it.
    pub fn record_stream_end(&self, mut event: Event, quotas: Option<&QuotaHolder>) {
        event.at = self.audit.now();
        let usage = Usage { bytes_out: event.bytes_out.unwrap_or(0), ..Usage::default() };
        self.count(quotas, &event, &usage);
        self.audit.record_detached(&event);
    }

    fn count_call(&self, quotas: Option<&QuotaHolder>, event: &Event) {
        let denied = event.outcome.is_denied();
        let usage = Usage {
            calls: 1,
            errors: u64::from(!denied && event.outcome != Outcome::Ok),
            denied: u64::from(denied),
            bytes_in: event.bytes_in,
            bytes_out: event.bytes_out.unwrap_or(0),
        };
        self.count(quotas, event, &usage);
    }

    /// Counts the usage of an admitted request.
    fn count(&self, quotas: Option<&QuotaHolder>, event: &Event, usage: &Usage) {
        if let Some(subject) = quotas.and_then(|quotas| quotas.of(event)) {
            self.usage.count(subject, usage_method(event), event.at, usage);
        }
    }
}

/// The method in usage: names that clients make up are one.
fn usage_method(event: &Event) -> &'static str {
    match event.method {
        Cow::Borrowed(known) => known,
        Cow::Owned(_) => "other",
    }
}
