//! Rates of addresses, for callers without a valid credential.

use std::time::Duration;

use serde_json::json;
use waggle::model::key::{KeyKind, SecretKey};
use waggle::model::system::System;

use super::{LIST, lists, message};
use crate::support::answers::{error, exact, problem};
use crate::support::app::{Builder, Replica, mistyped};
use crate::support::cluster::{Database, database};
use crate::support::http::Answer;
use crate::support::wait::eventually;

fn five_for_an_address(database: &Database) -> Builder {
    Builder::new(database)
        .set("WAGGLE_LIMITS__ADDRESS_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__ADDRESS_BURST", 5)
        .set("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1")
}

/// A well-formed key that was never issued.
fn unknown() -> String {
    SecretKey::generate(KeyKind::Agent, &mut System::real().csprng().unwrap()).reveal().to_owned()
}

/// The answer to a list from an address, with or without a key.
async fn list_from(replica: &Replica, client: &str, key: Option<&str>) -> Answer {
    let mut headers = vec![("x-forwarded-for", client), ("content-type", "application/json")];
    headers.extend(key.map(|key| ("x-agent-api-key", key)));
    replica.http.send("POST", "/a/mcp", &headers, message(LIST, json!({})).to_string()).await
}

/// Its status.
async fn from(replica: &Replica, client: &str, key: Option<&str>) -> u16 {
    list_from(replica, client, key).await.status.as_u16()
}

/// Requires that an answer is the whole refusal of an address; returns the wait in it.
fn refused(answer: &Answer, id: &str) -> Duration {
    let wait =
        answer.json()["error"]["data"]["retryAfterMs"].as_u64().unwrap_or_else(|| panic!("{answer:?}"));
    let seconds = wait.div_ceil(1_000);
    let sentence = format!("rate limit exceeded: 1 request/s for this address; retry in {seconds} s");
    let mut expected = error(429, id, -31015, "rate_limited", &sentence);
    let data = &mut expected["body"]["error"]["data"];
    (data["retryAfterMs"], data["scope"]) = (json!(wait), json!("address"));
    let headers = &mut expected["headers"];
    headers["retry-after"] = json!(seconds.to_string());
    headers["ratelimit-policy"] = json!("\"address\";q=5;w=5");
    headers["ratelimit"] = json!(format!("\"address\";r=0;t={seconds}"));
    assert_eq!(exact(answer), expected);
    Duration::from_millis(wait)
}

#[tokio::test]
async fn invalid_credentials_exhaust_and_block_their_address() {
    let database = database().await;
    let replica =
        five_for_an_address(&database).set("WAGGLE_LIMITS__ADDRESS_PENALTY_SECONDS", 6).start().await;
    let key = replica.acme("a").await;
    let (_, fresh) = replica.key("a", &["mcp"]).await;
    assert_eq!(from(&replica, "192.0.2.1", Some(&key)).await, 200);
    for bad in [unknown(), mistyped(&key), unknown(), "nonsense".to_owned(), unknown()] {
        assert_eq!(from(&replica, "192.0.2.1", Some(&bad)).await, 401);
    }
    // No body is read of an address with a penalty: the answer has no id.
    let penalty = refused(&list_from(&replica, "192.0.2.1", Some(&unknown())).await, "null");
    assert_eq!(penalty, Duration::from_secs(6));
    // Not for a condition: a unit of the rate is restored during this time, and must not lift the penalty.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    for key in [Some(unknown()), None] {
        let left = refused(&list_from(&replica, "192.0.2.1", key.as_deref()).await, "null");
        assert!(left < penalty, "{left:?}");
    }
    assert_eq!(
        from(&replica, "192.0.2.1", Some(&fresh)).await,
        200,
        "an issued key is admitted from there too"
    );
    assert_eq!(from(&replica, "192.0.2.1", Some(&key)).await, 200, "a cached key is admitted");
    assert_eq!(from(&replica, "192.0.2.2", Some(&fresh)).await, 200, "and so does every other address");
    let is_over = async || from(&replica, "192.0.2.1", Some(&unknown())).await == 401;
    eventually("the penalty is over", is_over).await;
}

#[tokio::test]
async fn anonymous_requests_are_charged_per_address_or_ipv6_network() {
    let database = database().await;
    let replica = five_for_an_address(&database).start().await;
    replica.acme("a").await;
    replica.admin("PATCH", "/agents/a", Some(json!({"access": "public"}))).await;
    for n in 0..5 {
        assert_eq!(from(&replica, &format!("2001:db8::{n}"), None).await, 200);
    }
    let wait = refused(&list_from(&replica, "2001:db8::5", None).await, "1");
    assert!(wait <= Duration::from_secs(1), "{wait:?}");
    assert_eq!(from(&replica, "2001:db8:0:1::", None).await, 200);
}

#[tokio::test]
async fn unidentified_clients_of_a_proxy_share_one_rate() {
    let database = database().await;
    let replica = five_for_an_address(&database).start().await;
    replica.acme("a").await;
    replica.admin("PATCH", "/agents/a", Some(json!({"access": "public"}))).await;
    let mut statuses = Vec::new();
    for client in ["unknown", "_hidden", "", "192.0.2.1,x", "\u{ff}", "another"] {
        statuses.push(from(&replica, client, None).await);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    assert_eq!(
        from(&replica, "127.0.0.1", None).await,
        200,
        "a client that is known as the proxy has its own"
    );
}

#[tokio::test]
async fn only_the_header_of_the_setting_names_the_client() {
    let database = database().await;
    let builder = five_for_an_address(&database).set("WAGGLE_SERVER__FORWARDED_HEADER", "Forwarded");
    let replica = builder.start().await;
    replica.acme("a").await;
    replica.admin("PATCH", "/agents/a", Some(json!({"access": "public"}))).await;
    let from = async |claimed: &str, client: &str| {
        let headers =
            [("x-forwarded-for", claimed), ("forwarded", client), ("content-type", "application/json")];
        let body = message(LIST, json!({})).to_string();
        replica.http.send("POST", "/a/mcp", &headers, body).await.status.as_u16()
    };
    let mut statuses = Vec::new();
    for n in 0..6 {
        statuses.push(from(&format!("192.0.2.{n}"), "for=198.51.100.1").await);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    assert_eq!(from("192.0.2.0", "for=198.51.100.2").await, 200);
}

#[tokio::test]
async fn valid_credentials_are_charged_to_no_address() {
    let database = database().await;
    let replica = five_for_an_address(&database).start().await;
    let key = replica.acme("a").await;
    assert_eq!(lists(&replica, "a", &key, 20).await, [200; 20]);
}

#[tokio::test]
async fn administration_charges_invalid_credentials_to_the_address() {
    let database = database().await;
    let replica = five_for_an_address(&database).start().await;
    replica.acme("a").await;
    for _ in 0..5 {
        assert_eq!(replica.http.admin(&unknown(), "GET", "/agents", None).await.status, 401);
    }
    let refused = replica.http.admin(&unknown(), "GET", "/agents", None).await;
    // For the default penalty.
    let sentence = "rate limit exceeded: 1 request/s for this address; retry in 10 s";
    let mut expected = problem(429, "rate_limited", sentence);
    let headers = &mut expected["headers"];
    headers["retry-after"] = json!("10");
    headers["ratelimit-policy"] = json!("\"address\";q=5;w=5");
    headers["ratelimit"] = json!("\"address\";r=0;t=10");
    assert_eq!(exact(&refused), expected);
    assert_eq!(replica.admin("GET", "/agents", None).await.status, 200, "the operator's is known");
}
