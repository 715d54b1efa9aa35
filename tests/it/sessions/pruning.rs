//! Pruning of old changes, and replicas that missed them.

use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use waggle::store::Store;

use crate::support::app::{Builder, Replica, gateway};
use crate::support::cluster::{Database, database, store_options};
use crate::support::faults::FaultScript;
use crate::support::wait::eventually;

async fn prune(replica: &Replica) {
    replica.running.services.maintenance.prune_changes(&CancellationToken::new()).await;
}

/// The remaining changes of the agent `a`, and its floor.
async fn left(database: &Database) -> (Vec<i64>, i64) {
    let scope = "(select uid from agents where slug = 'a')";
    let mut revisions = Vec::new();
    let mut after = 0;
    loop {
        let next = format!(
            "select coalesce(min(revision), 0) from changes where scope = {scope} and revision > {after}"
        );
        match database.number(&next).await {
            0 => break,
            revision => revisions.push(revision),
        }
        after = revisions[revisions.len() - 1];
    }
    (revisions, database.number(&format!("select floor from heads where scope = {scope}")).await)
}

async fn age(database: &Database, revisions: &str) {
    let scope = "(select uid from agents where slug = 'a')";
    let aged = format!(
        "update changes set at = at - interval '2 days' where scope = {scope} and revision in ({revisions})"
    );
    assert!(database.execute(&aged).await > 0);
}

#[tokio::test]
async fn changes_are_pruned_by_prefix_and_raise_the_floor() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    for n in 2..=6 {
        assert_eq!(replica.put("a", "x:1", &n.to_string()).await, n);
    }
    prune(&replica).await;
    assert_eq!(left(&database).await, (vec![1, 2, 3, 4, 5, 6], 0), "nothing is old");
    // An old one after a newer one remains.
    age(&database, "1, 2, 3, 5").await;
    prune(&replica).await;
    assert_eq!(left(&database).await, (vec![4, 5, 6], 3));
    age(&database, "4, 6").await;
    prune(&replica).await;
    assert_eq!(left(&database).await, (vec![], 6), "if all are old, none remains");
    assert_eq!(replica.put("a", "x:1", "7").await, 7);
    prune(&replica).await;
    assert_eq!(left(&database).await, (vec![7], 6));
}

#[tokio::test]
async fn running_gateway_prunes_changes() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    assert_eq!(replica.put("a", "x:1", "1").await, 2);
    age(&database, "1, 2").await;
    eventually("no change is left", async || left(&database).await == (vec![], 2)).await;
}

#[tokio::test]
async fn long_histories_and_large_revisions_are_pruned_completely() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    let scope = "(select uid from agents where slug = 'a')";
    // Revision 2 alone is more than one step deletes, and so are the following ones together.
    let insert = format!(
        "insert into changes (scope, revision, ordinal, kind, subject, at) \
         select {scope}, 2, n, 'resource_touched', 'x:1', now() - interval '2 days' from generate_series(0, 1999) n \
         union all select {scope}, n, 0, 'resource_touched', 'x:1', now() - interval '2 days' \
         from generate_series(3, 1502) n"
    );
    database.execute(&insert).await;
    database.execute(&format!("update heads set revision = 1502 where scope = {scope}")).await;
    age(&database, "1").await;
    let first = replica.put("a", "x:1", "text").await;
    assert_eq!(first, 1_503);
    prune(&replica).await;
    assert_eq!(left(&database).await, (vec![1_503], 1_502));
}

#[tokio::test]
async fn changes_of_many_scopes_are_pruned_in_few_batches() {
    let database = database().await;
    let insert = "with scopes as (
            insert into heads (scope, revision, floor) select gen_random_uuid(), 40, 0 from generate_series(1, 1000)
            returning scope
        )
        insert into changes (scope, revision, ordinal, kind, subject, at)
        select scope, n, 0, 'resource_touched', 'x:1', now() - interval '2 days' from scopes, generate_series(1, 40) n";
    database.execute(insert).await;
    let store = Store::new(store_options(database.options.clone()));
    let changes = async || database.number("select count(*) from changes").await;
    let mut batches = 0;
    let mut before = changes().await;
    while store.prune(Duration::from_secs(86_400)).await.unwrap() {
        batches += 1;
        let after = changes().await;
        assert!(before - after <= 10_000, "one batch deletes {}", before - after);
        before = after;
    }
    assert_eq!(before, 0);
    assert!(batches <= 6, "{batches} batches");
}

#[tokio::test]
async fn changes_of_deleted_scopes_are_pruned() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    let insert = "insert into changes (scope, revision, ordinal, kind, subject, at) \
                  select '00000000-0000-7000-8000-000000000001', n, 0, 'session_ended', 'x', \
                  now() - make_interval(hours => 2 * n) from generate_series(10, 14) n";
    database.execute(insert).await;
    prune(&replica).await;
    let left = "select count(*) from changes where kind = 'session_ended'";
    assert_eq!(database.number(left).await, 2, "those of the last 24 hours remain");
}

#[tokio::test]
async fn one_replica_prunes_at_a_time() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    // Before anything can be pruned, since the gateway also prunes in the background.
    let mut other = database.connect().await;
    sqlx::query("select pg_advisory_lock(8602270457152208899)").execute(&mut other).await.unwrap();
    age(&database, "1").await;
    prune(&replica).await;
    assert_eq!(left(&database).await, (vec![1], 0));
    drop(other);
    eventually("the other is gone", async || {
        prune(&replica).await;
        left(&database).await == (vec![], 1)
    })
    .await;
}

/// A replica that receives nothing until all of it is pruned.
#[tokio::test(flavor = "multi_thread")]
async fn replica_that_missed_pruned_changes_reloads() {
    let database = database().await;
    let silent = FaultScript::new();
    silent.lose_notifications(100);
    let writer = Builder::new(&database).fault_injector(silent).start().await;
    let reader = Builder::new(&database).set("WAGGLE_DATABASE__SWEEP_MS", 4_000).start().await;
    let key = writer.acme("a").await;
    let (revoked_id, revoked) = writer.key("a", &["mcp"]).await;
    writer.put("a", "x:1", "old").await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    assert_eq!(reader.http.post("a", &revoked, &list).await.status, StatusCode::OK);
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("old"));

    writer.put("a", "x:1", "new").await;
    let gone = writer.admin("DELETE", &format!("/keys/{revoked_id}"), None).await;
    assert_eq!(gone.status, StatusCode::NO_CONTENT);
    database.execute("update changes set at = at - interval '2 days'").await;
    prune(&writer).await;
    assert_eq!(database.number("select count(*) from changes").await, 0);
    eventually("the new text is read", async || {
        reader.http.text("a", &key, "x:1").await.as_deref() == Some("new")
    })
    .await;
    eventually("the key is refused", async || {
        reader.http.post("a", &revoked, &list).await.status == StatusCode::UNAUTHORIZED
    })
    .await;
}
