//! Networks, maximum age and expiry of keys.

use std::sync::Arc;

use serde_json::{Value, json};
use time::macros::datetime;
use time::{Duration, OffsetDateTime};

use crate::support::answers::{normalized, problem};
use crate::support::app::{Builder, Replica, mistyped};
use crate::support::clock::ManualClock;
use crate::support::cluster::{Database, database};
use crate::support::http::Answer;
use crate::support::wait::eventually;

const START: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

struct Stage {
    _database: Database,
    replica: Replica,
    clock: Arc<ManualClock>,
}

impl Stage {
    /// A gateway behind a trusted proxy, with the agent `a` of `acme`.
    async fn set() -> Self {
        let (database, clock) = (database().await, ManualClock::at(START));
        let builder = Builder::new(&database).clock(clock.clone());
        let replica = builder.set("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1").start().await;
        replica.tenant("acme").await;
        replica.agent("acme", "a").await;
        Self { _database: database, replica, clock }
    }

    async fn made(&self, path: &str, body: Value) -> Value {
        let made = self.replica.admin("POST", path, Some(body)).await;
        assert_eq!(made.status, 201, "{}", made.text());
        made.json()
    }

    /// Calls an endpoint and the administration API from an address; returns both statuses.
    async fn from(&self, client: &str, key: &str) -> [u16; 2] {
        let [mcp, admin] = self.answers(client, key).await;
        [mcp.status.as_u16(), admin.status.as_u16()]
    }

    async fn answers(&self, client: &str, key: &str) -> [Answer; 2] {
        let bearer = format!("Bearer {key}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("x-forwarded-for", client),
        ];
        let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
        let http = &self.replica.http;
        [
            http.send("POST", "/a/mcp", &headers, ping).await,
            http.send("GET", "/admin/v1/agents/a/resources", &headers, "").await,
        ]
    }
}

fn secret(made: &Value) -> &str {
    made["key"].as_str().unwrap()
}

#[tokio::test]
async fn key_outside_its_networks_is_refused_like_an_unknown_one() {
    let stage = Stage::set().await;
    let networks = json!(["10.1.2.3/8", "2001:db8::/32", "192.0.2.7"]);
    let asked = json!({"scopes": ["mcp", "registry"], "networks": networks});
    for path in ["/agents/a/keys", "/tenants/acme/keys"] {
        let made = stage.made(path, asked.clone()).await;
        assert_eq!(made["networks"], json!(["10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"]));
        for client in ["10.9.9.9", "::ffff:10.0.0.1", "2001:db8:7::1", "192.0.2.7"] {
            assert_eq!(stage.from(client, secret(&made)).await, [200, 200], "{client}");
        }
        let unknown = stage.answers("192.0.2.8", &mistyped(secret(&made))).await.map(|a| a.visible());
        for client in ["192.0.2.8", "11.0.0.1", "2001:db9::1", "127.0.0.1"] {
            let refused = stage.answers(client, secret(&made)).await.map(|answer| answer.visible());
            assert_eq!(refused, unknown, "{client}");
        }
        let listed = stage.replica.admin("GET", path, None).await.json();
        assert_eq!(listed["items"][0]["networks"], made["networks"]);
        let rotate = format!("/keys/{}/rotate", made["id"].as_str().unwrap());
        let rotated = stage.made(&rotate, json!({})).await;
        assert_eq!(rotated["networks"], made["networks"]);
        assert_eq!(stage.from("192.0.2.8", secret(&rotated)).await, [401, 401]);
        assert_eq!(stage.from("10.0.0.1", secret(&rotated)).await, [200, 200]);
    }
}

#[tokio::test]
async fn unreadable_forwarded_entry_matches_no_network() {
    let stage = Stage::set().await;
    let asked = json!({"scopes": ["mcp", "registry"], "networks": ["127.0.0.1/32"]});
    let bound = stage.made("/agents/a/keys", asked).await;
    let free = stage.made("/agents/a/keys", json!({"scopes": ["mcp", "registry"]})).await;
    assert_eq!(stage.from("127.0.0.1", secret(&bound)).await, [200, 200]);
    for forwarded in ["\u{fe},203.0.113.5", "203.0.113.5,\u{fe}", "127.0.0.1,unknown", "127.0.0.1,", ""] {
        assert_eq!(stage.from(forwarded, secret(&bound)).await, [401, 401], "{forwarded:?}");
        assert_eq!(stage.from(forwarded, secret(&free)).await, [200, 200], "{forwarded:?}");
    }
    eventually("the audit log names an unknown client", async || {
        let rows = stage.replica.admin("GET", "/audit?limit=500", None).await;
        rows.text().contains(r#""client":"unknown""#)
    })
    .await;
}

#[tokio::test]
async fn invalid_networks_are_named_by_index() {
    let stage = Stage::set().await;
    let many = vec!["10.0.0.0/8"; 33];
    for (networks, detail) in [
        (
            json!(["10.0.0.0/8", "example.com"]),
            "networks[1] is not a network such as 10.0.0.0/8 or 2001:db8::/32, or a single address",
        ),
        (
            json!(["10.0.0.0/33"]),
            "networks[0] is not a network such as 10.0.0.0/8 or 2001:db8::/32, or a single address",
        ),
        (json!(many), "networks must not have more than 32 items"),
    ] {
        let refused =
            stage.replica.admin("POST", "/agents/a/keys", Some(json!({"networks": networks}))).await;
        assert_eq!(normalized(&refused), problem(400, "invalid_params", detail));
    }
}

#[tokio::test]
async fn key_beyond_the_tenants_maximum_age_is_refused_as_expired() {
    let stage = Stage::set().await;
    let age = async |days: Value| {
        let changed =
            stage.replica.admin("PATCH", "/tenants/acme", Some(json!({"maxKeyAgeDays": days}))).await;
        assert_eq!(changed.json()["maxKeyAgeDays"], days);
    };
    let listed = async || {
        let listed = stage.replica.admin("GET", "/agents/a/keys", None).await.json();
        listed["items"].as_array().unwrap().iter().map(|key| key["expiresAt"].clone()).collect::<Vec<_>>()
    };
    let scopes = json!({"scopes": ["mcp", "registry"]});
    let agent = stage.made("/agents/a/keys", scopes.clone()).await;
    let owner = stage.made("/tenants/acme/keys", json!({})).await;
    age(json!(30)).await;
    assert_eq!(listed().await, ["2026-12-21T12:00:00Z"]);
    for asked in [Value::Null, json!("2026-12-21T12:00:00Z")] {
        let made = stage.made("/agents/a/keys", json!({"expiresAt": asked})).await;
        assert_eq!(made["expiresAt"], "2026-12-21T12:00:00Z");
    }
    for path in ["/agents/a/keys", "/tenants/acme/keys"] {
        let later = json!({"expiresAt": "2026-12-21T12:00:01Z"});
        let refused = normalized(&stage.replica.admin("POST", path, Some(later)).await);
        let detail =
            "expiresAt must be at most 2026-12-21T12:00:00Z: keys of this tenant live for 30 days at most";
        assert_eq!(refused, problem(400, "invalid_params", detail));
    }
    let made = stage.made("/agents/a/keys", json!({"expiresAt": "2026-12-01T00:00:00Z"})).await;
    assert_eq!(made["expiresAt"], "2026-12-01T00:00:00Z", "an earlier expiry is kept");

    stage.clock.advance(Duration::days(30) - Duration::seconds(1));
    for key in [&agent, &owner] {
        assert_eq!(stage.from("10.0.0.1", secret(key)).await, [200, 200]);
    }
    let rotate = format!("/keys/{}/rotate", agent["id"].as_str().unwrap());
    let rotated = stage.made(&rotate, json!({})).await;
    assert_eq!(rotated["expiresAt"], "2027-01-20T11:59:59Z", "a new key is as young as any");
    stage.clock.advance(Duration::seconds(1));
    for key in [&agent, &owner] {
        assert_eq!(stage.from("10.0.0.1", secret(key)).await, [401, 401]);
    }
    assert_eq!(stage.from("10.0.0.1", secret(&rotated)).await, [200, 200]);
    assert_eq!(stage.replica.admin("POST", &rotate, None).await.status, 404, "too old to be rotated");
    age(json!(31)).await;
    assert_eq!(stage.from("10.0.0.1", secret(&owner)).await, [200, 200]);
    age(Value::Null).await;
    assert_eq!(stage.from("10.0.0.1", secret(&owner)).await, [200, 200]);
    for days in [json!(0), json!(3651)] {
        let refused =
            stage.replica.admin("PATCH", "/tenants/acme", Some(json!({"maxKeyAgeDays": days}))).await;
        let expected = problem(400, "invalid_params", "maxKeyAgeDays must be from 1 to 3650");
        assert_eq!(normalized(&refused), expected, "{days}");
    }
    let made = stage.made("/tenants", json!({"id": "bee", "maxKeyAgeDays": 7})).await;
    assert_eq!(made["maxKeyAgeDays"], 7);
    assert_eq!(stage.replica.admin("GET", "/tenants/bee", None).await.json(), made);
}

#[tokio::test]
async fn keys_beyond_the_maximum_age_are_not_counted() {
    let stage = Stage::set().await;
    for _ in 0..10 {
        stage.made("/agents/a/keys", json!({})).await;
    }
    assert_eq!(stage.replica.admin("POST", "/agents/a/keys", Some(json!({}))).await.status, 400);
    stage.clock.advance(Duration::days(2));
    stage.replica.admin("PATCH", "/tenants/acme", Some(json!({"maxKeyAgeDays": 1}))).await;
    stage.made("/agents/a/keys", json!({})).await;
}

#[tokio::test]
async fn expiry_header_is_sent_in_the_last_fourteen_days() {
    let stage = Stage::set().await;
    let expiring = json!({"scopes": ["mcp", "registry"], "expiresAt": "2026-12-21T12:00:00Z"});
    let key = stage.made("/agents/a/keys", expiring).await;
    let lasting = stage.made("/agents/a/keys", json!({"scopes": ["mcp", "registry"]})).await;
    let narrow = json!({"scopes": ["audit"], "expiresAt": "2026-12-21T12:00:00Z"});
    let narrow = stage.made("/agents/a/keys", narrow).await;
    let told = async |key: &Value| {
        let answers = stage.answers("10.0.0.1", secret(key)).await;
        answers.map(|answer| answer.header("waggle-key-expires").map(str::to_owned))
    };
    stage.clock.advance(Duration::days(16) - Duration::seconds(1));
    assert_eq!(told(&key).await, [None, None]);
    stage.clock.advance(Duration::seconds(1));
    let end = Some("2026-12-21T12:00:00Z".to_owned());
    assert_eq!(told(&key).await, [end.clone(), end.clone()]);
    assert_eq!(told(&narrow).await, [end.clone(), end], "also with a refusal");
    assert_eq!(told(&lasting).await, [None, None]);
    stage.clock.advance(Duration::days(14));
    assert_eq!(told(&key).await, [None, None], "nothing is told of a key that is refused");
    stage.replica.admin("PATCH", "/tenants/acme", Some(json!({"maxKeyAgeDays": 31}))).await;
    let end = Some("2026-12-22T12:00:00Z".to_owned());
    assert_eq!(told(&lasting).await, [end.clone(), end], "also when the maximum age is what ends it");
}
