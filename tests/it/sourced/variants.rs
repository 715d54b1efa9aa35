//! Content of a URI that several definitions answer, each to callers with other labels.

use std::time::Duration;

use serde_json::{Value, json};

use super::upstream::{tagged, text};
use super::{Site, source};
use crate::support::app::{Builder, Replica, resource};
use crate::support::cluster::database;
use crate::support::events::{Events, listen};

/// For how long nothing else may be sent.
const QUIET: Duration = Duration::from_secs(3);
const URIS: [&str; 2] = ["test://t/a", "test://t/r"];

/// A key with labels.
async fn key(replica: &Replica, labels: Value) -> String {
    let made = replica.admin("POST", "/agents/notes/keys", Some(json!({"labels": labels}))).await;
    made.json()["key"].as_str().unwrap().to_owned()
}

/// A stream that is subscribed to the URIs, once what is watched for the first time is notified.
async fn subscribed(replica: &Replica, key: &str) -> Events {
    let mut stream = listen(replica, "notes", key, json!(1), json!({"resourceSubscriptions": URIS})).await;
    assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
    let mut first = [stream.next_summary().await, stream.next_summary().await];
    first.sort();
    assert_eq!(first, URIS.map(|uri| format!("updated {uri}")));
    stream
}

#[tokio::test]
async fn subscriber_is_notified_of_the_content_that_it_sees() {
    let database = database().await;
    let (first, second) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    let site = Site::over(database, first, json!({"pollMs": 1_000})).await;
    for path in ["staff/a", "staff/r", "open/t/a", "open/t/r"] {
        site.upstream.answer(path, tagged(path, "1"));
    }
    // Staff reads `staff/a` by a template and `staff/r` by a resource, where others read what a wider template answers.
    let place = |path: &str| json!({"connection": "api", "path": path, "ttlMs": 60_000});
    let narrow = json!({"name": "narrow", "labels": ["staff"], "source": place("staff/{v}")});
    assert_eq!(site.template("test://t/{v}", narrow).await.status, 201);
    let wide = json!({"name": "wide", "source": place("open/{+p}")});
    assert_eq!(site.template("test://{+p}", wide).await.status, 201);
    let body = json!({"name": "r", "labels": ["staff"], "source": place("staff/r")});
    let made = site.replica.admin("PUT", &resource("notes", "test://t/r"), Some(body)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let (staff, other) = (key(&site.replica, json!(["staff"])).await, key(&site.replica, json!([])).await);
    second.caught_up().await;

    let mut streams = [subscribed(&site.replica, &staff).await, subscribed(&second, &other).await];
    assert_eq!((streams[0].drain(QUIET).await, streams[1].drain(QUIET).await), (vec![], vec![]));
    // A path, who reads it, and the URI.
    let cases = [
        ("staff/a", 0, URIS[0]),
        ("open/t/a", 1, URIS[0]),
        ("staff/r", 0, URIS[1]),
        ("open/t/r", 1, URIS[1]),
        ("staff/a", 0, URIS[0]),
    ];
    for (number, (path, seen_by, uri)) in cases.into_iter().enumerate() {
        let now = format!("{path} {number}");
        site.upstream.answer(path, tagged(&now, &format!("changed-{number}")));
        assert_eq!(streams[seen_by].next_summary().await, format!("updated {uri}"), "{path}");
        for replica in [&site.replica, &second] {
            let keys = [&staff, &other];
            assert_eq!(replica.http.text("notes", keys[seen_by], uri).await, Some(now.clone()), "{path}");
            let hidden = replica.http.text("notes", keys[1 - seen_by], uri).await.unwrap();
            assert_ne!(hidden, now, "{path}");
        }
        let others = (streams[0].drain(QUIET).await, streams[1].drain(QUIET).await);
        assert_eq!(others, (vec![], vec![]), "{path}");
    }
}

/// A hidden definition's content that was found of a URI is stored for those alone who see it.
#[tokio::test]
async fn found_content_is_answered_to_those_who_see_its_definition() {
    let site = Site::with_limits(json!({"pollMs": 1_000})).await;
    site.upstream.answer("staff/a", text("staff"));
    site.upstream.answer("open/t/a", text("open"));
    let place = |path: &str| json!({"connection": "api", "path": path, "ttlMs": 60_000});
    let narrow = json!({"name": "narrow", "labels": ["staff"], "source": place("staff/{v}")});
    assert_eq!(site.template("test://t/{v}", narrow).await.status, 201);
    let wide = json!({"name": "wide", "source": place("open/{+p}")});
    assert_eq!(site.template("test://{+p}", wide).await.status, 201);
    let staff = key(&site.replica, json!(["staff"])).await;
    let filter = json!({"resourceSubscriptions": ["test://t/a"]});
    let mut stream = listen(&site.replica, "notes", &staff, json!(1), filter).await;
    stream.expect_events(&["notifications/subscriptions/acknowledged", "updated test://t/a"]).await;
    let other = key(&site.replica, json!([])).await;
    let read = async |key: &str| site.replica.http.text("notes", key, "test://t/a").await;
    assert_eq!((read(&other).await.as_deref(), read(&staff).await.as_deref()), (Some("open"), Some("staff")));
}

/// Which definition a caller sees may change while it is subscribed.
#[tokio::test]
async fn subscriber_with_other_labels_is_notified_of_other_content() {
    let site = Site::with_limits(json!({"pollMs": 1_000})).await;
    site.upstream.answer("a", tagged("a", "1"));
    let body = json!({"name": "a", "labels": ["staff"], "source": source("a")});
    assert_eq!(site.replica.admin("PUT", &resource("notes", "test://a"), Some(body)).await.status, 201);
    let made = site.replica.admin("POST", "/agents/notes/keys", Some(json!({"labels": []}))).await.json();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let wide = json!({"name": "wide", "source": source("open/{+p}")});
    assert_eq!(site.template("test://{+p}", wide).await.status, 201);
    site.upstream.answer("open/a", tagged("open", "1"));
    let filter = json!({"resourceSubscriptions": ["test://a"]});
    let mut stream = listen(&site.replica, "notes", key, json!(1), filter).await;
    stream.expect_events(&["notifications/subscriptions/acknowledged", "updated test://a"]).await;
    let path = format!("/keys/{id}");
    assert_eq!(site.replica.admin("PATCH", &path, Some(json!({"labels": ["staff"]}))).await.status, 200);
    assert_eq!(stream.next_summary().await, "updated test://a");
    // The content of the resource is watched from now on.
    stream.drain(QUIET).await;
    site.upstream.answer("a", tagged("b", "2"));
    assert_eq!(stream.next_summary().await, "updated test://a");
    assert_eq!(site.replica.http.text("notes", key, "test://a").await.as_deref(), Some("b"));
}
