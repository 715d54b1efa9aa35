//! Partitions: created ahead and dropped whole; rows cannot be changed.

use sqlx::{AssertSqlSafe, ConnectOptions, Executor};
use time::{Duration, OffsetDateTime};

use super::calls::{becomes, reaches};
use super::tampering::findings;
use crate::support::app::{Builder, gateway};
use crate::support::clock::ManualClock;
use crate::support::cluster::database;

#[tokio::test]
async fn audit_rows_cannot_be_updated_deleted_or_truncated() {
    let (database, replica) = gateway().await;
    replica.acme("research").await;
    reaches(&database, 3).await;
    let mut connection = database.connect().await;
    let today = "(select inhrelid::regclass::text from pg_inherits where inhparent = 'audit_log'::regclass order by 1 limit 1)";
    let partition: String = sqlx::query_scalar(AssertSqlSafe(format!("select {today}")))
        .fetch_one(&mut connection)
        .await
        .unwrap();
    for statement in [
        "update audit_log set outcome = 'ok'".to_owned(),
        "delete from audit_log".to_owned(),
        "truncate audit_log".to_owned(),
        "update audit_log set outcome = 'ok' where false".to_owned(),
        format!("update {partition} set outcome = 'ok'"),
        format!("delete from {partition}"),
        format!("truncate {partition}"),
        "update audit_chains set last = 7".to_owned(),
        "delete from audit_chains".to_owned(),
        "truncate audit_chains".to_owned(),
        "delete from audit_heads".to_owned(),
        "truncate audit_heads".to_owned(),
    ] {
        let refused = connection.execute(AssertSqlSafe(statement.clone())).await.unwrap_err();
        assert!(refused.to_string().contains("is only ever added to"), "{statement}: {refused}");
    }
}

#[tokio::test]
async fn partitions_are_created_a_week_ahead() {
    let database = database().await;
    let drop_all = "do $$ declare partition regclass; begin \
                    for partition in select inhrelid from pg_inherits where inhparent = 'audit_log'::regclass \
                    loop execute 'drop table ' || partition; end loop; end $$";
    database.execute(drop_all).await;
    let _replica = Builder::new(&database).start().await;
    let partitions = "select count(*) from pg_inherits where inhparent = 'audit_log'::regclass";
    becomes(&database, partitions, 8).await;
}

#[tokio::test]
async fn runtime_role_may_only_append_to_the_log() {
    let database = database().await;
    let role = format!("runner_{}", std::process::id());
    database.execute(&format!("create role {role} login")).await;
    let runner = database.options.clone().username(&role);
    let owner = database.options.clone();
    let builder = Builder::new(&database).store(|store| {
        (store.connect, store.listen, store.owner) = (runner.clone(), runner.clone(), Some(owner));
    });
    let replica = builder.start().await;
    let key = replica.acme("research").await;
    replica.put("research", "test://a", "one").await;
    replica.http.text("research", &key, "test://a").await.unwrap();
    reaches(&database, 5).await;
    let mut connection = runner.connect().await.unwrap();
    for statement in [
        "update audit_log set outcome = 'ok'",
        "delete from audit_log",
        "truncate audit_log",
        "delete from audit_chains",
        "delete from audit_heads",
        "alter table audit_log disable trigger all",
        "drop table audit_log",
    ] {
        let refused = connection.execute(statement).await.unwrap_err().to_string();
        let lacking = refused.contains("permission denied") || refused.contains("must be owner");
        assert!(lacking, "{statement}: {refused}");
    }
    let owned = format!("select count(*) from pg_class where relowner = '{role}'::regrole");
    assert_eq!(database.number(&owned).await, 0);
    replica.running.stop().await;
    assert_eq!(findings(&database, None).await, [""; 0]);
}

#[tokio::test]
async fn dropped_partitions_leave_the_rest_of_the_log_verifiable() {
    let database = database().await;
    let clock = ManualClock::at(OffsetDateTime::now_utc() - Duration::days(120));
    for round in 0..3 {
        let replica = Builder::new(&database).clock(clock.clone()).start().await;
        let name = format!("tenant-{round}");
        replica.tenant(&name).await;
        clock.advance(Duration::days(1));
        replica.tenant(&format!("{name}-later")).await;
        replica.running.stop().await;
        clock.advance(Duration::days(20));
    }
    let rows = "select count(*) from audit_log";
    assert_eq!(database.number(rows).await, 6);
    clock.advance(Duration::days(49));
    let replica = Builder::new(&database).clock(clock.clone()).start().await;
    super::calls::becomes(&database, rows, 3).await;
    assert_eq!(database.number("select count(*) from audit_chains where kind = 'dropped'").await, 3);
    replica.running.stop().await;
    assert_eq!(findings(&database, None).await, [""; 0]);
}
