//! Race conditions, each reproduced by holding the gateway at a fail point.

mod credentials;
mod narrowing;
mod sessions;

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use waggle::model::system::FailPoint;

use crate::support::app::{Builder, Replica, resource};
use crate::support::cluster::{Database, database};
use crate::support::faults::FaultScript;
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

/// A replica that writes and one with a fault injector, with an agent `a` on both.
struct Pair {
    database: Database,
    writer: Replica,
    reader: Replica,
    faults: Arc<FaultScript>,
    key: String,
}

/// The reader receives the writer's notifications.
async fn pair() -> Pair {
    let database = database().await;
    let reader = Builder::new(&database);
    pair_of(database, &FaultScript::new(), reader).await
}

/// The reader receives no notifications, and learns of commits only from what it reads itself.
async fn pair_without_notifications() -> Pair {
    let silent = FaultScript::new();
    silent.lose_notifications(100);
    let database = database().await;
    let reader = Builder::new(&database).set("WAGGLE_DATABASE__SWEEP_MS", 10_000);
    pair_of(database, &silent, reader).await
}

async fn pair_of(database: Database, faults: &Arc<FaultScript>, reader: Builder) -> Pair {
    let writer = Builder::new(&database).fault_injector(faults.clone()).start().await;
    let faults = FaultScript::new();
    let reader = reader.fault_injector(faults.clone()).start().await;
    let key = writer.acme("a").await;
    Pair { database, writer, reader, faults, key }
}

#[tokio::test(flavor = "multi_thread")]
async fn commit_during_a_cache_fill_is_not_overwritten() {
    let pair = pair().await;
    pair.writer.put("a", "x:1", "old").await;
    // The key and the directory are cached; only the snapshot has to be loaded.
    assert_eq!(pair.reader.http.post("a", &pair.key, &json!({})).await.status, StatusCode::BAD_REQUEST);
    let held = pair.faults.hold(FailPoint::CacheFillRead);
    let (http, key) = (pair.reader.http.clone(), pair.key.clone());
    let first = tokio::spawn(async move { http.text("a", &key, "x:1").await });
    held.meanwhile(async {
        pair.writer.put("a", "x:1", "new").await;
        pair.reader.caught_up().await;
    })
    .await;
    assert!(first.await.unwrap().is_some());
    assert_eq!(pair.reader.http.text("a", &pair.key, "x:1").await.as_deref(), Some("new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn snapshot_is_consistent_between_definition_and_contents() {
    // A notification would cause another load, and an inconsistent snapshot would never be visible.
    let pair = pair_without_notifications().await;
    let write = async |mime: &str, text: &str| {
        let body = json!({"name": "n", "mimeType": mime, "contents": [{"text": text}]});
        let done = pair.writer.admin("PUT", &resource("a", "x:1"), Some(body)).await;
        assert!(done.status.is_success());
    };
    write("text/old", "old").await;
    let held = pair.faults.hold(FailPoint::SnapshotBetweenReads);
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
async fn agent_recreated_by_another_tenant_reveals_no_old_content() {
    let pair = pair().await;
    pair.writer.put("a", "x:1", "acme's").await;
    assert_eq!(pair.reader.http.text("a", &pair.key, "x:1").await.as_deref(), Some("acme's"));

    // The reader receives no notification: it holds the old agent until a sweep finds the change.
    let without_notifications = FaultScript::new();
    without_notifications.lose_notifications(100);
    let writer = Builder::new(&pair.database).fault_injector(without_notifications).start().await;
    writer.tenant("rival").await;
    assert_eq!(writer.admin("DELETE", "/agents/a", None).await.status, StatusCode::NO_CONTENT);
    let taken = writer.admin("POST", "/agents", Some(json!({"id": "a", "tenant": "rival"}))).await;
    assert_eq!((taken.status, taken.json()["code"].clone()), (StatusCode::CONFLICT, json!("slug_retired")));
    // Only the owner of the database can release the slug.
    pair.database.execute("delete from retired_agents where slug = 'a'").await;
    writer.agent("rival", "a").await;
    let (_, key) = writer.key("a", &["mcp"]).await;
    writer.put("a", "x:1", "rival's").await;

    eventually("the new agent is served", async || {
        let theirs = pair.reader.http.text("a", &key, "x:1").await;
        assert_ne!(theirs.as_deref(), Some("acme's"));
        let ours = pair.reader.http.text("a", &pair.key, "x:1").await;
        assert_ne!(ours.as_deref(), Some("rival's"));
        theirs.as_deref() == Some("rival's") && ours.is_none()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_commit_is_found_by_the_sweep() {
    let database = database().await;
    let slow = FaultScript::new();
    slow.lose_notifications(100);
    let writer = Builder::new(&database).fault_injector(slow.clone()).start().await;
    let reader = Builder::new(&database).set("WAGGLE_DATABASE__SWEEP_MS", 200).start().await;
    let key = writer.acme("a").await;
    writer.agent("acme", "b").await;
    writer.put("a", "x:1", "old").await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("old"));

    let held = slow.hold(FailPoint::BeforeCommit);
    let (write, _) = tokio::join!(
        writer.put("a", "x:1", "new"),
        held.meanwhile(async {
            // Younger transactions commit, and sweeps find them, while the older one is open.
            for round in 0..5 {
                writer.put("b", "x:2", &format!("{round}")).await;
                reader.caught_up().await;
            }
            assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("old"));
        })
    );
    assert!(write > 0);
    reader.caught_up().await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_listen_connection_is_noticed_before_stale_reads() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let writer = Builder::new(&database).start().await;
    // Sweeps are so rare that only the probe can detect it.
    let reader = Builder::new(&database)
        .set("WAGGLE_DATABASE__SWEEP_MS", 10_000)
        .store(|store| store.listen = proxy.options.clone())
        .start()
        .await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "0").await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("0"));

    proxy.swallow(true);
    // Until a probe has failed, an answer from memory may be older.
    eventually("the feed is unproven", async || reader.metric("waggle_feed_unproven_seconds").await > 0.0)
        .await;
    for round in 1..20 {
        let text = round.to_string();
        writer.put("a", "x:1", &text).await;
        assert_eq!(reader.http.text("a", &key, "x:1").await, Some(text), "an older text was read");
    }
    let degraded = r#"{"reasons":["listen_lost"],"status":"degraded"}"#;
    eventually("readiness states the reason", async || {
        let ready = reader.http.get("/readyz").await;
        (ready.status, ready.text().as_str()) == (StatusCode::OK, degraded)
    })
    .await;
    assert_eq!(reader.http.get("/healthz").await.status, StatusCode::OK);

    proxy.swallow(false);
    tokio::time::timeout(Duration::from_secs(20), reader.ready()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_served_for_a_bounded_time_without_database() {
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
    replica.tenant("rival").await;
    replica.agent("rival", "theirs").await;
    let (_, foreign) = replica.key("theirs", &["mcp"]).await;
    replica.put("theirs", "x:1", "kept").await;
    assert_eq!(replica.http.text("theirs", &foreign, "x:1").await.as_deref(), Some("kept"));

    proxy.swallow(true);
    let is_known = async || replica.http.get("/readyz").await.text().contains("listen_lost");
    eventually("the database is known to be unreachable", is_known).await;
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
    let in_memory = replica.http.post("theirs", &key, &list).await;
    assert_eq!(in_memory.visible(), replica.http.post("never-asked-for", &key, &list).await.visible());
    assert_eq!(in_memory.status, StatusCode::SERVICE_UNAVAILABLE);
    let anonymous = async |agent: &str| {
        let headers = [("content-type", "application/json")];
        replica.http.send("POST", &format!("/{agent}/mcp"), &headers, list.to_string()).await.visible()
    };
    assert_eq!(anonymous("theirs").await, anonymous("never-asked-for-either").await);

    let is_refused =
        async || replica.http.post("a", &key, &list).await.status == StatusCode::SERVICE_UNAVAILABLE;
    eventually("memory is too old", is_refused).await;
    proxy.swallow(false);
    tokio::time::timeout(Duration::from_secs(30), replica.ready()).await.unwrap();
    assert_eq!(replica.http.text("a", &key, "x:1").await.as_deref(), Some("kept"));
}
