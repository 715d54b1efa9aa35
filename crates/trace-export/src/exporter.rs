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
    /// `None` once nothing is exported any more.
    spans: Mutex<Option<Vec<Span>>>,
    /// The number of spans that make a batch.
    batch: usize,
    /// Notified when there is a first span, and when there is a batch.
    ready: Notify,
}

impl Queue {
    /// Appends spans. Returns whether they were accepted.
    fn push(&self, spans: Vec<Span>) -> bool {
        let mut queued = self.spans.lock();
        let Some(queued) = queued.as_mut() else { return false };
        let before = queued.len();
        queued.extend(spans);
        if before == 0 || before < self.batch && queued.len() >= self.batch {
            self.ready.notify_one();
        }
        true
    }

    /// Waits until at least so many spans are queued.
    async fn holds(&self, count: usize) {
        while self.spans.lock().as_ref().is_some_and(|spans| spans.len() < count) {
            self.ready.notified().await;
        }
    }

    /// The oldest spans, at most a batch.
    fn take(&self) -> Vec<Span> {
        self.spans.lock().as_mut().map_or_else(Vec::new, |spans| {
            let rest = spans.split_off(spans.len().min(self.batch));
            std::mem::replace(spans, rest)
        })
    }

    /// Accepts no more spans; returns those that wait.
    fn close(&self) -> Vec<Span> {
        self.spans.lock().take().unwrap_or_default()
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
        let queue = Arc::new(Queue {
            spans: Mutex::new(Some(Vec::new())),
            batch: config.batch,
            ready: Notify::new(),
        });
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
    /// Sends batches until `stop`, then what is queued, within `grace`. `report` is called with the error when batches
    /// begin to fail, and without one when they arrive again.
    pub async fn run(self, stop: impl Future<Output = ()>, grace: Duration, report: impl Fn(Option<&str>)) {
        let mut stop = pin!(stop);
        let mut fails = false;
        loop {
            let batch = tokio::select! {
                () = &mut stop => break,
                batch = self.collect() => batch,
            };
            tokio::select! {
                () = &mut stop => break,
                sent = self.send(batch) => {
                    let error = sent.err().map(|error| error.to_string());
                    if error.is_some() != fails {
                        report(error.as_deref());
                    }
                    fails = error.is_some();
                }
            }
        }
        let rest = self.queue.close();
        if !rest.is_empty()
            && let Ok(Err(error)) = timeout(grace, self.send(rest)).await
        {
            report(Some(&error.to_string()));
        }
    }

    /// Waits for spans, and for more of them until there is a batch or the delay is over.
    async fn collect(&self) -> Vec<Span> {
        self.queue.holds(1).await;
        _ = timeout(self.delay, self.queue.holds(self.queue.batch)).await;
        self.queue.take()
    }

    async fn send(&self, batch: Vec<Span>) -> Result<(), SendError> {
        let sending = Sending { counters: &self.counters, count: batch.len() };
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
        self.transport.send(request.encode_to_vec()).await?;
        sending.succeeded();
        Ok(())
    }
}

/// Spans on their way: they count as failed unless they arrive, also if the sending is cut off.
struct Sending<'c> {
    counters: &'c Counters,
    count: usize,
}

impl Sending<'_> {
    fn succeeded(mut self) {
        self.counters.exported.fetch_add(self.count as u64, Ordering::Relaxed);
        self.counters.queued.fetch_sub(self.count, Ordering::Relaxed);
        self.count = 0;
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        self.counters.failed.fetch_add(self.count as u64, Ordering::Relaxed);
        self.counters.queued.fetch_sub(self.count, Ordering::Relaxed);
    }
}
