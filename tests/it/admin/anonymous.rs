//! Foreign and missing objects cannot be distinguished.

use serde_json::{Value, json};

use super::{owner, send};
use crate::support::app::gateway;

#[tokio::test]
async fn foreign_and_missing_objects_are_answered_alike() {
    let (_database, replica) = gateway().await;
    replica.acme("mine").await;
    replica.tenant("bees").await;
    replica.agent("bees", "hers").await;
    replica.put("hers", "x:1", "secret").await;
    let (foreign_key, _) = replica.key("hers", &["mcp"]).await;
    let owner = owner(&replica, "acme").await;
    let (_, manager) = replica.key("mine", &["registry"]).await;
    let (_, reader) = replica.key("mine", &["mcp"]).await;
    let no_key = uuid::Uuid::now_v7().to_string();
    let resource = json!({"name": "n", "contents": []});
    let calls: [(&str, &str, Option<Value>); 17] = [
        ("GET", "/tenants/bees", None),
        ("PATCH", "/tenants/bees", Some(json!({"name": "x"}))),
        ("DELETE", "/tenants/bees", None),
        ("POST", "/tenants/bees/keys", Some(json!({}))),
        ("GET", "/agents?tenant=bees", None),
        ("POST", "/agents", Some(json!({"id": "new", "tenant": "bees"}))),
        ("GET", "/agents/hers", None),
        ("PATCH", "/agents/hers", Some(json!({"enabled": false}))),
        ("DELETE", "/agents/hers", None),
        ("GET", "/agents/hers/keys", None),
        ("POST", "/agents/hers/keys", Some(json!({}))),
        ("GET", "/agents/hers/resources", None),
        ("GET", "/agents/hers/resources?uri=x:1", None),
        ("PUT", "/agents/hers/resources?uri=x:1", Some(resource)),
        ("PUT", "/agents/hers/resources/content?uri=x:1", Some(json!(0))),
        ("DELETE", "/keys/{key}", None),
        ("POST", "/keys/{key}/rotate", Some(json!({"graceSeconds": 0}))),
    ];
    for (method, path, body) in &calls {
        let existing = path.replace("{key}", &foreign_key);
        let absent_path = path.replace("{key}", &no_key).replace("hers", "none").replace("bees", "none");
        let body = body.as_ref().map(Value::to_string).unwrap_or_default();
        let absent = body.replace("bees", "none");
        for key in [&owner, &manager, &reader] {
            // The answer does not depend on whether a condition holds, or the request is valid.
            for more in [("x-a", "b"), ("if-match", "\"2\""), ("if-match", "\"9\""), ("if-match", "x")] {
                let headers = [("content-type", "application/json"), more];
                let foreign = send(&replica, key, (method, &existing), &headers, body.clone()).await;
                let unknown = send(&replica, key, (method, &absent_path), &headers, absent.clone()).await;
                assert_eq!(foreign.visible(), unknown.visible(), "{method} {path} {more:?}");
                assert!(foreign.status.is_client_error(), "{method} {path}: {}", foreign.text());
            }
        }
    }
    // None of them had an effect.
    assert_eq!(replica.admin("GET", "/agents/hers", None).await.revision(), 2);
    let keys = replica.admin("GET", "/agents/hers/keys", None).await.json();
    assert_eq!((keys["items"].as_array().unwrap().len(), &keys["items"][0]["revokedAt"]), (1, &Value::Null));
}
