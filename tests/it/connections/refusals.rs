//! What is refused of a connection, and how the refusal names it.

use serde_json::{Value, json};

use super::{gateway, http};
use crate::support::answers::{normalized, problem};
use crate::support::app::gateway as keyless_gateway;

#[tokio::test]
async fn invalid_members_are_refused_by_name() {
    let (_keys, _database, replica) = gateway().await;
    let with = |member: &str, value: Value| {
        let mut new = http("api");
        new[member] = value;
        new
    };
    for (body, detail) in [
        (with("id", json!("A")), "id must match ^[a-z0-9][a-z0-9_-]{0,62}$"),
        (with("tenants", json!(["unknown"])), "unknown tenant: unknown"),
        (with("limits", json!({"pollMs": 999})), "limits.pollMs must be from 1000 to 86400000"),
        (with("limits", json!({"timeoutMs": 0})), "limits.timeoutMs must be from 1 to 120000"),
        (with("settings", json!({"baseUrl": "x".repeat(65_536)})), "settings are longer than 65536 bytes"),
        (
            with("secrets", json!({"headers": {"x": "x".repeat(16_384)}})),
            "secrets are longer than 16384 bytes",
        ),
    ] {
        let answer = replica.admin("POST", "/connections", Some(body)).await;
        assert_eq!(normalized(&answer), problem(400, "invalid_params", detail));
    }
    for (body, detail) in [
        (with("settings", json!({})), "settings is invalid: missing field `baseUrl`"),
        (
            with("settings", json!({"baseUrl": "http://api.example/", "proxy": "x"})),
            "settings has an unknown field `proxy`, expected one of `baseUrl`, `headers`, `allowNetworks`, \
             `allowRedirects`, `ca`",
        ),
        (
            with("secrets", json!({"password": "hunter2"})),
            "secrets must be an object with `headers`, an object of texts",
        ),
    ] {
        let answer = replica.admin("POST", "/connections", Some(body)).await;
        assert_eq!(normalized(&answer), problem(400, "invalid_params", detail));
    }
    for (body, detail) in [
        (with("kind", json!("ftp")), "kind: unknown variant `ftp`"),
        (with("tenants", json!("acme")), "tenants: expected a list of tenants' ids, or \"*\""),
        (with("tenants", json!([7])), "tenants: expected a list of tenants' ids, or \"*\""),
        (with("secrets", json!("hunter2")), "secrets: expected an object"),
        (with("limits", json!({"timeout": 1})), "limits: unknown field `timeout`"),
        (with("url", json!("x")), "unknown field `url`"),
    ] {
        let answer = replica.admin("POST", "/connections", Some(body)).await;
        let refused = answer.json();
        assert_eq!((answer.status.as_u16(), &refused["code"]), (400, &json!("invalid_params")));
        assert!(refused["detail"].as_str().unwrap().starts_with(detail), "{refused}");
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
    }
}

#[tokio::test]
async fn secret_needs_a_key_to_encrypt_it() {
    let (_database, replica) = keyless_gateway().await;
    let mut new = http("api");
    assert_eq!(replica.admin("POST", "/connections", Some(new.clone())).await.status, 201);
    (new["id"], new["secrets"]) = (json!("other"), json!({"headers": {"X-Key": "hunter2"}}));
    let detail = "secrets: sources.key_file is not set: secrets of connections need a file with a key, one base64 key of \
                  32 bytes a line; create one with: openssl rand -base64 32 > sources.key";
    let refused = replica.admin("POST", "/connections", Some(new)).await;
    assert_eq!(normalized(&refused), problem(400, "invalid_params", detail));
}
