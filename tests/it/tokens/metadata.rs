//! Protected resource metadata (RFC 9728), and the challenges that link to it.

use serde_json::{Value, json};

use super::{Fixture, believing};
use crate::support::answers::{exact, problem};
use crate::support::app::{Builder, gateway};
use crate::support::cluster::database;

const ROOT: &str = "/.well-known/oauth-protected-resource";

fn document(issuer: &str, resource: &str, scopes: Value) -> Value {
    let body = json!({
        "resource": resource, "authorization_servers": [issuer], "scopes_supported": scopes,
        "bearer_methods_supported": ["header"],
    });
    let headers = json!({"content-type": "application/json", "cache-control": "public, max-age=300"});
    json!({"status": 200, "headers": headers, "body": body})
}

#[tokio::test]
async fn every_possible_agent_has_a_metadata_document() {
    let fixture = Fixture::new().await;
    let issuer = fixture.issuer.url();
    for agent in ["a", "absent", "0_-"] {
        let shown = exact(&fixture.replica.http.get(&format!("{ROOT}/{agent}/mcp")).await);
        let resource = format!("https://mcp.example.com/{agent}/mcp");
        assert_eq!(shown, document(&issuer, &resource, json!(["mcp"])), "{agent}");
    }
    let encoded = exact(&fixture.replica.http.get(&format!("{ROOT}/%61/mcp")).await);
    assert_eq!(encoded, document(&issuer, "https://mcp.example.com/a/mcp", json!(["mcp"])));
    let root = exact(&fixture.replica.http.get(ROOT).await);
    assert_eq!(root, document(&issuer, "https://mcp.example.com", json!(["registry", "audit"])));
    for path in ["/A/mcp", "/admin/mcp", "/a", "/a/mcp/x", "x", "/a%2Fmcp", "/a/%6dcp"] {
        let refused = exact(&fixture.replica.http.get(&format!("{ROOT}{path}")).await);
        assert_eq!(
            (&refused["status"], &refused["body"]["code"]),
            (&json!(404), &json!("not_found")),
            "{path}"
        );
    }
    let posted = fixture.replica.http.send("POST", ROOT, &[], "").await;
    assert_eq!((posted.status.as_u16(), posted.header("allow")), (405, Some("GET, HEAD")));
    let page = [("origin", "http://localhost:3000")];
    let shown = fixture.replica.http.send("GET", &format!("{ROOT}/a/mcp"), &page, "").await;
    assert_eq!(shown.header("access-control-allow-origin"), Some("http://localhost:3000"));
    let elsewhere = [("origin", "https://evil.example")];
    assert_eq!(fixture.replica.http.send("GET", ROOT, &elsewhere, "").await.status, 403);
}

#[tokio::test]
async fn no_issuer_means_no_document_and_a_plain_challenge() {
    let (_database, replica) = gateway().await;
    for path in ["", "/a/mcp"] {
        let refused = exact(&replica.http.get(&format!("{ROOT}{path}")).await);
        let mut expected = problem(404, "not_found", "no such path");
        expected["headers"].as_object_mut().unwrap().remove("cache-control");
        assert_eq!(refused, expected, "{path}");
    }
    let refused = super::ping(&replica, "a", "bak_x").await;
    assert_eq!(refused.header("www-authenticate"), Some("Bearer realm=\"MCP\""));
}

#[tokio::test]
async fn challenge_links_to_the_metadata_document() {
    let fixture = Fixture::new().await;
    let ping = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"}).to_string();
    let challenge = async |path: &str, headers: &[(&str, &str)]| {
        let headers = [&[("content-type", "application/json")], headers].concat();
        let refused = fixture.replica.http.send("POST", path, &headers, ping.clone()).await;
        assert_eq!(refused.status, 401);
        refused.header("www-authenticate").unwrap().to_owned()
    };
    let of = |agent: &str| {
        format!("Bearer realm=\"MCP\", resource_metadata=\"https://mcp.example.com{ROOT}{agent}\"")
    };
    assert_eq!(challenge("/a/mcp", &[]).await, format!("{}, scope=\"mcp\"", of("/a/mcp")));
    assert_eq!(challenge("/absent/mcp", &[]).await, format!("{}, scope=\"mcp\"", of("/absent/mcp")));
    assert_eq!(challenge("/A%22/mcp", &[]).await, format!("{}, scope=\"registry\"", of("")));
    let key = [("x-agent-api-key", "bak_x")];
    assert_eq!(challenge("/a/mcp", &key).await, format!("{}, scope=\"mcp\"", of("/a/mcp")));
    let bearer = [("authorization", "Bearer bak_x")];
    let expected = format!("{}, scope=\"mcp\", error=\"invalid_token\"", of("/a/mcp"));
    assert_eq!(challenge("/a/mcp", &bearer).await, expected);
}

#[tokio::test]
async fn public_url_path_follows_the_well_known_prefix() {
    let signer = super::Signer::new("k1", "ES256");
    let issuer = super::Issuer::start(&[&signer]).await;
    let database = database().await;
    let start =
        |builder: Builder| builder.set("WAGGLE_SERVER__PUBLIC_URL", "https://example.com/hub").start();
    let replica = start(believing(&database, &issuer)).await;
    let refused = super::ping(&replica, "a", "x").await;
    let url = "https://example.com/.well-known/oauth-protected-resource/hub/a/mcp";
    assert!(refused.header("www-authenticate").unwrap().contains(&format!("resource_metadata=\"{url}\"")));
    let shown = replica.http.get(&format!("{ROOT}/hub/a/mcp")).await.json();
    assert_eq!(shown["resource"], "https://example.com/hub/a/mcp");

    replica.acme("a").await;
    let claims = super::claims_for(&issuer.url(), "a");
    let token = |aud: &str| signer.token(&super::with(claims.clone(), json!({"aud": aud})));
    assert_eq!(super::ping(&replica, "a", &token("https://example.com/hub/a/mcp")).await.status, 200);
    assert_eq!(super::ping(&replica, "a", &token("https://example.com/a/mcp")).await.status, 401);
}
