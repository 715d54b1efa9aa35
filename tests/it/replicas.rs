//! A write through one replica is readable on another.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;
use waggle::model::system::FailPoint;

use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::faults::FaultScript;

/// How long a notification usually takes at most.
const PROMPT: Duration = Duration::from_millis(250);
/// The time after which a read without the write is an error: less than the longest interval of sweeps.
const LONGEST: Duration = Duration::from_secs(10);

/// Writes `count` times through one replica, to `agents` agents concurrently, and reads on the other after each write
/// until it returns the revision; returns the latencies, sorted. A read is an error if it begins after a sweep of the reader
/// that began after the write, and does not return the revision.
async fn lags(
    writer: &Arc<Replica>,
    reader: (&Arc<Replica>, &Arc<FaultScript>),
    agents: usize,
    count: usize,
) -> Vec<Duration> {
    writer.tenant("acme").await;
    let owner = writer.admin("POST", "/tenants/acme/keys", Some(json!({}))).await.json();
    let owner = owner["key"].as_str().unwrap().to_owned();
    let mut tasks = JoinSet::new();
    for n in 0..agents {
        let (writer, owner) = (Arc::clone(writer), owner.clone());
        let (reader, sweeps) = (Arc::clone(reader.0), Arc::clone(reader.1));
        let agent = format!("agent-{n}");
        writer.agent("acme", &agent).await;
        tasks.spawn(async move {
            let mut lags = Vec::new();
            for round in 0..count / agents {
                writer.put(&agent, "x:1", &round.to_string()).await;
                lags.push(lag((&reader, &sweeps), &agent, &owner, round).await);
            }
            lags
        });
    }
    let mut all: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    all.sort_unstable();
    all
}

async fn lag((reader, sweeps): (&Replica, &FaultScript), agent: &str, owner: &str, round: usize) -> Duration {
    let written = Instant::now();
    let begun = || sweeps.arrivals(FailPoint::Sweep);
    let begun_before = begun();
    let bearer = format!("Bearer {owner}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x:1"}});
    let read = read.to_string();
    loop {
        let requested = Instant::now();
        // Sweeps run one after another: all but the last of these have ended.
        let ended = begun().saturating_sub(1);
        let answer = reader.http.send("POST", &format!("/{agent}/mcp"), &headers, read.clone()).await.json();
        let text = answer["result"]["contents"][0]["text"].as_str();
        if text.is_some_and(|text| text.parse::<usize>().unwrap() >= round) {
            return requested - written;
        }
        assert!(ended <= begun_before, "{agent} stays at {answer} after a sweep");
        assert!(written.elapsed() < LONGEST, "{agent} stays at {answer}");
        // Polls often while a notification may still arrive, then less.
        let wait = if written.elapsed() < PROMPT { 2 } else { 40 };
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_writes_are_read_despite_lost_notifications() {
    let database = database().await;
    let faults = FaultScript::new();
    let writer = Arc::new(Builder::new(&database).fault_injector(faults.clone()).start().await);
    let sweeps = FaultScript::new();
    let reader = Arc::new(Builder::new(&database).fault_injector(sweeps.clone()).start().await);
    faults.lose_notifications(20);
    let lags = lags(&writer, (&reader, &sweeps), 100, 10_000).await;
    assert_eq!(lags.len(), 10_000);
    println!(
        "10,000 writes, a fifth of the notifications lost: p50 {:?}, p99 {:?}, longest {:?}",
        percentile(&lags, 50),
        percentile(&lags, 99),
        percentile(&lags, 100),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_announces_a_write_before_the_sweep() {
    let database = database().await;
    let writer = Arc::new(Builder::new(&database).start().await);
    // No sweep replaces a notification that is not sent, not received or not understood: `lag` gives up before it.
    let sweeps = FaultScript::new();
    let reader = Builder::new(&database).set("WAGGLE_DATABASE__SWEEP_MS", 60_000);
    let reader = Arc::new(reader.fault_injector(sweeps.clone()).start().await);
    let lags = lags(&writer, (&reader, &sweeps), 16, 10_000).await;
    assert_eq!(lags.len(), 10_000);
    println!(
        "10,000 writes with notifications: p50 {:?}, p99 {:?}, longest {:?}",
        percentile(&lags, 50),
        percentile(&lags, 99),
        percentile(&lags, 100),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_starts_migrate_an_empty_database_once() {
    let database = database().await;
    database.execute("drop schema public cascade").await;
    database.execute("create schema public").await;
    let starts = (0..4).map(|_| Builder::new(&database).start());
    let replicas = futures_util::future::join_all(starts).await;
    for replica in &replicas {
        replica.ready().await;
    }
    let migrations = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/migrations")).unwrap().count();
    let applied = database.number("select count(*) from _sqlx_migrations where success").await;
    assert_eq!(usize::try_from(applied).unwrap(), migrations);
}

#[tokio::test(flavor = "multi_thread")]
async fn older_gateway_runs_on_a_newer_schema() {
    let database = database().await;
    database
        .execute(
            "insert into _sqlx_migrations (version, description, success, checksum, execution_time) \
             values (9999, 'of a later release', true, '\\x00', 0)",
        )
        .await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "read").await;
    // A kind of change that this version does not know invalidates its cache.
    database
        .execute(
            "with bumped as (update heads set revision = revision + 1 \
             where scope = (select uid from agents where slug = 'a') returning scope, revision) \
             insert into changes (scope, revision, ordinal, kind, subject) \
             select scope, revision, 0, 'kind_of_a_newer_version', 'hammer' from bumped",
        )
        .await;
    replica.caught_up().await;
    assert_eq!(replica.http.text("a", &key, "x:1").await.as_deref(), Some("read"));
}
