//! Aggregated rows, each for several requests.

use serde_json::json;
use time::{Duration, OffsetDateTime};

use super::calls::rows;
use crate::support::app::Builder;
use crate::support::clock::ManualClock;
use crate::support::cluster::{Database, database};
use crate::support::wait::eventually;

const COLUMNS: &str = "method, slug, principal_kind, outcome, split_part(subject, ' ', 1), key is not null";

async fn has(database: &Database, count: i64) {
    let query = "select count(*) from audit_log";
    eventually("the log has its rows", async || database.number(query).await >= count).await;
}

#[tokio::test]
async fn refused_requests_are_aggregated_past_60_a_minute() {
    let database = database().await;
    let clock = ManualClock::at(OffsetDateTime::now_utc());
    let builder = Builder::new(&database).set("WAGGLE_AUDIT__DURABILITY", "sync").clock(clock.clone());
    let replica = builder.start().await;
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let refused = async |agent: &str, count: usize| {
        for _ in 0..count {
            assert_eq!(replica.http.post(agent, "bak_no", &message).await.status, 401);
        }
    };
    refused("helper", 90).await;
    refused("other", 10).await;
    has(&database, 60).await;
    clock.advance(Duration::seconds(61));
    has(&database, 62).await;
    refused("helper", 65).await;
    replica.running.stop().await;
    let rows = rows(&database, COLUMNS).await;
    let (own, sums): (Vec<_>, Vec<_>) = rows.iter().partition(|row| !row.starts_with("audit/aggregated"));
    assert_eq!(own.len(), 120);
    let expected = [
        "audit/aggregated helper unknown unauthenticated 30 f",
        "audit/aggregated other unknown unauthenticated 10 f",
        "audit/aggregated helper unknown unauthenticated 5 f",
    ];
    assert_eq!(sums, expected);
}

#[tokio::test]
async fn refusals_of_a_valid_key_are_aggregated_past_its_burst() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_LIMITS__KEY_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__KEY_BURST", 20)
        .start()
        .await;
    let key = replica.acme("helper").await;
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    let mut refused = 0;
    while refused < 50 {
        refused += i32::from(replica.http.post("helper", &key, &message).await.status == 429);
    }
    replica.running.stop().await;
    let rows = rows(&database, COLUMNS).await;
    let refusals: Vec<_> = rows.iter().filter(|row| row.contains("rate_limited")).collect();
    assert_eq!(refusals.len(), 21);
    assert_eq!(refusals[20], "audit/aggregated helper agent rate_limited 30 t");
}
