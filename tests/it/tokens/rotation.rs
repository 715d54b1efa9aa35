//! Key rotation and outages of an issuer.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use super::{Fixture, believing, claims_for, ping};
use crate::support::app::Replica;
use crate::support::cluster::database;
use crate::support::issuer::{How, Issuer};
use crate::support::signer::Signer;
use crate::support::wait::eventually;

/// Repeats a request until it has this status.
async fn becomes(replica: &Replica, token: &str, status: u16) {
    let answers = async || ping(replica, "a", token).await.status.as_u16();
    eventually(&format!("{status}"), async || answers().await == status).await;
}

#[tokio::test]
async fn rotated_issuer_key_works_without_a_restart() {
    let fixture = Fixture::new().await;
    let old = fixture.token(json!({}));
    assert_eq!(fixture.status("a", &old).await, 200);
    let new = Signer::new("k2", "EdDSA");
    let token = new.token(&fixture.claims());
    fixture.issuer.publish(&[&fixture.signer, &new]);
    // Concurrently, like real clients: one fetch serves them all.
    let before = fixture.issuer.fetches();
    let mut clients = JoinSet::new();
    for _ in 0..20 {
        let (http, token) = (fixture.replica.http.clone(), token.clone());
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"});
        clients.spawn(async move { http.post_bearer("a", &token, &message).await.status.as_u16() });
    }
    assert_eq!(clients.join_all().await, [200; 20]);
    assert!(fixture.issuer.fetches() - before <= 2);
    assert_eq!(fixture.status("a", &old).await, 200, "the old key is still there");
}

#[tokio::test]
async fn token_is_refused_once_its_signing_key_is_withdrawn() {
    let fixture = Fixture::with(|builder| builder.set("WAGGLE_TOKENS__REFRESH_SECONDS", 1)).await;
    let token = fixture.token(json!({}));
    assert_eq!(fixture.status("a", &token).await, 200);
    // Another key with the same id does not replace it.
    fixture.issuer.publish(&[&Signer::new("k1", "ES256")]);
    becomes(&fixture.replica, &token, 401).await;
    assert_eq!(fixture.status("a", &token).await, 401);
}

#[tokio::test]
async fn unknown_key_ids_cause_a_bounded_number_of_fetches() {
    let fixture = Fixture::with(|builder| builder.set("WAGGLE_TOKENS__UNKNOWN_KEY_SECONDS", 3600)).await;
    assert_eq!(fixture.status("a", &fixture.token(json!({}))).await, 200);
    let before = fixture.issuer.fetches();
    for n in 0..30 {
        let header = json!({"alg": "ES256", "kid": format!("made up {n}")});
        assert_eq!(fixture.status("a", &fixture.signer.sign(&header, &fixture.claims())).await, 401);
    }
    assert_eq!(fixture.issuer.fetches() - before, 1);
    let claims = [json!({"exp": 0}), json!({"aud": "elsewhere"}), json!({"iss": "https://evil.example"})];
    for change in claims {
        let header = json!({"alg": "ES256", "kid": "made up"});
        assert_eq!(
            fixture.status("a", &fixture.signer.sign(&header, &fixture.claims_with(change))).await,
            401
        );
    }
    assert_eq!(fixture.issuer.fetches() - before, 1);
}

#[tokio::test]
async fn token_without_a_key_id_uses_the_only_matching_key() {
    let fixture = Fixture::new().await;
    let token = fixture.signer.sign(&json!({"alg": "ES256"}), &fixture.claims());
    assert_eq!(fixture.status("a", &token).await, 200);
    let two = Fixture::new().await;
    two.issuer.publish(&[&two.signer, &Signer::new("k2", "ES256")]);
    let known = Signer::new("k3", "EdDSA");
    two.ping("a", &known.token(&two.claims())).await;
    let token = two.signer.sign(&json!({"alg": "ES256"}), &two.claims());
    assert_eq!(two.status("a", &token).await, 401, "with two keys, none is chosen");
}

#[tokio::test]
async fn issuer_keys_are_cached_for_a_bounded_outage() {
    let fixture = Fixture::with(|builder| {
        builder.set("WAGGLE_TOKENS__REFRESH_SECONDS", 1).set("WAGGLE_TOKENS__STALE_SECONDS", 4)
    })
    .await;
    let known = fixture.token(json!({}));
    assert_eq!(fixture.status("a", &known).await, 200);
    fixture.issuer.answer(How::Broken);
    let (since, before) = (Instant::now(), fixture.issuer.fetches());
    eventually("fetching the keys failed", async || fixture.issuer.fetches() > before).await;
    for token in [&known, &fixture.token(json!({"sub": "bob"}))] {
        assert_eq!(fixture.status("a", token).await, 200);
    }
    becomes(&fixture.replica, &known, 503).await;
    assert!(since.elapsed() > Duration::from_secs(2));
    assert_eq!(fixture.status("a", &fixture.token(json!({"exp": 0}))).await, 401, "invalid with any keys");
    fixture.issuer.answer(How::Well);
    becomes(&fixture.replica, &known, 200).await;
}

#[tokio::test]
async fn invalid_issuer_answers_count_as_an_outage() {
    let signer = Signer::new("k1", "ES256");
    for how in [How::Broken, How::Endless, How::Elsewhere] {
        let issuer = Issuer::start(&[&signer]).await;
        issuer.answer(how);
        let database = database().await;
        let replica = believing(&database, &issuer).start().await;
        replica.acme("a").await;
        let token = signer.token(&claims_for(&issuer.url(), "a"));
        let refused = ping(&replica, "a", &token).await;
        assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (503, Some("1")), "{how:?}");
        issuer.answer(How::Well);
        becomes(&replica, &token, 200).await;
    }
}

#[tokio::test]
async fn slow_issuer_does_not_delay_other_tokens() {
    let signer = Signer::new("k1", "ES256");
    let issuer = Issuer::start(&[&signer]).await;
    issuer.answer(How::Held);
    let database = database().await;
    let replica = believing(&database, &issuer).start().await;
    let key = replica.acme("a").await;
    let mut clients = JoinSet::new();
    for n in 0..140 {
        let token =
            signer.token(&super::with(claims_for(&issuer.url(), "a"), json!({"sub": format!("s{n}")})));
        let http = replica.http.clone();
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "ping"});
        clients.spawn(async move { http.post_bearer("a", &token, &message).await.status.as_u16() });
    }
    let mut refused = Vec::new();
    for _ in 0..12 {
        refused.push(clients.join_next().await.unwrap().unwrap());
    }
    assert_eq!(refused, [503; 12], "beyond the bound on waiting requests");
    assert_eq!(ping(&replica, "a", &key).await.status, 200);
    issuer.answer(How::Well);
    assert_eq!(clients.join_all().await, [200; 128]);
}

#[tokio::test]
async fn discovery_document_of_another_issuer_is_refused() {
    let signer = Signer::new("k1", "ES256");
    let issuer = Issuer::start(&[&signer]).await;
    issuer.pose_as("https://login.example.com");
    let database = database().await;
    let replica = believing(&database, &issuer).start().await;
    replica.acme("a").await;
    let token = signer.token(&claims_for(&issuer.url(), "a"));
    assert_eq!(ping(&replica, "a", &token).await.status, 503);
    assert_eq!(issuer.fetches(), 0);

    let keys = format!("{}/keys", issuer.url());
    let entry = super::with(super::entry_of(&issuer), json!({"jwks_url": keys}));
    let static_keys = believing(&database, &issuer).set(super::ISSUERS, json!([entry])).start().await;
    assert_eq!(ping(&static_keys, "a", &token).await.status, 200, "configured keys need no discovery");
}

#[tokio::test]
async fn equal_subjects_of_two_issuers_are_distinct() {
    let (one, two) = (Signer::new("k", "ES256"), Signer::new("k", "ES256"));
    let (first, second) = (Issuer::start(&[&one]).await, Issuer::start(&[&two]).await);
    let database = database().await;
    let both = json!([super::entry_of(&first), super::entry_of(&second)]);
    let replica = believing(&database, &first).set(super::ISSUERS, both).start().await;
    replica.acme("a").await;
    for (signer, issuer, status) in
        [(&one, &first, 200), (&two, &second, 200), (&one, &second, 401), (&two, &first, 401)]
    {
        let token = signer.token(&claims_for(&issuer.url(), "a"));
        assert_eq!(ping(&replica, "a", &token).await.status, status);
    }
}

#[tokio::test]
async fn issuer_tokens_reach_only_the_configured_tenants() {
    let (one, two) = (Signer::new("k", "ES256"), Signer::new("k", "ES256"));
    let (first, second) = (Issuer::start(&[&one]).await, Issuer::start(&[&two]).await);
    let database = database().await;
    let entries = json!([
        {"issuer": first.url(), "tenants": ["acme"]}, {"issuer": second.url(), "tenants": ["bee", "ghost"]},
    ]);
    let replica = believing(&database, &first).set(super::ISSUERS, entries).start().await;
    for (tenant, agent) in [("acme", "a"), ("bee", "b")] {
        replica.tenant(tenant).await;
        replica.agent(tenant, agent).await;
    }
    let token = |signer: &Signer, issuer: &Issuer, tenant: &str| {
        let change = json!({"waggle_tenant": tenant, "scope": "mcp registry audit",
            "aud": [super::endpoint("a"), super::endpoint("b"), super::PUBLIC_URL]});
        signer.token(&super::with(claims_for(&issuer.url(), "a"), change))
    };
    for (signer, issuer, tenant, expected) in [
        (&one, &first, "acme", [200, 403]),
        (&one, &first, "bee", [403, 403]),
        (&two, &second, "acme", [403, 403]),
        (&two, &second, "bee", [403, 200]),
    ] {
        let token = token(signer, issuer, tenant);
        let reached = [ping(&replica, "a", &token).await, ping(&replica, "b", &token).await];
        assert_eq!(reached.map(|answer| answer.status.as_u16()), expected, "{tenant} by {}", issuer.url());
        for (agent, reached) in ["a", "b"].into_iter().zip(expected) {
            let expected = if reached == 200 { 200 } else { 404 };
            for path in ["resources", "manifest"] {
                let path = format!("/agents/{agent}/{path}");
                let answer = replica.http.admin(&token, "GET", &path, None).await;
                assert_eq!(answer.status.as_u16(), expected, "{path} as {tenant} by {}", issuer.url());
            }
        }
    }
}
