//! The labels that keys and tokens grant.

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use waggle::identity::grant::PresentedCredential;
use waggle::model::key::SecretKey;

use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::wait::eventually;
use crate::tokens::Fixture;

/// The labels that a credential grants now.
async fn labels(replica: &Replica, presented: PresentedCredential<'_>) -> Value {
    let client = std::net::IpAddr::from(Ipv4Addr::LOCALHOST).into();
    let grant = replica.running.services.identity.identify(presented, client).await.unwrap().unwrap();
    serde_json::to_value(&grant.credential.labels).unwrap()
}

async fn labels_of_key(replica: &Replica, key: &str) -> Value {
    labels(replica, PresentedCredential::Key(&SecretKey::parse(key).unwrap(), Some("a"))).await
}

#[tokio::test]
async fn changed_labels_of_a_key_hold_on_every_replica() {
    let database = database().await;
    let (one, other) = (Builder::new(&database).start().await, Builder::new(&database).start().await);
    one.tenant("acme").await;
    one.agent("acme", "a").await;
    let made = one.admin("POST", "/agents/a/keys", Some(json!({"labels": ["eu", "support"]}))).await.json();
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    for replica in [&one, &other] {
        assert_eq!(labels_of_key(replica, key).await, json!(["eu", "support"]));
    }
    for changed in [json!(["eu"]), json!([]), json!(["engineering"])] {
        let patched = one.admin("PATCH", &format!("/keys/{id}"), Some(json!({"labels": changed}))).await;
        assert_eq!(patched.status, 200, "{}", patched.text());
        assert_eq!(labels_of_key(&one, key).await, changed, "from the answer on");
        eventually("the other replica", async || labels_of_key(&other, key).await == changed).await;
    }
    let rotated = one.admin("POST", &format!("/keys/{id}/rotate"), None).await.json();
    assert_eq!(labels_of_key(&other, rotated["key"].as_str().unwrap()).await, json!(["engineering"]));
    assert_eq!(labels_of_key(&other, key).await, json!(["engineering"]), "in its grace period");
}

#[tokio::test]
async fn token_has_the_labels_of_the_claim() {
    let fixture = Fixture::entry(json!({"labels_claim": "/realm/groups"})).await;
    let many: Vec<_> = (0..200).map(|n| format!("g{n:03}")).collect();
    for (groups, expected) in [
        (json!(["support", "eu"]), json!(["eu", "support"])),
        (json!("support eu  support"), json!(["eu", "support"])),
        (json!("support"), json!(["support"])),
        (json!(["/eu", "support", "Support", "", "a b", "x".repeat(64), "eu"]), json!(["eu", "support"])),
        (json!("/eu support Support eu"), json!(["eu", "support"])),
        (json!(["support", 7, null, ["us"], "eu"]), json!(["eu", "support"])),
        (json!(many), json!(many)),
        (json!([]), json!([])),
        (json!(""), json!([])),
        (json!(7), json!([])),
        (json!({"support": true}), json!([])),
        (json!(null), json!([])),
    ] {
        let token = fixture.token(json!({"realm": {"groups": groups}}));
        for _ in 0..2 {
            let granted = labels(&fixture.replica, PresentedCredential::Token(&token, Some("a"))).await;
            assert_eq!(granted, expected, "{groups}");
        }
    }
}

#[tokio::test]
async fn token_has_no_labels_if_no_claim_is_configured() {
    let fixture = Fixture::entry(json!({})).await;
    let token =
        fixture.token(json!({"labels": ["support"], "groups": ["support"], "labels_claim": "groups"}));
    assert_eq!(labels(&fixture.replica, PresentedCredential::Token(&token, Some("a"))).await, json!([]));
}
