//! Traces of requests: their contexts and child spans, and the export of those that are sampled.
//!
//! An [`ActiveTrace`] belongs to the span of its request ([`super::span`]) and is inherited by the tasks that the request
//! spawns. Whether it is sampled is decided once the request is answered, when its caller is known. If it cannot be
//! sampled, there is none, and [`traced`] only reads a task-local: [`begin`] decides before anything is allocated.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

pub use trace_export::{ExportStats, Kind, TraceContext, Value};
use trace_export::{Exporter, Link, Sampler, Span};

pub use super::active_trace::{ActiveTrace, RequestTrace, SQL};
use super::active_trace::{Child, mix};
use super::span;
use crate::model::trace::SpanContext;

/// The seed of ids: two for those of traces, one for those of spans.
pub type TraceSeed = [u64; 3];

/// Begins traces, and exports those that are sampled.
#[derive(Debug)]
pub struct Tracer {
    exporter: Exporter,
    sampler: Sampler,
    seed: TraceSeed,
    count: AtomicU64,
    /// Whether spans name the resources that are read.
    pub resource_uri: bool,
}

/// The root span of a trace, once its request is answered.
#[derive(Debug)]
pub struct RootSpan {
    /// The name.
    pub name: Cow<'static, str>,
    /// When the request was answered.
    pub ended: SystemTime,
    /// The attributes.
    pub attributes: Vec<(&'static str, Value)>,
    /// Whether the request failed.
    pub is_error: bool,
}

/// The span of an event that was sent on a stream.
#[derive(Debug)]
pub struct EventSpan {
    /// The name.
    pub name: &'static str,
    /// How long the event waited to be sent.
    pub took: Duration,
    /// When it was sent.
    pub ended: SystemTime,
    /// The attributes.
    pub attributes: Vec<(&'static str, Value)>,
    /// The spans of the writes that it reports.
    pub writes: Vec<SpanContext>,
}

impl Tracer {
    /// Exports what `sampler` samples.
    pub fn new(exporter: Exporter, sampler: Sampler, seed: TraceSeed, resource_uri: bool) -> Self {
        Self { exporter, sampler, seed, count: AtomicU64::new(0), resource_uri }
    }

    fn begin(&self, parent: Option<TraceContext>) -> RequestTrace {
        let (root, own) = self.ids();
        RequestTrace::new(self.sampler, (Instant::now(), root), parent, own)
    }

    /// The ids of a new root span and of its trace.
    fn ids(&self) -> (u64, impl FnOnce() -> u128 + use<>) {
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let [high, low, root] = self.seed.map(|seed| seed.wrapping_add(number));
        (mix(root), move || (u128::from(mix(high)) << 64) | u128::from(mix(low)))
    }

    /// Queues the span of an event, which is a trace of its own.
    pub fn export_event(&self, event: EventSpan) {
        let EventSpan { name, took, ended, attributes, writes } = event;
        let (id, trace) = self.ids();
        self.exporter.export(vec![Span {
            trace: trace(),
            id,
            parent: None,
            is_parent_remote: false,
            name: name.into(),
            kind: Kind::Client,
            began: ended - took,
            took,
            attributes,
            links: writes.into_iter().map(|SpanContext { trace, span }| Link { trace, span }).collect(),
            is_error: false,
        }]);
    }

    /// Queues the spans of a trace.
    pub fn export(&self, active: &ActiveTrace, root: RootSpan) {
        let (took, mut state) = (active.began.elapsed(), active.state.lock());
        let RootSpan { name, ended, mut attributes, is_error } = root;
        let (trace, began) = (state.trace, ended - took);
        if let Some(id) = state.request.take() {
            attributes.push(("jsonrpc.request.id", Value::Text(id.into_string().into())));
        }
        let parent = state.parent;
        let root = Span {
            trace,
            id: active.root,
            parent: parent.map(|parent| parent.span),
            is_parent_remote: parent.is_some(),
            name,
            kind: Kind::Server,
            began,
            took,
            attributes,
            links: Vec::new(),
            is_error,
        };
        let children = state.children.drain(..).map(|child| child.span(trace, began, active.began));
        self.exporter.export([root].into_iter().chain(children).collect());
    }

    /// The counters of the export.
    pub fn stats(&self) -> ExportStats {
        self.exporter.stats()
    }
}

/// Begins the trace of a request that arrives with this `traceparent`. `tracer` exports traces of such requests.
pub fn begin(tracer: Option<&Tracer>, traceparent: Option<&[u8]>) -> RequestTrace {
    let parent = traceparent.and_then(TraceContext::parse);
    let off = || RequestTrace::off(parent.map(|parent| parent.trace));
    tracer.map_or_else(off, |tracer| tracer.begin(parent))
}

/// Continues the trace of the caller that a message names, before that of a header.
pub fn adopt(context: TraceContext) {
    span::change_trace(|trace| trace.adopt(context));
}

/// Records the id of the JSON-RPC request, as JSON.
pub fn record_request(id: &str) {
    if let Some(active) = span::active_trace() {
        let text = id.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(id);
        active.state.lock().request = Some(text.into());
    }
}

/// The id of the current request's trace: the caller's, or that of a trace that the gateway samples on its own.
pub fn trace_id() -> Option<[u8; 16]> {
    span::trace_id().map(u128::to_be_bytes)
}

/// The current child span of the current request, if its trace is exported. `is_trusted` tells whether its caller has a
/// valid credential, and is called only where the trace may be exported.
pub fn sampled_span(is_trusted: impl FnOnce() -> bool) -> Option<SpanContext> {
    let active = span::active_trace()?;
    let trace = active.sampled(is_trusted())?;
    Some(SpanContext { trace, span: span::current_child().unwrap_or(active.root) })
}

/// Runs a part of a request in a child span. The work is pinned by the caller, so that it is not moved.
pub async fn traced<T, E>(
    name: &'static str,
    kind: Kind,
    mut work: Pin<&mut (impl Future<Output = Result<T, E>> + ?Sized)>,
) -> Result<T, E> {
    let Some(mut open) = OpenChild::begin(name, kind) else { return work.await };
    let done = std::future::poll_fn(|context| {
        let outer = span::enter_child(open.child.id);
        let polled = work.as_mut().poll(context);
        span::enter_child(outer);
        polled
    })
    .await;
    open.child.is_error = done.is_err();
    done
}

/// Begins a child span without children of its own; `None` outside of a trace.
pub fn leaf(name: &'static str, kind: Kind) -> Option<OpenChild> {
    OpenChild::begin(name, kind)
}

/// A child span that is recorded when it is dropped, also where the work is cancelled: as failed, until it succeeded.
#[derive(Debug)]
pub struct OpenChild {
    active: Arc<ActiveTrace>,
    child: Child,
}

impl OpenChild {
    fn begin(name: &'static str, kind: Kind) -> Option<Self> {
        let active = span::active_trace()?;
        let id = active.next_child()?;
        let parent = span::current_child().unwrap_or(active.root);
        let (began, took) = (Instant::now(), Duration::ZERO);
        Some(Self { active, child: Child { id, parent, name, kind, began, took, is_error: true } })
    }

    /// Ends the span of work that did not fail.
    pub fn succeeded(mut self) {
        self.child.is_error = false;
    }
}

impl Drop for OpenChild {
    fn drop(&mut self) {
        let Child { id, parent, name, kind, began, is_error, .. } = self.child;
        let child = Child { id, parent, name, kind, began, took: began.elapsed(), is_error };
        self.active.state.lock().children.push(child);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use http::Method;
    use trace_export::Config;

    use super::{Exporter, Kind, TraceContext, Tracer, adopt, begin, record_request, trace_id, traced};
    use crate::telemetry::span::{RequestSpan, active_trace};

    const SAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
    const ID: [u8; 16] = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736_u128.to_be_bytes();

    /// Samples what trusted callers sample, and nothing else.
    fn tracer() -> Tracer {
        rustls::crypto::ring::default_provider().install_default().ok();
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1"),
            ("OTEL_TRACES_SAMPLER", "parentbased_always_off"),
        ];
        let value = |name: &str| variables.iter().find(|(known, _)| *known == name);
        let config = Config::read("test", |name| value(name).map(|(_, value)| (*value).to_owned()));
        let config = config.unwrap().unwrap();
        let sampler = config.sampler();
        Tracer::new(Exporter::new(config, ("test", "1")).unwrap().0, sampler, [1, 2, 3], false)
    }

    /// Runs a request; returns its trace id, and whether its trace may be exported.
    fn run(tracer: Option<&Tracer>, header: Option<&str>, message: Option<&str>) -> (Option<[u8; 16]>, bool) {
        let seen = Cell::new((None, false));
        let work = pin!(async {
            if let Some(context) = message.and_then(|text| TraceContext::parse(text.as_bytes())) {
                adopt(context);
            }
            record_request("1");
            let part = pin!(async { Ok::<_, ()>(()) });
            assert_eq!(traced("access", Kind::Internal, part).await, Ok(()));
            seen.set((trace_id(), active_trace().is_some()));
        });
        let trace = begin(tracer, header.map(str::as_bytes));
        let run = pin!(RequestSpan::new("r-1", &Method::POST).with_trace(trace).run(work));
        assert!(run.poll(&mut Context::from_waker(Waker::noop())).is_ready());
        seen.get()
    }

    #[test]
    fn request_that_is_not_sampled_allocates_nothing() {
        let tracer = tracer();
        for (tracer, header, message) in [
            (None, None, None),
            (None, Some(SAMPLED), Some(SAMPLED)),
            (Some(&tracer), None, None),
            (Some(&tracer), Some(UNSAMPLED), None),
            (Some(&tracer), None, Some(UNSAMPLED)),
        ] {
            let count = allocation_counter::measure(|| {
                let expected = (header.or(message).map(|_| ID), false);
                assert_eq!(run(tracer, header, message), expected, "{header:?} {message:?}");
            });
            assert_eq!(count.count_total, 0, "{header:?} {message:?}");
        }
    }

    #[test]
    fn trace_that_a_caller_sampled_is_active() {
        let tracer = tracer();
        for (header, message) in
            [(Some(SAMPLED), None), (None, Some(SAMPLED)), (Some(UNSAMPLED), Some(SAMPLED))]
        {
            assert_eq!(run(Some(&tracer), header, message), (Some(ID), true), "{header:?} {message:?}");
        }
    }
}
