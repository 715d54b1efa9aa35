//! Shares of quotas: what is charged after they are returned, and what is lost with an answer of the database.

use std::sync::Arc;

use serde_json::json;
use sqlx::{Executor, PgConnection};
use time::macros::datetime;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use waggle::model::system::FailPoint;

use super::{limit, list};
use crate::support::app::{Builder, gateway};
use crate::support::clock::ManualClock;
use crate::support::cluster::{Database, database};
use crate::support::events::listen;
use crate::support::faults::{Fault, FaultScript};
use crate::support::proxy::Proxy;
use crate::support::wait::{eventually, hang_up};

const CALLS: &str = "select calls from quotas where period = 'day'";
const BYTES: &str = "select bytes from quotas where period = 'day'";
/// The statements that wait for the row of a quota.
const WAITING: &str =
    "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'";

/// Lets statements that change quotas wait until `commit` is executed on the connection.
async fn lock_quotas(database: &Database) -> PgConnection {
    let mut lock = database.connect().await;
    for statement in ["begin", "select from quotas for update"] {
        lock.execute(statement).await.unwrap();
    }
    lock
}

#[tokio::test]
async fn bytes_of_a_request_count_after_its_share_is_returned() {
    let database = database().await;
    let faults = FaultScript::new();
    let replica = Arc::new(Builder::new(&database).fault_injector(faults.clone()).start().await);
    let key = replica.acme("a").await;
    limit(&replica, "/agents/a", json!({"bytesPerDay": 100_000})).await;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let mut used = ping.to_string().len() + replica.http.post("a", &key, &ping).await.body.len();
    let is_charged = async |used: usize| {
        let charged = async || usize::try_from(database.number(BYTES).await).unwrap() == used;
        eventually("the bytes are charged, and the share is returned", charged).await;
    };
    is_charged(used).await;
    // A ping loads nothing; the first list loads the catalog.
    let held = faults.hold(FailPoint::CacheFillRead);
    let listing = tokio::spawn({
        let (replica, key) = (Arc::clone(&replica), key.clone());
        async move { list(&replica, "a", &key).await }
    });
    held.meanwhile(is_charged(used)).await;
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    used += request.to_string().len() + listing.await.unwrap().body.len();
    is_charged(used).await;
}

#[tokio::test]
async fn bytes_of_a_stream_count_in_the_period_of_its_end() {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-12-31 23:59 UTC));
    let replica =
        Builder::new(&database).set("WAGGLE_USAGE__SETTLE_SECONDS", 1).clock(clock.clone()).start().await;
    let key = replica.acme("a").await;
    limit(&replica, "/agents/a", json!({"callsPerDay": 100_000, "bytesPerDay": 100_000})).await;
    let mut stream = listen(&replica, "a", &key, json!(1), json!({"resourcesListChanged": true})).await;
    stream.next().await.unwrap();
    eventually("the share is returned", async || database.number(CALLS).await == 1).await;
    clock.advance(time::Duration::minutes(1));
    drop(stream);
    let sent =
        "select coalesce(sum(bytes_out), 0)::bigint from agent_usage where method = 'subscriptions/listen'";
    eventually("the stream has ended", async || database.number(sent).await > 0).await;
    let charged =
        "select coalesce(sum(bytes), 0)::bigint from quotas where period = 'day' and start = '2027-01-01'";
    let sent = database.number(sent).await;
    eventually("its bytes are charged", async || database.number(charged).await == sent).await;
}

#[tokio::test]
async fn request_whose_client_disconnects_is_charged() {
    let (database, replica) = gateway().await;
    let key = replica.acme("a").await;
    limit(&replica, "/agents/a", json!({"callsPerDay": 100_000})).await;
    assert_eq!(list(&replica, "a", &key).await.status, 200);
    eventually("the share is returned", async || database.number(CALLS).await == 1).await;

    let mut lock = lock_quotas(&database).await;
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let request = format!(
        "POST /a/mcp HTTP/1.1\r\nHost: localhost\r\nX-Agent-API-Key: {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = TcpStream::connect(replica.running.address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    eventually("a share is being reserved", async || database.number(WAITING).await == 1).await;
    hang_up(client).await;
    // A call that waits for a second is admitted on credit. It waits for the same reservation.
    assert_eq!(list(&replica, "a", &key).await.status, 200);
    assert_eq!(database.number(WAITING).await, 1);
    lock.execute("commit").await.unwrap();
    // After those that wait for the row.
    database.execute("select from quotas for update").await;
    eventually("the share is returned", async || database.number(CALLS).await == 3).await;
}

#[tokio::test]
async fn call_that_waits_for_a_share_while_a_day_ends_is_one_of_the_next_day() {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-12-15 23:59 UTC));
    let replica = Arc::new(Builder::new(&database).clock(clock.clone()).start().await);
    let key = replica.acme("a").await;
    limit(&replica, "/agents/a", json!({"callsPerDay": 100_000})).await;
    assert_eq!(list(&replica, "a", &key).await.status, 200);
    eventually("the share is returned", async || database.number(CALLS).await == 1).await;

    let mut lock = lock_quotas(&database).await;
    let waiting = tokio::spawn({
        let (replica, key) = (Arc::clone(&replica), key.clone());
        async move { list(&replica, "a", &key).await.status }
    });
    eventually("a share is being reserved", async || database.number(WAITING).await == 1).await;
    clock.advance(time::Duration::minutes(1));
    lock.execute("commit").await.unwrap();
    assert_eq!(waiting.await.unwrap(), 200);
    let charged =
        "select coalesce(sum(calls), 0)::bigint from quotas where period = 'day' and start = '2026-12-16'";
    eventually("the call is charged", async || database.number(charged).await == 1).await;
}

#[tokio::test]
async fn share_is_returned_once_if_the_answer_is_lost() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let replica =
        Builder::new(&database).store(|options| options.connect = proxy.options.clone()).start().await;
    let key = replica.acme("a").await;
    limit(&replica, "/agents/a", json!({"callsPerDay": 100_000})).await;
    for _ in 0..5 {
        assert_eq!(list(&replica, "a", &key).await.status, 200);
    }
    // Within the second for which an unused share is held.
    let mut lock = lock_quotas(&database).await;
    eventually("the share is being returned", async || database.number(WAITING).await == 1).await;
    proxy.swallow(true);
    lock.execute("commit").await.unwrap();
    eventually("the share is returned", async || database.number(CALLS).await == 5).await;
    // The answer does not arrive: its connection is closed.
    proxy.fail(Fault::Refused);
    proxy.fail(Fault::None);
    // A call that is refused while connections are opened anew may be charged.
    let mut calls = 5;
    eventually("a call is admitted", async || {
        calls += 1;
        list(&replica, "a", &key).await.status == 200
    })
    .await;
    let is_charged = async || (6..=calls).contains(&database.number(CALLS).await);
    eventually("each call is charged", is_charged).await;
}

#[tokio::test]
async fn share_that_is_not_accepted_at_shutdown_costs_no_other() {
    let (database, replica) = gateway().await;
    let keys: Vec<_> = {
        let mut keys = vec![replica.acme("a0").await];
        for n in 1..16 {
            replica.agent("acme", &format!("a{n}")).await;
            keys.push(replica.key(&format!("a{n}"), &["mcp"]).await.1);
        }
        keys
    };
    for n in 0..keys.len() {
        limit(&replica, &format!("/agents/a{n}"), json!({"callsPerDay": 100_000})).await;
    }
    let bad = "(select uid from agents where slug = 'a7')";
    let refuse = format!(
        "create function refuse() returns trigger language plpgsql as $$ begin \
         if new.calls < old.calls and new.holder = {bad} then raise exception 'refused'; end if; \
         return new; end $$"
    );
    database.execute(&refuse).await;
    let trigger = "create trigger refuse before update on quotas for each row execute function refuse()";
    database.execute(trigger).await;
    for (n, key) in keys.iter().enumerate() {
        assert_eq!(list(&replica, &format!("a{n}"), key).await.status, 200);
    }
    replica.running.stop().await;
    let returned =
        format!("select count(*) from quotas where period = 'day' and calls = 1 and holder <> {bad}");
    assert_eq!(database.number(&returned).await, 15);
}
