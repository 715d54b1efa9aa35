//! Rates of addresses, for callers without a valid credential.

use serde_json::json;
use waggle::model::key::{KeyKind, SecretKey};
use waggle::model::sources::Sources;

use super::{LIST, lists, message};
use crate::support::app::{Builder, Replica, mistyped};
use crate::support::cluster::{Database, database};
use crate::support::wait::eventually;

fn five_for_an_address(database: &Database) -> Builder {
    Builder::new(database)
        .set("WAGGLE_LIMITS__ADDRESS_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__ADDRESS_BURST", 5)
        .set("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1")
}

/// A well-formed key that was never issued.
fn unknown() -> String {
    SecretKey::generate(KeyKind::Agent, &mut Sources::system().csprng().unwrap()).reveal().to_owned()
}

/// The status of a list from an address, with or without a key.
async fn from(replica: &Replica, client: &str, key: Option<&str>) -> u16 {
    let mut headers = vec![("x-forwarded-for", client), ("content-type", "application/json")];
    headers.extend(key.map(|key| ("x-agent-api-key", key)));
    let body = message(LIST, json!({})).to_string();
    replica.http.send("POST", "/a/mcp", &headers, body).await.status.as_u16()
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
    assert_eq!(from(&replica, "192.0.2.1", Some(&unknown())).await, 429);
    // Not for a condition: a unit of the rate is restored during this time, and must not lift the penalty.
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    assert_eq!(from(&replica, "192.0.2.1", Some(&unknown())).await, 429);
    assert_eq!(from(&replica, "192.0.2.1", None).await, 429);
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
    let mut statuses = Vec::new();
    for n in 0..6 {
        statuses.push(from(&replica, &format!("2001:db8::{n}"), None).await);
    }
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
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
    assert_eq!((refused.status.as_u16(), &refused.json()["code"]), (429, &json!("rate_limited")));
    assert_eq!(replica.admin("GET", "/agents", None).await.status, 200, "the operator's is known");
}
