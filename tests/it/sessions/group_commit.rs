//! Sessions that are opened at the same time are written in one commit, and each has its own answer.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use sqlx::{Connection, Executor};
use waggle::identity::grant::Caller;
use waggle::model::fault::Fault;
use waggle::model::session::SessionId;
use waggle::sessions::open::{NewSession, OpenedSession};

use super::{CLIENT, LOCALHOST};
use crate::support::app::{Builder, Replica, gateway};
use crate::support::cluster::{Database, database};
use crate::support::events::Session;
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

const OPEN: &str = "select count(*) from sessions where ended_at is null";
/// Connections whose statement waits for the lock of [`Blocked`].
const BLOCKED: &str = "select count(*) from pg_stat_activity where datname = current_database() \
    and wait_event_type = 'Lock' and query like '%as opened_since%'";

async fn try_open(replica: &Replica, caller: &Caller, new: NewSession<'_>) -> Result<SessionId, Fault> {
    replica.sessions().open(caller, LOCALHOST, new).await.map(OpenedSession::into_id)
}

async fn open_many(replica: &Replica, caller: &Caller, count: usize) -> Vec<SessionId> {
    let opened = join_all((0..count).map(|_| try_open(replica, caller, CLIENT))).await;
    opened.into_iter().collect::<Result<_, _>>().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_initialize_is_served_on_every_replica() {
    let database = database().await;
    let (first, second) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    let key = first.acme("a").await;
    let opening = (0..200).map(|_| Session::open(&first, "a", &key, "2025-11-25"));
    let sessions = join_all(opening).await;
    let distinct: HashSet<_> = sessions.iter().map(|session| &session.id).collect();
    assert_eq!(distinct.len(), 200);
    let pings = sessions.iter().map(|session| session.done(&second, "ping", json!({})));
    join_all(pings).await;
    assert_eq!(database.number(OPEN).await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_sessions_share_commits() {
    let (database, replica) = gateway().await;
    let caller = replica.caller(&replica.acme("a").await, "a").await;
    open_many(&replica, &caller, 500).await;
    let commits = database.number("select count(distinct xmin::text) from sessions").await;
    assert!((2..=50).contains(&commits), "{commits}");
}

#[tokio::test(flavor = "multi_thread")]
async fn session_that_fails_does_not_fail_its_batch() {
    let (database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.agent("acme", "b").await;
    let (_, gone) = replica.key("b", &["mcp"]).await;
    let (caller, gone) = (replica.caller(&key, "a").await, replica.caller(&gone, "b").await);
    assert_eq!(replica.admin("DELETE", "/agents/b", None).await.status, 204);
    // The database accepts at most 64 bytes.
    let rejected = NewSession { version: &"x".repeat(65), ..CLIENT };
    let opening = (0..60).map(|n| match n % 10 {
        3 => try_open(&replica, &gone, CLIENT),
        7 => try_open(&replica, &caller, rejected),
        _ => try_open(&replica, &caller, CLIENT),
    });
    for (n, opened) in join_all(opening).await.into_iter().enumerate() {
        match n % 10 {
            3 => assert_eq!(opened.unwrap_err(), Fault::Forbidden),
            7 => assert!(matches!(opened.unwrap_err(), Fault::Internal(_))),
            _ => assert_eq!(replica.found(&caller, &opened.unwrap()).await.agent, caller.agent),
        }
    }
    assert_eq!(database.number(OPEN).await, 48);
}

#[tokio::test(flavor = "multi_thread")]
async fn limit_of_a_holder_is_exact_for_concurrent_sessions() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SESSIONS__PER_PRINCIPAL", 32).start().await;
    let key = replica.acme("a").await;
    let (_, other) = replica.key("a", &["mcp"]).await;
    let (caller, other) = (replica.caller(&key, "a").await, replica.caller(&other, "a").await);
    let (_, theirs) = tokio::join!(open_many(&replica, &caller, 300), open_many(&replica, &other, 32));
    let open_of = |caller: &Caller| {
        let principal = caller.grant.as_ref().unwrap().credential.principal.0;
        format!("{OPEN} and principal = '{principal}'")
    };
    let open = database.number(&open_of(&caller)).await;
    assert!(
        (32..=34).contains(&open),
        "{open} are open; the limit is 32, and two more may still have to be ended"
    );
    assert_eq!(database.number("select count(*) from sessions").await, 332);
    for id in &theirs {
        assert!(!replica.lost(&other, id).await);
    }
}

#[tokio::test]
async fn sessions_of_a_holder_are_asked_for_only_where_a_use_waits() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let builder = Builder::new(&database).set("WAGGLE_SESSIONS__PER_PRINCIPAL", 1);
    let replica = builder.store(|store| store.connect = proxy.options.clone()).start().await;
    let caller = replica.caller(&replica.acme("a").await, "a").await;
    let asked = || {
        let statements = proxy.statements.take();
        statements.iter().filter(|text| text.starts_with("select uid from sessions where agent")).count()
    };
    for _ in 0..3 {
        replica.open(&caller).await;
    }
    assert_eq!((asked(), database.number(OPEN).await), (0, 1));
    let used = replica.open(&caller).await;
    replica.found(&caller, &used).await;
    asked();
    replica.open(&caller).await;
    assert_eq!((asked(), database.number(OPEN).await), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn tenant_that_opens_many_sessions_delays_no_other() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SESSIONS__PER_PRINCIPAL", 10_000).start().await;
    let busy = replica.caller(&replica.acme("a").await, "a").await;
    replica.tenant("quiet").await;
    replica.agent("quiet", "b").await;
    let quiet = replica.caller(&replica.key("b", &["mcp"]).await.1, "b").await;
    let replica = Arc::new(replica);
    let flood = tokio::spawn({
        let (replica, busy) = (Arc::clone(&replica), busy.clone());
        async move { open_many(&replica, &busy, 3_000).await.len() }
    });
    let theirs = format!("select count(*) from sessions where agent = '{}'", busy.agent.0);
    eventually("the flood begins", async || database.number(&theirs).await > 0).await;
    replica.open(&quiet).await;
    let before = database.number(&theirs).await;
    assert!(before < 1_500, "{before} of 3,000 sessions were opened before that of the other tenant");
    assert_eq!(flood.await.unwrap(), 3_000);
}

/// Opens sessions through a proxy while the table is locked. Once a statement waits for the lock, `lose` breaks its
/// connection, and once that is detected, the lock is released. Every session is open and known to another replica.
async fn open_while_connections_are_lost(lose: impl AsyncFn(&Database, &Proxy), waiting: i64) {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let first = Builder::new(&database).store(|store| store.connect = proxy.options.clone()).start().await;
    let second = Builder::new(&database).start().await;
    let key = first.acme("a").await;
    let (caller, caller_there) = (first.caller(&key, "a").await, second.caller(&key, "a").await);
    let mut connection = database.connect().await;
    let mut lock = connection.begin().await.unwrap();
    lock.execute("lock table sessions in share row exclusive mode").await.unwrap();
    let losing = async {
        eventually("a batch waits", async || database.number(BLOCKED).await == 1).await;
        lose(&database, &proxy).await;
        eventually("the batch is repeated", async || database.number(BLOCKED).await >= waiting).await;
        lock.commit().await.unwrap();
    };
    let (opened, ()) = tokio::join!(open_many(&first, &caller, 40), losing);
    for id in &opened {
        assert_eq!(second.found(&caller_there, id).await.uid, id.uid());
    }
    let count = i64::try_from(opened.len()).unwrap();
    assert_eq!(database.number(OPEN).await, count);
    assert_eq!(
        database.number("select count(*) from heads h join sessions s on s.uid = h.scope").await,
        count
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_whose_connection_is_terminated_is_repeated() {
    let terminate = async |database: &Database, _: &Proxy| {
        database.execute(&BLOCKED.replace("count(*)", "pg_terminate_backend(pid)")).await;
    };
    open_while_connections_are_lost(terminate, 1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_whose_commit_is_in_doubt_is_repeated() {
    // PostgreSQL does not detect the loss: it commits the first execution as well as the second.
    let cut = async |_: &Database, proxy: &Proxy| proxy.cut().await;
    open_while_connections_are_lost(cut, 2).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn holder_whose_sessions_cannot_be_ended_costs_no_other_tenant() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_SESSIONS__PER_PRINCIPAL", 1)
        .store(|options| options.lock = Duration::from_secs(2))
        .start()
        .await;
    let first = replica.caller(&replica.acme("a").await, "a").await;
    let second = replica.caller(&replica.key("a", &["mcp"]).await.1, "a").await;
    replica.tenant("quiet").await;
    replica.agent("quiet", "b").await;
    let quiet = replica.caller(&replica.key("b", &["mcp"]).await.1, "b").await;
    for caller in [&first, &second, &quiet] {
        replica.open(caller).await;
    }
    let mut lock = database.connect().await;
    lock.execute("begin").await.unwrap();
    lock.execute("select from sessions where agent = (select uid from agents where slug = 'a') for update")
        .await
        .unwrap();
    let others = async {
        let waiting = "select count(*) from pg_stat_activity where datname = current_database() \
            and wait_event_type = 'Lock'";
        eventually("a session cannot be ended", async || database.number(waiting).await == 1).await;
        // Ended in one batch, which begins after the first.
        tokio::join!(try_open(&replica, &second, CLIENT), try_open(&replica, &quiet, CLIENT))
    };
    let (failed, (also_failed, opened)) = tokio::join!(try_open(&replica, &first, CLIENT), others);
    assert!(failed.is_err() && also_failed.is_err());
    replica.found(&quiet, &opened.unwrap()).await;
    lock.execute("rollback").await.unwrap();
}
