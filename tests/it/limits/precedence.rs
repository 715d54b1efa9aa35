//! Limits of the operator take precedence: an owner can neither widen, remove nor evade them.

use serde_json::{Value, json};

use super::{list, lists};
use crate::support::answers::{normalized, problem, without_rates};
use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};

/// A gateway with the tenant `acme`, its agent `a`, and an owner key.
struct Fixture {
    _database: Database,
    replica: Replica,
    owner: String,
}

impl Fixture {
    async fn start() -> Self {
        Self::with(|builder| builder).await
    }

    async fn with(change: impl FnOnce(Builder) -> Builder) -> Self {
        let database = database().await;
        let replica = change(Builder::new(&database)).start().await;
        replica.acme("a").await;
        let made = replica.admin("POST", "/tenants/acme/keys", Some(json!({}))).await.json();
        let owner = made["key"].as_str().unwrap().to_owned();
        Self { _database: database, replica, owner }
    }

    async fn owner(&self, method: &str, path: &str, body: Value) -> Value {
        without_rates(&self.replica.http.admin(&self.owner, method, path, Some(body)).await)
    }

    /// A call of the operator that must succeed.
    async fn operator(&self, method: &str, path: &str, body: Value) -> Value {
        let answer = self.replica.admin(method, path, Some(body)).await;
        assert!(answer.status.is_success(), "{method} {path} {}", answer.text());
        answer.json()
    }

    /// The owner deletes an agent and creates it again.
    async fn remake(&self, agent: &str) -> Value {
        let deleted = self.replica.http.admin(&self.owner, "DELETE", &format!("/agents/{agent}"), None).await;
        assert_eq!(deleted.status, 204);
        self.owner("POST", "/agents", json!({"id": agent, "tenant": "acme"})).await
    }

    /// A new key of an agent.
    async fn key(&self, agent: &str) -> String {
        self.replica.key(agent, &["mcp"]).await.1
    }
}

fn forbidden(detail: &str) -> Value {
    problem(403, "forbidden", detail)
}

#[tokio::test]
async fn owner_cannot_change_the_limits_of_an_agent() {
    let fixture = Fixture::start().await;
    let limits = json!({"callsPerDay": 1, "perSecond": 0});
    fixture.operator("PATCH", "/agents/a", json!({"limits": limits})).await;
    let refused = forbidden("limits: only the operator key sets or removes them");
    for limits_sent in [Value::Null, json!({}), json!({"callsPerDay": 2}), json!({"callsPerDay": 0})] {
        let body = json!({"limits": limits_sent, "title": "not set either"});
        assert_eq!(fixture.owner("PATCH", "/agents/a", body).await, refused, "{limits_sent}");
        let new = json!({"id": "b", "tenant": "acme", "limits": limits_sent});
        assert_eq!(fixture.owner("POST", "/agents", new).await, refused, "{limits_sent}");
    }
    let updated = fixture.owner("PATCH", "/agents/a", json!({"title": null})).await;
    assert_eq!(updated["body"]["limits"], limits);
    assert_eq!(lists(&fixture.replica, "a", &fixture.key("a").await, 2).await, [200, 429]);
    assert_eq!(fixture.operator("PATCH", "/agents/a", json!({"limits": null})).await.get("limits"), None);
}

#[tokio::test]
async fn limits_and_usage_of_an_agent_survive_its_deletion() {
    let rate = |builder: Builder| {
        builder.set("WAGGLE_LIMITS__AGENT_PER_SECOND", 1).set("WAGGLE_LIMITS__AGENT_BURST", 100_000)
    };
    let fixture = Fixture::with(rate).await;
    let limits = json!({"callsPerDay": 5, "bytesPerMonth": 1_000_000});
    fixture.operator("PATCH", "/agents/a", json!({"limits": limits})).await;
    assert_eq!(lists(&fixture.replica, "a", &fixture.key("a").await, 3).await, [200; 3]);
    for life in 0..2 {
        let made = fixture.remake("a").await;
        assert_eq!((&made["status"], &made["body"]["limits"]), (&json!(201), &limits), "life {life}");
    }
    let key = fixture.key("a").await;
    let fourth = list(&fixture.replica, "a", &key).await;
    // A unit is restored every second; a new bucket would always have 99,999 left.
    let left = fourth.header("ratelimit").unwrap().strip_prefix("\"agent\";r=").unwrap();
    let left: u32 = left.split(';').next().unwrap().parse().unwrap();
    assert!((99_996..99_999).contains(&left), "{left}");
    assert_eq!(lists(&fixture.replica, "a", &key, 2).await, [200, 429], "the quota of the day goes on");
    // The operator creates the agent again without its former limits.
    fixture.replica.admin("DELETE", "/agents/a", None).await;
    let made =
        fixture.operator("POST", "/agents", json!({"id": "a", "tenant": "acme", "limits": null})).await;
    assert_eq!(made.get("limits"), None);
    assert_eq!(list(&fixture.replica, "a", &fixture.key("a").await).await.status, 200);
}

#[tokio::test]
async fn new_agent_inherits_the_default_limits_of_its_tenant() {
    let fixture = Fixture::start().await;
    let given = json!({"callsPerDay": 7});
    let tenant = fixture.operator("PATCH", "/tenants/acme", json!({"agentLimits": given})).await;
    assert_eq!(tenant["agentLimits"], given);
    let made = fixture.owner("POST", "/agents", json!({"id": "b", "tenant": "acme"})).await;
    assert_eq!(made["body"]["limits"], given);
    // An id that was used before keeps its former limits: none.
    assert_eq!(fixture.remake("a").await["body"].get("limits"), None);
    let own = json!({"id": "c", "tenant": "acme", "limits": {"callsPerDay": 9}});
    assert_eq!(fixture.operator("POST", "/agents", own).await["limits"], json!({"callsPerDay": 9}));
    let refused = fixture.owner("PATCH", "/tenants/acme", json!({"agentLimits": null})).await;
    assert_eq!(refused, forbidden("this call requires the operator key"));
    let made = fixture.operator("POST", "/tenants", json!({"id": "bee", "agentLimits": given})).await;
    assert_eq!(made["agentLimits"], given);
    fixture.operator("PATCH", "/tenants/acme", json!({"agentLimits": null})).await;
    assert_eq!(
        fixture.owner("POST", "/agents", json!({"id": "d", "tenant": "acme"})).await["body"].get("limits"),
        None
    );
}

#[tokio::test]
async fn owner_cannot_enable_an_agent_the_operator_disabled() {
    let fixture = Fixture::start().await;
    let refused = forbidden("enabled: the operator disabled this agent; only the operator key enables it");
    let enabled =
        async |enabled: bool| fixture.owner("PATCH", "/agents/a", json!({"enabled": enabled})).await;
    // An owner enables what an owner disabled.
    for value in [false, true, false] {
        assert_eq!(enabled(value).await["body"]["enabled"], json!(value));
    }
    fixture.operator("PATCH", "/agents/a", json!({"enabled": false})).await;
    assert_eq!(enabled(true).await, refused);
    assert_eq!(enabled(false).await["status"], 200);
    assert_eq!(enabled(true).await, refused, "disabling by an owner does not replace that of the operator");
    let key = fixture.key("a").await;
    assert_eq!(list(&fixture.replica, "a", &key).await.json()["error"]["data"]["code"], "agent_disabled");
    // Nor by creating it again.
    assert_eq!(fixture.remake("a").await["body"]["enabled"], json!(false));
    assert_eq!(enabled(true).await, refused);
    fixture.replica.http.admin(&fixture.owner, "DELETE", "/agents/a", None).await;
    let new = json!({"id": "a", "tenant": "acme", "enabled": true});
    assert_eq!(fixture.owner("POST", "/agents", new.clone()).await, refused);
    assert_eq!(fixture.operator("POST", "/agents", new).await["enabled"], json!(true));
    assert_eq!(enabled(false).await["body"]["enabled"], json!(false));
    assert_eq!(enabled(true).await["body"]["enabled"], json!(true), "the operator enabled it");
}

#[tokio::test]
async fn owner_limits_of_a_key_are_separate_from_the_operators() {
    let fixture = Fixture::with(|builder| builder.set("WAGGLE_LIMITS__KEY_PER_SECOND", 50)).await;
    let (id, key) = fixture.replica.key("a", &["mcp"]).await;
    let path = format!("/keys/{id}");
    let owner = async |limits: Value| fixture.owner("PATCH", &path, json!({"limits": limits})).await;
    let limits = async |answer: Value| answer["body"].get("limits").cloned();
    let operators = json!({"perSecond": 1, "burst": 20});
    fixture.operator("PATCH", &path, json!({"limits": operators})).await;
    let lifted = "limits: the operator set the limits of this key; only the operator key changes them";
    assert_eq!(owner(Value::Null).await, forbidden(lifted));
    let above = "limits must not exceed 1 requests/s and a burst of 20, set by the operator for this key";
    assert_eq!(owner(json!({"perSecond": 2, "burst": 20})).await, forbidden(above));
    let owners = json!({"perSecond": 1, "burst": 5});
    assert_eq!(limits(owner(owners.clone()).await).await, Some(owners.clone()));
    assert_eq!(lists(&fixture.replica, "a", &key, 6).await[4..], [200, 429]);
    // The tighter one applies, whichever was set last.
    let wider = fixture.operator("PATCH", &path, json!({"limits": {"perSecond": 40, "burst": 80}})).await;
    assert_eq!(wider["limits"], owners);
    let rotated = fixture.owner("POST", &format!("{path}/rotate"), json!({"graceSeconds": 0})).await;
    assert_eq!(rotated["body"]["limits"], owners);
    let listed = fixture.replica.admin("GET", "/agents/a/keys", None).await.json();
    let successor = listed["items"].as_array().unwrap().last().unwrap()["id"].as_str().unwrap().to_owned();
    let path = format!("/keys/{successor}");
    let lifted = fixture.owner("PATCH", &path, json!({"limits": null})).await;
    assert_eq!(limits(lifted).await, Some(json!({"perSecond": 40, "burst": 80})), "the operator's stays");
    let none = fixture.operator("PATCH", &path, json!({"limits": null})).await;
    assert_eq!(none.get("limits"), None);
}

#[tokio::test]
async fn agent_limit_of_a_tenant_includes_retired_ids() {
    let fixture = Fixture::with(|builder| {
        builder.set("WAGGLE_LIMITS__AGENTS_PER_TENANT", 2).set("WAGGLE_LIMITS__RETIRED_SLUGS_PER_TENANT", 2)
    })
    .await;
    let create = async |id: &str| fixture.owner("POST", "/agents", json!({"id": id, "tenant": "acme"})).await;
    let delete = async |id: &str| {
        fixture.replica.http.admin(&fixture.owner, "DELETE", &format!("/agents/{id}"), None).await.status
    };
    assert_eq!(create("b").await["status"], 201);
    let full = "tenant acme has 2 agents, as many as limits.agents_per_tenant allows; delete an agent first";
    assert_eq!(create("c").await, problem(400, "invalid_params", full));
    let by_operator =
        fixture.replica.admin("POST", "/agents", Some(json!({"id": "c", "tenant": "acme"}))).await;
    assert_eq!(normalized(&by_operator), problem(400, "invalid_params", full));
    assert_eq!([delete("a").await, delete("b").await], [204, 204]);
    let retired = "tenant acme has used and deleted 2 agent ids, as many as limits.retired_slugs_per_tenant \
                   allows; use one of them again";
    assert_eq!(create("c").await, problem(400, "invalid_params", retired));
    assert_eq!(create("a").await["status"], 201, "an id that it had");
    // The ids remain reserved for their tenant, and other tenants are not affected.
    fixture.replica.tenant("bee").await;
    let taken = json!({"id": "b", "tenant": "bee"});
    let taken = normalized(&fixture.replica.admin("POST", "/agents", Some(taken)).await);
    assert_eq!(taken, problem(409, "slug_retired", "this slug is retired"));
    fixture.replica.agent("bee", "c").await;
}
