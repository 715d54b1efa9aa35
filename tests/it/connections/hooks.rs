//! Inbound webhooks: what a signed request changes, and that every other request is refused alike.

use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};

use super::{Keys, gateway};
use crate::support::answers::{answered, exact, normalized, problem};
use crate::support::app::{Replica, encode, resource};
use crate::support::clock::ManualClock;
use crate::support::cluster::database;
use crate::support::events::listen;
use crate::support::webhook::Message;

async fn hook(replica: &Replica, uris: Value) -> (String, String) {
    let made = replica.admin("POST", "/agents/a/hooks", Some(json!({"uris": uris}))).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    (made["id"].as_str().unwrap().to_owned(), made["secret"].as_str().unwrap().to_owned())
}

async fn revision(replica: &Replica, uri: &str) -> i64 {
    replica.admin("GET", &resource("a", uri), None).await.revision()
}

#[tokio::test]
async fn signed_request_changes_what_the_hook_names_once() {
    let (_keys, _database, replica) = gateway().await;
    replica.acme("a").await;
    for uri in ["x:1", "x:2", "x:3"] {
        replica.put("a", uri, "text").await;
    }
    let (id, secret) = hook(&replica, json!(["x:1", "x:2"])).await;
    let before = [revision(&replica, "x:1").await, revision(&replica, "x:3").await];
    let message = Message::new("message-1");
    for _ in 0..2 {
        let accepted = message.send(&replica, &id, &secret).await;
        assert_eq!((accepted.status.as_u16(), accepted.text().as_str()), (202, ""));
        let after = [revision(&replica, "x:1").await, revision(&replica, "x:2").await];
        assert_eq!(after, [before[0] + 3; 2], "a message that is sent again changes nothing");
    }
    assert_eq!(revision(&replica, "x:3").await, before[1]);
    assert_eq!(Message::new("message-2").send(&replica, &id, &secret).await.status, 202);
    assert_eq!(revision(&replica, "x:1").await, before[0] + 4);
    replica.admin("DELETE", &resource("a", "x:1"), None).await;
    assert_eq!(Message::new("message-3").send(&replica, &id, &secret).await.status, 202);
    assert_eq!(revision(&replica, "x:2").await, before[0] + 6, "what is left is changed");
}

#[tokio::test]
async fn unreadable_key_file_is_no_fault_of_a_tenant() {
    let (keys, _database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "text").await;
    std::fs::remove_file(keys.file()).unwrap();
    let made = replica.http.admin(&key, "POST", "/agents/a/hooks", Some(json!({"uris": ["x:1"]}))).await;
    assert_eq!(made.status, 500);
    assert!(!made.text().contains("sources.key"), "{}", made.text());
}

#[tokio::test]
async fn message_is_counted_once_in_ten_minutes() {
    let (keys, database, start) = (Keys::new(), database().await, OffsetDateTime::now_utc());
    let clock = ManualClock::at(start);
    let replica = keys.replica(&database).clock(clock.clone()).start().await;
    replica.acme("a").await;
    replica.put("a", "x:1", "text").await;
    let (id, secret) = hook(&replica, json!(["x:1"])).await;
    let before = revision(&replica, "x:1").await;
    let mut now = start;
    // Each is signed when it is sent, so that its time is valid.
    for (minute, counted) in [(0, 1), (9, 1), (11, 2)] {
        clock.advance(start + Duration::minutes(minute) - now);
        now = start + Duration::minutes(minute);
        let message = Message { at: now, ..Message::new("message") };
        assert_eq!(message.send(&replica, &id, &secret).await.status, 202);
        assert_eq!(revision(&replica, "x:1").await, before + counted, "after {minute} minutes");
    }
}

#[tokio::test]
async fn unknown_hook_and_bad_signature_are_refused_alike() {
    let (_keys, _database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "text").await;
    let (id, secret) = hook(&replica, json!(["x:1"])).await;
    let (deleted, its_secret) = hook(&replica, json!(["x:1"])).await;
    assert_eq!(replica.http.admin(&key, "DELETE", &format!("/hooks/{deleted}"), None).await.status, 204);
    let before = revision(&replica, "x:1").await;
    let expected = problem(401, "unauthenticated", "a valid credential is required");
    let new = || Message::new("message-1");
    let refused = [
        new().send(&replica, "00000000-0000-7000-8000-000000000000", &secret).await,
        new().send(&replica, "unknown", &secret).await,
        new().send(&replica, "%FF", &secret).await,
        new().send(&replica, &deleted, &its_secret).await,
        new().send(&replica, &id, &its_secret).await,
        Message { signed: Some("[]"), ..new() }.send(&replica, &id, &secret).await,
        Message { at: new().at - Duration::minutes(6), ..new() }.send(&replica, &id, &secret).await,
        Message { at: new().at + Duration::minutes(6), ..new() }.send(&replica, &id, &secret).await,
        Message { id: "m.1", ..new() }.send(&replica, &id, "whsec_AAAA").await,
        replica.http.send("POST", &format!("/hooks/{id}"), &[], "{}").await,
    ];
    for (nth, refused) in refused.iter().enumerate() {
        assert_eq!(exact(refused), expected, "{nth}");
    }
    let (largest, large) = ("x".repeat(65_536), "x".repeat(65_537));
    let too_large = Message { body: &large, ..new() }.send(&replica, &id, &secret).await;
    assert_eq!(too_large.status, 413);
    assert_eq!(revision(&replica, "x:1").await, before);
    assert_eq!(Message { body: &largest, ..new() }.send(&replica, &id, &secret).await.status, 202);
    assert_eq!(revision(&replica, "x:1").await, before + 1);
    replica.admin("DELETE", "/agents/a", None).await;
    assert_eq!(exact(&new().send(&replica, &id, &secret).await), expected, "the agent is gone");
}

#[tokio::test]
async fn message_is_counted_once_by_all_replicas() {
    let (keys, database) = (Keys::new(), database().await);
    let [one, other] = [keys.replica(&database).start().await, keys.replica(&database).start().await];
    one.acme("a").await;
    one.put("a", "x:1", "text").await;
    let (id, secret) = hook(&one, json!(["x:1"])).await;
    let before = revision(&one, "x:1").await;
    let sends = (0..8).map(|nth| {
        let replica = if nth % 2 == 0 { &one } else { &other };
        let (id, secret) = (&id, &secret);
        async move { Message::new("message").send(replica, id, secret).await.status.as_u16() }
    });
    assert_eq!(futures_util::future::join_all(sends).await, [202; 8]);
    assert_eq!(revision(&one, "x:1").await, before + 1);
}

#[tokio::test]
async fn hooks_are_created_listed_and_deleted() {
    let (keys, database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.agent("acme", "b").await;
    let (_, foreign) = replica.key("b", &["registry"]).await;
    replica.put("a", "x:1", "text").await;
    let made = replica.http.admin(&key, "POST", "/agents/a/hooks", Some(json!({"uris": ["x:1"]}))).await;
    let secret = made.json()["secret"].as_str().unwrap().to_owned();
    let mut shown = json!({"id": "<id>", "uris": ["x:1"], "createdAt": "<moment>"});
    let list = answered(200, None, &json!({"items": [shown], "nextCursor": null}));
    assert_eq!(normalized(&replica.http.admin(&key, "GET", "/agents/a/hooks", None).await), list);
    shown["secret"] = json!(secret);
    let created = made.revision();
    assert_eq!(normalized(&made), answered(201, Some(created), &shown));
    let id = made.json()["id"].as_str().unwrap().to_owned();

    keys.write(&[2, 1]);
    let rekeyed = replica.admin("POST", "/connection-secrets/rekey", None).await.json();
    assert_eq!(rekeyed["secrets"], 1);
    keys.write(&[2]);
    assert_eq!(Message::new("message").send(&replica, &id, &secret).await.status, 202);
    keys.write(&[3]);
    let refused = keys.replica(&database).refused().await;
    assert!(refused.ends_with(&format!(
        "which the secret of the hook {id} is encrypted under; add that key to the file"
    )));

    let gone = problem(404, "not_found", "no such hook");
    let delete = async |key: &str, id: &str| {
        normalized(&replica.http.admin(key, "DELETE", &format!("/hooks/{id}"), None).await)
    };
    for (key, id) in [(&foreign, id.as_str()), (&key, "unknown")] {
        assert_eq!(delete(key, id).await, gone);
    }
    let path = format!("/hooks/{id}");
    let conditional = async |named: i64| {
        let (authorization, named) = (format!("Bearer {key}"), format!("\"{named}\""));
        replica
            .http
            .send(
                "DELETE",
                &format!("/admin/v1{path}"),
                &[("authorization", &authorization), ("if-match", &named)],
                "",
            )
            .await
    };
    assert_eq!(conditional(created + 1).await.status, 412);
    assert_eq!(normalized(&conditional(created).await), answered(204, Some(created + 1), &Value::Null));
    assert_eq!(delete(&key, &id).await, gone);
    let create = async |uris: Value| {
        let answer = replica.admin("POST", "/agents/a/hooks", Some(json!({"uris": uris}))).await;
        (answer.status.as_u16(), answer.json()["detail"].as_str().unwrap_or_default().to_owned())
    };
    let refused = |detail: &str| (400, detail.to_owned());
    let count = "uris must be a list of 1 to 100 resources";
    assert_eq!(create(json!([])).await, refused(count));
    assert_eq!(create(json!(vec!["x:1"; 101])).await, refused(count));
    assert_eq!(create(json!(["x:1", "x:9"])).await, refused("uris: no such resource: x:9"));
    assert_eq!(create(json!(["nothing"])).await, refused("uris[0] is not an absolute URI of RFC 3986"));
    keys.write(&[2]);
    for _ in 0..100 {
        assert_eq!(create(json!(["x:1"])).await.0, 201);
    }
    assert_eq!(create(json!(["x:1"])).await, refused("an agent has at most 100 hooks; delete one"));
}

#[tokio::test]
async fn agent_called_hooks_has_its_endpoint() {
    let (_keys, _database, replica) = gateway().await;
    let key = replica.acme("hooks").await;
    replica.put("hooks", "x:1", "text").await;
    assert_eq!(replica.http.text("hooks", &key, "x:1").await.as_deref(), Some("text"));
}

#[tokio::test]
async fn uri_that_a_template_serves_is_notified_to_those_who_see_the_template() {
    let (_keys, _database, replica) = gateway().await;
    let key = replica.acme("a").await;
    for (template, labels) in [("t:{v}", json!([])), ("h:{v}", json!(["hidden"]))] {
        let path = format!("/agents/a/templates?uriTemplate={}", encode(template));
        let body = json!({"name": "t", "template": "{{ v }}", "labels": labels});
        assert_eq!(replica.admin("PUT", &path, Some(body)).await.status, 201);
    }
    replica.put("a", "x:1", "text").await;
    // Of these the caller sees none; a template that it sees serves the first.
    for uri in ["t:3", "h:3"] {
        let body = json!({"name": "r", "labels": ["hidden"], "contents": [{"text": "r"}]});
        assert_eq!(replica.admin("PUT", &resource("a", uri), Some(body)).await.status, 201);
    }
    let unknown = replica.admin("POST", "/agents/a/hooks", Some(json!({"uris": ["t:1", "u:1"]}))).await;
    assert_eq!(exact(&unknown), problem(400, "invalid_params", "uris: no such resource: u:1"));
    let (id, secret) = hook(&replica, json!(["t:1", "h:1", "x:1", "t:3", "h:3"])).await;
    let filter = json!({"resourceSubscriptions": ["t:1", "t:2", "t:3", "h:1", "h:3", "x:1"]});
    let mut stream = listen(&replica, "a", &key, json!(1), filter).await;
    assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
    assert_eq!(Message::new("message-1").send(&replica, &id, &secret).await.status, 202);
    let mut updates = [(); 3].map(|()| String::new());
    for update in &mut updates {
        *update = stream.next_summary().await;
    }
    updates.sort();
    assert_eq!(updates, ["updated t:1", "updated t:3", "updated x:1"]);
    // The next event is that of a later change: nothing else was notified.
    replica.put("a", "x:1", "changed").await;
    assert_eq!(stream.next_summary().await, "updated x:1");
}
