//! Limits of single tenants, agents and keys, set through the administration API.

use serde_json::{Value, json};

use super::{list, lists};
use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::wait::eventually;

async fn policy(replica: &Replica, key: &str) -> Option<String> {
    list(replica, "a", key).await.header("ratelimit-policy").map(str::to_owned)
}

#[tokio::test]
async fn limits_set_on_one_replica_hold_on_the_others() {
    let database = database().await;
    let (first, second) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    first.tenant("acme").await;
    first.agent("acme", "a").await;
    let (id, key) = first.key("a", &["mcp"]).await;
    for replica in [&first, &second] {
        assert_eq!(policy(replica, &key).await, None);
    }
    let limits = |burst: u32| json!({"limits": {"perSecond": 1, "burst": burst}});
    let key_path = format!("/keys/{id}");
    for (path, burst, scope) in
        [("/tenants/acme", 300, "tenant"), ("/agents/a", 200, "agent"), (&*key_path, 100, "key")]
    {
        let set = first.admin("PATCH", path, Some(limits(burst))).await;
        assert_eq!(set.status, 200, "{}", set.text());
        assert_eq!(set.json()["limits"], limits(burst)["limits"]);
        let expected = format!("\"{scope}\";q={burst};w={burst}");
        assert_eq!(policy(&first, &key).await, Some(expected.clone()), "here at once");
        let has_limit = async || policy(&second, &key).await.as_ref() == Some(&expected);
        eventually("the other replica knows the limit", has_limit).await;
    }
    for path in ["/tenants/acme", "/agents/a", &*key_path] {
        let unset = first.admin("PATCH", path, Some(json!({"limits": null}))).await;
        assert_eq!(unset.json().get("limits"), None, "{}", unset.text());
    }
    assert_eq!(policy(&first, &key).await, None);
}

#[tokio::test]
async fn limits_survive_creation_and_rotation() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    replica.tenant("acme").await;
    let limits = json!({"perSecond": 1, "burst": 5, "callsPerDay": 1000, "bytesPerMonth": 1_000_000});
    let new = json!({"id": "a", "tenant": "acme", "limits": limits});
    assert_eq!(replica.admin("POST", "/agents", Some(new)).await.json()["limits"], limits);
    assert_eq!(replica.admin("GET", "/agents/a", None).await.json()["limits"], limits);
    let of_key = json!({"perSecond": 1, "burst": 5});
    let made = replica.admin("POST", "/agents/a/keys", Some(json!({"limits": of_key}))).await.json();
    assert_eq!(made["limits"], of_key);
    let rotate = format!("/keys/{}/rotate", made["id"].as_str().unwrap());
    let rotated = replica.admin("POST", &rotate, None).await.json();
    assert_eq!(rotated["limits"], of_key);
    assert_eq!(lists(&replica, "a", rotated["key"].as_str().unwrap(), 6).await[4..], [200, 429]);
}

#[tokio::test]
async fn invalid_limits_are_refused() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__KEY_PER_SECOND", 50).start().await;
    replica.acme("a").await;
    let owner = replica.admin("POST", "/tenants/acme/keys", Some(json!({}))).await.json();
    let owner = owner["key"].as_str().unwrap();
    let detail = async |key: &str, path: &str, limits: Value| {
        let (method, body) = if path.ends_with("keys") {
            ("POST", json!({"limits": limits}))
        } else {
            ("PATCH", json!({"limits": limits}))
        };
        let answer = replica.http.admin(key, method, path, Some(body)).await;
        (answer.status.as_u16(), answer.json()["detail"].as_str().unwrap_or_default().to_owned())
    };
    let operator = &replica.operator;
    let below_cost = "limits: burst must be at least 5, the highest cost of a request";
    for (key, path, limits, status, expected) in [
        (operator.as_str(), "/tenants/acme", json!({"perSecond": 1, "burst": 4}), 400, below_cost),
        (operator, "/agents/a", json!({"perSecond": 2}), 400, below_cost),
        (operator, "/agents/a/keys", json!({"burst": 0}), 400, below_cost),
        (operator, "/agents/a", json!({"perSecond": 1_000_001}), 400, "limits: at most 1000000 units"),
        (operator, "/agents/a", json!({"callsPerDay": u64::MAX}), 400, "limits: a quota is too large"),
        (
            owner,
            "/agents/a",
            json!({"perSecond": 5}),
            403,
            "limits: only the operator key sets or removes them",
        ),
        (owner, "/agents/a/keys", json!({"perSecond": 49, "burst": 400}), 201, ""),
        (
            owner,
            "/agents/a/keys",
            json!({"perSecond": 51}),
            400,
            "limits: only the operator can set more than the default rate",
        ),
        (
            owner,
            "/agents/a/keys",
            json!({"perSecond": 0}),
            400,
            "limits: only the operator can set more than the default rate",
        ),
    ] {
        assert_eq!(detail(key, path, limits.clone()).await, (status, expected.to_owned()), "{path} {limits}");
    }
}
