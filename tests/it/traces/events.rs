//! The spans of events on streams, which link to the writes that caused them.

use opentelemetry_proto::tonic::trace::v1::Span;
use serde_json::json;
use sqlx::postgres::{PgListener, PgPoolOptions};
use waggle::model::system::FailPoint;

use super::{TRACE, traced, traceparent};
use crate::support::app::{Builder, Replica, resource};
use crate::support::cluster::database;
use crate::support::collector::{Collector, attributes};
use crate::support::events::{Session, listen};
use crate::support::faults::FaultScript;
use crate::support::wait::eventually;

/// Only what a caller samples.
const SAMPLER: (&str, &str) = ("OTEL_TRACES_SAMPLER", "parentbased_always_off");
const UPDATED: &str = "notifications/resources/updated";
const LISTED: &str = "notifications/resources/list_changed";

/// Writes a resource in the trace of a caller; returns its revision.
async fn put(replica: &Replica, uri: &str, text: &str, (trace, flags): (u128, &str)) -> i64 {
    let (bearer, traceparent) = (format!("Bearer {}", replica.operator), traceparent(trace, flags));
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("traceparent", traceparent.as_str()),
    ];
    let body = json!({"name": "a name", "contents": [{"text": text}]}).to_string();
    let path = format!("/admin/v1{}", resource("a", uri));
    let answer = replica.http.send("PUT", &path, &headers, body).await;
    assert!(answer.status.is_success(), "{} {}", answer.status, answer.text());
    answer.revision()
}

/// The exported spans of this name, once there are so many.
async fn spans(collector: &Collector, name: &str, count: usize) -> Vec<Span> {
    let found = || collector.all().into_iter().filter(|span| span.name == name).collect::<Vec<_>>();
    eventually(&format!("{count} spans {name}"), async || found().len() >= count).await;
    assert_eq!(found().len(), count, "{:?}", found());
    found()
}

/// The trace and the id of the span of the write that belongs to a trace.
async fn write(collector: &Collector, trace: u128) -> (Vec<u8>, Vec<u8>) {
    let spans = collector.trace(trace).await;
    let write = spans.iter().find(|span| span.name == "write").unwrap_or_else(|| panic!("{spans:?}"));
    (write.trace_id.clone(), write.span_id.clone())
}

fn links(span: &Span) -> Vec<(Vec<u8>, Vec<u8>)> {
    span.links.iter().map(|link| (link.trace_id.clone(), link.span_id.clone())).collect()
}

#[tokio::test]
async fn events_link_to_a_write_on_another_replica() {
    let (database, collector) = (database().await, Collector::start(false).await);
    let writer = traced(&database, &collector, &[SAMPLER]).await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "0").await;
    let reader = traced(&database, &collector, &[SAMPLER, ("WAGGLE_TRACES__RESOURCE_URI", "on")]).await;
    let filter = json!({"resourceSubscriptions": ["x:1"], "resourcesListChanged": true});
    let mut modern = listen(&reader, "a", &key, json!(1), filter).await;
    assert_eq!(modern.next_summary().await, "notifications/subscriptions/acknowledged");
    let session = Session::open(&reader, "a", &key, "2025-06-18").await;
    session.subscribe(&reader, "x:1").await;
    let mut legacy = session.stream(&reader, None).await;
    let pool = PgPoolOptions::new().max_connections(1).connect_lazy_with(database.options.clone());
    let mut hints = PgListener::connect_with(&pool).await.unwrap();
    hints.listen("waggle").await.unwrap();

    // Of a trace that is not sampled nothing is sent between replicas, and nothing exported.
    for (text, trace) in [("1", (7, "00")), ("2", (TRACE, "01"))] {
        let revision = put(&writer, "x:1", text, trace).await;
        assert_eq!(modern.next_summary().await, "updated x:1");
        assert_eq!(legacy.next_summary().await, "updated x:1");
        if trace.0 == TRACE {
            let hint = loop {
                let payload = hints.recv().await.unwrap().payload().to_owned();
                if let Some(hint) = payload.split(',').find(|message| message.starts_with('~')) {
                    break hint.to_owned();
                }
            };
            let expected = format!(":{revision}:{TRACE:032x}");
            assert!(hint.contains(&expected), "{hint}: {expected}");
        }
    }
    let events = spans(&collector, UPDATED, 2).await;
    let cause = write(&collector, TRACE).await;
    for event in &events {
        assert_eq!(links(event), std::slice::from_ref(&cause));
        assert_eq!((event.kind, event.parent_span_id.is_empty(), event.status.is_none()), (3, true, true));
        assert_ne!(event.trace_id, TRACE.to_be_bytes().to_vec());
        let attributes = attributes(event);
        for (name, value) in
            [("mcp.method.name", UPDATED), ("mcp.resource.uri", "x:1"), ("waggle.agent", "a")]
        {
            assert!(attributes.contains(&(name.to_owned(), value.to_owned())), "{name}: {attributes:?}");
        }
    }
    let of_sessions = |event: &&Span| attributes(event).iter().any(|(name, _)| name == "mcp.session.id");
    assert_eq!(events.iter().filter(of_sessions).count(), 1);

    put(&writer, "x:2", "new", (TRACE + 1, "01")).await;
    assert_eq!(modern.next_summary().await, "resources");
    assert_eq!(legacy.next_summary().await, "resources");
    for event in spans(&collector, LISTED, 2).await {
        assert_eq!(links(&event), [write(&collector, TRACE + 1).await]);
    }
}

#[tokio::test]
async fn event_of_many_writes_links_to_the_first_eight() {
    let (database, collector) = (database().await, Collector::start(false).await);
    let writer = traced(&database, &collector, &[SAMPLER]).await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "0").await;
    let faults = FaultScript::new();
    let reader = Builder::new(&database)
        .set("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.url)
        .set("OTEL_BSP_SCHEDULE_DELAY", 1)
        .set(SAMPLER.0, SAMPLER.1)
        .fault_injector(faults.clone())
        .start()
        .await;
    let mut stream = listen(&reader, "a", &key, json!(1), json!({"resourceSubscriptions": ["x:1"]})).await;
    assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
    let held = faults.hold(FailPoint::BeforeStreamsRead);
    put(&writer, "x:1", "1", (1, "01")).await;
    held.meanwhile(async {
        for trace in 2..=10 {
            put(&writer, "x:1", &trace.to_string(), (trace, "01")).await;
        }
    })
    .await;
    assert_eq!(stream.next_summary().await, "updated x:1");
    let event = spans(&collector, UPDATED, 1).await.remove(0);
    let mut expected = Vec::new();
    for trace in 1..=8 {
        expected.push(write(&collector, trace).await);
    }
    assert_eq!(links(&event), expected);
    assert!(!attributes(&event).iter().any(|(name, _)| name == "mcp.resource.uri"), "{event:?}");
}
