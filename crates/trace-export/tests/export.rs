//! Export to a collector that decodes what it receives, over HTTP and gRPC; and to collectors that refuse or hang.

#![expect(clippy::unwrap_used, reason = "a failing test panics, its helpers too")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use prost::Message;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use trace_export::{Config, ExportStats, Exporter, Kind, Link, Span, Value};

/// A request that a collector received.
struct Received {
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// A collector that answers with a status of gRPC, or never.
#[derive(Clone, Default)]
struct Collector {
    received: Arc<Mutex<Vec<Received>>>,
    status: Option<&'static str>,
}

impl Collector {
    /// Listens on loopback; returns its URL.
    async fn listen(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let collector = self.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let collector = collector.clone();
                tokio::spawn(async move {
                    let service = service_fn(move |request| {
                        let collector = collector.clone();
                        async move { collector.answer(request).await }
                    });
                    let builder = Builder::new(TokioExecutor::new());
                    builder.serve_connection(TokioIo::new(stream), service).await.ok();
                });
            }
        });
        url
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<impl Body<Data = Bytes, Error = Infallible> + Send + use<>>, Infallible> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let path = parts.uri.path().to_owned();
        self.received.lock().unwrap().push(Received { path, headers: parts.headers, body });
        let Some(status) = self.status else { std::future::pending().await };
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from_static(status));
        Ok(Response::new(Full::new(Bytes::new()).with_trailers(async { Some(Ok(trailers)) })))
    }
}

fn span(id: u64) -> Span {
    Span {
        trace: 7,
        id,
        parent: Some(3),
        is_parent_remote: true,
        name: "resources/read".into(),
        kind: Kind::Server,
        began: SystemTime::UNIX_EPOCH + Duration::from_secs(1),
        took: Duration::from_millis(2),
        attributes: vec![
            ("mcp.method.name", Value::Text("resources/read".into())),
            ("http.response.status_code", Value::Integer(200)),
        ],
        links: vec![Link { trace: 5, span: 6 }],
        is_error: true,
    }
}

/// Exports to a collector until `until` holds; returns the counters, and the errors that were reported.
async fn export(
    variables: &[(&str, &str)],
    spans: Vec<Vec<Span>>,
    until: impl Fn(ExportStats) -> bool,
) -> (ExportStats, Vec<Option<String>>) {
    rustls::crypto::ring::default_provider().install_default().ok();
    let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
    let config = Config::read("test", |name| find(name).map(|(_, value)| (*value).to_owned()));
    let (exporter, task) = Exporter::new(config.unwrap().unwrap(), ("waggle", "1.2.3")).unwrap();
    for spans in spans {
        exporter.export(spans);
    }
    let reported = Arc::new(Mutex::new(Vec::new()));
    let (stop, stopped) = oneshot::channel::<()>();
    let reports = Arc::clone(&reported);
    let running =
        tokio::spawn(task.run(async { _ = stopped.await }, Duration::from_millis(50), move |error| {
            reports.lock().unwrap().push(error.map(str::to_owned));
        }));
    let waiting = async {
        while !until(exporter.stats()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap();
    let stats = exporter.stats();
    stop.send(()).unwrap();
    running.await.unwrap();
    let reported = reported.lock().unwrap().clone();
    (stats, reported)
}

#[tokio::test]
async fn batch_arrives_over_http_and_grpc() {
    for (protocol, path, prefix) in [
        ("http/protobuf", "/v1/traces", 0),
        ("grpc", "/opentelemetry.proto.collector.trace.v1.TraceService/Export", 5),
    ] {
        let collector = Collector { status: Some("0"), ..Collector::default() };
        let url = collector.listen().await;
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x"),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ];
        let all_sent = |stats: ExportStats| stats.exported == 3;
        let (stats, reported) =
            export(&variables, vec![vec![span(1), span(2)], vec![span(4)]], all_sent).await;
        assert_eq!(stats, ExportStats { queued: 0, exported: 3, dropped: 0, failed: 0 }, "{protocol}");
        assert_eq!(reported, [] as [Option<String>; 0]);
        let received = collector.received.lock().unwrap();
        let first = received.first().unwrap();
        assert_eq!(first.path, path);
        assert_eq!(first.headers["authorization"], "Bearer x");
        let decoded =
            received.iter().map(|one| ExportTraceServiceRequest::decode(&one.body[prefix..]).unwrap());
        let spans: Vec<_> = decoded
            .flat_map(|request| request.resource_spans)
            .flat_map(|spans| {
                let resource = spans.resource.unwrap();
                assert!(resource.attributes.iter().any(|attribute| attribute.key == "service.name"));
                spans.scope_spans
            })
            .flat_map(|spans| spans.spans)
            .collect();
        assert_eq!(spans.iter().map(|span| span.span_id[7]).collect::<Vec<_>>(), [1, 2, 4]);
        let span = &spans[0];
        assert_eq!(
            (span.trace_id.len(), span.trace_id[15], &*span.parent_span_id),
            (16, 7, &[0, 0, 0, 0, 0, 0, 0, 3][..])
        );
        assert_eq!((span.name.as_str(), span.kind, span.flags), ("resources/read", 2, 0x301));
        assert_eq!((span.start_time_unix_nano, span.end_time_unix_nano), (1_000_000_000, 1_002_000_000));
        assert_eq!(span.status.as_ref().unwrap().code, 2);
        let names: Vec<_> = span.attributes.iter().map(|attribute| attribute.key.as_str()).collect();
        assert_eq!(names, ["mcp.method.name", "http.response.status_code"]);
        let link = &span.links[0];
        assert_eq!((&*link.trace_id, &*link.span_id), (&5_u128.to_be_bytes()[..], &6_u64.to_be_bytes()[..]));
    }
}

#[tokio::test]
async fn refusal_is_counted_and_reported_once() {
    let collector = Collector { status: Some("8"), ..Collector::default() };
    let url = collector.listen().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "1"),
    ];
    let (stats, reported) =
        export(&variables, vec![vec![span(1)], vec![span(2)]], |stats| stats.failed == 2).await;
    assert_eq!((stats.queued, stats.exported, stats.dropped), (0, 0, 0));
    assert_eq!(reported, [Some("gRPC status 8".to_owned())]);
}

#[tokio::test]
async fn collector_that_hangs_costs_the_queue_and_no_more() {
    let collector = Collector::default();
    let url = collector.listen().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000"),
        ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ("OTEL_BSP_MAX_QUEUE_SIZE", "3"),
    ];
    let spans = vec![vec![span(1), span(2)], vec![span(3), span(4)], vec![span(5)]];
    let is_asked = || !collector.received.lock().unwrap().is_empty();
    let (stats, _) = export(&variables, spans, |_| is_asked()).await;
    assert_eq!(stats, ExportStats { queued: 3, exported: 0, dropped: 2, failed: 0 });
}
