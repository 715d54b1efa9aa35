//! The trace of a request in progress: its ids, and the child spans of what took time.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use trace_export::{Kind, Sampler, Span, TraceContext, Value};

/// The maximum number of child spans of a trace; further ones are left out.
const MAX_CHILDREN: usize = 63;

/// What the span of a request keeps of its trace.
#[derive(Debug, Clone)]
pub struct RequestTrace {
    /// The id in log events and audit rows: the caller's, or that of a trace that the gateway samples on its own.
    pub(super) id: Option<u128>,
    recording: Recording,
}

#[derive(Debug, Clone)]
enum Recording {
    /// Nothing is exported.
    Off,
    /// Nothing is exported, unless the message of the request continues a trace that is sampled.
    Unsampled { began: Instant, root: u64, sampler: Sampler },
    /// The trace may be exported.
    Active(Arc<ActiveTrace>),
}

impl RequestTrace {
    /// Nothing is exported of the request; `id` is that of its caller's trace.
    pub(super) fn off(id: Option<u128>) -> Self {
        Self { id, recording: Recording::Off }
    }

    /// The trace of a request that has begun, whose root span has the id `root`. `own` makes the id of a trace without a parent.
    pub(super) fn new(
        sampler: Sampler,
        (began, root): (Instant, u64),
        parent: Option<TraceContext>,
        own: impl FnOnce() -> u128,
    ) -> Self {
        let id = parent.map(|parent| parent.trace);
        if !sampler.may_sample(parent, root) {
            return Self { id, recording: Recording::Unsampled { began, root, sampler } };
        }
        let trace = id.unwrap_or_else(own);
        let active = ActiveTrace::new(sampler, (began, root), trace, parent);
        Self { id: Some(trace), recording: Recording::Active(Arc::new(active)) }
    }

    pub(super) fn active(&self) -> Option<&Arc<ActiveTrace>> {
        let Recording::Active(active) = &self.recording else { return None };
        Some(active)
    }

    /// Continues the trace of a caller instead.
    pub(super) fn adopt(&mut self, context: TraceContext) {
        self.id = Some(context.trace);
        match &self.recording {
            Recording::Active(active) => {
                let mut state = active.state.lock();
                (state.trace, state.parent) = (context.trace, Some(context));
            }
            Recording::Unsampled { began, root, sampler } if sampler.may_sample(Some(context), *root) => {
                let active = ActiveTrace::new(*sampler, (*began, *root), context.trace, Some(context));
                self.recording = Recording::Active(Arc::new(active));
            }
            Recording::Unsampled { .. } | Recording::Off => {}
        }
    }
}

/// The trace of a request that may be exported.
#[derive(Debug)]
pub struct ActiveTrace {
    pub(super) began: Instant,
    /// The id of the root span: random bits that no caller can choose.
    pub(super) root: u64,
    sampler: Sampler,
    pub(super) state: Mutex<State>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) trace: u128,
    pub(super) parent: Option<TraceContext>,
    /// The id of the JSON-RPC request.
    pub(super) request: Option<Box<str>>,
    pub(super) children: Vec<Child>,
    /// The number of child spans that were begun.
    pub(super) begun: u64,
}

#[derive(Debug)]
pub(super) struct Child {
    pub(super) id: u64,
    pub(super) parent: u64,
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) began: Instant,
    pub(super) took: Duration,
    pub(super) is_error: bool,
}

impl Child {
    pub(super) fn span(self, trace: u128, root_began: SystemTime, origin: Instant) -> Span {
        let Self { id, parent, name, kind, began, took, is_error } = self;
        let attributes = match kind {
            Kind::Client if name == SQL => vec![("db.system.name", Value::Text("postgresql".into()))],
            _ => Vec::new(),
        };
        let began = root_began + began.saturating_duration_since(origin);
        let (parent, name) = (Some(parent), name.into());
        let links = Vec::new();
        Span {
            trace,
            id,
            parent,
            is_parent_remote: false,
            name,
            kind,
            began,
            took,
            attributes,
            links,
            is_error,
        }
    }
}

impl ActiveTrace {
    fn new(
        sampler: Sampler,
        (began, root): (Instant, u64),
        trace: u128,
        parent: Option<TraceContext>,
    ) -> Self {
        let state = State { trace, parent, request: None, children: Vec::new(), begun: 0 };
        Self { began, root, sampler, state: Mutex::new(state) }
    }

    /// The id of the trace, if it is to be exported. The context of a caller counts only if it has a valid credential.
    pub fn sampled(&self, is_trusted: bool) -> Option<u128> {
        let state = self.state.lock();
        self.sampler.samples(state.parent, is_trusted, self.root).then_some(state.trace)
    }

    pub(super) fn next_child(&self) -> Option<u64> {
        let mut state = self.state.lock();
        state.begun += 1;
        (state.begun <= MAX_CHILDREN as u64).then(|| mix(self.root ^ state.begun))
    }
}

/// The name of the spans of statements.
pub const SQL: &str = "postgresql";

/// Distributes numbers over all of 64 bits, except 0 (`SplitMix64`).
pub(super) fn mix(number: u64) -> u64 {
    let mut bits = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (bits ^ (bits >> 31)).max(1)
}
