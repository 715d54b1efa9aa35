//! Collects ended spans in a bounded queue, and exports them in batches.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span as WireSpan};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::config::Config;
use crate::span::{Span, Value, attribute};
use crate::transport::{SendError, Transport};

/// Accepts ended spans. Never waits.
#[derive(Debug)]
pub struct Exporter {
    queue: Arc<Queue>,
    most: usize,
    counters: Arc<Counters>,
}

/// The spans that wait for the next batch. Its task is woken twice for a batch, and not for each trace: a wake-up costs more
/// than the spans of a trace do.
#[derive(Debug)]
struct Queue {
    spans: Mutex<Waiting>,
    /// The number of spans that make a batch.
    batch: usize,
    /// Notified when there is a first span, and when there is a batch.
    ready: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    spans: Vec<Span>,
    /// Whether no more are accepted.
    is_closed: bool,
}

impl Queue {
    /// Appends spans. Returns whether they were accepted.
    fn push(&self, spans: Vec<Span>) -> bool {
        let mut queued = self.spans.lock();
        if queued.is_closed {
            return false;
        }
        let before = queued.spans.len();
        queued.spans.extend(spans);
        if before == 0 || before < self.batch && queued.spans.len() >= self.batch {
            self.ready.notify_one();
        }
        true
    }

    /// Waits until at least so many spans are queued, or no more are accepted.
    async fn holds(&self, count: usize) {
        let holds = |waiting: &Waiting| waiting.is_closed || waiting.spans.len() >= count;
        while !holds(&self.spans.lock()) {
            self.ready.notified().await;
        }
    }

    /// The oldest spans, at most `most`.
    fn take(&self, most: usize) -> Vec<Span> {
        let spans = &mut self.spans.lock().spans;
        let rest = spans.split_off(spans.len().min(most));
        std::mem::replace(spans, rest)
    }

    /// Accepts no more spans.
    fn close(&self) {
        self.spans.lock().is_closed = true;
        self.ready.notify_one();
    }
}

#[derive(Debug, Default)]
struct Counters {
    queued: AtomicUsize,
    exported: AtomicU64,
    dropped: AtomicU64,
    failed: AtomicU64,
}

/// The counters of an exporter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExportStats {
    /// Spans in the queue.
    pub queued: usize,
    /// Spans that the collector accepted.
    pub exported: u64,
    /// Spans that found the queue full.
    pub dropped: u64,
    /// Spans that the collector refused or did not accept in time.
    pub failed: u64,
}

/// Sends the batches of an exporter.
pub struct ExportTask {
    queue: Arc<Queue>,
    counters: Arc<Counters>,
    transport: Transport,
    resource: Resource,
    scope: InstrumentationScope,
    delay: Duration,
}

impl Exporter {
    /// An exporter in the name of a library, and the task that sends its batches. A crypto provider for rustls must be
    /// installed.
    ///
    /// # Errors
    /// If the system's authorities cannot be read.
    pub fn new(config: Config, (name, version): (&str, &str)) -> Result<(Self, ExportTask), reqwest::Error> {
        let most = config.queue;
        let queue = Arc::new(Queue { spans: Mutex::default(), batch: config.batch, ready: Notify::new() });
        let counters = Arc::new(Counters::default());
        let own = config.resource.iter().map(|(name, value)| (name.as_str(), value.clone()));
        let sdk = [("telemetry.sdk.language", "rust"), ("service.version", version)];
        let all = sdk.map(|(name, value)| (name, value.to_owned())).into_iter().chain(own);
        let attributes = all.map(|(name, value)| attribute(name, Value::Text(value.into()))).collect();
        let task = ExportTask {
            queue: Arc::clone(&queue),
            counters: Arc::clone(&counters),
            resource: Resource { attributes, ..Resource::default() },
            scope: InstrumentationScope {
                name: name.to_owned(),
                version: version.to_owned(),
                ..InstrumentationScope::default()
            },
            delay: config.delay,
            transport: Transport::new(config)?,
        };
        Ok((Self { queue, most, counters }, task))
    }

    /// Queues the spans of one trace; drops all of them where the queue has no room.
    pub fn export(&self, spans: Vec<Span>) {
        let count = spans.len();
        let before = self.counters.queued.fetch_add(count, Ordering::Relaxed);
        if before + count > self.most || !self.queue.push(spans) {
            self.counters.queued.fetch_sub(count, Ordering::Relaxed);
            self.counters.dropped.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    /// The counters.
    pub fn stats(&self) -> ExportStats {
        let Counters { queued, exported, dropped, failed } = &*self.counters;
        ExportStats {
            queued: queued.load(Ordering::Relaxed),
            exported: exported.load(Ordering::Relaxed),
            dropped: dropped.load(Ordering::Relaxed),
            failed: failed.load(Ordering::Relaxed),
        }
    }
}

impl ExportTask {
    /// Sends batches until `stop`, then the one on its way and what is queued, within `grace`. `jitter` varies the delays
    /// of retries, so that exporters do not retry together. `report` is called with the error when batches begin to fail,
    /// and without one when they arrive again.
    pub async fn run(
        self,
        stop: impl Future<Output = ()>,
        grace: Duration,
        jitter: impl Fn(Duration) -> Duration,
        report: impl Fn(Option<&str>),
    ) {
        {
            let mut exporting = pin!(self.send_batches(jitter, report));
            tokio::select! {
                () = stop => self.queue.close(),
                () = &mut exporting => return,
            }
            _ = timeout(grace, exporting).await;
        }
        drop(Sending::of(&self.counters, self.queue.take(usize::MAX).len()));
    }

    /// Sends batches until the queue is closed and empty.
    async fn send_batches(&self, jitter: impl Fn(Duration) -> Duration, report: impl Fn(Option<&str>)) {
        let mut fails = false;
        loop {
            let batch = self.collect().await;
            if batch.is_empty() {
                return;
            }
            let error = self.send(batch, &jitter).await.err().map(|error| error.to_string());
            if error.is_some() != fails {
                report(error.as_deref());
            }
            fails = error.is_some();
        }
    }

    /// Waits for spans, and for more of them until there is a batch or the delay is over. None are left once it returns none.
    async fn collect(&self) -> Vec<Span> {
        self.queue.holds(1).await;
        _ = timeout(self.delay, self.queue.holds(self.queue.batch)).await;
        self.queue.take(self.queue.batch)
    }

    async fn send(&self, batch: Vec<Span>, jitter: impl Fn(Duration) -> Duration) -> Result<(), SendError> {
        let sending = Sending::of(&self.counters, batch.len());
        let request = ExportTraceServiceRequest {
            resource_spans: vec![ResourceSpans {
                resource: Some(self.resource.clone()),
                scope_spans: vec![ScopeSpans {
                    scope: Some(self.scope.clone()),
                    spans: batch.into_iter().map(WireSpan::from).collect(),
                    ..ScopeSpans::default()
                }],
                ..ResourceSpans::default()
            }],
        };
        let sent = self.transport.send(request.encode_to_vec(), jitter).await;
        match &sent {
            Ok(()) => sending.arrived(0),
            Err(SendError::Rejected(rejected, _)) => sending.arrived(*rejected),
            Err(_) => {}
        }
        sent
    }
}

/// Spans on their way: they count as failed unless they arrive, also if the sending is cut off.
struct Sending<'c> {
    counters: &'c Counters,
    count: usize,
}

impl<'c> Sending<'c> {
    fn of(counters: &'c Counters, count: usize) -> Self {
        Self { counters, count }
    }

    /// Counts all but the rejected ones as exported.
    fn arrived(mut self, rejected: usize) {
        let exported = self.count.saturating_sub(rejected);
        self.counters.exported.fetch_add(exported as u64, Ordering::Relaxed);
        self.counters.queued.fetch_sub(exported, Ordering::Relaxed);
        self.count -= exported;
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.counters.failed.fetch_add(self.count as u64, Ordering::Relaxed);
        self.counters.queued.fetch_sub(self.count, Ordering::Relaxed);
    }
}
