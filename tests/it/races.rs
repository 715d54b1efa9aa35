//! The races that the rules of the house exist for, each held open at the worst moment.

mod credentials;
mod narrowing;
mod sessions;

use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;
use waggle::model::sources::Point;

use crate::app::{Builder, Replica, resource};
use crate::cluster::{Database, database};
use crate::interference::Director;
use crate::proxy::Proxy;

/// Longer than a commit takes to be known, were its wake late and a sweep to find it.
const HEARD: Duration = Duration::from_secs(1);

/// A replica that writes and one that is interfered with, with an agent `a` on both.
struct Pair {
    database: Database,
    writer: Replica,
    reader: Replica,
    director: Arc<Director>,
    key: String,
}

/// The reader hears of the writer's commits.
async fn pair() -> Pair {
    let database = database().await;
    let reader = Builder::new(&database);
    pair_of(database, &Director::new(), reader).await
}

/// The reader hears of no commit, and learns of it only from what it reads itself.
async fn deaf_pair() -> Pair {
    let silent = Director::new();
    silent.lose_wakes(100);
    let database = database().await;
    let reader = Builder::new(&database).set("WAGGLE_DATABASE__SWEEP_MS", 10_000);
    pair_of(database, &silent, reader).await
}

async fn pair_of(database: Database, wakes: &Arc<Director>, reader: Builder) -> Pair {
    let writer = Builder::new(&database).interference(wakes.clone()).start().await;
    let director = Director::new();
    let reader = reader.interference(director.clone()).start().await;
    let key = writer.acme("a").await;
    Pair { database, writer, reader, director, key }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_during_a_fill_is_not_overwritten_by_what_the_fill_read() {
    let pair = pair().await;
    pair.writer.put("a", "x:1", "old").await;
    // The key and the directory are in memory; only the snapshot is still to be filled.
    assert_eq!(pair.reader.http.post("a", &pair.key, &json!({})).await.status, StatusCode::BAD_REQUEST);
    let held = pair.director.hold(Point::CacheFillRead);
    let (http, key) = (pair.reader.http.clone(), pair.key.clone());
    let first = tokio::spawn(async move { http.text("a", &key, "x:1").await });
    held.meanwhile(async {
        pair.writer.put("a", "x:1", "new").await;
        tokio::time::sleep(HEARD).await;
    })
    .await;
    assert!(first.await.unwrap().is_some());
    assert_eq!(pair.reader.http.text("a", &pair.key, "x:1").await.as_deref(), Some("new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_is_not_torn_between_definition_and_contents() {
    // A wake would have it loaded again, and a torn one never be seen.
    let pair = deaf_pair().await;
    let write = async |mime: &str, text: &str| {
        let body = json!({"name": "n", "mimeType": mime, "contents": [{"text": text}]});
        let done = pair.writer.admin("PUT", &resource("a", "x:1"), Some(body)).await;
        assert!(done.status.is_success());
    };
    write("text/old", "old").await;
    let held = pair.director.hold(Point::SnapshotBetweenReads);
    let (http, key) = (pair.reader.http.clone(), pair.key.clone());
    let first =
        tokio::spawn(async move { http.call("a", &key, "resources/read", json!({"uri": "x:1"})).await });
    held.meanwhile(write("text/new", "new")).await;
    let content = first.await.unwrap()["result"]["contents"][0].clone();
    let old = json!({"uri": "x:1", "mimeType": "text/old", "text": "old"});
    let new = json!({"uri": "x:1", "mimeType": "text/new", "text": "new"});
    assert!(content == old || content == new, "{content}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_born_again_under_another_tenant_shows_nothing_of_its_former_life() {
    let pair = pair().await;
    pair.writer.put("a", "x:1", "acme's").await;
    assert_eq!(pair.reader.http.text("a", &pair.key, "x:1").await.as_deref(), Some("acme's"));

    // The reader hears no wake: it holds the old agent until a sweep tells it otherwise.
    let deaf = Director::new();
    deaf.lose_wakes(100);
    let writer = Builder::new(&pair.database).interference(deaf).start().await;
    writer.tenant("rival").await;
    assert_eq!(writer.admin("DELETE", "/agents/a", None).await.status, StatusCode::NO_CONTENT);
    let taken = writer.admin("POST", "/agents", Some(json!({"id": "a", "tenant": "rival"}))).await;
    assert_eq!((taken.status, taken.json()["code"].clone()), (StatusCode::CONFLICT, json!("slug_retired")));
    // What only the operator of the database can do: give the slug free.
    pair.database.execute("delete from retired_agents where slug = 'a'").await;
    writer.agent("rival", "a").await;
    let (_, key) = writer.key("a", &["mcp"]).await;
    writer.put("a", "x:1", "rival's").await;

    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let theirs = pair.reader.http.text("a", &key, "x:1").await;
        assert_ne!(theirs.as_deref(), Some("acme's"));
        let ours = pair.reader.http.text("a", &pair.key, "x:1").await;
        assert_ne!(ours.as_deref(), Some("rival's"));
        if theirs.as_deref() == Some("rival's") && ours.is_none() {
            break;
        }
        assert!(Instant::now() < deadline, "the new agent is not seen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_that_commits_late_does_not_escape_the_sweep() {
    let database = database().await;
    let slow = Director::new();
    slow.lose_wakes(100);
    let writer = Builder::new(&database).interference(slow.clone()).start().await;
    let reader = Builder::new(&database).set("WAGGLE_DATABASE__SWEEP_MS", 200).start().await;
    let key = writer.acme("a").await;
    writer.agent("acme", "b").await;
    writer.put("a", "x:1", "old").await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("old"));

    let held = slow.hold(Point::BeforeCommit);
    let (write, _) = tokio::join!(
        writer.put("a", "x:1", "new"),
        held.meanwhile(async {
            // Younger transactions commit, and sweeps see them, while the older one is open.
            for round in 0..5 {
                writer.put("b", "x:2", &format!("{round}")).await;
                tokio::time::sleep(Duration::from_millis(250)).await;
            }
            assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("old"));
        })
    );
    assert!(write > 0);
    tokio::time::sleep(Duration::from_millis(1_000)).await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_whose_packets_are_swallowed_is_noticed_and_nothing_stale_is_read() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let writer = Builder::new(&database).start().await;
    // Sweeps so rare that only the probe can notice.
    let reader = Builder::new(&database)
        .set("WAGGLE_DATABASE__SWEEP_MS", 10_000)
        .store(|store| store.listen = proxy.options.clone())
        .start()
        .await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "0").await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("0"));

    proxy.swallow(true);
    tokio::time::sleep(Duration::from_millis(800)).await;
    for round in 1..20 {
        let text = round.to_string();
        writer.put("a", "x:1", &text).await;
        assert_eq!(reader.http.text("a", &key, "x:1").await, Some(text), "an older text was read");
    }
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let ready = reader.http.get("/readyz").await;
    let degraded = r#"{"reasons":["listen_lost"],"status":"degraded"}"#;
    assert_eq!((ready.status, ready.text().as_str()), (StatusCode::OK, degraded));
    assert_eq!(reader.http.get("/healthz").await.status, StatusCode::OK);

    proxy.swallow(false);
    tokio::time::timeout(Duration::from_secs(20), reader.ready()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_answered_for_a_while_when_the_database_is_away_and_then_no_more() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let replica = Builder::new(&database)
        .set("WAGGLE_ACCESS__STALE_SECONDS", 4)
        .set("WAGGLE_DATABASE__ACQUIRE_SECONDS", 1)
        .store(|store| {
            store.acquire = Duration::from_secs(1);
            store.listen = proxy.options.clone();
            store.connect = proxy.options.clone();
        })
        .start()
        .await;
    let key = replica.acme("a").await;
    let (_, unseen) = replica.key("a", &["mcp"]).await;
    replica.put("a", "x:1", "kept").await;
    assert_eq!(replica.http.text("a", &key, "x:1").await.as_deref(), Some("kept"));

    proxy.swallow(true);
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert_eq!(replica.http.text("a", &key, "x:1").await.as_deref(), Some("kept"));
    let list = json!({"jsonrpc": "2.0", "id": 7, "method": "resources/list"});
    let unknown = replica.http.post("a", &unseen, &list).await;
    assert_eq!(unknown.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(unknown.header("retry-after"), Some("1"));
    assert_eq!(
        unknown.json(),
        json!({"jsonrpc": "2.0", "id": 7, "error": {
            "code": -31017, "message": "the database cannot be reached; try again",
            "data": {"code": "storage_unavailable"},
        }})
    );

    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(replica.http.post("a", &key, &list).await.status, StatusCode::SERVICE_UNAVAILABLE);
    proxy.swallow(false);
    tokio::time::timeout(Duration::from_secs(30), replica.ready()).await.unwrap();
    assert_eq!(replica.http.text("a", &key, "x:1").await.as_deref(), Some("kept"));
}
