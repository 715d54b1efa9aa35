//! Content that changes behind the gateway's back is notified to those who are subscribed to it.

use std::time::Duration;

use serde_json::json;

use super::Site;
use super::upstream::{status, tagged, text};
use crate::support::app::{Builder, resource};
use crate::support::cluster::database;
use crate::support::events::{Session, listen};

/// For how long nothing else may be sent.
const QUIET: Duration = Duration::from_secs(3);

fn polled() -> serde_json::Value {
    json!({"pollMs": 1_000})
}

#[tokio::test]
async fn change_of_subscribed_content_is_one_update_on_every_replica() {
    let database = database().await;
    let (first, second) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    let site = Site::over(database, first, polled()).await;
    site.upstream.answer("a", tagged("one", "1"));
    site.upstream.answer("t/b", text("one"));
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 60_000})).await;
    let place = json!({"connection": "api", "path": "t/{v}", "ttlMs": 60_000});
    assert_eq!(site.template("test://t/{v}", json!({"name": "t", "source": place})).await.status, 201);
    second.caught_up().await;

    let filter = json!({"resourceSubscriptions": ["test://a", "test://t/b"]});
    let mut modern = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
    assert_eq!(modern.next_summary().await, "notifications/subscriptions/acknowledged");
    // What is watched for the first time counts as changed.
    let mut first = [modern.next_summary().await, modern.next_summary().await];
    first.sort();
    assert_eq!(first, ["updated test://a", "updated test://t/b"]);
    let session = Session::open(&second, "notes", &site.key, "2025-06-18").await;
    session.subscribe(&second, "test://a").await;
    let mut legacy = session.stream(&second, None).await;
    assert_eq!((modern.drain(QUIET).await, legacy.drain(QUIET).await), (vec![], vec![]));
    assert_eq!((site.text("test://a").await, site.text("test://t/b").await), ("one".into(), "one".into()));

    site.upstream.answer("a", tagged("two", "2"));
    modern.expect_events(&["updated test://a"]).await;
    assert_eq!(site.text("test://a").await, "two");
    legacy.expect_events(&["updated test://a"]).await;
    assert_eq!(second.http.text("notes", &site.key, "test://a").await.as_deref(), Some("two"));

    site.upstream.answer("t/b", text("two"));
    modern.expect_events(&["updated test://t/b"]).await;
    assert_eq!(site.text("test://t/b").await, "two");
    assert_eq!(second.http.text("notes", &site.key, "test://t/b").await.as_deref(), Some("two"));

    site.upstream.answer("a", status(404));
    modern.expect_events(&["updated test://a"]).await;
    assert_eq!(site.read("test://a").await["error"]["data"]["code"], "resource_not_found");
    site.upstream.answer("a", status(500));
    legacy.expect_events(&["updated test://a"]).await;
    assert_eq!((modern.drain(QUIET).await, legacy.drain(QUIET).await), (vec![], vec![]));
}

#[tokio::test]
async fn change_of_a_file_is_an_update_within_a_second() {
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let file = folder.path().join("a.md");
    std::fs::write(&file, "one").unwrap();
    let roots = folder.path().canonicalize().unwrap();
    let replica = Builder::new(&database).set("WAGGLE_SOURCES__FILE_ROOTS", roots.display()).start().await;
    let key = replica.acme("notes").await;
    let settings = json!({"root": roots});
    let made = json!({"id": "docs", "kind": "file", "tenants": ["acme"], "settings": settings});
    let made = replica.admin("POST", "/connections", Some(made)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let body = json!({"name": "a", "source": {"connection": "docs", "path": "a.md"}});
    assert_eq!(replica.admin("PUT", &resource("notes", "test://a"), Some(body)).await.status, 201);
    let read = replica.http.call("notes", &key, "resources/read", json!({"uri": "test://a"})).await;
    let expected = json!([{"uri": "test://a", "mimeType": "text/markdown", "text": "one"}]);
    assert_eq!(read["result"]["contents"], expected);

    let filter = json!({"resourceSubscriptions": ["test://a"]});
    let mut stream = listen(&replica, "notes", &key, json!(1), filter).await;
    assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
    stream.expect_events(&["updated test://a"]).await;
    tokio::time::sleep(QUIET).await;
    let began = std::time::Instant::now();
    std::fs::write(&file, "two").unwrap();
    assert_eq!(stream.next_summary().await, "updated test://a");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(replica.http.text("notes", &key, "test://a").await.as_deref(), Some("two"));
}
