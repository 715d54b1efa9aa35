//! Encoded results with content from a source: kept for as long as the content is, and for those who see its definition.

use std::time::Instant;

use serde_json::json;

use super::Site;
use super::upstream::{Reply, tagged, text};
use crate::support::app::resource;
use crate::support::wait::eventually;

const RESULTS: &str = "waggle_cache_entries{cache=\"results\"}";

#[tokio::test]
async fn content_is_encoded_once_until_it_is_other_content() {
    let site = Site::new().await;
    site.upstream.answer("a", tagged("one", "1"));
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 0})).await;
    assert_eq!(site.text("test://a").await, "one");
    assert_eq!(site.replica.metric(RESULTS).await, 0.0, "content may differ at each read");
    // What the source calls unchanged is not encoded again.
    for _ in 0..2 {
        assert_eq!(site.text("test://a").await, "one");
    }
    assert_eq!(site.replica.metric(RESULTS).await, 1.0);
    for (number, now) in ["two", "three"].into_iter().enumerate() {
        site.upstream.answer("a", tagged(now, &format!("other {number}")));
        for _ in 0..3 {
            assert_eq!(site.text("test://a").await, now);
        }
        assert_eq!(site.replica.metric(RESULTS).await, 1.0);
    }
    // Nor is it answered once it is gone.
    site.upstream.answer("a", Reply::Answer(404, Vec::new(), Vec::new()));
    assert_eq!(site.read("test://a").await["error"]["data"]["code"], "resource_not_found");
}

#[tokio::test]
async fn kept_content_is_refused_once_its_connection_is_disabled() {
    let site = Site::new().await;
    site.upstream.answer("a", text("one"));
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 60_000})).await;
    for _ in 0..3 {
        assert_eq!(site.text("test://a").await, "one");
    }
    let disabled = site.replica.admin("PATCH", "/connections/api", Some(json!({"enabled": false}))).await;
    assert_eq!(disabled.status, 200, "{}", disabled.text());
    assert_eq!(site.read("test://a").await["error"]["data"]["reason"], "not_allowed");
}

#[tokio::test]
async fn time_left_of_kept_content_falls_and_is_never_longer() {
    const TTL: u64 = 10_000;
    let site = Site::new().await;
    site.upstream.answer("a", text("one"));
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": TTL})).await;
    let left = async || site.read_modern("test://a").await["result"]["ttlMs"].as_u64().unwrap();
    let first = left().await;
    let fetched = Instant::now();
    assert!((TTL * 8 / 9..=TTL).contains(&first), "{first}");
    eventually("the time left is shorter", async || {
        let at_least = u64::try_from(fetched.elapsed().as_millis()).unwrap();
        let left = left().await;
        // Fetched again where reads took longer than that.
        assert!(left <= TTL.saturating_sub(at_least) || at_least >= TTL, "{left} after {at_least}");
        left < first
    })
    .await;
    // Legacy results say nothing of it, and are kept beside the modern ones, of which two must have the same time left.
    for _ in 0..3 {
        assert_eq!(site.text("test://a").await, "one");
    }
    eventually("results of both eras are kept", async || {
        left().await;
        site.replica.metric(RESULTS).await == 2.0
    })
    .await;
}

#[tokio::test]
async fn kept_content_is_that_of_the_definition_that_a_caller_sees() {
    let site = Site::new().await;
    for (path, reply) in [("staff/a", text("hidden")), ("open/t/a", text("open"))] {
        site.upstream.answer(path, reply);
    }
    let place = |path: &str| json!({"connection": "api", "path": path, "ttlMs": 60_000});
    let hidden =
        json!({"name": "a", "mimeType": "text/x-hidden", "labels": ["staff"], "source": place("staff/a")});
    let made = site.replica.admin("PUT", &resource("notes", "test://t/a"), Some(hidden)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let wide = json!({"name": "wide", "mimeType": "text/x-open", "source": place("open/{+p}")});
    assert_eq!(site.template("test://{+p}", wide).await.status, 201);
    let made = site.replica.admin("POST", "/agents/notes/keys", Some(json!({"labels": ["staff"]}))).await;
    let staff = made.json()["key"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        for (key, mime_type, text) in
            [(&staff, "text/x-hidden", "hidden"), (&site.key, "text/x-open", "open")]
        {
            let params = json!({"uri": "test://t/a"});
            let read = site.replica.http.call("notes", key, "resources/read", params).await;
            let expected = json!([{"uri": "test://t/a", "mimeType": mime_type, "text": text}]);
            assert_eq!(read["result"]["contents"], expected, "{read}");
        }
    }
    assert_eq!(site.replica.metric(RESULTS).await, 2.0);
}
