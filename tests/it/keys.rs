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

struct Fixture {
    _database: Database,
    replica: Replica,
    clock: Arc<ManualClock>,
}

impl Fixture {
    /// A gateway behind a trusted proxy, with the agent `a` of `acme`.
    async fn new() -> Self {
        let (database, clock) = (database().await, ManualClock::at(START));
        let builder = Builder::new(&database).clock(clock.clone()).set("WAGGLE_LIMITS__ACTIVE_KEYS", 10);
        let replica = builder.set("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1").start().await;
        replica.tenant("acme").await;
        replica.agent("acme", "a").await;
        Self { _database: database, replica, clock }
    }

    async fn create(&self, path: &str, body: Value) -> Value {
        let created = self.replica.admin("POST", path, Some(body)).await;
        assert_eq!(created.status, 201, "{}", created.text());
        created.json()
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

fn secret(created: &Value) -> &str {
    created["key"].as_str().unwrap()
}

#[tokio::test]
async fn key_outside_its_networks_is_refused_like_an_unknown_one() {
    let fixture = Fixture::new().await;
    let networks = json!(["10.1.2.3/8", "2001:db8::/32", "192.0.2.7"]);
    let body = json!({"scopes": ["mcp", "registry"], "networks": networks});
    for path in ["/agents/a/keys", "/tenants/acme/keys"] {
        let created = fixture.create(path, body.clone()).await;
        assert_eq!(created["networks"], json!(["10.0.0.0/8", "2001:db8::/32", "192.0.2.7/32"]));
        for client in ["10.9.9.9", "::ffff:10.0.0.1", "2001:db8:7::1", "192.0.2.7"] {
            assert_eq!(fixture.from(client, secret(&created)).await, [200, 200], "{client}");
        }
        let unknown = fixture.answers("192.0.2.8", &mistyped(secret(&created))).await.map(|a| a.visible());
        for client in ["192.0.2.8", "11.0.0.1", "2001:db9::1", "127.0.0.1"] {
            let refused = fixture.answers(client, secret(&created)).await.map(|answer| answer.visible());
            assert_eq!(refused, unknown, "{client}");
        }
        let listed = fixture.replica.admin("GET", path, None).await.json();
        assert_eq!(listed["items"][0]["networks"], created["networks"]);
        let rotate = format!("/keys/{}/rotate", created["id"].as_str().unwrap());
        let rotated = fixture.create(&rotate, json!({})).await;
        assert_eq!(rotated["networks"], created["networks"]);
        assert_eq!(fixture.from("192.0.2.8", secret(&rotated)).await, [401, 401]);
        assert_eq!(fixture.from("10.0.0.1", secret(&rotated)).await, [200, 200]);
    }
}

#[tokio::test]
async fn unreadable_forwarded_entry_matches_no_network() {
    let fixture = Fixture::new().await;
    let body = json!({"scopes": ["mcp", "registry"], "networks": ["127.0.0.1/32"]});
    let bound = fixture.create("/agents/a/keys", body).await;
    let free = fixture.create("/agents/a/keys", json!({"scopes": ["mcp", "registry"]})).await;
    assert_eq!(fixture.from("127.0.0.1", secret(&bound)).await, [200, 200]);
    for forwarded in ["\u{fe},203.0.113.5", "203.0.113.5,\u{fe}", "127.0.0.1,unknown", "127.0.0.1,", ""] {
        assert_eq!(fixture.from(forwarded, secret(&bound)).await, [401, 401], "{forwarded:?}");
        assert_eq!(fixture.from(forwarded, secret(&free)).await, [200, 200], "{forwarded:?}");
    }
    eventually("the audit log names an unknown client", async || {
        let rows = fixture.replica.admin("GET", "/audit?limit=500", None).await;
        rows.text().contains(r#""client":"unknown""#)
    })
    .await;
}

#[tokio::test]
async fn invalid_networks_are_named_by_index() {
    let fixture = Fixture::new().await;
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
            fixture.replica.admin("POST", "/agents/a/keys", Some(json!({"networks": networks}))).await;
        assert_eq!(normalized(&refused), problem(400, "invalid_params", detail));
    }
}

#[tokio::test]
async fn key_beyond_the_tenants_maximum_age_is_refused_as_expired() {
    let fixture = Fixture::new().await;
    let age = async |days: Value| {
        let changed =
            fixture.replica.admin("PATCH", "/tenants/acme", Some(json!({"maxKeyAgeDays": days}))).await;
        assert_eq!(changed.json()["maxKeyAgeDays"], days);
    };
    let listed = async || {
        let listed = fixture.replica.admin("GET", "/agents/a/keys", None).await.json();
        listed["items"].as_array().unwrap().iter().map(|key| key["expiresAt"].clone()).collect::<Vec<_>>()
    };
    let scopes = json!({"scopes": ["mcp", "registry"]});
    let agent = fixture.create("/agents/a/keys", scopes.clone()).await;
    let owner = fixture.create("/tenants/acme/keys", json!({})).await;
    age(json!(30)).await;
    assert_eq!(listed().await, ["2026-12-21T12:00:00Z"]);
    for requested in [Value::Null, json!("2026-12-21T12:00:00Z")] {
        let created = fixture.create("/agents/a/keys", json!({"expiresAt": requested})).await;
        assert_eq!(created["expiresAt"], "2026-12-21T12:00:00Z");
    }
    for path in ["/agents/a/keys", "/tenants/acme/keys"] {
        let later = json!({"expiresAt": "2026-12-21T12:00:01Z"});
        let refused = normalized(&fixture.replica.admin("POST", path, Some(later)).await);
        let detail =
            "expiresAt must be at most 2026-12-21T12:00:00Z: keys of this tenant live for 30 days at most";
        assert_eq!(refused, problem(400, "invalid_params", detail));
    }
    let created = fixture.create("/agents/a/keys", json!({"expiresAt": "2026-12-01T00:00:00Z"})).await;
    assert_eq!(created["expiresAt"], "2026-12-01T00:00:00Z", "an earlier expiry is kept");

    fixture.clock.advance(Duration::days(30) - Duration::seconds(1));
    for key in [&agent, &owner] {
        assert_eq!(fixture.from("10.0.0.1", secret(key)).await, [200, 200]);
    }
    let rotate = format!("/keys/{}/rotate", agent["id"].as_str().unwrap());
    let rotated = fixture.create(&rotate, json!({})).await;
    assert_eq!(rotated["expiresAt"], "2027-01-20T11:59:59Z", "a new key is as young as any");
    fixture.clock.advance(Duration::seconds(1));
    for key in [&agent, &owner] {
        assert_eq!(fixture.from("10.0.0.1", secret(key)).await, [401, 401]);
    }
    assert_eq!(fixture.from("10.0.0.1", secret(&rotated)).await, [200, 200]);
    assert_eq!(fixture.replica.admin("POST", &rotate, None).await.status, 404, "too old to be rotated");
    age(json!(31)).await;
    assert_eq!(fixture.from("10.0.0.1", secret(&owner)).await, [200, 200]);
    age(Value::Null).await;
    assert_eq!(fixture.from("10.0.0.1", secret(&owner)).await, [200, 200]);
    for days in [json!(0), json!(3651)] {
        let refused =
            fixture.replica.admin("PATCH", "/tenants/acme", Some(json!({"maxKeyAgeDays": days}))).await;
        let expected = problem(400, "invalid_params", "maxKeyAgeDays must be from 1 to 3650");
        assert_eq!(normalized(&refused), expected, "{days}");
    }
    let created = fixture.create("/tenants", json!({"id": "bee", "maxKeyAgeDays": 7})).await;
    assert_eq!(created["maxKeyAgeDays"], 7);
    assert_eq!(fixture.replica.admin("GET", "/tenants/bee", None).await.json(), created);
}

#[tokio::test]
async fn keys_beyond_the_maximum_age_are_not_counted() {
    let fixture = Fixture::new().await;
    for _ in 0..10 {
        fixture.create("/agents/a/keys", json!({})).await;
    }
    assert_eq!(fixture.replica.admin("POST", "/agents/a/keys", Some(json!({}))).await.status, 400);
    fixture.clock.advance(Duration::days(2));
    fixture.replica.admin("PATCH", "/tenants/acme", Some(json!({"maxKeyAgeDays": 1}))).await;
    fixture.create("/agents/a/keys", json!({})).await;
}

#[tokio::test]
async fn expiry_header_is_sent_in_the_last_fourteen_days() {
    let fixture = Fixture::new().await;
    let expiring = json!({"scopes": ["mcp", "registry"], "expiresAt": "2026-12-21T12:00:00Z"});
    let key = fixture.create("/agents/a/keys", expiring).await;
    let lasting = fixture.create("/agents/a/keys", json!({"scopes": ["mcp", "registry"]})).await;
    let narrow = json!({"scopes": ["audit"], "expiresAt": "2026-12-21T12:00:00Z"});
    let narrow = fixture.create("/agents/a/keys", narrow).await;
    let expiry_headers = async |key: &Value| {
        let answers = fixture.answers("10.0.0.1", secret(key)).await;
        answers.map(|answer| answer.header("waggle-key-expires").map(str::to_owned))
    };
    fixture.clock.advance(Duration::days(16) - Duration::seconds(1));
    assert_eq!(expiry_headers(&key).await, [None, None]);
    fixture.clock.advance(Duration::seconds(1));
    let end = Some("2026-12-21T12:00:00Z".to_owned());
    assert_eq!(expiry_headers(&key).await, [end.clone(), end.clone()]);
    assert_eq!(expiry_headers(&narrow).await, [end.clone(), end], "also with a refusal");
    assert_eq!(expiry_headers(&lasting).await, [None, None]);
    fixture.clock.advance(Duration::days(14));
    assert_eq!(expiry_headers(&key).await, [None, None], "a refusal does not reveal an expiry");
    fixture.replica.admin("PATCH", "/tenants/acme", Some(json!({"maxKeyAgeDays": 31}))).await;
    let end = Some("2026-12-22T12:00:00Z".to_owned());
    assert_eq!(
        expiry_headers(&lasting).await,
        [end.clone(), end],
        "also when the maximum age is what ends it"
    );
}
