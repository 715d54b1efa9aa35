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

#[tokio::test]
async fn customers_see_their_documents_by_a_claim_of_their_tokens() {
    let fixture = Fixture::entry(json!({"tenant": "acme", "labels_claim": "groups"})).await;
    let manifest = json!({
        "apiVersion": "waggle/v1",
        "resources": [
            {"uri": "docs:manual", "name": "manual", "contents": [{"text": "Press the button."}]},
            {"uri": "docs:blue/contract", "name": "contract", "labels": ["customer:blue"], "contents": [{"text": "b"}]},
            {"uri": "docs:red/contract", "name": "contract", "labels": ["customer:red"], "contents": [{"text": "r"}]},
        ],
        "prompts": [{
            "name": "preview", "labels": ["beta"],
            "messages": [{"role": "user", "content": {"type": "text", "text": "What is new?"}}],
        }],
    });
    let applied = fixture.replica.admin("PUT", "/agents/a/manifest", Some(manifest)).await;
    assert_eq!(applied.json()["created"]["count"], 4, "{}", applied.text());
    let (manual, blue, red) = ("docs:manual", "docs:blue/contract", "docs:red/contract");
    for (groups, resources, prompts) in [
        (json!(["customer:blue"]), vec![blue, manual], 0),
        (json!("customer:red beta"), vec![manual, red], 1),
        (json!(["customer:blue", "customer:red", "/staff"]), vec![blue, manual, red], 0),
        (json!(["customer:green"]), vec![manual], 0),
        (Value::Null, vec![manual], 0),
    ] {
        let token = fixture.token(json!({"groups": groups}));
        let call = async |method: &str, params: Value| {
            let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            fixture.replica.http.post_bearer("a", &token, &body).await.json()
        };
        let listed = call("resources/list", json!({})).await;
        let items = listed["result"]["resources"].as_array().unwrap().iter();
        assert_eq!(
            items.map(|item| item["uri"].as_str().unwrap()).collect::<Vec<_>>(),
            resources,
            "{groups}"
        );
        let listed = call("prompts/list", json!({})).await;
        assert_eq!(listed["result"]["prompts"].as_array().unwrap().len(), prompts, "{groups}");
        for uri in [manual, blue, red] {
            let read = call("resources/read", json!({"uri": uri})).await;
            let unknown = call("resources/read", json!({"uri": "docs:unknown"})).await;
            if resources.contains(&uri) {
                assert_eq!(read["result"]["contents"][0]["uri"], uri);
            } else {
                let unknown = unknown.to_string().replace("docs:unknown", uri);
                assert_eq!(read.to_string(), unknown, "{groups}");
            }
        }
    }
}
