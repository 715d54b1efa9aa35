//! Traces of requests: their contexts and child spans, and the export of those that are sampled.
//!
//! An [`ActiveTrace`] belongs to the span of its request ([`super::span`]) and is inherited by the tasks that the request
//! spawns. Whether it is sampled is decided once the request is answered, when its caller is known. Without an exporter
//! there is none, and [`traced`] adds nothing but a look into the task.

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
pub use trace_export::{ExportStats, Kind, TraceContext, Value};
use trace_export::{Exporter, Sampler, Span};

pub use super::active_trace::{ActiveTrace, SQL};
use super::active_trace::{Child, State, scatter};
use super::span;

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

impl Tracer {
    /// Exports what `sampler` samples.
    pub fn new(exporter: Exporter, sampler: Sampler, seed: TraceSeed, resource_uri: bool) -> Self {
        Self { exporter, sampler, seed, count: AtomicU64::new(0), resource_uri }
    }

    /// Begins the trace of a request that arrives with this `traceparent`.
    pub fn begin(&self, traceparent: Option<&[u8]>) -> Arc<ActiveTrace> {
        let parent = traceparent.and_then(TraceContext::parse);
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let [high, low, root] = self.seed.map(|seed| scatter(seed.wrapping_add(number)));
        let trace = parent.map_or((u128::from(high) << 64) | u128::from(low), |parent| parent.trace);
        let state = Mutex::new(State { trace, parent, request: None, children: Vec::new(), begun: 0 });
        let is_own_sampled = self.sampler.samples(None, false, root);
        Arc::new(ActiveTrace { began: Instant::now(), root, is_own_sampled, state })
    }

    /// Whether the trace of an answered request is exported. A context counts only from a caller with a valid credential.
    pub fn samples(&self, trace: &ActiveTrace, is_trusted: bool) -> bool {
        self.sampler.samples(trace.state.lock().parent, is_trusted, trace.root)
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

/// Continues the trace of the caller that a message names, before that of a header.
pub fn adopt(context: TraceContext) {
    if let Some(active) = span::active_trace() {
        let mut state = active.state.lock();
        (state.trace, state.parent) = (context.trace, Some(context));
    }
}

/// Records the id of the JSON-RPC request, as JSON.
pub fn record_request(id: &str) {
    if let Some(active) = span::active_trace() {
        let text = id.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(id);
        active.state.lock().request = Some(text.into());
    }
}

/// The id of the current request's trace, if the gateway began the trace and exports it.
pub fn own_trace() -> Option<[u8; 16]> {
    let active = span::active_trace()?;
    let state = active.state.lock();
    (active.is_own_sampled && state.parent.is_none()).then(|| state.trace.to_be_bytes())
}

/// Runs a part of a request in a child span. The work is pinned by the caller, so that it is not moved.
pub async fn traced<T, E>(
    name: &'static str,
    kind: Kind,
    mut work: Pin<&mut impl Future<Output = Result<T, E>>>,
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
    use std::pin::pin;
    use std::task::{Context, Waker};

    use http::Method;

    use super::{Kind, own_trace, record_request, traced};
    use crate::telemetry::span::RequestSpan;

    #[test]
    fn request_without_a_trace_allocates_nothing() {
        let run = || {
            let work = pin!(async {
                record_request("1");
                let part = pin!(async { Ok::<_, ()>(own_trace()) });
                assert_eq!(traced("access", Kind::Internal, part).await, Ok(None));
            });
            let run = pin!(RequestSpan::new("r-1", &Method::POST).run(work));
            assert!(run.poll(&mut Context::from_waker(Waker::noop())).is_ready());
        };
        assert_eq!(allocation_counter::measure(run).count_total, 0);
    }
}
