//! Which of its connections to PostgreSQL a gateway uses.

use std::time::Duration;

use futures_util::future::join_all;
use sqlx::postgres::PgConnectOptions;
use tokio::task::JoinSet;
use waggle::model::scope::Scope;
use waggle::store::Store;
use waggle::store::notify::ListenerId;

use crate::support::cluster::{Database, database, store_options};
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

const MAX_CONNECTIONS: u32 = 4;

/// A statement that reads.
async fn read(store: &Store) {
    store.heads(&[Scope::GATEWAY]).await.unwrap();
}

/// A store whose connections are all open and idle.
async fn warm(options: &PgConnectOptions) -> Store {
    let mut options = store_options(options.clone().application_name("waggle"));
    options.max_connections = MAX_CONNECTIONS;
    let store = Store::new(options);
    let all = MAX_CONNECTIONS as usize;
    join_all((0..all).map(|_| read(&store))).await;
    eventually("all connections are idle", async || store.connections() == (0, all)).await;
    store
}

/// How many connections of stores are open.
async fn open(database: &Database) -> i64 {
    let open = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'waggle'";
    database.number(open).await
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_one_after_another_use_the_same_connection() {
    let database = database().await;
    let store = warm(&database.options).await;
    let since = database.number("select (extract(epoch from clock_timestamp()) * 1000000)::bigint").await;
    for _ in 0..3 * MAX_CONNECTIONS {
        read(&store).await;
    }
    let used = format!(
        "select count(*) from pg_stat_activity where datname = current_database() \
         and application_name = 'waggle' and query_start > to_timestamp({since} / 1000000.0)"
    );
    assert_eq!(database.number(&used).await, 1);
    assert_eq!(open(&database).await, i64::from(MAX_CONNECTIONS));
}

#[tokio::test(flavor = "multi_thread")]
async fn more_statements_than_connections_take_turns() {
    const CALLERS: usize = 64;
    const STATEMENTS: usize = 50;
    let database = database().await;
    let store = warm(&database.options).await;
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let store = store.clone();
        callers.spawn(async move {
            for statement in 0..STATEMENTS {
                // Some stop waiting.
                if (caller + statement).is_multiple_of(5) {
                    tokio::select! {
                        biased;
                        () = read(&store) => {}
                        () = tokio::task::yield_now() => {}
                    }
                } else {
                    read(&store).await;
                }
            }
        });
    }
    callers.join_all().await;
    eventually("no connection is in use", async || store.connections().0 == 0).await;
    assert!(store.connections().1 <= MAX_CONNECTIONS as usize);
    read(&store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retired_connections_are_closed() {
    let database = database().await;
    let store = warm(&database.options).await;
    read(&store).await;
    store.retire_connections();
    read(&store).await;
    eventually("the others are closed or closing", async || store.connections() == (0, 1)).await;
    eventually("one connection is open", async || open(&database).await == 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_refuses_writes_is_not_used_again() {
    let database = database().await;
    let read_only = database.options.clone().options([("default_transaction_read_only", "on")]);
    let store = warm(&read_only).await;
    for left in (0..MAX_CONNECTIONS as usize).rev() {
        let refused = store.unregister_listener(ListenerId(1)).await.unwrap_err();
        assert!(refused.to_string().contains("default_transaction_read_only"), "{refused}");
        eventually("its connection is closed", async || store.connections() == (0, left)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_for_a_connection_that_times_out_says_why_none_is_opened() {
    let database = database().await;
    let role = format!("{}_limited", database.options.get_database().unwrap());
    database.execute(&format!("create role {role} login connection limit 0")).await;
    let mut options = store_options(database.options.clone().username(&role));
    options.acquire = Duration::from_millis(300);
    let store = Store::new(options);
    let error = store.heads(&[Scope::GATEWAY]).await.unwrap_err().to_string();
    let expected = "the database is unavailable: no connection within database.acquire_seconds: too many connections for role";
    assert!(error.starts_with(expected) && error.contains("raise max_connections"), "{error}");
    assert_eq!(store.acquisitions_timed_out(), 1);
    store.close().await;
    database.execute(&format!("drop role {role}")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_that_the_network_forgot_are_replaced() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let mut options = store_options(proxy.options.clone().application_name("waggle"));
    options.acquire = Duration::from_secs(4);
    let store = Store::new(options);
    read(&store).await;
    let first = open(&database).await;
    proxy.forget();
    // Longer than a caller waits for a connection.
    tokio::time::sleep(Duration::from_millis(4_100)).await;
    read(&store).await;
    assert_eq!(first, 1);
    eventually("the silent connection is closed", async || store.connections() == (0, 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_store_has_no_connections() {
    let database = database().await;
    let store = warm(&database.options).await;
    read(&store).await;
    store.close().await;
    assert_eq!(store.connections(), (0, 0));
    eventually("no connection is open", async || open(&database).await == 0).await;
    assert!(store.heads(&[Scope::GATEWAY]).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn statement_finds_a_connection_after_the_server_closed_all() {
    let database = database().await;
    // Over TCP, by which a client reads why the server closed a connection.
    let proxy = Proxy::before(&database.options).await;
    let store = warm(&proxy.options).await;
    for _ in 0..MAX_CONNECTIONS {
        read(&store).await;
    }
    let others = "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity \
                  where datname = current_database() and application_name = 'waggle'";
    assert_eq!(database.number(others).await, i64::from(MAX_CONNECTIONS));
    read(&store).await;
}
