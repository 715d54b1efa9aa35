//! Lists and reads in every revision.

use serde_json::{Value, json};
use time::Duration;
use time::macros::datetime;

use super::{MODERN, REVISIONS, call_as, result_as};
use crate::support::answers::{exact, message};
use crate::support::app::{Builder, resource};
use crate::support::clock::ManualClock;
use crate::support::cluster::database;

#[tokio::test]
async fn registered_resources_are_served_in_every_revision() {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-11-21 12:00 UTC));
    let replica = Builder::new(&database).clock(clock.clone()).start().await;
    let key = replica.acme("a").await;
    let put = async |uri: &str, body: Value| {
        assert_eq!(replica.admin("PUT", &resource("a", uri), Some(body)).await.status, 201);
    };
    let annotations = json!({"audience": ["user"], "priority": 0.8, "lastModified": "2025-01-12T15:00:58Z"});
    let icons = json!([{"src": "https://example.com/a.png", "sizes": ["48x48"]}]);
    put(
        "file:///main.rs",
        json!({
            "name": "main.rs", "title": "主文件", "description": "d", "mimeType": "text/x-rust",
            "annotations": annotations, "icons": icons, "_meta": {"example.com/a": 1},
            "contents": [{"text": "fn main() {}\n"}],
        }),
    )
    .await;
    clock.advance(Duration::hours(1));
    let contents = json!([
        {"uri": "file:///docs/a.md", "mimeType": "text/markdown", "text": "# ü"},
        {"blob": "AAH/"},
        {"text": ""},
    ]);
    let priority = json!({"priority": 0});
    put(
        "file:///docs",
        json!({"name": "docs", "mimeType": "inode/directory", "annotations": priority, "contents": contents}),
    )
    .await;
    put("x:blob", json!({"name": "blob", "contents": [{"blob": "AAECAw==", "mimeType": "image/png"}]})).await;
    put("x:none", json!({"name": "none", "contents": []})).await;

    let moment = "2026-11-21T13:00:00Z";
    let listed = json!({"resources": [
        {
            "uri": "file:///docs", "name": "docs", "mimeType": "inode/directory",
            "annotations": {"priority": 0, "lastModified": moment},
        },
        {
            "uri": "file:///main.rs", "name": "main.rs", "title": "主文件", "description": "d",
            "mimeType": "text/x-rust", "annotations": annotations, "size": 13, "icons": icons,
            "_meta": {"example.com/a": 1},
        },
        {"uri": "x:blob", "name": "blob", "annotations": {"lastModified": moment}, "size": 4},
        {"uri": "x:none", "name": "none", "annotations": {"lastModified": moment}},
    ]});
    let reads = [
        (
            "file:///main.rs",
            json!([{"uri": "file:///main.rs", "mimeType": "text/x-rust", "text": "fn main() {}\n"}]),
        ),
        (
            "file:///docs",
            json!([
                {"uri": "file:///docs/a.md", "mimeType": "text/markdown", "text": "# ü"},
                {"uri": "file:///docs", "mimeType": "inode/directory", "blob": "AAH/"},
                {"uri": "file:///docs", "mimeType": "inode/directory", "text": ""},
            ]),
        ),
        ("x:blob", json!([{"uri": "x:blob", "mimeType": "image/png", "blob": "AAECAw=="}])),
        ("x:none", json!([])),
    ];
    for revision in REVISIONS {
        // The second answer is the cached result of the first.
        for _ in 0..2 {
            let list = call_as(&replica, &key, revision, "resources/list", json!({})).await;
            assert_eq!(exact(&list), result_as(revision, &listed), "{revision:?}");
            for (uri, contents) in &reads {
                let read = call_as(&replica, &key, revision, "resources/read", json!({"uri": uri})).await;
                assert_eq!(
                    exact(&read),
                    result_as(revision, &json!({"contents": contents})),
                    "{revision:?} {uri}"
                );
            }
        }
        let tools = call_as(&replica, &key, revision, "tools/list", json!({})).await;
        assert_eq!(exact(&tools), result_as(revision, &json!({"tools": []})), "{revision:?}");
    }
}

#[tokio::test]
async fn changes_are_visible_at_once_in_every_revision() {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-11-21 12:00 UTC));
    let replica = Builder::new(&database).clock(clock.clone()).start().await;
    let key = replica.acme("a").await;
    let path = resource("a", "x:1");
    let touch = path.replace("resources?", "resources/touch?");
    let put = |text: &str| Some(json!({"name": "n", "contents": [{"text": text}]}));
    let listed = |size: u64, moment: &str| {
        let annotations = json!({"lastModified": moment});
        json!({"resources": [{"uri": "x:1", "name": "n", "annotations": annotations, "size": size}]})
    };
    let check = async |text: Option<&str>, list: Value| {
        for revision in REVISIONS {
            let answered = call_as(&replica, &key, revision, "resources/list", json!({})).await;
            assert_eq!(exact(&answered), result_as(revision, &list), "{revision:?}");
            let read = call_as(&replica, &key, revision, "resources/read", json!({"uri": "x:1"})).await;
            match text {
                Some(text) => {
                    let contents = json!({"contents": [{"uri": "x:1", "text": text}]});
                    assert_eq!(exact(&read), result_as(revision, &contents), "{revision:?}");
                }
                None => {
                    assert_eq!(read.json()["error"]["data"]["code"], "resource_not_found", "{revision:?}");
                }
            }
        }
    };
    check(None, json!({"resources": []})).await;
    replica.admin("PUT", &path, put("one")).await;
    check(Some("one"), listed(3, "2026-11-21T12:00:00Z")).await;
    clock.advance(Duration::seconds(1));
    replica.admin("PUT", &path, put("three")).await;
    check(Some("three"), listed(5, "2026-11-21T12:00:01Z")).await;
    clock.advance(Duration::seconds(1));
    replica.admin("POST", &touch, None).await;
    check(Some("three"), listed(5, "2026-11-21T12:00:02Z")).await;
    clock.advance(Duration::seconds(1));
    replica.admin("PUT", &path, put("three")).await;
    check(Some("three"), listed(5, "2026-11-21T12:00:02Z")).await;
    replica.admin("DELETE", &path, None).await;
    check(None, json!({"resources": []})).await;
}

#[tokio::test]
async fn unknown_resource_has_the_error_code_of_the_era() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    for revision in REVISIONS {
        let code = if revision == Some(MODERN) { -32602 } else { -32002 };
        let read = call_as(&replica, &key, revision, "resources/read", json!({"uri": "x:%2F"})).await;
        let data = json!({"code": "resource_not_found", "uri": "x:%2F"});
        let error = json!({"code": code, "message": "resource not found: x:%2F", "data": data});
        assert_eq!(
            exact(&read),
            message(&json!({"jsonrpc": "2.0", "id": 7, "error": error})),
            "{revision:?}"
        );
    }
}

#[tokio::test]
async fn uris_are_compared_byte_for_byte() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    let same_to_a_browser =
        ["http://h/a", "HTTP://h/a", "http://H/a", "http://h:80/a", "http://h/%61", "http://h/b/../a"];
    for uri in same_to_a_browser {
        replica.put("a", uri, uri).await;
    }
    for uri in same_to_a_browser {
        assert_eq!(replica.http.text("a", &key, uri).await.as_deref(), Some(uri));
    }
}

#[tokio::test]
async fn long_result_arrives_complete() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    let text = "ü\u{1f600}\"\\\n".repeat(100_000);
    replica.put("a", "x:1", &text).await;
    for _ in 0..2 {
        assert!(replica.http.text("a", &key, "x:1").await == Some(text.clone()));
    }
}
