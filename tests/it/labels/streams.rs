//! Streams of callers with labels: none is notified of what it does not see, and each of what it sees otherwise
//! than before.

mod resume;

use std::sync::Arc;

use serde_json::{Value, json};
use waggle::model::system::FailPoint;

use crate::support::app::{Builder, Replica, encode, resource};
use crate::support::cluster::{Database, database};
use crate::support::events::{Events, Session, listen};
use crate::support::faults::FaultScript;

const LEGACY: &str = "2025-06-18";
/// Everything that a stream of [`Site::streams`] is subscribed to.
const EVERYTHING: [&str; 6] =
    ["resources", "prompts", "tools", "updated x:hidden", "updated x:open", "updated x:served"];

/// Two replicas, of which the second can be held, and an agent `a` with `x:open`, which everybody sees, `x:hidden` with
/// the label `s`, and a template that serves `x:served`.
struct Site {
    writer: Replica,
    streams: Replica,
    faults: Arc<FaultScript>,
    database: Database,
}

/// A key of the agent.
struct Key {
    id: String,
    secret: String,
}

/// A stream of each era of one key.
struct Both {
    modern: Events,
    legacy: Events,
}

impl Site {
    async fn start() -> Self {
        Self::start_retaining(86_400).await
    }

    /// With changes that may be pruned after so many seconds.
    async fn start_retaining(seconds: u64) -> Self {
        let database = database().await;
        let faults = FaultScript::new();
        let replica = || Builder::new(&database).set("WAGGLE_CHANGES__RETAIN_SECONDS", seconds);
        let held = replica().fault_injector(Arc::clone(&faults) as Arc<_>);
        let (writer, streams) = tokio::join!(replica().start(), held.start());
        writer.tenant("acme").await;
        writer.agent("acme", "a").await;
        let site = Self { writer, streams, faults, database };
        site.put("x:open", "1", &[]).await;
        site.put("x:hidden", "1", &["s"]).await;
        site.put_template("x:{name}", "1", &[]).await;
        site
    }

    async fn key(&self, labels: &[&str]) -> Key {
        self.made("/agents/a/keys", json!({"labels": labels})).await
    }

    async fn rotated(&self, key: &Key) -> Key {
        self.made(&format!("/keys/{}/rotate", key.id), json!({})).await
    }

    async fn made(&self, path: &str, body: Value) -> Key {
        let made = self.writer.admin("POST", path, Some(body)).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let text = |member: &str| made.json()[member].as_str().unwrap().to_owned();
        Key { id: text("id"), secret: text("key") }
    }

    async fn relabel(&self, key: &Key, labels: &[&str]) {
        self.change("PATCH", &format!("/keys/{}", key.id), Some(json!({"labels": labels}))).await;
    }

    async fn put(&self, uri: &str, text: &str, labels: &[&str]) {
        let body = json!({"name": "a name", "contents": [{"text": text}], "labels": labels});
        self.change("PUT", &resource("a", uri), Some(body)).await;
    }

    async fn put_template(&self, uri_template: &str, text: &str, labels: &[&str]) {
        let body = json!({"name": "t", "template": format!("{text} {{{{ name }}}}"), "labels": labels});
        self.change("PUT", &template(uri_template), Some(body)).await;
    }

    async fn put_prompt(&self, name: &str, text: &str, labels: &[&str]) {
        let messages = json!([{"role": "user", "content": {"type": "text", "text": text}}]);
        self.change("PUT", &prompt(name), Some(json!({"messages": messages, "labels": labels}))).await;
    }

    async fn change(&self, method: &str, path: &str, body: Option<Value>) {
        let answer = self.writer.admin(method, path, body).await;
        assert!(answer.status.is_success(), "{method} {path}: {}", answer.text());
    }

    /// Streams on the second replica, subscribed to everything that the key sees.
    async fn streams(&self, key: &Key) -> Both {
        let filter = json!({
            "resourcesListChanged": true, "promptsListChanged": true, "toolsListChanged": true,
            "resourceSubscriptions": ["x:hidden", "x:open", "x:served"],
        });
        let mut modern = listen(&self.streams, "a", &key.secret, json!(1), filter).await;
        assert_eq!(modern.next_summary().await, "notifications/subscriptions/acknowledged");
        let session = self.session(key).await;
        Both { modern, legacy: session.stream(&self.streams, None).await }
    }

    /// A session that is subscribed to the same.
    async fn session(&self, key: &Key) -> Session {
        self.session_of(key, LEGACY).await
    }

    async fn session_of(&self, key: &Key, revision: &str) -> Session {
        let session = Session::open(&self.streams, "a", &key.secret, revision).await;
        for uri in ["x:hidden", "x:open", "x:served"] {
            session.subscribe(&self.streams, uri).await;
        }
        session
    }

    /// Changes of every kind to definitions with the label `s`, none of which others see.
    async fn change_hidden_things(&self) {
        self.put("x:hidden", "2", &["s"]).await;
        self.put("x:served", "shadows", &["s"]).await;
        self.put_template("x:se{name}", "1", &["s"]).await;
        self.put_template("x:se{name}", "2", &["s"]).await;
        self.put_prompt("p", "1", &["s"]).await;
        self.put_prompt("p", "2", &["s"]).await;
        self.change("POST", &format!("/agents/a/resources/touch?uri={}", encode("x:hidden")), None).await;
        let content = format!("/agents/a/resources/content?uri={}", encode("x:hidden"));
        let bearer = format!("Bearer {}", self.writer.operator);
        let headers = [("authorization", bearer.as_str()), ("content-type", "text/plain")];
        let raw = self.writer.http.send("PUT", &format!("/admin/v1{content}"), &headers, "raw").await;
        assert!(raw.status.is_success(), "{}", raw.text());
        self.put("x:hidden", "3", &["s", "more"]).await;
        for path in [resource("a", "x:served"), template("x:se{name}"), prompt("p")] {
            self.change("DELETE", &path, None).await;
        }
        let mut manifest = self.writer.admin("GET", "/agents/a/manifest", None).await.json();
        for resource in manifest["resources"].as_array_mut().unwrap() {
            if resource["uri"] == "x:hidden" {
                resource["labels"] = json!(["s"]);
                resource["contents"] = json!([{"text": "4"}]);
            }
        }
        self.change("PUT", "/agents/a/manifest", Some(manifest)).await;
    }
}

fn template(uri_template: &str) -> String {
    format!("/agents/a/templates?uriTemplate={}", encode(uri_template))
}

fn prompt(name: &str) -> String {
    format!("/agents/a/prompts/{name}")
}

impl Both {
    /// Both streams receive these events next, in this order, and no others.
    async fn receive(&mut self, expected: &[&str]) {
        tokio::join!(self.modern.expect_events(expected), self.legacy.expect_events(expected));
    }
}

#[tokio::test]
async fn changes_of_hidden_definitions_cause_no_event() {
    let site = Site::start().await;
    let key = site.key(&["other"]).await;
    let filter = json!({
        "resourcesListChanged": true, "promptsListChanged": true, "toolsListChanged": true,
        "resourceSubscriptions": ["x:open", "x:served"],
    });
    let mut modern = listen(&site.streams, "a", &key.secret, json!(1), filter).await;
    modern.next().await.unwrap();
    let session = Session::open(&site.streams, "a", &key.secret, LEGACY).await;
    for uri in ["x:open", "x:served"] {
        session.subscribe(&site.streams, uri).await;
    }
    let mut streams = Both { modern, legacy: session.stream(&site.streams, None).await };
    let mut seeing = site.streams(&site.key(&["s"]).await).await;
    site.change_hidden_things().await;
    site.put("x:open", "2", &[]).await;
    streams.receive(&["updated x:open"]).await;
    let mut seen = Vec::new();
    while seen.last().is_none_or(|event| event != "updated x:open") {
        seen.push(seeing.modern.next_summary().await);
    }
    for event in ["resources", "prompts", "updated x:hidden", "updated x:served"] {
        assert!(seen.iter().any(|seen| seen == event), "{event}: {seen:?}");
    }
}

#[tokio::test]
async fn labels_added_and_removed_notify_both_sides() {
    let site = Site::start().await;
    let mut without = site.streams(&site.key(&["other"]).await).await;
    let mut with = site.streams(&site.key(&["s"]).await).await;
    let relisted = ["resources", "updated x:open"];
    site.put("x:open", "1", &["s"]).await;
    without.receive(&relisted).await;
    with.receive(&relisted).await;
    site.put("x:open", "2", &["s"]).await;
    with.receive(&["updated x:open"]).await;
    site.put("x:open", "2", &["other"]).await;
    // To the one it appeared, from the other it vanished.
    without.receive(&relisted).await;
    with.receive(&relisted).await;
    site.put("x:open", "3", &["other"]).await;
    without.receive(&["updated x:open"]).await;
    site.put("x:open", "3", &[]).await;
    without.receive(&relisted).await;
    with.receive(&relisted).await;
    site.put("x:open", "4", &[]).await;
    without.receive(&["updated x:open"]).await;
    with.receive(&["updated x:open"]).await;
}

#[tokio::test]
async fn hidden_uri_is_subscribed_to_like_an_unknown_one() {
    let site = Site::start().await;
    let key = site.key(&[]).await;
    site.change("DELETE", &template("x:{name}"), None).await;
    let session = Session::open(&site.streams, "a", &key.secret, LEGACY).await;
    let answer = |uri: &'static str| {
        let subscribing = session.call(&site.streams, "resources/subscribe", json!({"uri": uri}));
        async move { subscribing.await.text().replace(uri, "URI") }
    };
    let unknown = answer("x:unknown").await;
    assert!(unknown.contains("resource_not_found"), "{unknown}");
    assert_eq!(answer("x:hidden").await, unknown);
    let filter = json!({"resourceSubscriptions": ["x:hidden", "x:unknown", "x:open"]});
    let mut modern = listen(&site.streams, "a", &key.secret, json!(1), filter).await;
    let acknowledged = modern.next().await.unwrap().json();
    assert_eq!(acknowledged["params"]["notifications"], json!({"resourceSubscriptions": ["x:open"]}));
    site.put("x:hidden", "2", &["s"]).await;
    site.put("x:hidden", "2", &[]).await;
    site.put("x:open", "2", &[]).await;
    modern.expect_events(&["updated x:open"]).await;
}

#[tokio::test]
async fn changed_labels_of_a_key_notify_of_everything() {
    let site = Site::start().await;
    let key = site.key(&["s"]).await;
    let mut streams = site.streams(&key).await;
    site.put("x:hidden", "2", &["s"]).await;
    streams.receive(&["updated x:hidden"]).await;
    site.relabel(&key, &[]).await;
    streams.receive(&EVERYTHING).await;
    site.put("x:hidden", "3", &["s"]).await;
    site.put("x:open", "2", &[]).await;
    streams.receive(&["updated x:open"]).await;
    site.relabel(&key, &["s", "t"]).await;
    streams.receive(&EVERYTHING).await;
    site.put("x:hidden", "4", &["s"]).await;
    streams.receive(&["updated x:hidden"]).await;
}

#[tokio::test]
async fn changed_labels_are_readable_on_every_replica_once_notified() {
    let site = Site::start().await;
    let key = site.key(&[]).await;
    let mut modern = site.streams(&key).await.modern;
    // The other replica finds the changes of this one by its sweep only.
    site.faults.lose_notifications(100);
    let read = || site.writer.http.text("a", &key.secret, "x:hidden");
    // Repeated, since a sweep may find a change at once.
    for _ in 0..4 {
        for (labels, text) in [(json!(["s"]), "1"), (json!([]), "1 hidden")] {
            read().await.unwrap();
            let path = format!("/keys/{}", key.id);
            let changed = site.streams.admin("PATCH", &path, Some(json!({"labels": labels}))).await;
            assert_eq!(changed.status, 200, "{}", changed.text());
            assert_eq!(modern.next_summary().await, EVERYTHING[0]);
            assert_eq!(read().await.as_deref(), Some(text));
            for expected in &EVERYTHING[1..] {
                assert_eq!(modern.next_summary().await, *expected);
            }
        }
    }
}

#[tokio::test]
async fn event_in_flight_is_not_sent_to_who_no_longer_sees() {
    let site = Site::start().await;
    let key = site.key(&["s"]).await;
    let mut streams = site.streams(&key).await;
    let hold = site.faults.hold(FailPoint::BeforeDelivery);
    site.put("x:hidden", "2", &["s"]).await;
    hold.meanwhile(async {
        site.relabel(&key, &[]).await;
        for stream in [&mut streams.modern, &mut streams.legacy] {
            for expected in EVERYTHING {
                assert_eq!(stream.next_summary().await, expected);
            }
        }
    })
    .await;
    site.put("x:open", "2", &[]).await;
    streams.receive(&["updated x:open"]).await;
}

#[tokio::test]
async fn template_serves_uris_whose_resource_is_hidden() {
    let site = Site::start().await;
    let mut without = site.streams(&site.key(&[]).await).await;
    let mut with = site.streams(&site.key(&["s"]).await).await;
    // The template serves `x:hidden` to callers who do not see the resource.
    site.put_template("x:{name}", "2", &[]).await;
    without.receive(&["updated x:hidden", "updated x:served"]).await;
    with.receive(&["updated x:served"]).await;
    site.put("x:hidden", "2", &["s"]).await;
    with.receive(&["updated x:hidden"]).await;
    without.receive(&[]).await;
    // A more specific template serves `x:served` to those who see it.
    site.put_template("x:se{name}", "1", &["s"]).await;
    with.receive(&["resources", "updated x:served"]).await;
    site.put_template("x:{name}", "3", &[]).await;
    without.receive(&["updated x:hidden", "updated x:served"]).await;
    with.receive(&[]).await;
    site.put_template("x:se{name}", "1", &[]).await;
    without.receive(&["resources", "updated x:served"]).await;
    with.receive(&["resources", "updated x:served"]).await;
    site.put_template("x:se{name}", "1", &["s"]).await;
    without.receive(&["resources", "updated x:served"]).await;
    with.receive(&["resources", "updated x:served"]).await;
    site.put_template("x:se{name}", "2", &["s"]).await;
    with.receive(&["updated x:served"]).await;
    without.receive(&[]).await;
    site.change("DELETE", &template("x:se{name}"), None).await;
    with.receive(&["resources", "updated x:served"]).await;
    without.receive(&[]).await;
}

#[tokio::test]
async fn many_hidden_changes_at_once_notify_no_others() {
    let site = Site::start().await;
    let mut without = site.streams(&site.key(&[]).await).await;
    let mut with = site.streams(&site.key(&["s"]).await).await;
    // More than a replica reads for its streams.
    let changes = "with raised as (
            update heads set revision = revision + 1 where scope = (select uid from agents) returning scope, revision
        )
        insert into changes (scope, revision, ordinal, kind, subject, audience)
        select scope, revision, n, 'resource_contents', 'x:' || n, '{s}' from raised, generate_series(0, 20000) as n";
    assert_eq!(site.database.execute(changes).await, 20_001);
    with.receive(&EVERYTHING).await;
    without.receive(&[]).await;
}

#[tokio::test]
async fn event_ids_do_not_show_hidden_changes() {
    let site = Site::start().await;
    let key = site.key(&[]).await;
    let session = Session::open(&site.streams, "a", &key.secret, LEGACY).await;
    session.subscribe(&site.streams, "x:open").await;
    let mut stream = session.stream(&site.streams, None).await;
    let mut ids = Vec::new();
    for round in 0..6 {
        for _ in 0..round * round {
            site.change("POST", &format!("/agents/a/resources/touch?uri={}", encode("x:hidden")), None).await;
        }
        site.put("x:open", &format!("text {round}"), &[]).await;
        let event = stream.next().await.unwrap();
        assert_eq!(event.summary(), "updated x:open");
        ids.push(event.id.unwrap());
    }
    assert!(ids.iter().all(|id| id.len() == ids[0].len()), "{ids:?}");
    for (at, one) in ids.iter().enumerate() {
        for other in &ids[..at] {
            let common = one.bytes().zip(other.bytes()).filter(|(one, other)| one == other).count();
            assert!(common < one.len() / 4, "{one} {other}");
        }
    }
}
