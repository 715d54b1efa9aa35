//! A collector of traces, which decodes what it receives; or one that never answers.

use std::sync::Arc;

use axum::Router;
use axum::routing::post;
use bytes::Bytes;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::Span;
use parking_lot::Mutex;
use prost::Message;
use tokio::net::TcpListener;

use super::wait::eventually;

/// What a collector received.
#[derive(Clone, Default)]
pub(crate) struct Collector {
    spans: Arc<Mutex<Vec<Span>>>,
    pub(crate) url: String,
}

impl Collector {
    /// Listens on loopback. One that hangs accepts requests and never answers.
    pub(crate) async fn start(hangs: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let collector = Self { url, ..Self::default() };
        let spans = Arc::clone(&collector.spans);
        let receive = move |body: Bytes| {
            let request = ExportTraceServiceRequest::decode(body).unwrap();
            let received = request.resource_spans.into_iter().flat_map(|spans| spans.scope_spans);
            spans.lock().extend(received.flat_map(|spans| spans.spans));
            async move {
                if hangs {
                    std::future::pending::<()>().await;
                }
            }
        };
        let router = Router::new().route("/v1/traces", post(receive));
        tokio::spawn(async move { axum::serve(listener, router).await });
        collector
    }

    /// Waits for the spans of a trace.
    pub(crate) async fn trace(&self, id: u128) -> Vec<Span> {
        let found = || {
            let spans = self.spans.lock();
            spans.iter().filter(|span| span.trace_id == id.to_be_bytes()).cloned().collect::<Vec<_>>()
        };
        eventually("the trace is exported", async || !found().is_empty()).await;
        found()
    }

    /// Everything received so far.
    pub(crate) fn all(&self) -> Vec<Span> {
        self.spans.lock().clone()
    }

    /// The names of all root spans.
    pub(crate) fn roots(&self) -> Vec<String> {
        let spans = self.spans.lock();
        spans.iter().filter(|span| span.kind == 2).map(|span| span.name.clone()).collect()
    }
}

/// The attributes of a span, as text.
pub(crate) fn attributes(span: &Span) -> Vec<(String, String)> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().unwrap().value.as_ref().unwrap() {
        Value::StringValue(text) => text.clone(),
        Value::IntValue(number) => number.to_string(),
        other => panic!("{other:?}"),
    };
    span.attributes.iter().map(|attribute| (attribute.key.clone(), text(attribute))).collect()
}

/// Each span with those above it, in the order in which they began.
pub(crate) fn paths(spans: &[Span]) -> Vec<String> {
    let mut spans: Vec<_> = spans.iter().collect();
    spans.sort_by_key(|span| (span.start_time_unix_nano, std::cmp::Reverse(span.end_time_unix_nano)));
    let path = |span: &&Span| {
        let mut names = vec![span.name.as_str()];
        let mut above = span.parent_span_id.clone();
        while let Some(parent) = spans.iter().find(|span| span.span_id == above) {
            names.push(&parent.name);
            above.clone_from(&parent.parent_span_id);
        }
        names.reverse();
        names.join(" > ")
    };
    spans.iter().map(path).collect()
}
