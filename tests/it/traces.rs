//! Traces as a collector receives them.

mod events;

use serde_json::json;

use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::collector::{Collector, attributes, paths};
use crate::support::process::Site;
use crate::support::wait::eventually;

const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
const CALLER: &str = "00f067aa0ba902b7";

fn traceparent(trace: u128, flags: &str) -> String {
    format!("00-{trace:032x}-{CALLER}-{flags}")
}

async fn traced(database: &Database, collector: &Collector, settings: &[(&str, &str)]) -> Replica {
    let builder = Builder::new(database)
        .set("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .set("OTEL_BSP_SCHEDULE_DELAY", 1);
    settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value)).start().await
}

#[tokio::test]
async fn cold_read_is_one_trace_that_continues_the_callers() {
    let (database, collector) = (database().await, Collector::start(false).await);
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "text").await;
    let replica = traced(&database, &collector, &[("WAGGLE_TRACES__RESOURCE_URI", "on")]).await;
    // Before the header, which may be that of a proxy.
    let meta = json!({"traceparent": traceparent(TRACE, "01")});
    let read = json!({"jsonrpc": "2.0", "id": "r1", "method": "resources/read", "params": {"uri": "x:1", "_meta": meta}});
    let header = traceparent(7, "01");
    let headers = [
        ("x-agent-api-key", key.as_str()),
        ("content-type", "application/json"),
        ("x-request-id", "r-7"),
        ("traceparent", &header),
    ];
    assert_eq!(replica.http.send("POST", "/a/mcp", &headers, read.to_string()).await.status, 200);
    let spans = collector.trace(TRACE).await;
    assert_eq!(
        paths(&spans),
        [
            "resources/read",
            "resources/read > access",
            "resources/read > access > load",
            "resources/read > access > load > postgresql",
            "resources/read > load",
            "resources/read > load > postgresql",
        ]
    );
    let root = spans.iter().find(|span| span.kind == 2).unwrap();
    assert_eq!(format!("{:016x}", u64::from_be_bytes(root.parent_span_id[..].try_into().unwrap())), CALLER);
    let tenant = attributes(root).into_iter().find(|(name, _)| name == "waggle.tenant").unwrap().1;
    let expected = [
        ("mcp.method.name", "resources/read"),
        ("mcp.protocol.version", "2025-03-26"),
        ("mcp.resource.uri", "x:1"),
        ("http.request.method", "POST"),
        ("waggle.request_id", "r-7"),
        ("waggle.tenant", &tenant),
        ("waggle.agent", "a"),
        ("http.response.status_code", "200"),
        ("jsonrpc.request.id", "r1"),
    ];
    assert_eq!(attributes(root), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let ended = spans.iter().all(|span| {
        root.start_time_unix_nano <= span.start_time_unix_nano
            && span.end_time_unix_nano <= root.end_time_unix_nano
    });
    assert!(ended && root.status.is_none(), "{spans:?}");
    let row = async || {
        let rows = replica.admin("GET", "/audit?agent=a&method=resources/read", None).await.json();
        rows["items"][0].clone()
    };
    eventually("the read is audited", async || row().await["requestId"] == "r-7").await;
    assert_eq!(row().await["traceId"], format!("{TRACE:032x}"));
}

#[tokio::test]
async fn context_of_a_stranger_forces_no_trace() {
    let (database, collector) = (database().await, Collector::start(false).await);
    let replica = traced(&database, &collector, &[("OTEL_TRACES_SAMPLER", "parentbased_always_off")]).await;
    let key = replica.acme("a").await;
    replica.admin("PATCH", "/agents/a", Some(json!({"access": "public"}))).await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let send = async |credential: Option<&str>, trace: u128, flags: &str| {
        let traceparent = traceparent(trace, flags);
        let mut headers = vec![("content-type", "application/json"), ("traceparent", traceparent.as_str())];
        headers.extend(credential.map(|key| ("x-agent-api-key", key)));
        replica.http.send("POST", "/a/mcp", &headers, ping.to_string()).await.status.as_u16()
    };
    assert_eq!(send(None, 1, "01").await, 200);
    assert_eq!(send(Some("bak_forged"), 2, "01").await, 401);
    assert_eq!(send(Some(&key), 3, "00").await, 200);
    assert_eq!(send(Some(&key), 4, "01").await, 200);
    let spans = collector.trace(4).await;
    assert_eq!(paths(&spans), ["ping", "ping > access"]);
    assert_eq!(collector.roots(), ["ping"]);
    let exported = async || replica.metric("waggle_trace_spans_total{outcome=\"exported\"}").await;
    eventually("both spans are counted", async || exported().await > 0.0).await;
    assert_eq!(exported().await, 2.0);
}

#[tokio::test]
async fn collector_that_hangs_delays_no_request() {
    let (database, collector) = (database().await, Collector::start(true).await);
    let settings = [("OTEL_BSP_MAX_QUEUE_SIZE", "6"), ("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")];
    let replica = traced(&database, &collector, &settings).await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "text").await;
    for _ in 0..20 {
        assert!(replica.http.text("a", &key, "x:1").await.is_some());
    }
    assert!(replica.metric("waggle_trace_spans_total{outcome=\"dropped\"}").await >= 30.0);
    assert!(replica.metric("waggle_trace_spans_queued").await <= 6.0);
    assert_eq!(replica.metric("waggle_trace_spans_total{outcome=\"exported\"}").await, 0.0);
    replica.running.stop().await;
}

#[tokio::test]
async fn failure_and_administration_are_traced() {
    let (database, collector) = (database().await, Collector::start(false).await);
    let replica = traced(&database, &collector, &[]).await;
    let key = replica.acme("a").await;
    replica.http.call("a", &key, "resources/read", json!({"uri": "x:secret"})).await;
    let expected = ["POST /admin/v1/agents", "resources/read"];
    let has = |name: &&str| collector.roots().iter().any(|root| root == name);
    eventually("both are exported", async || expected.iter().all(has)).await;
    let spans = collector.all();
    let read = spans.iter().find(|span| span.name == "resources/read").unwrap();
    assert_eq!(read.status.as_ref().unwrap().code, 2);
    let attributes = attributes(read);
    assert!(
        attributes.contains(&("error.type".to_owned(), "resource_not_found".to_owned())),
        "{attributes:?}"
    );
    assert!(!attributes.iter().any(|(_, value)| value.contains("secret")), "{attributes:?}");
}

#[tokio::test]
async fn log_trace_and_audit_row_share_their_ids() {
    let collector = Collector::start(false).await;
    let site = Site::new()
        .set("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .set("OTEL_BSP_SCHEDULE_DELAY", 1)
        .set("WAGGLE_LOG__ACCESS", "on");
    let gateway = site.serve().await;
    let key = site.tenant("acme", ["a".to_owned()]).await;
    let headers = [
        ("authorization", &*format!("Bearer {key}")),
        ("content-type", "application/json"),
        ("x-request-id", "r-9"),
    ];
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}).to_string();
    assert_eq!(site.http.send("POST", "/a/mcp", &headers, list).await.status, 200);

    let root = || collector.all().into_iter().find(|span| span.name == "resources/list");
    eventually("the span is exported", async || root().is_some()).await;
    let span = root().unwrap();
    assert!(attributes(&span).contains(&("waggle.request_id".to_owned(), "r-9".to_owned())), "{span:?}");
    let trace: String = span.trace_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let logged = || site.printed("stderr").lines().find(|line| line.contains("r-9")).map(str::to_owned);
    eventually("the request is logged", async || logged().is_some()).await;
    let line: serde_json::Value = serde_json::from_str(&logged().unwrap()).unwrap();
    assert_eq!((&line["request_id"], &line["trace_id"]), (&json!("r-9"), &json!(trace)));
    let row = async || {
        let rows = site.admin("GET", "/audit?agent=a&method=resources/list", None).await.json();
        rows["items"][0].clone()
    };
    eventually("the request is audited", async || row().await["requestId"] == "r-9").await;
    assert_eq!(row().await["traceId"], json!(trace));
    gateway.stop().await;
}
