//! `/connections` and `/tenants/{tenant}/connections`. Answers are compared whole.

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::{default_limits, gateway, http};
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::Replica;
use crate::support::http::Answer;

/// The answer with a name in place of each time.
fn timeless(answer: &Answer) -> Value {
    let mut whole = normalized(answer);
    let secrets = whole["body"].get_mut("secrets").and_then(Value::as_object_mut);
    for secret in secrets.into_iter().flat_map(|secrets| secrets.values_mut()) {
        let at = secret["updatedAt"].as_str().unwrap();
        OffsetDateTime::parse(at, &Rfc3339).unwrap();
        secret["updatedAt"] = json!("<moment>");
    }
    whole
}

async fn call(replica: &Replica, method: &str, path: &str, body: Option<Value>) -> Value {
    timeless(&replica.admin(method, path, body).await)
}

#[tokio::test]
async fn connection_is_created_read_changed_listed_and_deleted() {
    let (_keys, _database, replica) = gateway().await;
    replica.tenant("acme").await;
    let mut new = http("weather");
    new["tenants"] = json!(["acme"]);
    new["secrets"] = json!({"headers": {"Authorization": "Bearer hunter2"}});
    let mut shown = json!({
        "id": "weather", "kind": "http", "tenants": ["acme"], "settings": {"baseUrl": "http://api.example/v1/"},
        "secrets": {"headers": {"set": true, "updatedAt": "<moment>"}}, "limits": default_limits(), "enabled": true,
        "state": "ready", "lastError": null, "createdAt": "<moment>",
    });
    assert_eq!(
        call(&replica, "POST", "/connections", Some(new.clone())).await,
        answered(201, Some(1), &shown)
    );
    let taken = problem(409, "already_exists", "a connection with this id exists already");
    assert_eq!(call(&replica, "POST", "/connections", Some(new)).await, taken);
    assert_eq!(call(&replica, "GET", "/connections/weather", None).await, answered(200, Some(1), &shown));

    let change = json!({"tenants": "*", "settings": {"headers": {"Accept": "text/plain"}},
        "limits": {"timeoutMs": 100}, "enabled": false});
    shown["tenants"] = json!("*");
    shown["settings"] = json!({"baseUrl": "http://api.example/v1/", "headers": {"Accept": "text/plain"}});
    shown["limits"]["timeoutMs"] = json!(100);
    shown["enabled"] = json!(false);
    shown["state"] = json!("disabled");
    for _ in 0..2 {
        let answer = call(&replica, "PATCH", "/connections/weather", Some(change.clone())).await;
        assert_eq!(answer, answered(200, Some(2), &shown), "the same change again changes nothing");
    }
    for member in ["enabled", "tenants"] {
        let answer = call(&replica, "PATCH", "/connections/weather", Some(json!({member: null}))).await;
        assert_eq!(answer["body"]["code"], "invalid_params", "null removes neither: {answer}");
    }
    let removal = json!({"settings": {"headers": null}, "secrets": {"headers": null}, "enabled": true});
    shown["settings"] = json!({"baseUrl": "http://api.example/v1/"});
    shown["secrets"] = json!({});
    shown["enabled"] = json!(true);
    shown["state"] = json!("ready");
    let answer = call(&replica, "PATCH", "/connections/weather", Some(removal)).await;
    assert_eq!(answer, answered(200, Some(3), &shown));

    let other = replica.admin("POST", "/connections", Some(http("api"))).await;
    assert_eq!((other.status.as_u16(), other.revision()), (201, 4));
    let all = call(&replica, "GET", "/connections", None).await;
    assert_eq!(all["body"]["items"], json!([normalized(&other)["body"], shown]));
    let page = call(&replica, "GET", "/connections?limit=1", None).await;
    assert_eq!(
        (&page["body"]["items"][0]["id"], &page["body"]["nextCursor"]),
        (&json!("api"), &json!("<cursor>"))
    );

    assert_eq!(
        call(&replica, "DELETE", "/connections/weather", None).await,
        answered(204, Some(5), &Value::Null)
    );
    let gone = problem(404, "not_found", "no such connection");
    for (method, body) in [("GET", None), ("DELETE", None), ("PATCH", Some(json!({})))] {
        assert_eq!(call(&replica, method, "/connections/weather", body).await, gone, "{method}");
    }
}

#[tokio::test]
async fn writes_of_a_connection_are_conditional() {
    let (_keys, _database, replica) = gateway().await;
    replica.admin("POST", "/connections", Some(http("api"))).await;
    let send = async |method: &str, tag: &str, body: &str| {
        let bearer = format!("Bearer {}", replica.operator);
        let headers =
            [("authorization", bearer.as_str()), ("content-type", "application/json"), ("if-match", tag)];
        normalized(&replica.http.send(method, "/admin/v1/connections/api", &headers, body.to_owned()).await)
    };
    let stale = problem(412, "revision_mismatch", "precondition failed: the current revision is 1");
    assert_eq!(send("PATCH", "\"2\"", "{\"enabled\":false}").await, stale);
    assert_eq!(send("DELETE", "\"2\"", "").await, stale);
    assert_eq!(send("PATCH", "\"1\"", "{\"enabled\":false}").await["status"], 200);
    assert_eq!(send("DELETE", "\"2\"", "").await["status"], 204);
}

#[tokio::test]
async fn owner_lists_the_connections_of_its_tenant_without_settings() {
    let (_keys, _database, replica) = gateway().await;
    for tenant in ["acme", "bee"] {
        replica.tenant(tenant).await;
    }
    for (id, tenants, enabled) in [
        ("all", json!("*"), true),
        ("both", json!(["bee", "acme"]), false),
        ("foreign", json!(["bee"]), true),
        ("none", json!([]), true),
        ("own", json!(["acme"]), true),
    ] {
        let mut new = http(id);
        (new["tenants"], new["enabled"]) = (tenants, json!(enabled));
        assert_eq!(replica.admin("POST", "/connections", Some(new)).await.status, 201, "{id}");
    }
    let key = replica.admin("POST", "/tenants/acme/keys", Some(json!({}))).await.json();
    let owner = key["key"].as_str().unwrap();
    let usable = |id: &str, state: &str| json!({"id": id, "kind": "http", "state": state});
    let list = [usable("all", "ready"), usable("both", "disabled"), usable("own", "ready")];
    let expected = answered(200, None, &json!({"items": list, "nextCursor": null}));
    for key in [owner, &replica.operator] {
        let answer = replica.http.admin(key, "GET", "/tenants/acme/connections", None).await;
        assert_eq!(normalized(&answer), expected);
    }
    let foreign = replica.http.admin(owner, "GET", "/tenants/bee/connections", None).await;
    assert_eq!(normalized(&foreign), problem(404, "not_found", "no such tenant"));
    let operator = problem(403, "forbidden", "this call requires the operator key");
    for (method, path) in
        [("GET", "/connections"), ("GET", "/connections/own"), ("DELETE", "/connections/own")]
    {
        assert_eq!(
            normalized(&replica.http.admin(owner, method, path, None).await),
            operator,
            "{method} {path}"
        );
    }
}

#[tokio::test]
async fn deleted_tenant_is_named_by_no_connection() {
    let (_keys, _database, replica) = gateway().await;
    replica.tenant("acme").await;
    let mut new = http("api");
    new["tenants"] = json!(["acme"]);
    replica.admin("POST", "/connections", Some(new)).await;
    replica.admin("DELETE", "/tenants/acme", None).await;
    replica.tenant("acme").await;
    let shown = replica.admin("GET", "/connections/api", None).await.json();
    assert_eq!(shown["tenants"], json!([]), "the tenant of the same id is another one");
    let usable = replica.admin("GET", "/tenants/acme/connections", None).await.json();
    assert_eq!(usable["items"], json!([]));
}

#[tokio::test]
async fn writes_of_connections_are_audited_without_secrets() {
    let (_keys, _database, replica) = gateway().await;
    let mut new = http("api");
    new["secrets"] = json!({"headers": {"X-Key": "hunter2"}});
    replica.admin("POST", "/connections", Some(new)).await;
    replica
        .admin("PATCH", "/connections/api", Some(json!({"secrets": {"headers": {"X-Key": "*******"}}})))
        .await;
    replica.admin("DELETE", "/connections/api", None).await;
    let rows = async || {
        let rows = replica.admin("GET", "/audit?limit=500", None).await;
        let is_write = |row: &Value| {
            let method = row["method"].as_str().unwrap();
            method.contains("/connections") && row["revision"].is_i64()
        };
        let rows: Vec<Value> =
            rows.json()["items"].as_array().unwrap().iter().filter(|row| is_write(row)).cloned().collect();
        rows
    };
    crate::support::wait::eventually("three rows", async || rows().await.len() == 3).await;
    let rows = rows().await;
    let [deleted, changed, created] = rows.as_slice() else { panic!("{rows:?}") };
    for (row, method) in [(created, "POST"), (changed, "PATCH"), (deleted, "DELETE")] {
        assert!(row["method"].as_str().unwrap().starts_with(method), "{row}");
        assert_eq!(row["subject"], "api", "{row}");
        assert!(!row.to_string().contains("hunter2"), "{row}");
    }
    assert_eq!(created["after"], changed["before"]);
    assert_eq!(changed["after"], deleted["before"]);
    assert_ne!(changed["after"], changed["before"], "a new secret is a change");
}
