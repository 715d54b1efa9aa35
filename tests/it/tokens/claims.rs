//! The privileges that the claims of a valid token grant.

use serde_json::{Value, json};

use super::{Fixture, PUBLIC_URL, endpoint};
use crate::support::answers::exact;
use crate::support::http::Answer;
use crate::support::signer::Signer;

fn status_and_code(answer: &Answer) -> String {
    let name = answer.json()["error"]["data"]["code"].as_str().unwrap_or("pong").to_owned();
    format!("{} {name}", answer.status.as_u16())
}

#[tokio::test]
async fn every_allowed_algorithm_is_verified() {
    let fixture = Fixture::new().await;
    let algorithms = ["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA"];
    let signers: Vec<_> = algorithms.iter().map(|algorithm| Signer::new(algorithm, algorithm)).collect();
    let noise = json!([
        {"kty": "oct", "kid": "RS256", "k": "c2VjcmV0"}, {"kty": "RSA", "kid": "RS256", "use": "enc", "n": "AQAB", "e": "AQAB"},
        {"kty": "EC", "crv": "secp256k1", "kid": "ES256", "x": "", "y": ""}, {"kty": 7}, "no key",
    ]);
    let keys = signers.iter().map(Signer::jwk);
    fixture.issuer.publish_keys(noise.as_array().unwrap().iter().cloned().chain(keys).collect());
    for signer in &signers {
        let answer = fixture.ping("a", &signer.token(&fixture.claims())).await;
        assert_eq!(status_and_code(&answer), "200 pong", "{}", signer.algorithm);
    }
    // All RSA signers share one key, but a published key with an `alg` serves no other algorithm.
    let pss = signers.iter().find(|signer| signer.algorithm == "PS256").unwrap();
    let crossed = pss.sign(&json!({"alg": "PS256", "kid": "RS256"}), &fixture.claims());
    assert_eq!(status_and_code(&fixture.ping("a", &crossed).await), "401 unauthenticated");
}

#[tokio::test]
async fn token_reaches_the_agents_its_claims_name() {
    let fixture = Fixture::entry(json!({"agents_claim": "/waggle/agents"})).await;
    fixture.replica.agent("acme", "off").await;
    fixture.replica.admin("PATCH", "/agents/off", Some(json!({"enabled": false}))).await;
    let many: Vec<_> = (0..100).map(|n| format!("x{n}")).collect();
    let all = ["a", "b", "c", "off", "absent"];
    for (name, change, expected) in [
        ("one", json!({"waggle": {"agents": ["a"]}}), ["200 pong", "403", "403", "403", "403"]),
        (
            "two in a text",
            json!({"waggle": {"agents": "a b"}}),
            ["200 pong", "200 pong", "403", "403", "403"],
        ),
        (
            "its own and a foreign one",
            json!({"waggle": {"agents": ["c", "b"]}}),
            ["403", "200 pong", "403", "403", "403"],
        ),
        (
            "one that is off",
            json!({"waggle": {"agents": ["off"]}}),
            ["403", "403", "403", "403 agent_disabled", "403"],
        ),
        ("none", json!({}), ["403"; 5]),
        ("no slugs", json!({"waggle": {"agents": ["A", "*", 7]}}), ["403"; 5]),
        ("a hundred that are not there", json!({"waggle": {"agents": many}}), ["403"; 5]),
        (
            "another tenant",
            json!({"waggle": {"agents": ["a", "c"]}, "waggle_tenant": "bee"}),
            ["403", "403", "200 pong", "403", "403"],
        ),
        (
            "a tenant that is not there",
            json!({"waggle": {"agents": ["a"]}, "waggle_tenant": "ghost"}),
            ["403"; 5],
        ),
        (
            "a tenant that is no slug",
            json!({"waggle": {"agents": ["a"]}, "waggle_tenant": "A/B"}),
            ["403"; 5],
        ),
        ("no tenant", json!({"waggle": {"agents": ["a"]}, "waggle_tenant": null}), ["403"; 5]),
    ] {
        let token = fixture.token(super::with(change, json!({"aud": all.map(endpoint)})));
        for (agent, expected) in all.into_iter().zip(expected) {
            let expected = if expected == "403" { "403 forbidden" } else { expected };
            assert_eq!(status_and_code(&fixture.ping(agent, &token).await), expected, "{name} at {agent}");
        }
    }
    let too_many: Vec<_> = (0..101).map(|n| format!("x{n}")).collect();
    let token = fixture.token(json!({"waggle": {"agents": too_many}}));
    assert_eq!(status_and_code(&fixture.ping("a", &token).await), "401 unauthenticated");
}

#[tokio::test]
async fn unknown_and_foreign_agents_are_refused_alike() {
    let fixture = Fixture::new().await;
    let token = fixture.token(json!({"aud": [endpoint("c"), endpoint("absent")]}));
    let (foreign, unknown) = (fixture.ping("c", &token).await, fixture.ping("absent", &token).await);
    assert_eq!(foreign.visible(), unknown.visible());
    assert_eq!(status_and_code(&foreign), "403 forbidden");
}

#[tokio::test]
async fn fixed_tenant_overrides_the_claim() {
    let fixture = Fixture::entry(json!({"tenant": "acme"})).await;
    for tenant in [json!("bee"), Value::Null] {
        let token = fixture.token(json!({"waggle_tenant": tenant, "aud": [endpoint("a"), endpoint("c")]}));
        assert_eq!(status_and_code(&fixture.ping("a", &token).await), "200 pong");
        assert_eq!(status_and_code(&fixture.ping("c", &token).await), "403 forbidden");
    }
}

#[tokio::test]
async fn claim_names_are_configurable() {
    let fixture = Fixture::entry(json!({
        "tenant_claim": "https://example.com/tenant", "scopes_claim": "/resource_access/waggle/roles",
    }))
    .await;
    let roles = json!({"waggle": {"roles": ["mcp", "something else"]}});
    let token = fixture.token(json!({
        "https://example.com/tenant": "acme", "resource_access": roles, "waggle_tenant": null, "scope": "openid",
    }));
    assert_eq!(status_and_code(&fixture.ping("a", &token).await), "200 pong");
    let token = fixture.token(json!({"resource_access": roles}));
    assert_eq!(
        status_and_code(&fixture.ping("a", &token).await),
        "403 forbidden",
        "the tenant claim has another name"
    );
}

#[tokio::test]
async fn token_without_a_scope_is_told_which_is_missing() {
    let fixture = Fixture::new().await;
    for scope in [Value::Null, json!("openid profile"), json!("registry"), json!(["MCP"]), json!(7)] {
        let refused = exact(&fixture.ping("a", &fixture.token(json!({"scope": scope}))).await);
        assert_eq!(refused["status"], 403);
        assert_eq!(refused["body"]["error"]["data"], json!({"code": "insufficient_scope"}));
        let challenge = "Bearer realm=\"MCP\", error=\"insufficient_scope\", scope=\"mcp\", resource_metadata=\
                         \"https://mcp.example.com/.well-known/oauth-protected-resource/a/mcp\"";
        assert_eq!(refused["headers"]["www-authenticate"], challenge, "{scope}");
    }
    for scope in [json!("openid mcp"), json!(["registry", "mcp"])] {
        assert_eq!(fixture.status("a", &fixture.token(json!({"scope": scope}))).await, 200);
    }
}

#[tokio::test]
async fn gateway_token_manages_registries_like_an_agent_key() {
    let fixture = Fixture::new().await;
    let send = async |token: &str, method: &str, path: &str, body: Option<Value>| {
        fixture.replica.http.admin(token, method, path, body).await.status.as_u16()
    };
    let resource = Some(json!({"name": "n", "contents": [{"text": "t"}]}));
    let one = "/agents/a/resources?uri=x:1";
    let token = fixture.token(json!({"aud": PUBLIC_URL, "scope": "registry"}));
    assert_eq!(send(&token, "PUT", one, resource.clone()).await, 201);
    assert_eq!(send(&token, "GET", "/agents/b/manifest", None).await, 200);
    assert_eq!(send(&token, "GET", "/agents/c/resources", None).await, 404, "another tenant's");
    for (method, path) in
        [("GET", "/agents/a"), ("GET", "/agents"), ("GET", "/agents/a/keys"), ("GET", "/tenants/acme")]
    {
        assert_eq!(send(&token, method, path, None).await, 403, "{path}");
    }
    let endpoint_token = fixture.token(json!({"scope": "registry mcp"}));
    assert_eq!(send(&endpoint_token, "PUT", one, resource.clone()).await, 401, "made for an endpoint");
    let reader = fixture.token(json!({"aud": PUBLIC_URL}));
    assert_eq!(send(&reader, "PUT", one, resource).await, 403);

    let refused = fixture.replica.http.admin(&endpoint_token, "GET", one, None).await;
    let challenge = "Bearer realm=\"MCP\", resource_metadata=\
                     \"https://mcp.example.com/.well-known/oauth-protected-resource\", scope=\"registry\", \
                     error=\"invalid_token\"";
    assert_eq!(refused.header("www-authenticate"), Some(challenge));
}

#[tokio::test]
async fn configured_audience_covers_the_whole_gateway() {
    let fixture = Fixture::entry(json!({"audience": "api://waggle"})).await;
    let token = fixture.token(json!({"aud": ["api://waggle", "api://other"], "scope": "mcp registry"}));
    assert_eq!(status_and_code(&fixture.ping("a", &token).await), "200 pong");
    assert_eq!(status_and_code(&fixture.ping("b", &token).await), "200 pong");
    assert_eq!(status_and_code(&fixture.ping("c", &token).await), "403 forbidden", "another tenant's");
    assert_eq!(fixture.replica.http.admin(&token, "GET", "/agents/a/resources", None).await.status, 200);
    assert_eq!(
        status_and_code(&fixture.ping("a", &fixture.token(json!({}))).await),
        "200 pong",
        "the URL still names it"
    );
    let foreign = fixture.token(json!({"aud": "api://other"}));
    assert_eq!(status_and_code(&fixture.ping("a", &foreign).await), "401 unauthenticated");
}
