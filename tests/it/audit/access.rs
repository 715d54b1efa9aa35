//! Which rows a credential may read.

use http::StatusCode;
use serde_json::{Value, json};

use super::calls::reaches;
use crate::support::app::{Replica, gateway};

async fn seen(replica: &Replica, key: &str, query: &str) -> (StatusCode, Value) {
    let answer = replica.http.admin(key, "GET", &format!("/audit{query}"), None).await;
    let body = answer.json();
    let methods = body["items"].as_array().map(|items| {
        let line = |item: &Value| format!("{} {}", item["method"].as_str().unwrap(), item["agent"]);
        items.iter().map(line).collect::<Vec<_>>()
    });
    (answer.status, methods.map_or_else(|| body["code"].clone(), |methods| json!(methods)))
}

#[tokio::test]
async fn audit_rows_are_visible_within_the_scope_of_a_key() {
    let (database, replica) = gateway().await;
    let key = replica.acme("research").await;
    replica.agent("acme", "other").await;
    replica.tenant("rival").await;
    replica.agent("rival", "theirs").await;
    let owner = replica.admin("POST", "/tenants/acme/keys", Some(json!({}))).await.json();
    let owner = owner["key"].as_str().unwrap();
    let (_, auditor) = replica.key("research", &["audit"]).await;
    replica.http.call("research", &key, "ping", json!({})).await;
    reaches(&database, 9).await;

    let refused = |code: &str| (StatusCode::FORBIDDEN, json!(code));
    let unknown = (StatusCode::NOT_FOUND, json!("not_found"));
    assert_eq!(seen(&replica, &key, "").await, refused("insufficient_scope"));
    assert_eq!(seen(&replica, &auditor, "?agent=other").await, unknown);
    assert_eq!(seen(&replica, &auditor, "?agent=theirs").await, unknown);
    assert_eq!(seen(&replica, &auditor, "?tenant=rival").await, unknown);
    assert_eq!(seen(&replica, owner, "?agent=theirs").await, unknown);
    assert_eq!(seen(&replica, owner, "?tenant=rival").await, unknown);
    assert_eq!(replica.http.admin(owner, "POST", "/audit/checkpoint", None).await.status, 403);

    let own = json!([
        "ping \"research\"",
        "POST /admin/v1/agents/{agent}/keys \"research\"",
        "POST /admin/v1/agents/{agent}/keys \"research\"",
        "POST /admin/v1/agents null",
    ]);
    let query = "?agent=research";
    assert_eq!(seen(&replica, &auditor, "").await, (StatusCode::OK, own.clone()));
    assert_eq!(seen(&replica, &auditor, query).await, (StatusCode::OK, own.clone()));
    assert_eq!(seen(&replica, owner, query).await, (StatusCode::OK, own.clone()));
    assert_eq!(seen(&replica, &replica.operator, query).await, (StatusCode::OK, own));
    let theirs = json!(["POST /admin/v1/agents null", "POST /admin/v1/tenants null"]);
    assert_eq!(seen(&replica, &replica.operator, "?tenant=rival").await, (StatusCode::OK, theirs));
}

#[tokio::test]
async fn audit_page_continues_where_the_previous_ended() {
    let (database, replica) = gateway().await;
    replica.acme("research").await;
    for number in 0..5 {
        replica.put("research", &format!("test://{number}"), "x").await;
    }
    reaches(&database, 8).await;
    let mut subjects = Vec::new();
    let mut cursor = String::new();
    loop {
        let path =
            format!("/audit?method=PUT%20%2Fadmin%2Fv1%2Fagents%2F%7Bagent%7D%2Fresources&limit=2{cursor}");
        let page = replica.admin("GET", &path, None).await.json();
        let items = page["items"].as_array().unwrap();
        subjects.extend(items.iter().map(|item| item["subject"].as_str().unwrap().to_owned()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(subjects, ["test://4", "test://3", "test://2", "test://1", "test://0"]);
    let moved = replica.admin("GET", &format!("/audit?agent=research{cursor}"), None).await;
    assert_eq!(moved.status, StatusCode::BAD_REQUEST);
}
