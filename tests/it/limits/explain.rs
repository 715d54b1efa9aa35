//! `explain`: the decision about a key, and the rule behind it.

use serde_json::{Value, json};

use super::{list, lists};
use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::wait::eventually;

async fn explain(replica: &Replica, agent: &str, question: Value) -> Value {
    let answer = replica.admin("POST", &format!("/agents/{agent}/explain"), Some(question)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

/// The rule by which a key is refused; its actual refusal must agree.
async fn rule(replica: &Replica, agent: &str, id: &str, key: &str) -> String {
    let explanation = explain(replica, agent, json!({"keyId": id})).await;
    let answer = list(replica, agent, key).await;
    let really = answer.json()["error"]["data"]["code"].clone();
    assert_eq!(
        (&explanation["code"], &explanation["status"]),
        (&really, &json!(answer.status.as_u16())),
        "{explanation}"
    );
    explanation["rule"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn explain_names_the_deciding_rule() {
    let database = database().await;
    let replica = Builder::new(&database)
        // Five lists; the next unit is restored after a minute.
        .set("WAGGLE_LIMITS__KEY_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__KEY_BURST", 500)
        .set("WAGGLE_COSTS__LIST", 100)
        .set("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1")
        .start()
        .await;
    replica.tenant("acme").await;
    for agent in ["a", "b", "off"] {
        replica.agent("acme", agent).await;
    }
    let (id, key) = replica.key("a", &["mcp"]).await;
    let (off_id, off) = replica.key("off", &["mcp"]).await;
    replica.admin("PATCH", "/agents/off", Some(json!({"enabled": false}))).await;
    let (scope_id, scope) = replica.key("a", &["audit"]).await;
    let (revoked_id, revoked) = replica.key("a", &["mcp"]).await;
    replica.admin("DELETE", &format!("/keys/{revoked_id}"), None).await;
    let (old_id, old) = replica.key("a", &["mcp"]).await;
    replica.admin("POST", &format!("/keys/{old_id}/rotate"), Some(json!({"graceSeconds": 1}))).await;
    let near = replica.admin("POST", "/agents/a/keys", Some(json!({"networks": ["192.0.2.0/24"]}))).await;
    let near = near.json();
    let (near_id, near) = (near["id"].as_str().unwrap(), near["key"].as_str().unwrap());
    eventually("the grace of the rotated key ends", async || {
        explain(&replica, "a", json!({"keyId": old_id})).await["rule"] == "expired"
    })
    .await;

    assert_eq!(rule(&replica, "a", &id, &key).await, "allowed");
    assert_eq!(rule(&replica, "b", &id, &key).await, "wrong_agent");
    assert_eq!(rule(&replica, "off", &off_id, &off).await, "agent_disabled");
    assert_eq!(rule(&replica, "a", &scope_id, &scope).await, "missing_scope");
    assert_eq!(rule(&replica, "a", &revoked_id, &revoked).await, "revoked");
    assert_eq!(rule(&replica, "a", &old_id, &old).await, "expired");
    for (address, expected) in [("192.0.2.7", "allowed"), ("198.51.100.1", "network")] {
        let explanation = explain(&replica, "a", json!({"keyId": near_id, "address": address})).await;
        assert_eq!(explanation["rule"], expected);
    }
    assert_eq!(list(&replica, "a", near).await.status, 401);

    assert_eq!(lists(&replica, "a", &key, 4).await, [200; 4]);
    for _ in 0..3 {
        let explanation = explain(&replica, "a", json!({"keyId": id})).await;
        assert_eq!(
            (&explanation["rule"], &explanation["status"]),
            (&json!("rate_limit"), &json!(429)),
            "{explanation}"
        );
    }
    let discover =
        explain(&replica, "a", json!({"keyId": id, "request": {"method": "server/discover"}})).await;
    assert_eq!(discover["rule"], "allowed");

    let limits = json!({"limits": {"callsPerDay": 1, "perSecond": 0}});
    replica.admin("PATCH", "/agents/b", Some(limits)).await;
    let (used_id, used) = replica.key("b", &["mcp"]).await;
    assert_eq!(rule(&replica, "b", &used_id, &used).await, "allowed");
    for _ in 0..2 {
        assert_eq!(rule(&replica, "b", &used_id, &used).await, "quota", "explaining is not charged");
    }
    let expected = json!({
        "allowed": false,
        "rule": "quota",
        "code": "quota_exceeded",
        "status": 429,
        "detail": "daily call quota of this agent exceeded",
    });
    assert_eq!(explain(&replica, "b", json!({"keyId": used_id})).await, expected);
}

#[tokio::test]
async fn explain_is_for_managers_and_hides_foreign_keys() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let own = replica.acme("a").await;
    replica.tenant("rival").await;
    replica.agent("rival", "r").await;
    let (foreign, _) = replica.key("r", &["mcp"]).await;
    let owner = replica.admin("POST", "/tenants/acme/keys", Some(json!({}))).await.json();
    let owner = owner["key"].as_str().unwrap();
    let status = async |key: &str, agent: &str, id: &str| {
        let path = format!("/agents/{agent}/explain");
        replica.http.admin(key, "POST", &path, Some(json!({"keyId": id}))).await.status.as_u16()
    };
    let unknown = "0190a000-0000-7000-8000-000000000000";
    assert_eq!(status(&own, "a", unknown).await, 403);
    assert_eq!([status(owner, "a", &foreign).await, status(owner, "a", unknown).await], [404, 404]);
    assert_eq!(status(owner, "r", &foreign).await, 404);
    let mistyped =
        json!({"keyId": foreign, "request": {"method": "resources/read", "param": {"uri": "x:1"}}});
    let sent = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let explanation = explain(&replica, "a", json!({"keyId": foreign, "request": sent})).await;
    assert_eq!(explanation["rule"], "wrong_agent", "a message as it is sent");
    let refused = replica.admin("POST", "/agents/a/explain", Some(mistyped)).await;
    assert_eq!(refused.json()["code"], "invalid_params", "{}", refused.text());
    let explanation = explain(&replica, "a", json!({"keyId": foreign})).await;
    assert_eq!(explanation["rule"], "wrong_agent", "the operator sees the reason");
}
