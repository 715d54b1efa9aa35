//! Listeners: administration on its own, and the hosts that are served.

use serde_json::json;

use super::post;
use crate::connections::Keys;
use crate::support::answers::exact;
use crate::support::app::{Builder, resource};
use crate::support::cluster::database;
use crate::support::http::Client;
use crate::support::webhook::Message;

#[tokio::test]
async fn admin_listener_serves_administration_exclusively() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_ADMIN__LISTEN", "127.0.0.1:0").start().await;
    assert_ne!(replica.running.address, replica.running.admin_address);
    let admin = Client::new(replica.running.admin_address);
    for (path, body) in
        [("/tenants", json!({"id": "acme"})), ("/agents", json!({"id": "a", "tenant": "acme"}))]
    {
        assert_eq!(admin.admin(&replica.operator, "POST", path, Some(body)).await.status, 201);
    }
    let made = admin.admin(&replica.operator, "POST", "/agents/a/keys", Some(json!({}))).await.json();
    let key = made["key"].as_str().unwrap();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    assert_eq!(replica.http.post("a", key, &ping).await.status, 200);

    let mut not_found = crate::support::answers::problem(404, "not_found", "no such path");
    not_found["headers"].as_object_mut().unwrap().remove("cache-control");
    for path in ["/admin/v1/agents", "/admin", "/admin/openapi.json"] {
        let answer = replica.http.send("GET", path, &[("authorization", &replica.operator)], "").await;
        assert_eq!(exact(&answer), not_found, "{path}");
    }
    assert_eq!(exact(&admin.post("a", key, &ping).await), not_found);
    for client in [&admin, &replica.http] {
        assert_eq!(client.get("/healthz").await.status, 200);
        assert_eq!(client.get("/readyz").await.status, 200);
    }
}

#[tokio::test]
async fn hooks_and_metadata_are_served_with_the_mcp_endpoints_only() {
    let (database, keys, issuer) = (database().await, Keys::new(), "https://issuer.example");
    let replica = keys
        .replica(&database)
        .set("WAGGLE_ADMIN__LISTEN", "127.0.0.1:0")
        .set("WAGGLE_SERVER__PUBLIC_URL", "https://mcp.example.com")
        .set("WAGGLE_TOKENS__ISSUERS", json!([{"issuer": issuer, "tenants": "*"}]))
        .start()
        .await;
    let admin = Client::new(replica.running.admin_address);
    let create = async |path: &str, body| {
        let made = admin.admin(&replica.operator, "POST", path, Some(body)).await;
        assert_eq!(made.status, 201, "{path}: {}", made.text());
        made.json()
    };
    create("/tenants", json!({"id": "acme"})).await;
    create("/agents", json!({"id": "a", "tenant": "acme"})).await;
    let body = json!({"name": "r", "contents": [{"text": "text"}]});
    let put = admin.admin(&replica.operator, "PUT", &resource("a", "x:1"), Some(body)).await;
    assert_eq!(put.status, 201);
    let hook = create("/agents/a/hooks", json!({"uris": ["x:1"]})).await;
    let (id, secret) = (hook["id"].as_str().unwrap(), hook["secret"].as_str().unwrap());
    assert_eq!(Message::new("message").send(&replica, id, secret).await.status, 202);

    let path = "/.well-known/oauth-protected-resource/a/mcp";
    let metadata = replica.http.get(path).await;
    assert_eq!(
        (metadata.status.as_u16(), &metadata.json()["authorization_servers"]),
        (200, &json!([issuer]))
    );
    let mut not_found = crate::support::answers::problem(404, "not_found", "no such path");
    not_found["headers"].as_object_mut().unwrap().remove("cache-control");
    let hook = format!("/hooks/{id}");
    for (method, path) in [("POST", hook.as_str()), ("GET", path)] {
        assert_eq!(exact(&admin.send(method, path, &[], "").await), not_found, "{path}");
    }
}

/// An address that others may reach: of any interface of this machine.
const PUBLIC: &str = "0.0.0.0:0";

#[tokio::test]
async fn any_host_is_served_on_a_public_address_until_some_are_allowed() {
    let database = database().await;
    let builder = || Builder::new(&database).set("WAGGLE_SERVER__LISTEN", PUBLIC);
    let any = builder().start().await;
    any.acme("a").await;
    any.admin("PATCH", "/agents/a", Some(json!({"access": "public"}))).await;
    let some = builder().set("WAGGLE_SERVER__ALLOWED_HOSTS", "mcp.example.com").start().await;
    let ping = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"});
    let pong = crate::support::answers::message(&json!({"jsonrpc": "2.0", "id": 7, "result": {}}));
    let forbidden =
        crate::support::answers::error(403, "7", -31013, "forbidden_origin", "this Host is not allowed");
    for (replica, host, expected) in [
        (&any, "evil.example", &pong),
        (&any, "localhost", &pong),
        (&some, "mcp.example.com", &pong),
        (&some, "evil.example", &forbidden),
        (&some, "localhost", &forbidden),
    ] {
        let answer = post(replica, "/a/mcp", &[("host", host)], ping.to_string()).await;
        assert_eq!(&exact(&answer), expected, "{host}");
    }
}

#[tokio::test]
async fn allowed_public_host_is_served() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_SERVER__ALLOWED_HOSTS", "localhost,127.0.0.1,mcp.example.com")
        .set("WAGGLE_SERVER__ALLOWED_ORIGINS", "https://app.example.com")
        .start()
        .await;
    let key = replica.acme("a").await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    for (more, status) in [
        (("host", "mcp.example.com"), 200),
        (("host", "MCP.example.com:443"), 200),
        // Any name is accepted with a valid key.
        (("host", "example.com"), 200),
        (("origin", "https://app.example.com"), 200),
        (("origin", "http://app.example.com"), 403),
        (("origin", "https://app.example.com:8443"), 403),
        (("origin", "http://localhost:3000"), 403),
    ] {
        let answer = post(&replica, "/a/mcp", &[("x-agent-api-key", &key), more], ping.clone()).await;
        assert_eq!(answer.status, status, "{more:?}");
        let without = post(&replica, "/a/mcp", &[more], ping.clone()).await.status;
        let expected = if more == ("host", "example.com") {
            403
        } else if status == 200 {
            401
        } else {
            status
        };
        assert_eq!(without, expected, "{more:?}");
    }
}

#[tokio::test]
async fn overloaded_gateway_refuses_requests_with_their_ids() {
    use crate::support::answers::error;
    use crate::support::faults::FaultScript;
    use waggle::model::system::FailPoint;
    let database = database().await;
    let faults = FaultScript::new();
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__CONCURRENT_REQUESTS", 1)
        .fault_injector(faults.clone())
        .start()
        .await;
    replica.tenant("acme").await;
    let held = faults.hold(FailPoint::BeforeCommit);
    let (http, operator) = (replica.http.clone(), replica.operator.clone());
    let slow = tokio::spawn(async move {
        http.admin(&operator, "POST", "/agents", Some(json!({"id": "a", "tenant": "acme"}))).await.status
    });
    held.meanwhile(async {
        let ping = json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}).to_string();
        let sentence = "the gateway is overloaded or shutting down; try again";
        let mut expected = error(503, "\"p\"", -31017, "unavailable", sentence);
        expected["headers"]["retry-after"] = json!("1");
        assert_eq!(exact(&post(&replica, "/a/mcp", &[], ping).await), expected);
        let mut expected = crate::support::answers::problem(503, "unavailable", sentence);
        expected["headers"]["retry-after"] = json!("1");
        assert_eq!(exact(&replica.admin("GET", "/agents", None).await), expected);
        assert_eq!(replica.http.get("/healthz").await.status, 200);
    })
    .await;
    assert_eq!(slow.await.unwrap(), 201);
}
