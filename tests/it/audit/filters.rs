//! Filters by the agent that a request names, and by outcome.

use http::StatusCode;
use serde_json::{Value, json};

use super::calls::{becomes, reaches};
use crate::support::app::{Replica, gateway};

/// The agent and outcome of the rows of pings that a query finds, oldest first.
async fn pings(replica: &Replica, key: &str, query: &str) -> Vec<String> {
    let path = format!("/audit?method=ping{query}");
    let answer = replica.http.admin(key, "GET", &path, None).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.text());
    let body = answer.json();
    let items = body["items"].as_array().unwrap().iter().rev();
    items
        .map(|row| format!("{} {}", row["agent"].as_str().unwrap(), row["outcome"].as_str().unwrap()))
        .collect()
}

#[tokio::test]
async fn refused_rows_are_found_by_the_agent_they_name() {
    let (database, replica) = gateway().await;
    let key = replica.acme("helper").await;
    let shaped = "0b5a7f52-6e4f-4b3c-9a3f-2f4d5e6a7b8c";
    replica.agent("acme", shaped).await;
    let (_, shaped_key) = replica.key(shaped, &["mcp"]).await;
    let owner: Value = replica.admin("POST", "/tenants/acme/keys", Some(json!({}))).await.json();
    let owner = owner["key"].as_str().unwrap();
    let before = database.number("select count(*) from audit_log").await.max(6);
    reaches(&database, before).await;
    for (agent, key) in [
        ("helper", key.as_str()),
        (shaped, &shaped_key),
        ("absent", "bak_x"),
        ("helper", "bak_x"),
        (shaped, "bak_x"),
    ] {
        replica.http.call(agent, key, "ping", json!({})).await;
    }
    becomes(
        &database,
        "select count(*) from audit_log where slug in ('helper', 'absent') and status in (200, 401)",
        3,
    )
    .await;
    let pinged = "select count(*) from audit_log where outcome = 'unauthenticated'";
    becomes(&database, pinged, 3).await;
    // The body of a caller that is not admitted is not parsed: the method is that of HTTP.
    let seen = async |agent: &str| {
        let path = format!("/audit?outcome=unauthenticated&agent={agent}");
        let page = replica.admin("GET", &path, None).await.json();
        page["items"].as_array().unwrap().iter().map(|row| row["agent"].clone()).collect::<Vec<_>>()
    };
    assert_eq!(seen("helper").await, ["helper"]);
    assert_eq!(seen(shaped).await, [shaped]);
    assert_eq!(seen("absent").await, ["absent"]);
    assert_eq!(pings(&replica, &replica.operator, "&outcome=ok&agent=helper").await, ["helper ok"]);
    let expected = [format!("{shaped} ok")];
    assert_eq!(pings(&replica, &replica.operator, &format!("&outcome=ok&agent={shaped}")).await, expected);
    // An owner reads the rows of its tenant; a refused caller belongs to none.
    assert_eq!(pings(&replica, owner, &format!("&agent={shaped}")).await, expected);
    let unknown = replica.http.admin(owner, "GET", "/audit?agent=absent", None).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
    let odd = replica.admin("GET", "/audit?agent=%00&method=%00", None).await;
    assert_eq!((odd.status, odd.json()["items"].clone()), (StatusCode::OK, json!([])));
}

#[tokio::test]
async fn unknown_outcome_and_time_without_representation_are_refused() {
    let (_database, replica) = gateway().await;
    let refused = replica.admin("GET", "/audit?outcome=bogus", None).await;
    assert_eq!(
        (refused.status, refused.json()["code"].clone()),
        (StatusCode::BAD_REQUEST, json!("invalid_params"))
    );
    for never in ["/audit?from", "/audit?to", "/agents/absent/usage?to"] {
        let refused = replica.admin("GET", &format!("{never}=9999-12-31T23:59:59-00:01"), None).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{never}: {}", refused.text());
    }
    for outcome in ["ok", "unauthenticated", "ended:shutdown", "method_not_allowed"] {
        let answer = replica.admin("GET", &format!("/audit?outcome={outcome}"), None).await;
        assert_eq!(answer.status, StatusCode::OK, "{outcome}");
    }
}

#[tokio::test]
async fn request_is_found_by_its_id_within_what_the_caller_may_read() {
    let (database, replica) = gateway().await;
    let key = replica.acme("helper").await;
    replica.tenant("other").await;
    let made = replica.admin("POST", "/tenants/other/keys", Some(json!({}))).await.json();
    let stranger = made["key"].as_str().unwrap();
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}).to_string();
    for (id, key) in [("r-1", key.as_str()), ("r-2", &key), ("r-3", "bak_x")] {
        let bearer = format!("Bearer {key}");
        let headers =
            [("authorization", &*bearer), ("content-type", "application/json"), ("x-request-id", id)];
        replica.http.send("POST", "/helper/mcp", &headers, ping.clone()).await;
    }
    becomes(&database, "select count(*) from audit_log where request like 'r-%'", 3).await;
    let found = async |key: &str, id: &str| {
        let page = replica.http.admin(key, "GET", &format!("/audit?request={id}"), None).await;
        assert_eq!(page.status, StatusCode::OK, "{}", page.text());
        let rows = page.json()["items"].as_array().unwrap().clone();
        rows.iter().map(|row| format!("{} {}", row["requestId"], row["outcome"])).collect::<Vec<_>>()
    };
    assert_eq!(found(&replica.operator, "r-1").await, [r#""r-1" "ok""#]);
    assert_eq!(found(&replica.operator, "r-3").await, [r#""r-3" "unauthenticated""#]);
    assert_eq!(found(&replica.operator, "r-").await, [""; 0]);
    assert_eq!(found(stranger, "r-1").await, [""; 0]);
    for id in ["", "%00", "a%20b", &"x".repeat(129)] {
        let refused = replica.admin("GET", &format!("/audit?request={id}"), None).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{id}");
    }
}

#[tokio::test]
async fn repeated_reads_of_the_log_have_one_row() {
    let (database, replica) = gateway().await;
    let reads = "select count(*) from audit_log where method = 'GET /admin/v1/audit'";
    for _ in 0..5 {
        replica.admin("GET", "/audit?limit=500", None).await;
    }
    replica.admin("GET", "/audit?limit=499", None).await;
    replica.admin("GET", "/audit?limit=500&outcome=bogus", None).await;
    replica.admin("GET", "/audit?limit=500&outcome=bogus", None).await;
    replica.tenant("after").await;
    becomes(&database, "select count(*) from audit_log where method = 'POST /admin/v1/tenants'", 1).await;
    becomes(&database, reads, 4).await;
}
