//! Records the completed requests of all surfaces in the audit log, in usage and in metrics; no other code does.
//!
//! Metrics are counts by method, era and outcome, and durations by method. All counters are allocated at the start, so
//! counting a request is a few atomic additions.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Response;
use hyper::body::Body as HttpBody;

use super::context::{ChargedQuotas, CompletedRequest, MethodLabel, RequestContext, RequestLabels};
use super::tenant_meter::{CountedRequest, TenantMeter};
use crate::audit::AuditRecorder;
use crate::model::audit::event::{Event, Outcome};
use crate::model::fault::Fault;
use crate::model::limits::Usage;
use crate::quota::usage::UsageTracker;
use crate::telemetry::histogram::{DurationCounts, DurationHistogram};

/// Feeds audit log, usage and metrics from completed requests.
#[derive(Debug)]
pub struct RequestRecorder {
    audit: Arc<AuditRecorder>,
    usage: Arc<UsageTracker>,
    meter: Meter,
    /// `None` while requests are not counted by tenant.
    tenants: Option<TenantMeter>,
}

impl RequestRecorder {
    /// Creates a recorder that has counted nothing.
    pub fn new(audit: Arc<AuditRecorder>, usage: Arc<UsageTracker>, tenants: Option<TenantMeter>) -> Self {
        Self { audit, usage, meter: Meter::default(), tenants }
    }

    /// The audit log.
    pub fn audit(&self) -> &Arc<AuditRecorder> {
        &self.audit
    }

    /// The usage.
    pub fn usage(&self) -> &Arc<UsageTracker> {
        &self.usage
    }

    /// The counted requests.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The requests by tenant, if they are counted.
    pub fn tenants(&self) -> Option<&TenantMeter> {
        self.tenants.as_ref()
    }

    /// Completes a request with its answer, which is replaced by that of `refuse` if its audit row cannot be made durable:
    /// with the durability `sync`, an answer leaves once its rows are on disk.
    pub async fn complete<C, B>(
        &self,
        context: &mut C,
        response: &mut Response<B>,
        refuse: impl FnOnce(&mut C, &Fault) -> Response<B>,
    ) where
        C: AsMut<RequestContext>,
        B: HttpBody,
    {
        let completed = context.as_mut().complete(response, self.audit.now());
        if let Err(fault) = self.record(completed).await {
            *response = refuse(context, &fault);
        }
        let context = context.as_mut();
        if let Some(labels) = context.labels() {
            let took = context.elapsed();
            self.meter.count(labels, took);
            let Event { tenant, outcome, bytes_in, bytes_out, .. } = &context.event;
            if let Some((tenants, tenant)) = self.tenants.as_ref().zip(*tenant) {
                let bytes = bytes_in + bytes_out.unwrap_or(0);
                tenants.count(tenant, CountedRequest { outcome: *outcome, bytes, took });
            }
        }
    }

    async fn record(&self, mut completed: CompletedRequest<'_>) -> Result<(), Fault> {
        let Some(event) = completed.event() else {
            let events = completed.events();
            for event in &events.events {
                self.count_call((completed.quotas, completed.is_free), event);
            }
            return if events.have_checks() {
                Box::pin(self.audit.record_later(|| events.checked())).await
            } else {
                Box::pin(self.audit.record_all(&events.events)).await
            };
        };
        self.count_call((completed.quotas, completed.is_free), event);
        self.audit.record(event).await
    }

    /// Records the end of a stream, whose bytes count against the quotas of the request that opened it.
    pub fn record_stream_end(&self, mut event: Event, quotas: Option<&ChargedQuotas>) {
        event.at = self.audit.now();
        let usage = Usage { bytes_out: event.bytes_out.unwrap_or(0), ..Usage::default() };
        self.count((quotas, false), &event, &usage);
        self.audit.record_detached(&event);
    }

    fn count_call(&self, quotas: (Option<&ChargedQuotas>, bool), event: &Event) {
        let denied = event.outcome.is_denied();
        let usage = Usage {
            calls: 1,
            errors: u64::from(!denied && !event.outcome.is_served()),
            denied: u64::from(denied),
            bytes_in: event.bytes_in,
            bytes_out: event.bytes_out.unwrap_or(0),
        };
        self.count(quotas, event, &usage);
    }

    /// Counts the usage of an admitted request, which may be free of charge.
    fn count(&self, (quotas, is_free): (Option<&ChargedQuotas>, bool), event: &Event, usage: &Usage) {
        if let Some(subject) = quotas.and_then(|quotas| quotas.of(event)) {
            self.usage.count(subject, (usage_method(event), is_free), event.at, usage);
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

/// The requests of a replica.
#[derive(Debug)]
pub struct Meter {
    /// By method, era and outcome.
    requests: Box<[AtomicU64]>,
    durations: [DurationHistogram; MethodLabel::COUNT],
}

/// The number of requests with the same labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Requests {
    /// Their method.
    pub method: &'static str,
    /// Their era.
    pub era: &'static str,
    /// Their outcome.
    pub outcome: &'static str,
    /// The number of requests.
    pub count: u64,
}

/// The durations of the requests of a method.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MethodDurations {
    /// The method.
    pub method: &'static str,
    /// The durations.
    pub durations: DurationCounts,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            requests: (0..RequestLabels::COUNT).map(|_| AtomicU64::new(0)).collect(),
            durations: std::array::from_fn(|_| DurationHistogram::default()),
        }
    }
}

impl Meter {
    /// Counts an answered request.
    pub fn count(&self, labels: RequestLabels, took: Duration) {
        if let Some(slot) = self.requests.get(labels.index()) {
            slot.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(durations) = self.durations.get(labels.method.index()) {
            durations.count(took);
        }
    }

    /// The counts by labels; zeros only of those that begin at zero.
    pub fn requests(&self) -> impl Iterator<Item = Requests> {
        let counts = self.requests.iter().map(|slot| slot.load(Ordering::Relaxed));
        let exposed = |(labels, count): &(RequestLabels, u64)| *count > 0 || labels.begins_at_zero();
        RequestLabels::all().zip(counts).filter(exposed).map(|(labels, count)| Requests {
            method: labels.method.as_str(),
            era: labels.era.as_str(),
            outcome: labels.outcome.map_or("other", Outcome::as_str),
            count,
        })
    }

    /// The durations by method, for methods that were called.
    pub fn durations(&self) -> impl Iterator<Item = MethodDurations> {
        let all = MethodLabel::all().zip(&self.durations).map(|(method, durations)| MethodDurations {
            method: method.as_str(),
            durations: durations.counts(),
        });
        all.filter(|took| took.durations.count > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Meter, MethodLabel, Outcome, RequestLabels, Requests};
    use crate::model::method::{Era, Method};

    fn labels(method: Option<Method>, era: Era, outcome: Option<Outcome>) -> RequestLabels {
        RequestLabels { method: method.into(), era, outcome }
    }

    #[test]
    fn each_combination_of_labels_has_its_own_slot() {
        let indexes: Vec<_> = RequestLabels::all().map(RequestLabels::index).collect();
        assert_eq!(indexes, (0..RequestLabels::COUNT).collect::<Vec<_>>());
    }

    #[test]
    fn a_request_is_counted_by_its_labels() {
        let meter = Meter::default();
        let read = labels(Some(Method::ReadResource), Era::Modern, Some(Outcome::Ok));
        let failed = labels(Some(Method::SetLevel), Era::Legacy, Some(Outcome::UnsupportedProtocolVersion));
        let made_up = labels(Method::parse("an/attacker's"), Era::Modern, Some(Outcome::MethodNotFound));
        let refused = RequestLabels { method: MethodLabel::Delete, era: Era::Legacy, outcome: None };
        for labels in [read, failed, made_up, refused, read] {
            meter.count(labels, Duration::ZERO);
        }
        let tuple = |Requests { method, era, outcome, count }| (method, era, outcome, count);
        assert_eq!(
            meter.requests().filter(|requests| requests.count > 0).map(tuple).collect::<Vec<_>>(),
            [
                ("other", "modern", "method_not_found", 1),
                ("resources/read", "modern", "ok", 2),
                ("logging/setLevel", "legacy", "unsupported_protocol_version", 1),
                ("DELETE", "legacy", "other", 1),
            ]
        );
    }

    #[test]
    fn refusals_are_exposed_before_the_first() {
        let meter = Meter::default();
        let exposed: Vec<_> = meter.requests().collect();
        let has = |method, era, outcome| exposed.contains(&Requests { method, era, outcome, count: 0 });
        for (method, era, outcome) in [
            ("other", "legacy", "unauthenticated"),
            ("other", "modern", "forbidden_origin"),
            ("resources/read", "legacy", "rate_limited"),
            ("resources/read", "modern", "quota_exceeded"),
            ("initialize", "legacy", "unavailable"),
            ("GET", "legacy", "unauthenticated"),
            ("batch", "legacy", "internal"),
        ] {
            assert!(has(method, era, outcome), "{method} {era} {outcome}");
        }
        for (method, era, outcome) in [
            ("resources/read", "legacy", "ok"),
            ("resources/read", "legacy", "unauthenticated"),
            ("initialize", "modern", "rate_limited"),
            ("GET", "modern", "unauthenticated"),
        ] {
            assert!(!has(method, era, outcome), "{method} {era} {outcome}");
        }
        assert!(exposed.len() < RequestLabels::COUNT / 8, "{}", exposed.len());
    }

    #[test]
    fn durations_are_counted_by_method() {
        let meter = Meter::default();
        for micros in [50, 51, 2_000, 40_000_000] {
            meter.count(labels(None, Era::Legacy, None), Duration::from_micros(micros));
        }
        let took: Vec<_> = meter.durations().collect();
        let [took] = took.as_slice() else { panic!("{took:?}") };
        assert_eq!((took.method, took.durations.count, took.durations.micros), ("other", 4, 40_002_101));
    }
}
