//! The lifetime of a token, and what ends it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use time::OffsetDateTime;
use time::macros::datetime;

use super::{Fixture, endpoint, now, with};
use crate::support::clock::ManualClock;
use crate::support::events::Events;
use crate::support::http::Answer;
use crate::support::load_counter::LoadCounter;

const START: OffsetDateTime = datetime!(2026-11-21 12:00 UTC);

/// The claims of a token that was issued at a time of the clock, for a week.
fn issued_at(fixture: &Fixture, at: OffsetDateTime, change: Value) -> String {
    let at = at.unix_timestamp();
    let times = json!({"iat": at, "nbf": at, "exp": at + 7 * 24 * 3600});
    fixture.signer.token(&with(fixture.claims_with(times), change))
}

async fn clocked() -> (Arc<ManualClock>, Fixture) {
    let clock = ManualClock::at(START);
    let fixture = Fixture::with(|builder| builder.clock(clock.clone())).await;
    (clock, fixture)
}

#[tokio::test]
async fn token_is_valid_within_its_times_and_the_leeway() {
    let (clock, fixture) = clocked().await;
    let start = START.unix_timestamp();
    let token = issued_at(
        &fixture,
        START,
        json!({"iat": null, "nbf": start + 20, "exp": f64::from(i32::try_from(start).unwrap()) + 100.5}),
    );
    for (advance, status) in [(0, 401), (14, 401), (1, 200), (85, 200), (5, 200), (1, 401), (100, 401)] {
        clock.advance(time::Duration::seconds(advance));
        assert_eq!(fixture.status("a", &token).await, status, "{advance}");
    }
}

#[tokio::test]
async fn invalid_token_causes_no_database_load() {
    let loads = Arc::new(LoadCounter::default());
    let counted = Arc::clone(&loads);
    let fixture = Fixture::with(|builder| builder.fault_injector(counted)).await;
    let count = || loads.count();
    let before = count();
    for n in 0..10 {
        let stranger = json!({"exp": 0, "waggle_tenant": format!("t{n}"), "aud": endpoint(&format!("x{n}"))});
        assert_eq!(fixture.status(&format!("x{n}"), &fixture.token(stranger)).await, 401);
        let wrong = super::Signer::new("k1", "ES256").token(&fixture.claims());
        assert_eq!(fixture.status("a", &wrong).await, 401);
    }
    assert_eq!(count(), before);
    let good = fixture.token(json!({}));
    assert_eq!(fixture.status("a", &good).await, 200);
    let known = count();
    assert!(known > before);
    for _ in 0..5 {
        assert_eq!(fixture.status("a", &good).await, 200);
    }
    let ghost = fixture.token(json!({"waggle_tenant": "ghost"}));
    assert_eq!(fixture.status("a", &ghost).await, 403);
    let looked = count();
    assert_eq!(fixture.status("a", &fixture.token(json!({"waggle_tenant": "ghost", "sub": "b"}))).await, 403);
    assert_eq!((known + 1, looked), (looked, count()), "a tenant that is not there is remembered too");
}

#[tokio::test]
async fn tokens_are_refused_for_disabled_or_deleted_agents() {
    let (clock, fixture) = clocked().await;
    let token = issued_at(&fixture, START, json!({}));
    let name = async |answer: Answer| answer.json()["error"]["data"]["code"].as_str().map(str::to_owned);
    assert_eq!(fixture.status("a", &token).await, 200);
    for (enabled, expected) in [(false, Some("agent_disabled")), (true, None)] {
        fixture.replica.admin("PATCH", "/agents/a", Some(json!({"enabled": enabled}))).await;
        assert_eq!(name(fixture.ping("a", &token).await).await.as_deref(), expected);
    }
    assert_eq!(fixture.replica.admin("DELETE", "/agents/a", None).await.status, 204);
    assert_eq!(name(fixture.ping("a", &token).await).await.as_deref(), Some("forbidden"));
    fixture.replica.agent("acme", "a").await;
    assert_eq!(fixture.status("a", &token).await, 200, "the tenant's own agent has its slug again");

    let ageless = issued_at(&fixture, START, json!({"iat": null}));
    assert_eq!(fixture.status("a", &ageless).await, 200, "no other tenant had the slug");
    assert_eq!(fixture.replica.admin("DELETE", "/tenants/acme", None).await.status, 204);
    assert_eq!(name(fixture.ping("a", &token).await).await.as_deref(), Some("forbidden"));
    clock.advance(time::Duration::hours(1));
    fixture.replica.tenant("acme").await;
    fixture.replica.agent("acme", "a").await;
    assert_eq!(
        name(fixture.ping("a", &token).await).await.as_deref(),
        Some("forbidden"),
        "the tenant that has the slug now is another than the one that the token was issued for"
    );
    assert_eq!(
        name(fixture.ping("a", &ageless).await).await.as_deref(),
        Some("forbidden"),
        "a token without a time of issue may be meant for the earlier tenant"
    );
    let token = issued_at(&fixture, START + time::Duration::hours(1), json!({}));
    assert_eq!(fixture.status("a", &token).await, 200);
}

#[tokio::test]
async fn token_reaches_an_agent_created_later() {
    let fixture = Fixture::entry(json!({"agents_claim": "agents"})).await;
    let token = fixture.token(json!({"agents": ["later"], "aud": endpoint("later")}));
    assert_eq!(fixture.status("later", &token).await, 403);
    fixture.replica.agent("acme", "later").await;
    assert_eq!(fixture.status("later", &token).await, 200);
}

#[tokio::test]
async fn session_belongs_to_the_subject_of_the_token() {
    let fixture = Fixture::new().await;
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}});
    let opened = fixture.replica.http.post_bearer("a", &fixture.token(json!({})), &message).await;
    let session = opened.header("mcp-session-id").unwrap().to_owned();
    let ping = json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}).to_string();
    let key = fixture.replica.key("a", &["mcp"]).await.1;
    let fresh = fixture.token(json!({"jti": "another", "exp": now() + 60}));
    let other = fixture.token(json!({"sub": "bob"}));
    for (bearer, status) in [(fresh, 200), (other, 404), (key, 404)] {
        let bearer = format!("Bearer {bearer}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("mcp-session-id", &session),
        ];
        let answer = fixture.replica.http.send("POST", "/a/mcp", &headers, ping.clone()).await;
        assert_eq!(answer.status, status);
    }
}

async fn listen(fixture: &Fixture, token: &str) -> Events {
    let message = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen", "params": {
        "notifications": {"promptsListChanged": true},
        "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}},
    }});
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ];
    let response =
        fixture.replica.http.respond("POST", "/a/mcp", &headers, message.to_string()).await.unwrap();
    let mut events = Events::of(response);
    assert_eq!(events.next().await.unwrap().summary(), "notifications/subscriptions/acknowledged");
    events
}

#[tokio::test]
async fn stream_ends_when_its_token_expires() {
    let fixture = Fixture::with(|builder| builder.set("WAGGLE_TOKENS__LEEWAY_SECONDS", 0)).await;
    let since = Instant::now();
    let mut events =
        listen(&fixture, &fixture.token(json!({"exp": now() + 3, "iat": null, "nbf": null}))).await;
    let last = events.next().await.unwrap().json();
    assert_eq!(last["result"]["resultType"], "complete");
    assert_eq!(events.next().await, None);
    let lasted = since.elapsed();
    assert!((Duration::from_secs(1)..Duration::from_secs(5)).contains(&lasted), "{lasted:?}");
}

#[tokio::test]
async fn stream_ends_when_the_issuer_withdraws_the_key() {
    let fixture = Fixture::with(|builder| {
        builder.set("WAGGLE_TOKENS__REFRESH_SECONDS", 1).set("WAGGLE_SESSIONS__KEEP_ALIVE_SECONDS", 1)
    })
    .await;
    let mut events = listen(&fixture, &fixture.token(json!({}))).await;
    fixture.issuer.publish(&[]);
    assert_eq!(events.next().await.unwrap().summary(), "result");
    assert_eq!(events.next().await, None);
}
