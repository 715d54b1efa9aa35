//! Fetches for anonymous callers and for watching, and what they leave to callers with a credential of the tenant.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::sync::Notify;

use super::Site;
use super::upstream::{Reply, status, text};
use crate::support::events::{Events, listen};
use crate::support::wait::eventually;

const FETCHES: &str = "waggle_source_fetches";

/// The error of a source that fails for a reason.
fn failed(reason: &str) -> Value {
    json!({"code": -31018, "message": format!("the source of this content failed: {reason}"),
        "data": {"code": "source_failed", "reason": reason}})
}

impl Site {
    /// A key of another tenant, whose callers are anonymous here.
    async fn foreign_key(&self) -> String {
        self.publish().await;
        self.other_tenant().await
    }

    /// Subscribes to URIs of the agent.
    async fn listen(&self, key: &str, uris: &[String]) -> Events {
        let filter = json!({"resourceSubscriptions": uris});
        let mut stream = listen(&self.replica, "notes", key, json!(1), filter).await;
        assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
        stream
    }

    /// Waits until the source was asked so many times.
    async fn asked(&self, times: usize) {
        let mut asked = 0;
        let is_asked = async || {
            asked += self.upstream.count();
            asked >= times
        };
        eventually("the source is asked", is_asked).await;
    }
}

#[tokio::test]
async fn polls_for_anonymous_subscribers_refuse_nothing_to_others() {
    let site = Site::with_limits(json!({"pollMs": 1_000})).await;
    let source = json!({"connection": "api", "path": "t/{city}", "ttlMs": 0});
    assert_eq!(site.template("test://t/{city}", json!({"name": "t", "source": source})).await.status, 201);
    site.upstream.answer("t/rome", text("24"));
    let mut own = site.listen(&site.key, &["test://t/rome".to_owned()]).await;
    assert_eq!(own.next_summary().await, "updated test://t/rome");

    let nowhere: Vec<_> = (0..100).map(|number| format!("test://t/nowhere{number}")).collect();
    for uri in &nowhere {
        site.upstream.answer(&uri["test://".len()..], status(500));
    }
    let foreign = site.foreign_key().await;
    let _anonymous = site.listen(&foreign, &nowhere).await;
    site.asked(nowhere.len()).await;
    for number in 0..20 {
        let now = number.to_string();
        site.upstream.answer("t/rome", text(&now));
        assert_eq!(site.text("test://t/rome").await, now);
    }
    // Nor are the polls refused of what the tenant itself is subscribed to.
    site.upstream.asked();
    let mut polls = 0;
    let is_polled = async || {
        polls += site.upstream.asked().iter().filter(|(target, _)| target == "/v1/t/rome").count();
        polls >= 5
    };
    eventually("the other content is polled", is_polled).await;
    let shown = site.replica.admin("GET", "/connections/api", None).await.json();
    assert_ne!(shown["state"], "open", "{shown}");
}

#[tokio::test]
async fn polls_that_hang_leave_places_to_reads() {
    let site = Site::with_limits(json!({"concurrent": 4, "timeoutMs": 120_000})).await;
    let hanging: Vec<_> = (0..8).map(|number| format!("test://hanging{number}")).collect();
    for uri in &hanging {
        let name = &uri["test://".len()..];
        site.upstream.answer(name, Reply::Hang);
        site.resource(name, json!({"connection": "api", "path": name})).await;
    }
    site.upstream.answer("a", text("here"));
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 0})).await;
    let foreign = site.foreign_key().await;
    let _anonymous = site.listen(&foreign, &hanging).await;
    site.asked(1).await;
    // As many as a tenant polls of new content of a connection at once.
    eventually("polls wait for each other", async || site.replica.metric(FETCHES).await == 2.0).await;
    assert_eq!(site.text("test://a").await, "here");
}

#[tokio::test]
async fn polls_of_a_tenant_leave_polls_of_a_shared_connection_to_others() {
    let site = Site::with_limits(json!({"pollMs": 3_600_000, "timeoutMs": 120_000})).await;
    let hanging: Vec<_> = (0..16).map(|number| format!("test://hanging{number}")).collect();
    for uri in &hanging {
        let name = &uri["test://".len()..];
        site.upstream.answer(name, Reply::Hang);
        site.resource(name, json!({"connection": "api", "path": name})).await;
    }
    let _own = site.listen(&site.key, &hanging).await;
    site.asked(2).await;

    let key = site.other_tenant().await;
    site.expect_poll_of_other(&key).await;
}

#[tokio::test]
async fn content_is_asked_for_once_at_a_time_for_all_causes() {
    let site = Site::with_limits(json!({"timeoutMs": 60_000})).await;
    site.publish().await;
    let released = Arc::new(Notify::new());
    site.upstream.answer("a", Reply::Held(Arc::clone(&released), "one"));
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 60_000})).await;
    let anonymous = site.read_anonymously("test://a");
    let own = async {
        site.asked(1).await;
        let released = async {
            eventually("both are in progress", async || site.replica.metric(FETCHES).await == 2.0).await;
            for _ in 0..20 {
                site.replica.metric(FETCHES).await;
            }
            released.notify_one();
        };
        tokio::join!(site.text("test://a"), released).0
    };
    let (anonymous, own) = tokio::join!(anonymous, own);
    assert_eq!((&anonymous["result"]["contents"][0]["text"], own.as_str()), (&json!("one"), "one"));
    assert_eq!(site.upstream.asked(), [("/v1/a".to_owned(), Some(200))]);
}

#[tokio::test]
async fn failure_of_a_fetch_for_another_cause_is_not_shared() {
    let site = Site::with_limits(json!({"timeoutMs": 1_000})).await;
    site.publish().await;
    site.upstream.answer("a", Reply::Hang);
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 0})).await;
    let anonymous = site.read_anonymously("test://a");
    let own = async {
        site.asked(1).await;
        site.upstream.answer("a", text("one"));
        site.text("test://a").await
    };
    let (anonymous, own) = tokio::join!(anonymous, own);
    assert_eq!((&anonymous["error"]["data"]["code"], own.as_str()), (&json!("source_timeout"), "one"));
}

#[tokio::test]
async fn pause_of_a_rate_limited_client_holds_for_all_and_another_for_its_cause() {
    let site = Site::new().await;
    site.publish().await;
    for name in ["a", "b"] {
        site.resource(name, json!({"connection": "api", "path": name, "ttlMs": 0})).await;
        site.upstream.answer(name, text(name));
    }
    let asking = |status| Reply::Answer(status, vec![("retry-after", "25".to_owned())], Vec::new());
    let open = async |cause: &str| {
        let name = "waggle_connection_partial_circuits_open";
        site.replica.metric(&format!("{name}{{connection=\"api\",cause=\"{cause}\"}}")).await
    };
    site.upstream.answer("a", asking(503));
    assert_eq!(site.read_anonymously("test://a").await["error"], failed("status"));
    assert_eq!(site.read_anonymously("test://b").await["error"], failed("busy"));
    assert_eq!(site.text("test://b").await, "b");
    assert_eq!((open("anonymous").await, open("poll").await), (1.0, 0.0));

    // With limits and circuits as new.
    let limits = json!({"limits": {"burst": 99}});
    assert_eq!(site.replica.admin("PATCH", "/connections/api", Some(limits)).await.status, 200);
    site.upstream.answer("a", asking(429));
    assert_eq!(site.read_anonymously("test://a").await["error"], failed("status"));
    site.upstream.asked();
    assert_eq!(site.read_anonymously("test://b").await["error"], failed("busy"));
    assert_eq!(site.read("test://b").await["error"], failed("busy"));
    assert_eq!(site.upstream.count(), 0);
    let shown = site.replica.admin("GET", "/connections/api", None).await.json();
    assert_eq!((&shown["state"], open("anonymous").await), (&json!("open"), 1.0));
}
