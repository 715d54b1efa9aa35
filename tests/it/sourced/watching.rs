//! Content that changes behind the gateway's back is notified to those who are subscribed to it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::Notify;

use super::upstream::{Reply, status, tagged, text};
use super::{Files, Site};
use crate::support::app::Builder;
use crate::support::cluster::database;
use crate::support::events::{Session, listen};
use crate::support::wait::eventually;

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
    let site = Files::new().await;
    site.write("a.md", "one");
    site.resource("a", "a.md").await;
    let Files { replica, key, .. } = &site;
    let read = replica.http.call("notes", key, "resources/read", json!({"uri": "test://a"})).await;
    let expected = json!([{"uri": "test://a", "mimeType": "text/markdown", "text": "one"}]);
    assert_eq!(read["result"]["contents"], expected);

    let filter = json!({"resourceSubscriptions": ["test://a"]});
    let mut stream = listen(replica, "notes", key, json!(1), filter).await;
    assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
    stream.expect_events(&["updated test://a"]).await;
    // Not for a condition: a content has one revision a second.
    tokio::time::sleep(QUIET).await;
    let began = Instant::now();
    site.write("a.md", "two");
    assert_eq!(stream.next_summary().await, "updated test://a");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(replica.http.text("notes", key, "test://a").await.as_deref(), Some("two"));
}

#[tokio::test]
async fn fast_changes_of_a_file_are_one_revision_a_second() {
    let site = Files::new().await;
    site.write("a.md", "first");
    site.resource("a", "a.md").await;
    let filter = json!({"resourceSubscriptions": ["test://a"]});
    let mut stream = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
    assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
    // What is watched for the first time counts as changed.
    assert_eq!(stream.next_summary().await, "updated test://a");
    let began = Instant::now();
    let changing = async {
        for number in 0.. {
            site.write("a.md", &number.to_string());
            // The interval of the changes.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let notified = async {
        for _ in 0..3 {
            assert_eq!(stream.next_summary().await, "updated test://a");
        }
    };
    tokio::select! {
        () = changing => {}
        () = notified => {}
    }
    // Between the first and the third are two seconds.
    assert!(began.elapsed() >= Duration::from_secs(2), "{:?}", began.elapsed());
}

/// How often content is polled: never in the time of a test.
const NEVER: u32 = 3_600_000;

#[tokio::test]
async fn look_finds_what_changed_during_a_read_in_progress() {
    let site = Site::with_limits(json!({"pollMs": NEVER, "timeoutMs": 60_000})).await;
    site.replica.put("notes", "test://inline", "here").await;
    let released = Arc::new(Notify::new());
    site.upstream.answer("a", Reply::Held(Arc::clone(&released), "one"));
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 600_000})).await;
    let read = site.text("test://a");
    let watched = async {
        eventually("the source is asked", async || site.upstream.count() > 0).await;
        site.upstream.answer("a", text("two"));
        let filter = json!({"resourceSubscriptions": ["test://a"]});
        let mut stream = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
        assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
        let leased = "select count(*) from leases where holder is not null";
        eventually("it is watched", async || site._database.number(leased).await == 1).await;
        // The look, which waits for the read, has begun by then.
        for _ in 0..100 {
            assert_eq!(site.text("test://inline").await, "here");
        }
        released.notify_one();
        assert_eq!(stream.next_summary().await, "updated test://a");
        site.text("test://a").await
    };
    assert_eq!(tokio::join!(read, watched), ("one".to_owned(), "two".to_owned()));
}

#[tokio::test]
async fn change_of_a_connection_has_its_content_looked_at() {
    let site = Site::with_limits(json!({"pollMs": NEVER})).await;
    site.upstream.answer("a", text("one"));
    site.upstream.answer_at("/v2/a".to_owned(), text("two"));
    site.resource("a", json!({"connection": "api", "path": "a"})).await;
    let filter = json!({"resourceSubscriptions": ["test://a"]});
    let mut stream = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
    stream.expect_events(&["notifications/subscriptions/acknowledged", "updated test://a"]).await;
    let patch = async |patch| {
        let patched = site.replica.admin("PATCH", "/connections/api", Some(patch)).await;
        assert_eq!(patched.status, 200, "{}", patched.text());
    };
    let base_url = site.upstream.url().replace("/v1/", "/v2/");
    patch(json!({"settings": {"baseUrl": base_url}})).await;
    assert_eq!(stream.next_summary().await, "updated test://a");
    assert_eq!(site.text("test://a").await, "two");
    // Also one that is enabled again.
    patch(json!({"enabled": false})).await;
    site.upstream.answer_at("/v2/a".to_owned(), text("three"));
    patch(json!({"enabled": true})).await;
    assert_eq!(stream.next_summary().await, "updated test://a");
    assert_eq!(site.text("test://a").await, "three");
}

#[tokio::test]
async fn fetched_content_is_forgotten_in_another_timeline() {
    let site = Site::new().await;
    site.upstream.answer("a", text("one"));
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 86_400_000})).await;
    assert_eq!(site.text("test://a").await, "one");
    site.upstream.answer("a", text("two"));
    assert_eq!(site.text("test://a").await, "one", "it is fresh");
    site._database.execute("update gateway set epoch = gen_random_uuid()").await;
    eventually("it is fetched again", async || site.text("test://a").await == "two").await;
}

#[tokio::test]
async fn sources_of_one_tenant_that_hang_leave_polls_to_others() {
    // Two polls of new content of a connection are in progress at once: these are more than a tenant's half of the replica's.
    let (connections, contents, of_tenant) = (18, 2, 32);
    let limits = json!({"pollMs": NEVER, "timeoutMs": 120_000});
    let site = Site::with_limits(limits.clone()).await;
    let mut uris = Vec::new();
    for connection in 0..connections {
        let id = format!("c{connection}");
        site.connection(&id, json!("*"), limits.clone()).await;
        for content in 0..contents {
            let name = format!("{id}/{content}");
            site.upstream.answer(&name, Reply::Hang);
            site.resource(&name, json!({"connection": id, "path": name})).await;
            uris.push(format!("test://{name}"));
        }
    }
    let _hanging =
        listen(&site.replica, "notes", &site.key, json!(1), json!({"resourceSubscriptions": uris})).await;
    let mut asked = 0;
    let all_asked = async || {
        asked += site.upstream.count();
        asked == of_tenant
    };
    eventually("all polls of the tenant hang", all_asked).await;

    let key = site.other_tenant().await;
    site.expect_poll_of_other(&key).await;
}
