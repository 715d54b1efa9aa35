//! The bound on staleness: whichever of LISTEN, sweeps and loads fails, a revoked key is accepted for at most
//! `access.stale_seconds` after its revocation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use http::StatusCode;
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use waggle::model::system::FailPoint;

use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::faults::{Fault, FaultScript};
use crate::support::proxy::Proxy;
use crate::support::wait::{eventually, hang_up};

/// `access.stale_seconds` of the replicas here.
const STALE: Duration = Duration::from_secs(2);
/// How long a revoked key is tried after the bound.
const AFTER: Duration = Duration::from_secs(2);
/// Rows of the table that run concurrently.
const AT_ONCE: usize = 9;

const FAULTS: [Fault; 3] = [Fault::None, Fault::Refused, Fault::Swallowed];

/// The fault on one replica.
#[derive(Debug, Clone, Copy)]
struct Row {
    number: usize,
    listen: Fault,
    sweep: Fault,
    load: Fault,
}

fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for listen in FAULTS {
        for sweep in FAULTS {
            for load in FAULTS {
                rows.push(Row { number: rows.len(), listen, sweep, load });
            }
        }
    }
    rows
}

/// Registers an agent with a resource; returns a key of it with its id.
async fn prepare(writer: &Replica, agent: &str) -> (String, String) {
    writer.agent("acme", agent).await;
    writer.put(agent, "x:1", "read").await;
    writer.key(agent, &["mcp"]).await
}

async fn revoke(writer: &Replica, id: &str) -> Instant {
    let revoked = writer.admin("DELETE", &format!("/keys/{id}"), None).await;
    assert_eq!(revoked.status, StatusCode::NO_CONTENT, "{}", revoked.text());
    Instant::now()
}

/// The last request for which a revoked key was accepted, as time since the revocation.
async fn accepted_for(reader: &Replica, agent: &str, key: &str, revoked: Instant) -> Duration {
    let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x:1"}});
    let mut last = Duration::ZERO;
    loop {
        let sent = revoked.elapsed();
        if reader.http.post(agent, key, &read).await.status == StatusCode::OK {
            last = sent;
        }
        if sent > STALE + AFTER {
            return last;
        }
        // Repeated for a given time, with pauses: nine rows run concurrently.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What is wrong with a row, if anything.
async fn check(writer: Arc<Replica>, database: Database, row: Row) -> Option<String> {
    let (proxy, faults) = (Proxy::before(&database.options).await, FaultScript::new());
    let reader = Builder::new(&database)
        .set("WAGGLE_ACCESS__STALE_SECONDS", STALE.as_secs())
        .fault_injector(faults.clone())
        .store(|store| store.listen = proxy.options.clone())
        .start()
        .await;
    let agent = format!("a{}", row.number);
    let (id, key) = prepare(&writer, &agent).await;
    assert_eq!(reader.http.text(&agent, &key, "x:1").await.as_deref(), Some("read"));

    proxy.fail(row.listen);
    faults.fail(FailPoint::Sweep, row.sweep);
    faults.fail(FailPoint::Load, row.load);
    let revoked = revoke(&writer, &id).await;
    let last = accepted_for(&reader, &agent, &key, revoked).await;
    if last > STALE {
        return Some(format!("{row:?}: honored {last:?} after its revocation"));
    }
    let expected = if row.sweep == Fault::None { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let ready = reader.http.get("/readyz").await;
    (ready.status != expected).then(|| format!("{row:?}: readyz {} {}", ready.status, ready.text()))
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_is_refused_within_the_bound_whatever_fails() {
    let database = database().await;
    let writer = Arc::new(Builder::new(&database).start().await);
    writer.tenant("acme").await;
    let checks = rows().into_iter().map(|row| check(Arc::clone(&writer), database.clone(), row));
    let wrong: Vec<_> = futures_util::stream::iter(checks)
        .buffer_unordered(AT_ONCE)
        .filter_map(|wrong| async { wrong })
        .collect()
        .await;
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn revoked_key_is_refused_in_time_without_connection_slots() {
    let database = database().await;
    let role = format!("{}_limited", database.options.get_database().unwrap());
    database
        .execute(&format!(
            "create role {role} login; grant usage on schema public to {role}; \
             grant select, insert, update, delete on all tables in schema public to {role}"
        ))
        .await;
    let writer = Builder::new(&database).start().await;
    let reader = Builder::new(&database)
        .set("WAGGLE_ACCESS__STALE_SECONDS", STALE.as_secs())
        .store(|store| store.connect = store.connect.clone().username(&role))
        .start()
        .await;
    writer.tenant("acme").await;
    let (id, key) = prepare(&writer, "a").await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("read"));

    database
        .execute(&format!(
            "alter role {role} connection limit 0; \
             select pg_terminate_backend(pid) from pg_stat_activity where usename = '{role}'"
        ))
        .await;
    let revoked = revoke(&writer, &id).await;
    let last = accepted_for(&reader, "a", &key, revoked).await;
    assert!(last <= STALE, "accepted {last:?} after its revocation");
    let ready = reader.http.get("/readyz").await;
    assert_eq!(
        (ready.status, ready.text()),
        (
            StatusCode::SERVICE_UNAVAILABLE,
            r#"{"reasons":["database_unreachable","memory_expired"],"status":"unready"}"#.to_owned()
        )
    );
    database.execute(&format!("alter role {role} connection limit -1")).await;
    eventually("it is ready again", async || reader.http.get("/readyz").await.text() == READY).await;
}

const READY: &str = r#"{"status":"ready"}"#;

/// The longest read during somewhat more than the interval of sweeps.
async fn longest_read(reader: &Replica, key: &str) -> Duration {
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    while began.elapsed() < Duration::from_millis(2_600) {
        let sent = Instant::now();
        assert_eq!(reader.http.text("a", key, "x:1").await.as_deref(), Some("read"));
        longest = longest.max(sent.elapsed());
        // A pause between samples, so that they measure the gateway and not the client.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    longest
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_from_memory_do_not_wait_while_the_database_is_away() {
    let database = database().await;
    for fault in [Fault::Refused, Fault::Swallowed] {
        let proxy = Proxy::before(&database.options).await;
        let reader = Builder::new(&database)
            .store(|store| {
                store.listen = proxy.options.clone();
                store.connect = proxy.options.clone();
            })
            .start()
            .await;
        reader.admin("POST", "/tenants", Some(json!({"id": "acme"}))).await;
        reader.admin("POST", "/agents", Some(json!({"id": "a", "tenant": "acme"}))).await;
        let (_, key) = reader.key("a", &["mcp"]).await;
        reader.put("a", "x:1", "read").await;
        assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("read"));

        proxy.fail(fault);
        let degraded = r#"{"reasons":["database_unreachable","listen_lost"],"status":"degraded"}"#;
        eventually("it is degraded", async || reader.http.get("/readyz").await.text() == degraded).await;
        assert_eq!(reader.http.get("/readyz").await.status, StatusCode::OK);
        // A read that waits for the database takes two seconds; the best of three windows excludes a busy machine.
        let mut best = Duration::MAX;
        for _ in 0..3 {
            best = best.min(longest_read(&reader, &key).await);
        }
        println!("{fault:?}: the longest read from memory took {best:?}");
        assert!(best < Duration::from_millis(1_500), "{fault:?}: a read waited for {best:?}");
        proxy.fail(Fault::None);
        eventually("it is ready again", async || reader.http.get("/readyz").await.text() == READY).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn write_is_read_while_only_sweeps_fail() {
    let (database, faults) = (database().await, FaultScript::new());
    let replica = Builder::new(&database).fault_injector(faults.clone()).start().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "read").await;
    assert_eq!(replica.http.text("a", &key, "x:1").await.as_deref(), Some("read"));
    faults.fail(FailPoint::Sweep, Fault::Refused);
    let degraded = r#"{"reasons":["database_unreachable"],"status":"degraded"}"#;
    eventually("sweeps fail", async || replica.http.get("/readyz").await.text() == degraded).await;
    for n in 0..50 {
        let text = format!("text {n}");
        replica.put("a", "x:1", &text).await;
        assert_eq!(replica.http.text("a", &key, "x:1").await, Some(text));
    }
}

/// Closes all connections to the database, as a failover does.
async fn terminate_connections(database: &Database) {
    let terminate = "select pg_terminate_backend(pid) from pg_stat_activity \
                     where datname = current_database() and pid <> pg_backend_pid()";
    database.execute(terminate).await;
}

/// The statuses of so many administration queries at the same time, which open as many connections.
async fn queries<const N: usize>(replica: &Replica) -> Vec<StatusCode> {
    let query = async |_| replica.admin("GET", "/agents/a/keys", None).await.status;
    futures_util::future::join_all((0..N).map(query)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn load_is_repeated_when_its_connection_breaks() {
    let (database, faults) = (database().await, FaultScript::new());
    let replica = Builder::new(&database).fault_injector(faults.clone()).start().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "read").await;
    let hold = faults.hold(FailPoint::SnapshotBetweenReads);
    let reading = async { replica.http.text("a", &key, "x:1").await };
    let cutting = hold.meanwhile(terminate_connections(&database));
    let (read, _) = tokio::join!(reading, cutting);
    assert_eq!(read.as_deref(), Some("read"));
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_read_survives_termination_of_pooled_connections() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    for n in 0..24 {
        writer.put("a", &format!("x:{n}"), &format!("text {n}")).await;
    }
    let reader = Builder::new(&database).start().await;
    // Concurrent reads leave many idle connections open.
    let read = async |n: usize| reader.http.text("a", &key, &format!("x:{n}")).await;
    futures_util::future::join_all((0..12).map(read)).await;
    for n in 12..24 {
        terminate_connections(&database).await;
        assert_eq!(read(n).await.as_deref(), Some(format!("text {n}").as_str()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn queries_survive_termination_of_pooled_connections() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    replica.acme("a").await;
    for _ in 0..3 {
        queries::<12>(&replica).await;
        terminate_connections(&database).await;
        assert_eq!(queries::<12>(&replica).await, [StatusCode::OK; 12]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn terminated_connections_are_unused_after_the_next_sweep() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    // A new session is one statement, which is not repeated.
    let params = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}});
    let initialize = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
    let open = async |_| replica.http.post("a", &key, &initialize).await.status;
    futures_util::future::join_all((0..12).map(open)).await;
    terminate_connections(&database).await;
    let sweeps = async || replica.metric("waggle_feed_sweeps_total{outcome=\"ok\"}").await;
    let before = sweeps().await;
    eventually("a sweep that began later succeeds", async || sweeps().await >= before + 2.0).await;
    assert_eq!(futures_util::future::join_all((0..12).map(open)).await, [StatusCode::OK; 12]);
}

#[tokio::test(flavor = "multi_thread")]
async fn sweep_goes_on_when_its_caller_hangs_up() {
    let (database, faults) = (database().await, FaultScript::new());
    let proxy = Proxy::before(&database.options).await;
    let replica = Builder::new(&database)
        .set("WAGGLE_DATABASE__SWEEP_MS", 60_000)
        .fault_injector(faults.clone())
        .store(|store| store.listen = proxy.options.clone())
        .start()
        .await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "read").await;
    assert_eq!(replica.http.text("a", &key, "x:1").await.as_deref(), Some("read"));
    // Without notifications, an answer from memory waits for a sweep.
    proxy.fail(Fault::Refused);
    let lost = async || replica.http.get("/readyz").await.text().contains("listen_lost");
    eventually("the feed is unproven", lost).await;
    let sweeps = async || replica.metric("waggle_feed_sweeps_total{outcome=\"ok\"}").await;
    let swept = sweeps().await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}).to_string();
    let request = format!(
        "POST /a/mcp HTTP/1.1\r\nHost: localhost\r\nX-Agent-API-Key: {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let held = faults.hold(FailPoint::Sweep);
    let mut client = TcpStream::connect(replica.running.address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    let begun = held
        .meanwhile(async {
            hang_up(client).await;
            faults.arrivals(FailPoint::Sweep)
        })
        .await;
    eventually("the sweep succeeds", async || sweeps().await > swept).await;
    assert_eq!(faults.arrivals(FailPoint::Sweep), begun, "it is the one that was begun");
}
