//! Keys: creation, limit, expiry, revocation, rotation and last use.

use serde_json::{Value, json};
use time::Duration;
use time::macros::datetime;

use super::{owner, send};
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::{Builder, Replica, gateway};
use crate::support::clock::ManualClock;
use crate::support::cluster::database;

/// The status of a list that is requested with a key.
async fn status(replica: &Replica, key: &str) -> u16 {
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    replica.http.post("a", key, &list).await.status.as_u16()
}

fn key_of(answer: &Value) -> (String, String) {
    (answer["id"].as_str().unwrap().to_owned(), answer["key"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn key_secret_is_returned_once_and_never_listed() {
    let (_database, replica) = gateway().await;
    replica.tenant("acme").await;
    replica.agent("acme", "a").await;
    let mut ci = json!({
        "id": "<id>", "key": "<secret>", "display": "<display>", "name": "ci", "scopes": ["mcp", "registry"],
        "createdAt": "<moment>", "expiresAt": "2999-12-31T23:00:00Z", "revokedAt": null, "lastUsedAt": null,
        "networks": [], "labels": [],
    });
    let body =
        json!({"name": "ci", "scopes": ["registry", "mcp", "mcp"], "expiresAt": "3000-01-01T00:00:00+01:00"});
    let made = replica.admin("POST", "/agents/a/keys", Some(body)).await;
    assert_eq!(normalized(&made), answered(201, Some(3), &ci));
    let (id, secret) = key_of(&made.json());
    assert!(secret.starts_with("bak_") && made.json()["display"] == secret[..12]);

    let plain = replica.admin("POST", "/agents/a/keys", Some(json!({}))).await;
    let mut expected = ci.clone();
    (expected["name"], expected["scopes"], expected["expiresAt"]) =
        (json!("key"), json!(["mcp"]), Value::Null);
    assert_eq!(normalized(&plain), answered(201, Some(4), &expected));

    ci.as_object_mut().unwrap().remove("key");
    expected.as_object_mut().unwrap().remove("key");
    let listed = replica.admin("GET", "/agents/a/keys", None).await;
    let both = json!({"items": [ci, expected], "nextCursor": null});
    assert_eq!(normalized(&listed), answered(200, None, &both));
    assert!(!listed.text().contains(&secret) && listed.text().contains(&id));

    let revoke = format!("/keys/{id}");
    for _ in 0..2 {
        let revoked = replica.admin("DELETE", &revoke, None).await;
        assert_eq!(
            normalized(&revoked),
            answered(204, Some(5), &Value::Null),
            "revoking again changes nothing"
        );
    }
    let listed = normalized(&replica.admin("GET", "/agents/a/keys", None).await);
    assert_eq!(listed["body"]["items"][0]["revokedAt"], "<moment>");
    let rotated = replica.admin("POST", &format!("/keys/{id}/rotate"), None).await;
    assert_eq!(normalized(&rotated), problem(404, "not_found", "no such key"));
}

#[tokio::test]
async fn owner_key_reaches_agents_of_its_tenant_within_its_scopes() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let made = replica.admin("POST", "/tenants/acme/keys", Some(json!({}))).await;
    let mut shown = json!({
        "id": "<id>", "key": "<secret>", "display": "<display>", "name": "owner",
        "scopes": ["mcp", "registry", "audit"], "createdAt": "<moment>", "expiresAt": null, "revokedAt": null,
        "lastUsedAt": null,
        "networks": [], "labels": [],
    });
    assert_eq!(normalized(&made), answered(201, Some(4), &shown));
    assert!(made.json()["key"].as_str().unwrap().starts_with("oag_"));
    shown.as_object_mut().unwrap().remove("key");
    let listed = replica.admin("GET", "/tenants/acme/keys", None).await;
    assert_eq!(normalized(&listed), answered(200, None, &json!({"items": [shown], "nextCursor": null})));

    let narrow = async |scope: &str| {
        let made = replica.admin("POST", "/tenants/acme/keys", Some(json!({"scopes": [scope]}))).await;
        format!("Bearer {}", made.json()["key"].as_str().unwrap())
    };
    let (reader, writer) = (narrow("mcp").await, narrow("registry").await);
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    for (bearer, endpoint, registry) in [(&reader, 200, 403), (&writer, 403, 200)] {
        let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
        assert_eq!(replica.http.send("POST", "/a/mcp", &headers, ping.clone()).await.status, endpoint);
        for path in ["/admin/v1/agents/a", "/admin/v1/agents/a/resources", "/admin/v1/agents"] {
            assert_eq!(replica.http.send("GET", path, &headers, "").await.status, registry, "{path}");
        }
    }
}

#[tokio::test]
async fn active_keys_are_limited_and_each_can_be_rotated() {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-11-21 12:00 UTC));
    let limited = Builder::new(&database).set("WAGGLE_LIMITS__ACTIVE_KEYS", 10);
    let replica = limited.clock(clock.clone()).start().await;
    replica.tenant("acme").await;
    replica.agent("acme", "a").await;
    let mut keys = Vec::new();
    for _ in 0..9 {
        keys.push(replica.key("a", &["mcp"]).await);
    }
    let short = json!({"expiresAt": "2026-11-21T13:00:00Z"});
    assert_eq!(replica.admin("POST", "/agents/a/keys", Some(short.clone())).await.status, 201);
    let full = problem(400, "invalid_params", "there are 10 active keys, the most allowed; revoke one first");
    let eleventh = async || normalized(&replica.admin("POST", "/agents/a/keys", Some(json!({}))).await);
    assert_eq!(eleventh().await, full);
    // Other agents, and the owner keys, have limits of ten of their own.
    replica.agent("acme", "b").await;
    replica.key("b", &["mcp"]).await;
    owner(&replica, "acme").await;

    for (id, old) in &keys {
        let rotated =
            replica.admin("POST", &format!("/keys/{id}/rotate"), Some(json!({"graceSeconds": 7200}))).await;
        let (_, new) = key_of(&rotated.json());
        assert_eq!((status(&replica, old).await, status(&replica, &new).await), (200, 200));
    }
    let (id, _) = replica.key("b", &["mcp"]).await;
    assert_eq!(replica.admin("DELETE", &format!("/keys/{id}"), None).await.status, 204);
    clock.advance(Duration::hours(2));
    assert_eq!(status(&replica, &keys[0].1).await, 401, "the grace period is over");
    // An expired key does not count, like a revoked one.
    assert_eq!(eleventh().await["status"], 201);
    assert_eq!(eleventh().await, full);
}

#[tokio::test]
async fn rotated_key_inherits_settings_and_the_old_expires_after_grace() {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-11-21 12:00 UTC));
    let replica = Builder::new(&database).clock(clock.clone()).start().await;
    replica.tenant("acme").await;
    replica.agent("acme", "a").await;
    let body = json!({"name": "ci", "scopes": ["mcp", "audit"], "expiresAt": "2026-11-21T18:00:00Z"});
    let (id, first) = key_of(&replica.admin("POST", "/agents/a/keys", Some(body)).await.json());
    let rotate = format!("/keys/{id}/rotate");

    let rotated = replica.admin("POST", &rotate, Some(json!({"graceSeconds": 600}))).await;
    let shown = json!({
        "id": "<id>", "key": "<secret>", "display": "<display>", "name": "ci", "scopes": ["mcp", "audit"],
        "createdAt": "<moment>", "expiresAt": "2026-11-21T18:00:00Z", "revokedAt": null, "lastUsedAt": null,
        "networks": [], "labels": [],
    });
    assert_eq!(normalized(&rotated), answered(201, Some(4), &shown));
    let (second_id, second) = key_of(&rotated.json());
    let listed = replica.admin("GET", "/agents/a/keys", None).await.json();
    let old = listed["items"].as_array().unwrap().iter().find(|key| key["id"] == id).unwrap();
    assert_eq!(old["expiresAt"], "2026-11-21T12:10:00Z");
    clock.advance(Duration::seconds(599));
    assert_eq!((status(&replica, &first).await, status(&replica, &second).await), (200, 200));
    clock.advance(Duration::seconds(1));
    assert_eq!((status(&replica, &first).await, status(&replica, &second).await), (401, 200));

    // Without a grace period at once; without a body after an hour.
    let at_once =
        replica.admin("POST", &format!("/keys/{second_id}/rotate"), Some(json!({"graceSeconds": 0}))).await;
    let (third_id, third) = key_of(&at_once.json());
    assert_eq!((status(&replica, &second).await, status(&replica, &third).await), (401, 200));
    let (_, fourth) = key_of(&replica.admin("POST", &format!("/keys/{third_id}/rotate"), None).await.json());
    clock.advance(Duration::seconds(3_599));
    assert_eq!(status(&replica, &third).await, 200);
    clock.advance(Duration::seconds(1));
    assert_eq!((status(&replica, &third).await, status(&replica, &fourth).await), (401, 200));
    // A successor does not outlive the key that it replaces.
    clock.advance(Duration::hours(5));
    assert_eq!(status(&replica, &fourth).await, 401);

    let (id, _) = replica.key("a", &["mcp"]).await;
    let rotate = format!("/keys/{id}/rotate");
    let long = replica.admin("POST", &rotate, Some(json!({"graceSeconds": 2_592_001}))).await;
    let most = "graceSeconds must be at most 2592000, thirty days";
    assert_eq!(normalized(&long), problem(400, "invalid_params", most));
    let form =
        send(&replica, &replica.operator, ("POST", &rotate), &[("content-type", "text/plain")], "{}").await;
    let json_only = "Content-Type must be application/json";
    assert_eq!(normalized(&form), problem(415, "unsupported_media_type", json_only));
}

#[tokio::test]
async fn key_is_refused_from_its_expiry_on() {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-11-21 12:00 UTC));
    let replica = Builder::new(&database).clock(clock.clone()).start().await;
    replica.tenant("acme").await;
    replica.agent("acme", "a").await;
    let expires =
        async |at: &str| replica.admin("POST", "/agents/a/keys", Some(json!({"expiresAt": at}))).await;
    let (id, key) = key_of(&expires("2026-11-21T13:00:00+00:30").await.json());
    clock.advance(Duration::seconds(1_799));
    assert_eq!(status(&replica, &key).await, 200);
    clock.advance(Duration::seconds(1));
    assert_eq!(status(&replica, &key).await, 401);
    let rotated = normalized(&replica.admin("POST", &format!("/keys/{id}/rotate"), None).await);
    let expired = "this key expired at 2026-11-21T12:30:00Z; create a new one, since only a key that is in force can \
        be rotated";
    assert_eq!(rotated, problem(404, "not_found", expired));
    assert_eq!(replica.admin("DELETE", &format!("/keys/{id}"), None).await.status, 204);
    let rotated = normalized(&replica.admin("POST", &format!("/keys/{id}/rotate"), None).await);
    assert_eq!(rotated, problem(404, "not_found", "no such key"), "a revoked key");
    for passed in ["2026-11-21T12:30:00Z", "1970-01-01T00:00:00Z", "0000-01-01T00:00:00Z"] {
        let answer = normalized(&expires(passed).await);
        assert_eq!(answer, problem(400, "invalid_params", "expiresAt is in the past"), "{passed}");
    }
}

#[tokio::test]
async fn expiry_may_be_a_date_which_begins_at_midnight_in_utc() {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-11-21 12:00 UTC));
    let replica = Builder::new(&database).clock(clock.clone()).start().await;
    replica.tenant("acme").await;
    replica.agent("acme", "a").await;
    let create = async |path: &str, expires: Value| {
        replica.admin("POST", path, Some(json!({"expiresAt": expires}))).await
    };
    for path in ["/agents/a/keys", "/tenants/acme/keys"] {
        let made = create(path, json!("2026-11-23")).await;
        assert_eq!((made.status.as_u16(), &made.json()["expiresAt"]), (201, &json!("2026-11-23T00:00:00Z")));
        assert_eq!(create(path, Value::Null).await.json()["expiresAt"], Value::Null);
    }
    let (_, key) = key_of(&create("/agents/a/keys", json!("2026-11-22")).await.json());
    clock.advance(Duration::hours(12) - Duration::seconds(1));
    assert_eq!(status(&replica, &key).await, 200);
    clock.advance(Duration::seconds(1));
    assert_eq!(status(&replica, &key).await, 401);
    for wrong in ["2026-02-30", "23.11.2026", "2026-11-23T12:00"] {
        let refused = create("/agents/a/keys", json!(wrong)).await;
        let expected =
            "expiresAt: expected a time such as 2026-07-28T12:00:00Z, or a date such as 2026-07-28 at line 1";
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(refused.status == 400 && detail.starts_with(expected), "{detail}");
    }
}

#[tokio::test]
async fn last_use_of_a_key_is_recorded_to_the_minute() {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-11-21 12:34:56 UTC));
    let replica = Builder::new(&database).clock(clock.clone()).start().await;
    let key = replica.acme("a").await;
    let last = async || {
        replica.running.services.identity.write_key_uses().await;
        replica.admin("GET", "/agents/a/keys", None).await.json()["items"][0]["lastUsedAt"].clone()
    };
    assert_eq!(last().await, Value::Null);
    assert_eq!(status(&replica, &key).await, 200);
    assert_eq!(last().await, "2026-11-21T12:34:00Z");
    clock.advance(Duration::seconds(3));
    assert_eq!(status(&replica, &key).await, 200);
    assert_eq!(last().await, "2026-11-21T12:34:00Z");
    clock.advance(Duration::seconds(1));
    let listed = replica.http.admin(&key, "GET", "/agents/a/resources", None).await;
    assert_eq!(listed.status, 200);
    assert_eq!(last().await, "2026-11-21T12:35:00Z", "the admin surface is a use as well");
}
