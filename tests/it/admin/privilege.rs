//! Keys created by owner keys: within the bounds of the calling key, and revoked with it.

use serde_json::{Value, json};
use time::Duration;
use time::macros::datetime;
use waggle::identity::keys::{KeyChange, NewKey};
use waggle::model::audit::write::AuditedWrite;
use waggle::model::fault::Fault;
use waggle::model::ids::{KeyId, Slug};
use waggle::model::key_bounds::Maker;
use waggle::model::label::Labels;
use waggle::model::precondition::Precondition;

use crate::support::answers::{problem, without_rates};
use crate::support::app::{Builder, Replica};
use crate::support::clock::ManualClock;
use crate::support::cluster::{Database, database};

const END: &str = "2027-01-01T00:00:00Z";

/// A gateway with the agents `a` and `b` of `acme`, whose keys have 50 units per second by default.
struct Fixture {
    _database: Database,
    replica: Replica,
    clock: std::sync::Arc<ManualClock>,
}

/// A key, as it was answered.
struct Key {
    id: String,
    secret: String,
    shown: Value,
}

impl From<Value> for Key {
    fn from(shown: Value) -> Self {
        let text = |member: &str| shown[member].as_str().unwrap_or_else(|| panic!("{shown}")).to_owned();
        Self { id: text("id"), secret: text("key"), shown }
    }
}

impl Fixture {
    async fn start() -> Self {
        let database = database().await;
        let clock = ManualClock::at(datetime!(2026-11-21 12:00 UTC));
        let builder = Builder::new(&database).clock(clock.clone()).set("WAGGLE_LIMITS__KEY_PER_SECOND", 50);
        let replica = builder.start().await;
        replica.tenant("acme").await;
        for agent in ["a", "b"] {
            replica.agent("acme", agent).await;
        }
        Self { _database: database, replica, clock }
    }

    async fn owner(&self, body: Value) -> Key {
        self.replica.admin("POST", "/tenants/acme/keys", Some(body)).await.json().into()
    }

    /// A call with an owner key; returns the whole answer.
    async fn call(&self, by: &Key, method: &str, path: &str, body: Value) -> Value {
        without_rates(&self.replica.http.admin(&by.secret, method, path, Some(body)).await)
    }

    /// A key that an owner key creates.
    async fn create(&self, by: &Key, agent: &str, body: Value) -> Key {
        let path = format!("/agents/{agent}/keys");
        self.replica.http.admin(&by.secret, "POST", &path, Some(body)).await.json().into()
    }

    async fn rotate(&self, by: &Key, key: &Key) -> Value {
        self.call(by, "POST", &format!("/keys/{}/rotate", key.id), json!({})).await
    }

    /// The successor of a key, with its secret.
    async fn rotate_secret(&self, by: &Key, key: &Key) -> Key {
        let path = format!("/keys/{}/rotate", key.id);
        self.replica.http.admin(&by.secret, "POST", &path, Some(json!({}))).await.json().into()
    }

    async fn status(&self, agent: &str, key: &Key) -> u16 {
        let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
        self.replica.http.post_bearer(agent, &key.secret, &list).await.status.as_u16()
    }
}

fn forbidden(detail: &str) -> Value {
    problem(403, "forbidden", detail)
}

fn insufficient_scope(scope: &str) -> Value {
    let detail = format!("this credential lacks the scope {scope}");
    let mut expected = problem(403, "insufficient_scope", &detail);
    let challenge = format!("Bearer realm=\"MCP\", error=\"insufficient_scope\", scope=\"{scope}\"");
    expected["headers"]["www-authenticate"] = json!(challenge);
    expected
}

/// Loopback, the address of the tests.
fn narrow() -> Value {
    json!({
        "scopes": ["registry"], "networks": ["127.0.0.0/8"], "expiresAt": END,
        "limits": {"perSecond": 20, "burst": 30},
    })
}

#[tokio::test]
async fn narrow_owner_key_creates_keys_within_its_bounds() {
    let fixture = Fixture::start().await;
    let owner = fixture.owner(narrow()).await;
    let make = async |body: Value| fixture.call(&owner, "POST", "/agents/a/keys", body).await;

    let plain = make(json!({})).await;
    let inherited = json!({
        "scopes": ["registry"], "networks": ["127.0.0.0/8"], "expiresAt": END,
        "limits": {"perSecond": 20, "burst": 30},
    });
    for (member, value) in inherited.as_object().unwrap() {
        assert_eq!(&plain["body"][member], value, "{member} is inherited");
    }
    let within = json!({
        "scopes": ["registry"], "networks": ["127.0.0.1"], "expiresAt": "2026-12-31T00:00:00Z",
        "limits": {"perSecond": 10, "burst": 20},
    });
    assert_eq!(make(within).await["status"], 201);

    for scopes in [json!(["mcp", "registry", "audit"]), json!(["mcp"])] {
        assert_eq!(make(json!({"scopes": scopes})).await, insufficient_scope("mcp"));
    }
    assert_eq!(make(json!({"scopes": ["audit"]})).await, insufficient_scope("audit"));
    for (networks, outside) in [
        (json!([]), "any address"),
        (json!(["127.0.0.1", "::1"]), "::1/128"),
        (json!(["126.0.0.0/7"]), "126.0.0.0/7"),
    ] {
        let detail =
            format!("networks: {outside} is outside of 127.0.0.0/8, the networks of the calling key");
        assert_eq!(make(json!({"networks": networks})).await, forbidden(&detail));
    }
    let later = make(json!({"expiresAt": "2027-01-01T00:00:01Z"})).await;
    let detail = format!("expiresAt must be at most {END}, when the calling key expires");
    assert_eq!(later, forbidden(&detail));
    let detail = "limits must not exceed 20 requests/s and a burst of 30, the limits of the calling key";
    assert_eq!(make(json!({"limits": {"perSecond": 21, "burst": 30}})).await, forbidden(detail));
    assert_eq!(make(json!({"limits": {"perSecond": 0}})).await["status"], 400);
    let listed = fixture.replica.admin("GET", "/agents/a/keys", None).await.json();
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "nothing else was created");
}

#[tokio::test]
async fn narrow_owner_key_rotates_and_changes_keys_within_its_bounds() {
    let fixture = Fixture::start().await;
    let owner = fixture.owner(narrow()).await;
    let operators = async |body: Value| -> Key {
        fixture.replica.admin("POST", "/agents/a/keys", Some(body)).await.json().into()
    };
    let wide = operators(json!({"scopes": ["mcp", "registry"]})).await;
    assert_eq!(fixture.rotate(&owner, &wide).await, insufficient_scope("mcp"));
    let anywhere = operators(json!({"scopes": ["registry"]})).await;
    let detail = "networks: any address is outside of 127.0.0.0/8, the networks of the calling key";
    assert_eq!(fixture.rotate(&owner, &anywhere).await, forbidden(detail));

    let same = operators(json!({"scopes": ["registry"], "networks": ["127.0.0.1"]})).await;
    let successor = fixture.rotate(&owner, &same).await;
    assert_eq!(successor["status"], 201, "{successor}");
    assert_eq!(successor["body"]["expiresAt"], END, "no later than the calling key");
    assert_eq!(successor["body"]["limits"], json!({"perSecond": 20, "burst": 30}), "no higher rate");
    // A key that expires earlier keeps its expiry.
    let short = json!({
        "scopes": ["registry"], "networks": ["127.0.0.1"], "expiresAt": "2026-12-24T00:00:00Z",
    });
    let short = operators(short).await;
    assert_eq!(fixture.rotate(&owner, &short).await["body"]["expiresAt"], "2026-12-24T00:00:00Z");

    let patch = async |key: &Key, body: Value| {
        fixture.call(&owner, "PATCH", &format!("/keys/{}", key.id), body).await
    };
    for body in [json!({"labels": ["secret"]}), json!({"limits": {"perSecond": 10}}), json!({})] {
        assert_eq!(patch(&wide, body.clone()).await, insufficient_scope("mcp"));
        assert_eq!(patch(&anywhere, body).await, forbidden(detail));
    }
    let within = operators(json!({"scopes": ["registry"], "networks": ["127.0.0.1"]})).await;
    let secret = json!({"labels": ["secret"]});
    let earlier = format!("labels: the key must expire by {END}, when the calling key does");
    assert_eq!(patch(&within, secret.clone()).await, forbidden(&earlier));
    let rate = "limits must not exceed 20 requests/s and a burst of 30, the limits of the calling key";
    assert_eq!(patch(&short, secret).await, forbidden(rate));
    let both = json!({"labels": ["secret"], "limits": {"perSecond": 20, "burst": 30}});
    assert_eq!(patch(&short, both).await["body"]["labels"], json!(["secret"]));
    // A change that only removes labels is not bounded by the life of the calling key.
    let labelled =
        operators(json!({"scopes": ["registry"], "networks": ["127.0.0.1"], "labels": ["a", "b"]})).await;
    for labels in [json!(["b", "a"]), json!(["a"]), json!([])] {
        let patched = patch(&labelled, json!({"labels": labels})).await;
        assert_eq!(patched["status"], 200, "{patched}");
    }
    assert_eq!(patch(&labelled, json!({"labels": ["a"]})).await, forbidden(&earlier));

    let limits = async |limits: Value| patch(&within, json!({"limits": limits})).await;
    assert_eq!(limits(json!({"perSecond": 30})).await, forbidden(rate));
    assert_eq!(limits(json!({"perSecond": 10})).await["body"]["limits"], json!({"perSecond": 10}));
    let lifted = limits(Value::Null).await;
    assert_eq!(
        lifted["body"]["limits"],
        json!({"perSecond": 20, "burst": 30}),
        "within the bounds of the calling key"
    );
}

#[tokio::test]
async fn keys_are_revoked_with_the_key_that_created_them() {
    let fixture = Fixture::start().await;
    let (owner, other) = (fixture.owner(json!({})).await, fixture.owner(json!({})).await);
    let of_owner =
        [fixture.create(&owner, "a", json!({})).await, fixture.create(&owner, "b", json!({})).await];
    let of_other = fixture.create(&other, "a", json!({})).await;
    let (_, by_operator) = fixture.replica.key("a", &["mcp"]).await;
    assert_eq!(of_owner[0].shown["createdBy"], of_owner[1].shown["createdBy"]);
    assert_ne!(of_owner[0].shown["createdBy"], of_other.shown["createdBy"]);
    // A key that it rotated belongs to it as well, regardless of its creator.
    let taken: Key = fixture.rotate_secret(&owner, &of_other).await;
    assert_eq!(taken.shown["createdBy"], of_owner[0].shown["createdBy"]);
    // Creators are principals: the successor of the owner key also revokes what its predecessor created.
    let rotate = format!("/keys/{}/rotate", owner.id);
    let successor: Key = fixture.replica.admin("POST", &rotate, None).await.json().into();
    let of_successor = fixture.create(&successor, "b", json!({})).await;

    let revoke = format!("/keys/{}?descendants=true", owner.id);
    let revoked = fixture.replica.admin("DELETE", &revoke, None).await;
    assert_eq!(revoked.status, 204);
    for (agent, key) in [("a", &of_owner[0]), ("b", &of_owner[1]), ("a", &taken), ("b", &of_successor)] {
        assert_eq!(fixture.status(agent, key).await, 401);
    }
    assert_eq!(fixture.status("a", &of_other).await, 200, "in its grace");
    assert_eq!(fixture.status("b", &successor).await, 200, "the successor is a key of its own");
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    assert_eq!(fixture.replica.http.post("a", &by_operator, &list).await.status, 200);
    let again = fixture.replica.admin("DELETE", &revoke, None).await;
    assert_eq!(again.revision(), revoked.revision(), "nothing is left to revoke");
    // Descendants of a key that was revoked alone are revoked later.
    let of_other = fixture.create(&other, "a", json!({})).await;
    for (path, status) in [("", 200), ("?descendants=true", 401)] {
        fixture.replica.admin("DELETE", &format!("/keys/{}{path}", other.id), None).await;
        assert_eq!(fixture.status("a", &of_other).await, status);
    }
    let unknown = fixture.replica.admin("DELETE", &format!("/keys/{}?descendant=true", owner.id), None).await;
    assert_eq!(unknown.status, 400);
}

#[tokio::test]
async fn key_revoked_during_the_request_creates_no_key() {
    let fixture = Fixture::start().await;
    let owner = fixture.owner(narrow()).await;
    let identity = &fixture.replica.running.services.identity;
    let tenant = identity.tenant(&Slug::parse("acme").unwrap()).await.unwrap().uid;
    let agent = identity.agent("a").await.unwrap().uid;
    let maker = Maker::Key(KeyId(owner.id.parse().unwrap()));
    // The call was admitted before the revocation; its credential is not checked again here.
    let make = async || {
        let new = NewKey {
            labels: Labels::default(),
            tenant,
            agent: Some(agent),
            name: "late".to_owned(),
            scopes: None,
            expires_at: None,
            networks: None,
            limits: None,
        };
        identity.create_key(new, maker, AuditedWrite::UNAUDITED).await.map(|created| created.key.expires_at)
    };
    assert!(make().await.is_ok());
    fixture.clock.advance(Duration::days(41));
    assert_eq!(make().await, Err(Fault::Unauthenticated), "expired");
    let other = fixture.owner(json!({})).await;
    let maker = Maker::Key(KeyId(other.id.parse().unwrap()));
    let revoked = fixture.replica.admin("DELETE", &format!("/keys/{}", other.id), None).await;
    assert_eq!(revoked.status, 204);
    let key = identity.key(KeyId(owner.id.parse().unwrap())).await.unwrap();
    let change = KeyChange { limits: Some(None), labels: None };
    let limited = identity.update_key(&key, change, maker, Precondition::default(), AuditedWrite::UNAUDITED);
    assert_eq!(limited.await.err(), Some(Fault::Unauthenticated), "revoked");
}

#[tokio::test]
async fn refused_call_names_the_required_credential() {
    let fixture = Fixture::start().await;
    let owner = fixture.owner(json!({})).await;
    let agent = fixture.create(&owner, "a", json!({"scopes": ["mcp", "registry", "audit"]})).await;
    let get = async |key: &Key, path: &str| {
        without_rates(&fixture.replica.http.admin(&key.secret, "GET", path, None).await)
    };
    let operator = forbidden("this call requires the operator key");
    assert_eq!(get(&owner, "/tenants").await, operator);
    assert_eq!(get(&agent, "/tenants/acme/keys").await, operator);
    let owners = forbidden("this call requires an owner key or the operator key");
    for path in ["/agents/a", "/agents/b", "/agents/unknown", "/agents", "/tenants/acme"] {
        assert_eq!(get(&agent, path).await, owners, "{path}");
    }
}
