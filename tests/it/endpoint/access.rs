//! Access to an endpoint, and uniform refusals.

use serde_json::{Value, json};

use super::{REVISIONS, call_as, post};
use crate::support::answers::{error, exact, normalized, problem};
use crate::support::app::{Replica, gateway, mistyped};
use crate::support::http::Answer;

const PING: &str = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;

/// The agents `a` and `b` of `acme` and `c` of `bee`, and a key of each kind.
struct Fixture {
    replica: Replica,
    own: String,
    sibling: String,
    registry: String,
    owner: String,
    other_owner: String,
    revoked: String,
}

impl Fixture {
    async fn new() -> Self {
        let (_database, replica) = gateway().await;
        for (tenant, agents) in [("acme", &["a", "b"][..]), ("bee", &["c"])] {
            replica.tenant(tenant).await;
            for agent in agents {
                replica.agent(tenant, agent).await;
            }
        }
        let owner = async |tenant: &str| {
            let made =
                replica.admin("POST", &format!("/tenants/{tenant}/keys"), Some(json!({}))).await.json();
            format!("Bearer {}", made["key"].as_str().unwrap())
        };
        let (id, revoked) = replica.key("a", &["mcp"]).await;
        assert_eq!(replica.admin("DELETE", &format!("/keys/{id}"), None).await.status, 204);
        Self {
            own: replica.key("a", &["mcp"]).await.1,
            sibling: replica.key("b", &["mcp", "registry", "audit"]).await.1,
            registry: replica.key("a", &["registry"]).await.1,
            owner: owner("acme").await,
            other_owner: owner("bee").await,
            revoked,
            replica,
        }
    }

    async fn set_agent(&self, patch: Value) {
        assert_eq!(self.replica.admin("PATCH", "/agents/a", Some(patch)).await.status, 200);
    }

    /// The answer of the agent `a` to each kind of caller, by status and name.
    async fn answers(&self) -> Vec<(&'static str, String)> {
        let operator = format!("Bearer {}", self.replica.operator);
        let (api_key, bearer) = ("x-agent-api-key", "authorization");
        let mistyped = mistyped(&self.own);
        let callers = [
            ("anonymous", None),
            ("own", Some((api_key, &self.own))),
            ("registry", Some((api_key, &self.registry))),
            ("sibling", Some((api_key, &self.sibling))),
            ("owner", Some((bearer, &self.owner))),
            ("other owner", Some((bearer, &self.other_owner))),
            ("operator", Some((bearer, &operator))),
            ("revoked", Some((api_key, &self.revoked))),
            ("mistyped", Some((api_key, &mistyped))),
        ];
        let mut answers = Vec::new();
        for (name, header) in callers {
            let headers: Vec<_> = header.iter().map(|(name, value)| (*name, value.as_str())).collect();
            answers.push((name, status_and_code(&post(&self.replica, "/a/mcp", &headers, PING).await)));
        }
        answers
    }
}

fn status_and_code(answer: &Answer) -> String {
    let name = answer.json()["error"]["data"]["code"].as_str().unwrap_or("pong").to_owned();
    format!("{} {name}", answer.status.as_u16())
}

fn owned(expected: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    expected.iter().map(|(name, answer)| (*name, (*answer).to_owned())).collect()
}

#[tokio::test]
async fn agent_access_setting_decides_who_is_answered() {
    let fixture = Fixture::new().await;
    let private = owned(&[
        ("anonymous", "401 unauthenticated"),
        ("own", "200 pong"),
        ("registry", "403 insufficient_scope"),
        ("sibling", "403 forbidden"),
        ("owner", "200 pong"),
        ("other owner", "403 forbidden"),
        ("operator", "403 forbidden"),
        ("revoked", "401 unauthenticated"),
        ("mistyped", "401 unauthenticated"),
    ]);
    assert_eq!(fixture.answers().await, private);
    fixture.set_agent(json!({"access": "public"})).await;
    let public = owned(&[
        ("anonymous", "200 pong"),
        ("own", "200 pong"),
        ("registry", "200 pong"),
        ("sibling", "200 pong"),
        ("owner", "200 pong"),
        ("other owner", "200 pong"),
        ("operator", "403 forbidden"),
        ("revoked", "401 unauthenticated"),
        ("mistyped", "401 unauthenticated"),
    ]);
    assert_eq!(fixture.answers().await, public);
    let disabled = owned(&[
        ("anonymous", "401 unauthenticated"),
        ("own", "403 agent_disabled"),
        ("registry", "403 agent_disabled"),
        ("sibling", "403 forbidden"),
        ("owner", "403 agent_disabled"),
        ("other owner", "403 forbidden"),
        ("operator", "403 forbidden"),
        ("revoked", "401 unauthenticated"),
        ("mistyped", "401 unauthenticated"),
    ]);
    for access in ["public", "key"] {
        fixture.set_agent(json!({"access": access, "enabled": false})).await;
        assert_eq!(fixture.answers().await, disabled, "{access}");
    }
    fixture.set_agent(json!({"enabled": true})).await;
    assert_eq!(fixture.answers().await, private);
}

const DECISIONS: &str = r#"waggle_cache_entries{cache="decisions"}"#;

#[tokio::test]
async fn cached_access_decision_ends_with_each_change() {
    let fixture = Fixture::new().await;
    let replica = &fixture.replica;
    let (id, key) = replica.key("a", &["mcp"]).await;
    let answer = async |path: &str, key: &str| {
        status_and_code(&post(replica, path, &[("x-agent-api-key", key)], PING).await)
    };
    // The decision is cached from the second request on.
    let is_admitted = async || {
        for _ in 0..4 {
            assert_eq!(answer("/a/mcp", &key).await, "200 pong");
        }
    };
    is_admitted().await;
    assert_eq!(replica.metric(DECISIONS).await, 1.0);
    assert_eq!(answer("/b/mcp", &key).await, "403 forbidden");
    assert_eq!(answer("/a/mcp", &fixture.sibling).await, "403 forbidden");
    assert_eq!(replica.metric(DECISIONS).await, 1.0, "refusals are not cached");
    is_admitted().await;
    fixture.set_agent(json!({"enabled": false})).await;
    assert_eq!(answer("/a/mcp", &key).await, "403 agent_disabled");
    fixture.set_agent(json!({"enabled": true})).await;
    is_admitted().await;
    assert_eq!(replica.admin("DELETE", &format!("/keys/{id}"), None).await.status, 204);
    assert_eq!(answer("/a/mcp", &key).await, "401 unauthenticated");
}

#[tokio::test]
async fn foreign_unknown_and_invalid_agents_are_answered_alike() {
    let fixture = Fixture::new().await;
    let replica = &fixture.replica;
    replica.agent("bee", "d").await;
    let hidden = Some(json!({"access": "public", "enabled": false}));
    assert_eq!(replica.admin("PATCH", "/agents/d", hidden).await.status, 200);
    let operator = format!("Bearer {}", replica.operator);
    let callers: [&[(&str, &str)]; 5] = [
        &[],
        &[("x-agent-api-key", &fixture.own)],
        &[("authorization", &fixture.owner)],
        &[("authorization", &operator)],
        &[("x-agent-api-key", &fixture.revoked)],
    ];
    for headers in callers {
        for (method, body) in [("POST", PING), ("POST", "{"), ("POST", ""), ("GET", ""), ("DELETE", "")] {
            let mut headers = headers.to_vec();
            headers.push(("content-type", "application/json"));
            let call = async |agent: &str| {
                let path = format!("/{agent}/mcp");
                replica.http.send(method, &path, &headers, body).await.visible()
            };
            let foreign = call("c").await;
            assert!(foreign.0.is_client_error());
            for other in ["d", "unknown", "Unknown", "%00", "%ff", "%C3%A4", "a.b", &"x".repeat(5_000)] {
                assert_eq!(call(other).await, foreign, "{method} {headers:?} {other}");
            }
        }
    }
}

#[tokio::test]
async fn credential_is_accepted_in_either_or_both_headers() {
    let fixture = Fixture::new().await;
    let bearer = |key: &str| format!("Bearer {key}");
    let own = bearer(&fixture.own);
    let call = async |headers: &[(&str, &str)]| {
        post(&fixture.replica, "/a/mcp", headers, PING).await.status.as_u16()
    };
    let (api_key, authorization) = ("x-agent-api-key", "authorization");
    assert_eq!(call(&[(api_key, &fixture.own)]).await, 200);
    assert_eq!(call(&[(authorization, &own)]).await, 200);
    assert_eq!(call(&[(authorization, &own.replace("Bearer", "bEARER"))]).await, 200);
    assert_eq!(call(&[(api_key, &fixture.own), (authorization, &own)]).await, 200);
    let conflicts: [&[(&str, &str)]; 6] = [
        &[(api_key, &fixture.own), (authorization, &bearer(&fixture.sibling))],
        &[(api_key, &fixture.own), (api_key, &fixture.sibling)],
        &[(api_key, &fixture.own), (authorization, &fixture.owner)],
        &[(api_key, &fixture.own), (authorization, "Basic dTpw")],
        &[(authorization, &fixture.own)],
        &[(api_key, &fixture.owner["Bearer ".len()..])],
    ];
    for headers in conflicts {
        assert_eq!(call(headers).await, 401, "{headers:?}");
    }
}

#[tokio::test]
async fn two_different_credentials_are_named_as_the_fault() {
    let fixture = Fixture::new().await;
    let revoked = format!("Bearer {}", fixture.revoked);
    let mistyped_owner = mistyped(&fixture.owner);
    let conflict =
        "the request has two different credentials; send one, in Authorization or in X-Agent-API-Key";
    // The answer does not depend on whether one of them is valid.
    for bearer in [&fixture.owner, &fixture.other_owner, &revoked, &mistyped_owner] {
        for key in [&fixture.own, &fixture.revoked] {
            if bearer.ends_with(key.as_str()) {
                continue;
            }
            let headers = [("x-agent-api-key", key.as_str()), ("authorization", bearer)];
            let answer = exact(&post(&fixture.replica, "/a/mcp", &headers, PING).await);
            assert_eq!(answer, error(401, "7", -31010, "unauthenticated", conflict), "{headers:?}");
            let http = &fixture.replica.http;
            let answer = http.send("GET", "/admin/v1/agents", &headers, "").await;
            assert_eq!(normalized(&answer), problem(401, "unauthenticated", conflict), "{headers:?}");
        }
    }
}

#[tokio::test]
async fn refusals_are_complete_in_every_revision() {
    let fixture = Fixture::new().await;
    for revision in REVISIONS {
        let call = async |key: &str| {
            exact(&call_as(&fixture.replica, key, revision, "resources/list", json!({})).await)
        };
        let unauthenticated = error(401, "7", -31010, "unauthenticated", "a valid credential is required");
        assert_eq!(call(&fixture.revoked).await, unauthenticated, "{revision:?}");
        let forbidden = error(403, "7", -31011, "forbidden", "this credential does not reach that agent");
        assert_eq!(call(&fixture.sibling).await, forbidden, "{revision:?}");
        let mut scope = error(403, "7", -31011, "insufficient_scope", "this credential lacks the scope mcp");
        scope["headers"]["www-authenticate"] =
            json!("Bearer realm=\"MCP\", error=\"insufficient_scope\", scope=\"mcp\"");
        assert_eq!(call(&fixture.registry).await, scope, "{revision:?}");
    }
    fixture.set_agent(json!({"enabled": false})).await;
    for revision in REVISIONS {
        let answer =
            exact(&call_as(&fixture.replica, &fixture.own, revision, "resources/list", json!({})).await);
        let disabled = error(403, "7", -31012, "agent_disabled", "this agent is disabled");
        assert_eq!(answer, disabled, "{revision:?}");
    }
}

#[tokio::test]
async fn only_public_answers_may_be_cached_by_shared_caches() {
    let fixture = Fixture::new().await;
    fixture.replica.put("a", "x:1", "text").await;
    let scope = async |method: &str| {
        let answer =
            call_as(&fixture.replica, &fixture.own, Some(super::MODERN), method, json!({"uri": "x:1"})).await;
        answer.json()["result"]["cacheScope"].clone()
    };
    for (access, expected) in [("key", "private"), ("public", "public"), ("key", "private")] {
        fixture.set_agent(json!({"access": access})).await;
        for method in ["resources/list", "resources/read", "tools/list", "server/discover"] {
            assert_eq!(scope(method).await, expected, "{access} {method}");
        }
    }
}
