//! Sessions and their streams.

use serde_json::json;
use tokio_util::sync::CancellationToken;
use waggle::mcp::legacy::event_id::Position;
use waggle::model::label::CallerLabels;
use waggle::model::scope::Revision;
use waggle::model::session::SessionId;
use waggle::model::system::SystemRandom;

use crate::support::app::{Builder, gateway};
use crate::support::cluster::database;
use crate::support::events::{Event, Session};
use crate::support::wait::eventually;

const VERSIONS: [&str; 4] = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"];

#[tokio::test]
async fn only_the_newest_legacy_revision_primes_its_stream() {
    let (database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:a", "1").await;
    for version in VERSIONS {
        let session = Session::open(&replica, "a", &key, version).await;
        assert!(
            session.id.len() >= 43 && session.id.bytes().all(|byte| byte.is_ascii_graphic()),
            "{}",
            session.id
        );
        session.subscribe(&replica, "x:a").await;
        let mut stream = session.stream(&replica, None).await;
        let revision = replica.put("a", "x:a", version).await;
        let ids = session.event_ids(&database).await;
        let mut event = stream.next().await.unwrap();
        let mut number = 0;
        if version == "2025-11-25" {
            let primed = event.position(&ids);
            assert_eq!((event.data.as_deref(), primed.event), (Some(""), 0));
            assert!(matches!(event.retry, Some(500..=3_000)), "{:?}", event.retry);
            event = stream.next().await.unwrap();
            number = 1;
        }
        let updated = json!({
            "jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "x:a"},
        });
        let labels = CallerLabels::default().digest();
        let position = Position { stream: 1, watermark: Revision(revision), event: number, labels };
        assert_eq!((event.json(), event.retry, event.position(&ids)), (updated, None, position), "{version}");
    }
}

#[tokio::test]
async fn session_refuses_unknown_methods_and_can_be_deleted() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:a", "1").await;
    let session = Session::open(&replica, "a", &key, "2025-11-25").await;
    let missing = session.call(&replica, "resources/subscribe", json!({"uri": "x:missing"})).await;
    let error = json!({
        "code": -32002, "message": "resource not found: x:missing",
        "data": {"code": "resource_not_found", "uri": "x:missing"},
    });
    assert_eq!(missing.json(), json!({"jsonrpc": "2.0", "id": 7, "error": error}));
    for (method, params) in [
        ("resources/subscribe", json!({})),
        ("resources/subscribe", json!({"uri": "no uri"})),
        ("resources/unsubscribe", json!({"uri": 1})),
        ("logging/setLevel", json!({"level": "loud"})),
        ("logging/setLevel", json!({})),
    ] {
        let refused = session.call(&replica, method, params).await.json();
        assert_eq!((&refused["error"]["code"], &refused["id"]), (&json!(-32602), &json!(7)), "{method}");
    }
    session.unsubscribe(&replica, "x:never").await;

    assert_eq!(session.send(&replica, "GET", &[]).await.status, 405);
    let put = session.send(&replica, "PUT", &[]).await;
    assert_eq!((put.status.as_u16(), put.header("allow")), (405, Some("GET, POST, DELETE")));
    let deleted = session.send(&replica, "DELETE", &[]).await;
    assert_eq!((deleted.status.as_u16(), deleted.text()), (204, String::new()));
    let gone = json!({
        "code": -32001, "message": "session not found", "data": {"code": "session_not_found"},
    });
    let answer = session.call(&replica, "ping", json!({})).await;
    assert_eq!(
        (answer.status.as_u16(), answer.json()),
        (404, json!({"jsonrpc": "2.0", "id": 7, "error": gone}))
    );
    for (method, accept) in [("GET", "text/event-stream"), ("DELETE", "*/*")] {
        let answer = session.send(&replica, method, &[("accept", accept)]).await;
        assert_eq!((answer.status.as_u16(), answer.json()), (404, json!({"jsonrpc": "2.0", "error": gone})));
    }
}

#[tokio::test]
async fn session_is_refused_to_other_keys() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.agent("acme", "b").await;
    let (other, elsewhere) = (replica.key("a", &["mcp"]).await.1, replica.key("b", &["mcp"]).await.1);
    let session = Session::open(&replica, "a", &key, "2025-11-25").await;
    for (agent, key) in [("a", other), ("b", elsewhere)] {
        let stolen = Session { agent: agent.to_owned(), key, ..session.clone() };
        assert_eq!(stolen.call(&replica, "ping", json!({})).await.status, 404);
        assert_eq!(stolen.send(&replica, "GET", &[("accept", "text/event-stream")]).await.status, 404);
        assert_eq!(stolen.send(&replica, "DELETE", &[]).await.status, 404);
    }
    assert_eq!(session.call(&replica, "ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn first_stream_delivers_changes_since_each_subscription() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    for uri in ["x:a", "x:b", "x:c"] {
        replica.put("a", uri, "1").await;
    }
    let session = Session::open(&replica, "a", &key, "2025-06-18").await;
    session.subscribe(&replica, "x:a").await;
    replica.put("a", "x:a", "2").await;
    replica.put("a", "x:b", "2").await;
    session.subscribe(&replica, "x:b").await;
    session.subscribe(&replica, "x:c").await;
    let mut stream = session.stream(&replica, None).await;
    stream.expect_events(&["updated x:a"]).await;
    session.unsubscribe(&replica, "x:a").await;
    replica.put("a", "x:a", "3").await;
    replica.put("a", "x:c", "2").await;
    stream.expect_events(&["updated x:c"]).await;
}

#[tokio::test]
async fn stream_resumes_on_any_replica() {
    let database = database().await;
    let (one, two) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    let key = one.acme("a").await;
    for uri in ["x:a", "x:b"] {
        one.put("a", uri, "1").await;
    }
    let session = Session::open(&one, "a", &key, "2025-11-25").await;
    session.subscribe(&one, "x:a").await;
    session.subscribe(&two, "x:b").await;
    let mut stream = session.stream(&one, None).await;
    let primed = stream.next().await.unwrap();
    one.put("a", "x:a", "2").await;
    let last = stream.next().await.unwrap();
    assert_eq!(last.summary(), "updated x:a");
    drop(stream);
    one.put("a", "x:b", "2").await;
    let mut resumed = session.stream(&two, last.id.as_deref()).await;
    resumed.next().await.unwrap();
    resumed.expect_events(&["updated x:b"]).await;
    let mut from_the_start = session.stream(&one, primed.id.as_deref()).await;
    from_the_start.next().await.unwrap();
    from_the_start.expect_events(&["updated x:a", "updated x:b"]).await;
    let ids = session.event_ids(&database).await;
    let positions = [primed, last].map(|event| event.position(&ids));
    assert_eq!(positions.map(|position| position.stream), [1, 1], "both are of the same stream");
}

#[tokio::test]
async fn unreadable_event_id_replays_everything() {
    let (database, replica) = gateway().await;
    let key = replica.acme("a").await;
    for uri in ["x:a", "x:b"] {
        replica.put("a", uri, "1").await;
    }
    let session = Session::open(&replica, "a", &key, "2025-11-25").await;
    let other = Session::open(&replica, "a", &key, "2025-11-25").await;
    let foreign = other.stream(&replica, None).await.next().await.unwrap().id.unwrap();
    session.subscribe(&replica, "x:a").await;
    session.subscribe(&replica, "x:b").await;
    session.done(&replica, "logging/setLevel", json!({"level": "warning"})).await;
    let own = session.stream(&replica, None).await.next().await.unwrap();
    let mut ids = session.event_ids(&database).await;
    let position = own.position(&ids);
    let mut seal = |position| ids.seal(position, &SystemRandom).unwrap();
    let future = seal(Position { watermark: Revision(position.watermark.0 + 1_000), ..position });
    let later = seal(Position { stream: position.stream + 1_000, ..position });
    let mark = SessionId::parse(&session.id).unwrap().uid().0.simple().to_string();
    let former = format!("{}1-{}-0", &mark[..8], position.watermark);
    let longer = format!("{}A", own.id.unwrap());
    for id in ["", "x", "1-2-3", "ä", &foreign, &future, &later, &former, &longer] {
        let mut resumed = session.stream(&replica, Some(id)).await;
        resumed.next().await.unwrap();
        resumed
            .expect_events(&[
                "log replay_incomplete",
                "resources",
                "prompts",
                "tools",
                "updated x:a",
                "updated x:b",
            ])
            .await;
    }
}

#[tokio::test]
async fn resume_beyond_retained_changes_replays_everything() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_CHANGES__RETAIN_SECONDS", 1).start().await;
    let key = replica.acme("a").await;
    for uri in ["x:a", "x:b", "x:c"] {
        replica.put("a", uri, "1").await;
    }
    let session = Session::open(&replica, "a", &key, "2025-11-25").await;
    session.subscribe(&replica, "x:a").await;
    session.subscribe(&replica, "x:b").await;
    let primed = session.stream(&replica, None).await.next().await.unwrap();
    replica.put("a", "x:c", "2").await;
    let kept = "select count(*) from changes where at > now() - interval '1100 ms'";
    eventually("the changes are too old to be kept", async || database.number(kept).await == 0).await;
    replica.running.services.maintenance.prune_changes(&CancellationToken::new()).await;
    let mut resumed = session.stream(&replica, primed.id.as_deref()).await;
    resumed.next().await.unwrap();
    let mut events = Vec::new();
    while events.len() < 5 {
        events.push(resumed.next().await.unwrap());
    }
    let summaries: Vec<_> = events.iter().map(Event::summary).collect();
    assert_eq!(summaries, ["resources", "prompts", "tools", "updated x:a", "updated x:b"]);
    let ids = session.event_ids(&database).await;
    let watermarks: Vec<_> = events.iter().map(|event| event.position(&ids).watermark.0).collect();
    assert_eq!(watermarks[..4], [-1, -1, -1, -1], "there is none until all subjects are sent");
    assert!(watermarks[4] > 0);
    resumed.expect_events(&[]).await;
}

#[tokio::test]
async fn log_messages_are_sent_from_the_requested_level() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let soon = time::OffsetDateTime::now_utc() + time::Duration::hours(23);
    let soon = soon.format(&time::format_description::well_known::Rfc3339).unwrap();
    let made = replica.admin("POST", "/agents/a/keys", Some(json!({"expiresAt": soon}))).await.json();
    let key = made["key"].as_str().unwrap();
    for (level, summaries) in [
        (None, vec![]),
        (Some("error"), vec![]),
        (Some("warning"), vec!["log key_expires"]),
        (Some("debug"), vec!["log key_expires"]),
    ] {
        let session = Session::open(&replica, "a", key, "2025-06-18").await;
        if let Some(level) = level {
            session.done(&replica, "logging/setLevel", json!({"level": level})).await;
        }
        let mut stream = session.stream(&replica, None).await;
        stream.expect_events(&summaries).await;
    }
    let session = Session::open(&replica, "a", key, "2025-06-18").await;
    session.done(&replica, "logging/setLevel", json!({"level": "info"})).await;
    let message = json!({
        "jsonrpc": "2.0", "method": "notifications/message",
        "params": {
            "level": "warning", "logger": "waggle",
            "data": {"code": "key_expires", "message": "the credential of this session expires within a day"},
        },
    });
    assert_eq!(session.stream(&replica, None).await.next().await.unwrap().json(), message);
}

#[tokio::test]
async fn reconnect_replaces_the_broken_stream() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__STREAMS_PER_KEY", 1).start().await;
    let key = replica.acme("a").await;
    let session = Session::open(&replica, "a", &key, "2025-06-18").await;
    let other = Session::open(&replica, "a", &key, "2025-06-18").await;
    let mut broken = session.stream(&replica, None).await;
    for _ in 0..3 {
        let stream = session.stream(&replica, None).await;
        assert!(broken.next().await.unwrap().retry.is_some());
        assert_eq!(broken.next().await, None);
        broken = stream;
    }
    assert_eq!(other.send(&replica, "GET", &[("accept", "text/event-stream")]).await.status, 429);
}
