//! Sessions are counted by their holder, and those in use survive.

use std::sync::Arc;

use futures_util::FutureExt;
use serde_json::json;
use waggle::identity::grant::Caller;

use super::{CLIENT, LOCALHOST};
use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::events::Session;
use crate::support::wait::eventually;

const OPEN: &str = "select count(*) from sessions where ended_at is null";

async fn few_sessions(database: &Database, settings: &[(&str, &str)]) -> Replica {
    let mut builder = Builder::new(database).set("WAGGLE_SESSIONS__PER_PRINCIPAL", 4);
    for (name, value) in settings {
        builder = builder.set(name, value);
    }
    builder.start().await
}

#[tokio::test]
async fn anonymous_sessions_of_one_address_do_not_end_others() {
    let database = database().await;
    let replica = few_sessions(&database, &[("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1/32")]).await;
    replica.tenant("acme").await;
    let public = Some(json!({"id": "a", "tenant": "acme", "access": "public"}));
    assert_eq!(replica.admin("POST", "/agents", public).await.status, 201);
    let send = async |address: &str, session: Option<&str>, method: &str| {
        let params = json!({
            "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"},
        });
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let mut headers = vec![("content-type", "application/json"), ("x-forwarded-for", address)];
        headers.extend(session.map(|session| ("mcp-session-id", session)));
        let answer = replica.http.send("POST", "/a/mcp", &headers, message).await;
        (answer.status.as_u16(), answer.header("mcp-session-id").map(str::to_owned))
    };
    let (_, first) = send("203.0.113.5", None, "initialize").await;
    for n in 0..20 {
        // Addresses of one /64.
        assert_eq!(send(&format!("2001:db8:1:2::{n:x}"), None, "initialize").await.0, 200);
    }
    assert_eq!(send("203.0.113.5", first.as_deref(), "ping").await.0, 200);
    assert_eq!(database.number(OPEN).await, 1 + 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn session_with_an_open_stream_outlives_newer_sessions() {
    let database = database().await;
    let (here, there) = tokio::join!(few_sessions(&database, &[]), few_sessions(&database, &[]));
    let key = here.acme("a").await;
    let streaming = Session::open(&there, "a", &key, "2025-06-18").await;
    let stream = streaming.stream(&there, None).await;
    let caller = here.caller(&key, "a").await;
    for _ in 0..20 {
        here.open(&caller).await;
    }
    assert_eq!(database.number(OPEN).await, 4);
    assert_eq!(streaming.call(&there, "ping", json!({})).await.status, 200);
    drop(stream);
}

async fn open_and_leave(replica: &Replica, caller: &Caller) {
    let opening = Arc::clone(replica.sessions());
    // Polled once, then dropped, like the future of a request whose client disconnects.
    let opened = opening.open(caller, LOCALHOST, CLIENT).now_or_never();
    assert!(opened.is_none());
}

/// On one thread: another one could have opened the session before the first poll ends.
#[tokio::test]
async fn client_that_disconnects_during_initialize_leaves_no_session() {
    let database = database().await;
    let replica = few_sessions(&database, &[]).await;
    let caller = replica.caller(&replica.acme("a").await, "a").await;
    let kept = replica.open(&caller).await;
    open_and_leave(&replica, &caller).await;
    // The answer is ready, but never sent.
    drop(replica.sessions().open(&caller, LOCALHOST, CLIENT).await.unwrap());
    let ended = "select count(*) from sessions where ended_at is not null";
    eventually("both have ended", async || database.number(ended).await == 2).await;
    assert_eq!(database.number(OPEN).await, 1);
    assert_eq!(replica.found(&caller, &kept).await.uid, kept.uid());
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_a_holder_are_counted_once_a_second() {
    const COPY: &str = "\
        with copy as (insert into sessions (uid, hash, tenant, agent, principal, version, client_name, client_version, \
            capabilities, since_revision, created_at, used_at, holder, labels_digest) \
        select gen_random_uuid(), sha256(gen_random_uuid()::text::bytea), tenant, agent, principal, version, 'copy', \
            client_version, capabilities, since_revision, created_at, created_at - interval '1 minute', holder, labels_digest \
        from (select * from sessions where client_name <> 'copy' limit 1) s, generate_series(1, 500) returning uid) \
        insert into heads (scope, revision, floor) select uid, 1, 1 from copy";
    const REMOVE: &str = "\
        with removed as (delete from sessions where client_name = 'copy' returning uid) \
        delete from heads where scope in (select uid from removed)";
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SESSIONS__PER_PRINCIPAL", 400).start().await;
    let key = replica.acme("a").await;
    let caller = replica.caller(&key, "a").await;
    for _ in 0..70 {
        replica.open(&caller).await;
    }
    eventually("a count is used again", async || {
        database.execute(REMOVE).await;
        replica.open(&caller).await;
        // As another replica opens them.
        database.execute(COPY).await;
        replica.open(&caller).await;
        database.number(OPEN).await > 500
    })
    .await;
    eventually("the holder is counted and has what it may have", async || {
        replica.open(&caller).await;
        database.number(OPEN).await == 400
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_that_a_replica_opens_are_added_to_its_count() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SESSIONS__PER_PRINCIPAL", 160).start().await;
    let key = replica.acme("a").await;
    let caller = replica.caller(&key, "a").await;
    for _ in 0..70 {
        replica.open(&caller).await;
    }
    futures_util::future::join_all((0..500).map(|_| replica.open(&caller))).await;
    let open = database.number(OPEN).await;
    assert!((160..=170).contains(&open), "{open}");
}
