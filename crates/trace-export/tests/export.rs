//! Export to a collector that decodes what it receives, over HTTP and gRPC; and to collectors that refuse or hang.

#![expect(clippy::unwrap_used, reason = "a failing test panics, its helpers too")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTracePartialSuccess, ExportTraceServiceRequest, ExportTraceServiceResponse,
};
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

/// How long a task has after it is stopped.
const GRACE: Duration = Duration::from_millis(500);

const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// A collector that answers with a status of gRPC, or never.
#[derive(Clone, Default)]
struct Collector {
    received: Arc<Mutex<Vec<Received>>>,
    status: Option<&'static str>,
    /// Whether the status is in the headers, without a message, as servers refuse a call.
    trailers_only: bool,
    /// How many requests are refused first, with this status of HTTP.
    refused: usize,
    refusal: u16,
    /// How long it takes to answer.
    takes: Duration,
    /// The answer to a request.
    answer: ExportTraceServiceResponse,
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
        let is_grpc = parts.headers[CONTENT_TYPE] == "application/grpc";
        let requests = {
            let mut received = self.received.lock().unwrap();
            received.push(Received { path, headers: parts.headers, body });
            received.len()
        };
        tokio::time::sleep(self.takes).await;
        let mut response = Response::builder();
        let (mut body, mut trailers) = (Vec::new(), None);
        if requests <= self.refused {
            response = response.status(self.refusal).header(RETRY_AFTER, "1");
        } else {
            let Some(status) = self.status else { std::future::pending().await };
            if self.trailers_only {
                response = response.header(GRPC_STATUS, status);
            }
            body = if self.trailers_only { Vec::new() } else { self.answer.encode_to_vec() };
            if is_grpc && !self.trailers_only {
                let length = u32::try_from(body.len()).unwrap().to_be_bytes();
                body = [&[0], &length[..], &body].concat();
            }
            trailers = (!self.trailers_only)
                .then(|| HeaderMap::from_iter([(GRPC_STATUS, HeaderValue::from_static(status))]));
        }
        let body = Full::new(Bytes::from(body)).with_trailers(async { trailers.map(Ok) });
        Ok(response.body(body).unwrap())
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

/// Exports to a collector until `until` holds; returns the counters then, and the errors that were reported. Everything is
/// exported or failed once the task has ended.
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
    let running = tokio::spawn(task.run(
        async { _ = stopped.await },
        GRACE,
        |delay| delay,
        move |error| {
            reports.lock().unwrap().push(error.map(str::to_owned));
        },
    ));
    let waiting = async {
        while !until(exporter.stats()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), waiting).await.unwrap();
    let stats = exporter.stats();
    stop.send(()).unwrap();
    running.await.unwrap();
    let ended = exporter.stats();
    assert_eq!(ended.exported + ended.failed, stats.exported + stats.failed + stats.queued as u64);
    assert_eq!(ended.queued, 0);
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

#[tokio::test]
async fn rejected_spans_of_an_accepted_request_count_as_failed() {
    for protocol in ["http/protobuf", "grpc"] {
        let rejected = ExportTracePartialSuccess { rejected_spans: 2, error_message: "no\nname".to_owned() };
        let answer = ExportTraceServiceResponse { partial_success: Some(rejected) };
        let collector = Collector { status: Some("0"), answer, ..Collector::default() };
        let url = collector.listen().await;
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ];
        let all_sent = |stats: ExportStats| stats.queued == 0;
        let (stats, reported) = export(&variables, vec![vec![span(1), span(2), span(4)]], all_sent).await;
        assert_eq!(stats, ExportStats { queued: 0, exported: 1, dropped: 0, failed: 2 }, "{protocol}");
        assert_eq!(reported, [Some(r#"2 spans rejected: "no\nname""#.to_owned())]);
    }
}

#[tokio::test]
async fn busy_collector_is_asked_again_after_the_time_that_it_names() {
    for (protocol, refusal) in [("http/protobuf", 429), ("grpc", 503)] {
        let collector = Collector { status: Some("0"), refused: 1, refusal, ..Collector::default() };
        let url = collector.listen().await;
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", protocol),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ];
        let began = Instant::now();
        let (stats, reported) =
            export(&variables, vec![vec![span(1)]], |stats| stats.exported + stats.failed > 0).await;
        assert_eq!((stats.exported, reported), (1, Vec::new()), "{protocol}");
        assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
    }
}

#[tokio::test]
async fn collector_that_stays_busy_fails_the_batch_within_the_timeout() {
    for (code, trailers_only, refused, timeout) in
        [("14", false, 0, "400"), ("14", true, 0, "400"), ("0", false, 100, "900")]
    {
        let collector =
            Collector { status: Some(code), trailers_only, refused, refusal: 502, ..Collector::default() };
        let url = collector.listen().await;
        let variables = [
            ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", timeout),
            ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ];
        let (stats, _) = export(&variables, vec![vec![span(1)]], |stats| stats.failed == 1).await;
        assert_eq!((stats.queued, stats.exported), (0, 0));
        // A second after 250 ms; none where the collector asks to wait for longer than the timeout.
        assert_eq!(collector.received.lock().unwrap().len(), if refused == 0 { 2 } else { 1 });
    }
}

#[tokio::test]
async fn stop_lets_the_batch_on_its_way_arrive_and_sends_the_rest_in_batches() {
    let takes = Duration::from_millis(100);
    let collector = Collector { status: Some("0"), takes, ..Collector::default() };
    let url = collector.listen().await;
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", url.as_str()),
        ("OTEL_BSP_SCHEDULE_DELAY", "1"),
        ("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "2"),
    ];
    let spans = (1..=3).map(|n| vec![span(2 * n), span(2 * n + 1)]).collect();
    let is_asked = |_| !collector.received.lock().unwrap().is_empty();
    export(&variables, spans, is_asked).await;
    let received = collector.received.lock().unwrap();
    let sent = received.iter().map(|one| {
        let request = ExportTraceServiceRequest::decode(&*one.body).unwrap();
        request.resource_spans[0].scope_spans[0].spans.len()
    });
    assert_eq!(sent.collect::<Vec<_>>(), [2, 2, 2]);
}
