//! Connections that are tested, and that definitions use.

use serde_json::{Value, json};

use super::http;
use crate::sourced::upstream::{Upstream, status, text};
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::{Replica, gateway, resource};

async fn site() -> (Upstream, crate::support::cluster::Database, Replica) {
    let (database, replica) = gateway().await;
    let upstream = Upstream::start().await;
    let mut new = http("api");
    new["settings"] = json!({"baseUrl": upstream.url(), "allowNetworks": ["127.0.0.0/8"]});
    assert_eq!(replica.admin("POST", "/connections", Some(new)).await.status, 201);
    (upstream, database, replica)
}

async fn test(replica: &Replica, source: Value) -> Value {
    normalized(&replica.admin("POST", "/connections/api/test", Some(json!({"source": source}))).await)
}

#[tokio::test]
async fn test_fetches_as_a_read_would() {
    let (upstream, _database, replica) = site().await;
    upstream.answer("a", text("four"));
    upstream.answer("b", status(403));
    for source in [json!({"path": "a"}), json!({"connection": "api", "path": "a"})] {
        let mut tested = test(&replica, source).await;
        assert!(tested["body"]["millis"].take().is_u64());
        assert_eq!(tested, answered(200, None, &json!({"ok": true, "millis": null, "bytes": 4})));
    }
    let failed = |reason: &str| answered(200, None, &json!({"ok": false, "reason": reason}));
    assert_eq!(test(&replica, json!({"path": "b"})).await, failed("denied"));
    replica.admin("PATCH", "/connections/api", Some(json!({"limits": {"maxBytes": 3}}))).await;
    assert_eq!(test(&replica, json!({"path": "a"})).await, failed("too_large"));
    replica.admin("PATCH", "/connections/api", Some(json!({"settings": {"allowNetworks": null}}))).await;
    assert_eq!(test(&replica, json!({"path": "a"})).await, failed("not_allowed"));
    replica.admin("PATCH", "/connections/api", Some(json!({"enabled": false}))).await;
    assert_eq!(test(&replica, json!({"path": "a"})).await, failed("not_allowed"));
    let refused = |detail: &str| problem(400, "invalid_params", detail);
    assert_eq!(
        test(&replica, json!({"connection": "other", "path": "a"})).await,
        refused("source.connection: expected the connection that is tested")
    );
    assert_eq!(
        test(&replica, json!({"path": "{city}"})).await,
        refused("source: a test has no values for variables")
    );
    assert_eq!(
        test(&replica, json!({"path": "a", "ttlMs": 0.5})).await,
        refused("source.ttlMs: must be a whole number from 0 to 4294967295")
    );
    let unknown =
        replica.admin("POST", "/connections/other/test", Some(json!({"source": {"path": "a"}}))).await;
    assert_eq!(normalized(&unknown), problem(404, "not_found", "no such connection"));
}

#[tokio::test]
async fn connection_that_definitions_name_is_not_deleted() {
    let (_upstream, _database, replica) = site().await;
    replica.acme("a").await;
    let used = problem(409, "in_use", "definitions name this connection; delete or change them first");
    let delete = async || normalized(&replica.admin("DELETE", "/connections/api", None).await);
    let source = json!({"connection": "api", "path": "a"});
    let body = json!({"name": "n", "source": source});
    let path = resource("a", "x:1");
    assert_eq!(replica.admin("PUT", &path, Some(body.clone())).await.status, 201);
    assert_eq!(delete().await, used);
    assert_eq!(replica.admin("DELETE", &path, None).await.status, 204);
    let template = "/agents/a/templates?uriTemplate=y:%7Bv%7D";
    let made = replica.admin("PUT", template, Some(json!({"name": "n", "source": source}))).await;
    assert_eq!(made.status, 201, "{}", made.text());
    assert_eq!(delete().await, used);
    assert_eq!(replica.admin("PUT", &path, Some(body)).await.status, 201);
    assert_eq!(replica.admin("DELETE", "/agents/a", None).await.status, 204);
    assert_eq!(delete().await["status"], 204, "definitions of a deleted agent do not count");
}
