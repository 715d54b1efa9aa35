//! Rows of administration calls.

use http::StatusCode;
use serde_json::json;
use sqlx::Row;

use crate::support::app::{Replica, gateway, resource};
use crate::support::cluster::Database;
use crate::support::wait::eventually;

/// The rows of the log in order, some columns of each as text.
pub(super) async fn rows(database: &Database, columns: &str) -> Vec<String> {
    let mut connection = database.connect().await;
    let statement = format!("select concat_ws(' ', {columns}) as row from audit_log order by at, chain, seq");
    let rows = sqlx::query(sqlx::AssertSqlSafe(statement)).fetch_all(&mut connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("row")).collect()
}

/// Waits until the log has this many rows.
pub(super) async fn reaches(database: &Database, count: i64) {
    let rows = async || database.number("select count(*) from audit_log").await;
    eventually(&format!("the log has {count} rows"), async || rows().await >= count).await;
}

#[tokio::test]
async fn each_administration_call_has_exactly_one_row() {
    let (database, replica) = gateway().await;
    replica.acme("research").await;
    replica.put("research", "test://a", "one").await;
    replica.put("research", "test://a", "one").await;
    replica.put("research", "test://a", "two").await;
    let path = resource("research", "test://a");
    assert_eq!(replica.admin("GET", &path, None).await.status, StatusCode::OK);
    assert_eq!(replica.admin("DELETE", &path, None).await.status, StatusCode::NO_CONTENT);
    assert_eq!(replica.admin("DELETE", &path, None).await.status, StatusCode::NOT_FOUND);
    let refused = replica.http.admin("bak_no", "GET", "/agents", None).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert_eq!(replica.admin("POST", "/agents", Some(json!({"id": "research"}))).await.status, 400);
    reaches(&database, 11).await;
    let rows = rows(&database, "method, coalesce(slug, '-'), case when subject ~ '^[0-9a-f-]{36}$' then 'uid' else coalesce(subject, '-') end, principal_kind, outcome, status, revision, before is not null, after is not null").await;
    insta::assert_snapshot!(rows.join("\n"), @r"
    POST /admin/v1/tenants - acme operator ok 201 1 f t
    POST /admin/v1/agents - research operator ok 201 1 f t
    POST /admin/v1/agents/{agent}/keys research uid operator ok 201 3 f t
    PUT /admin/v1/agents/{agent}/resources research test://a operator ok 201 2 f t
    PUT /admin/v1/agents/{agent}/resources research test://a operator ok 200 f f
    PUT /admin/v1/agents/{agent}/resources research test://a operator ok 200 3 t t
    GET /admin/v1/agents/{agent}/resources research test://a operator ok 200 f f
    DELETE /admin/v1/agents/{agent}/resources research test://a operator ok 204 4 t f
    DELETE /admin/v1/agents/{agent}/resources research test://a operator not_found 404 f f
    GET /admin/v1/agents - - unknown unauthenticated 401 f f
    POST /admin/v1/agents - - operator invalid_params 400 f f
    ");
    let hashes = "select count(*) from audit_log a join audit_log b on a.after = b.before and a.seq < b.seq";
    assert_eq!(database.number(hashes).await, 2, "the state after a change is the state before the next one");
    stopped(replica, &database).await;
}

/// Stops the gateway, which ends its chain.
async fn stopped(replica: Replica, database: &Database) {
    replica.running.stop().await;
    assert_eq!(database.number("select count(*) from audit_chains where kind = 'closed'").await, 1);
    let ended = "select count(*) from audit_chains c join audit_heads h on h.chain = c.chain and h.seq = c.last \
                 and h.hash = c.head where c.kind = 'closed'";
    assert_eq!(database.number(ended).await, 1);
}

/// Waits until a query returns this value.
pub(super) async fn becomes(database: &Database, query: &str, expected: i64) {
    eventually(&format!("{expected}: {query}"), async || database.number(query).await == expected).await;
}
