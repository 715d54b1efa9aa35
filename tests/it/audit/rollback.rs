//! A database that is restored to an older state while a gateway writes to it.

use serde_json::json;

use super::calls::{becomes, reaches};
use super::tampering::findings;
use crate::support::app::gateway;
use crate::support::audit_site::AuditSite;
use crate::support::metrics::sample;
use crate::support::wait::eventually;

/// The chain of the first gateway.
const OLD: &str = "(select chain from audit_chains where number = 1)";
const NEW_ROWS: &str = "select count(*) from audit_log where chain <> \
    (select chain from audit_chains where number = 1)";

#[tokio::test(flavor = "multi_thread")]
async fn rows_after_a_loss_continue_in_a_valid_new_chain() {
    let (audit_site, gateway) = AuditSite::new(&[]).await;
    audit_site.read_often("old", 5).await;
    audit_site.is_written().await;
    let old = audit_site.database.number("select count(*) from audit_log").await;
    audit_site.database
        .execute(&format!(
            "set session_replication_role = replica; \
            delete from audit_log where chain = {OLD} and seq > 3; delete from audit_heads where chain = {OLD}"
        ))
        .await;
    for number in 0..5 {
        audit_site.read(&format!("new-{number}"), "test://a").await;
        becomes(&audit_site.database, NEW_ROWS, number + 1).await;
    }
    let change = audit_site.site.admin("DELETE", "/agents/research/resources?uri=test%3A%2F%2Fa", None).await;
    assert_eq!(change.status, 204);
    becomes(&audit_site.database, NEW_ROWS, 6).await;
    // Counted once the commit is answered, after which others may have seen the row.
    eventually("all rows are counted", async || audit_site.number("rows_total").await == old + 6).await;
    // The old one, the one of the pending rows, and the new one.
    assert_eq!(audit_site.database.number("select count(distinct chain) from audit_log").await, 3);
    assert!(gateway.stop().await.success());
    let mut connection = audit_site.database.connect().await;
    let query = "select chain::text from audit_chains where number = 1";
    let chain: String = sqlx::query_scalar(query).fetch_one(&mut connection).await.unwrap();
    let expected = format!(
        "chain {chain}: the record of its last row is missing\n\
            unsigned: the owner of the database can rewrite all rows that no checkpoint covers\n\
            9 rows in 3 chains: 1 finding\n"
    );
    assert_eq!(audit_site.verify().await, (Some(1), expected));
    assert!(audit_site.site.printed("stderr").contains("audit rows do not fit their chain"));
}

#[tokio::test(flavor = "multi_thread")]
async fn chain_abandoned_during_a_slow_move_is_not_reused() {
    let (database, replica) = gateway().await;
    let key = replica.acme("a").await;
    becomes(&database, "select count(*) from audit_outbox", 0).await;
    let mut blocker = database.connect().await;
    sqlx::raw_sql("begin; lock table audit_outbox").execute(&mut blocker).await.unwrap();
    let waiting = "select count(*) from pg_locks where not granted and relation = 'audit_outbox'::regclass";
    becomes(&database, waiting, 1).await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    assert_eq!(replica.http.post("a", &key, &list).await.status, 200);
    let spilled = async || {
        let metrics = replica.http.get("/metrics").await.text();
        sample(&metrics, "waggle_audit_spilled_bytes").unwrap().parse::<i64>().unwrap()
    };
    eventually("another chain is begun", async || spilled().await > 0).await;
    sqlx::raw_sql("rollback").execute(&mut blocker).await.unwrap();
    eventually("the log has caught up", async || spilled().await == 0).await;
    assert_eq!(replica.http.post("a", &key, &list).await.status, 200);
    let lists = "select count(*) from audit_log where method = 'resources/list'";
    becomes(&database, lists, 2).await;
    let chains = "select count(distinct chain) from audit_log where method = 'resources/list'";
    assert_eq!(database.number(chains).await, 1);
    replica.running.stop().await;
    assert_eq!(findings(&database, None).await, [""; 0]);
}

#[tokio::test]
async fn rolled_back_log_is_found_by_a_checkpoint_alone() {
    let (database, replica) = gateway().await;
    for number in 0..6 {
        replica.tenant(&format!("tenant-{number}")).await;
    }
    reaches(&database, 6).await;
    let checkpoint = replica.admin("POST", "/audit/checkpoint", None).await.json();
    let checkpoint = serde_json::from_value(checkpoint).unwrap();
    reaches(&database, 7).await;
    database
        .execute(&format!(
            "set session_replication_role = replica; delete from audit_log where seq > 3; \
            update audit_heads set seq = 3, hash = (select hash from audit_log where seq = 3) where chain = {OLD}"
        ))
        .await;
    replica.tenant("after").await;
    becomes(&database, NEW_ROWS, 1).await;
    replica.running.stop().await;
    assert_eq!(findings(&database, None).await, [""; 0]);
    let found = findings(&database, Some(&checkpoint)).await;
    assert_eq!(found, ["chain … row 6: recorded in a checkpoint, but missing"]);
}
