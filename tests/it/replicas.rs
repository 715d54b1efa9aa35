//! A write through one replica is readable on another.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::faults::FaultScript;
use crate::support::wait::DEADLINE;

/// The longest that a replica may take to know of a commit without its notification, on a machine with time for sweeps.
const BOUND: Duration = Duration::from_millis(1_200);
/// Far less than the time between two sweeps.
const PROMPT: Duration = Duration::from_millis(250);
/// The time between two sweeps where notifications alone are tested.
const RARE_SWEEPS: Duration = Duration::from_secs(10);

/// Writes `count` times through one replica, over `agents` agents at once, and after each reads on the other until the
/// revision is there; returns how long each took, sorted. Stops once the p99 is known to be beyond `bound`: a reader without
/// notifications would otherwise be waited for ten thousand times.
async fn lags(
    writer: &Arc<Replica>,
    reader: &Arc<Replica>,
    agents: usize,
    count: usize,
    bound: Duration,
) -> Vec<Duration> {
    writer.tenant("acme").await;
    let owner = writer.admin("POST", "/tenants/acme/keys", Some(json!({}))).await.json();
    let owner = owner["key"].as_str().unwrap().to_owned();
    let late = Arc::new(AtomicUsize::new(0));
    let mut tasks = JoinSet::new();
    for n in 0..agents {
        let (writer, reader, owner) = (Arc::clone(writer), Arc::clone(reader), owner.clone());
        let late = Arc::clone(&late);
        let agent = format!("agent-{n}");
        writer.agent("acme", &agent).await;
        tasks.spawn(async move {
            let mut lags = Vec::new();
            for round in 0..count / agents {
                writer.put(&agent, "x:1", &round.to_string()).await;
                let lag = lag(&reader, &agent, &owner, round).await;
                lags.push(lag);
                let one_more = usize::from(lag > bound);
                if late.fetch_add(one_more, Ordering::Relaxed) + one_more > count / 100 {
                    break;
                }
            }
            lags
        });
    }
    let mut all: Vec<_> = tasks.join_all().await.into_iter().flatten().collect();
    all.sort_unstable();
    all
}

async fn lag(reader: &Replica, agent: &str, owner: &str, round: usize) -> Duration {
    let written = Instant::now();
    let bearer = format!("Bearer {owner}");
    let headers = [("authorization", bearer.as_str()), ("content-type", "application/json")];
    let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x:1"}});
    let read = read.to_string();
    loop {
        let asked = Instant::now();
        let answer = reader.http.send("POST", &format!("/{agent}/mcp"), &headers, read.clone()).await.json();
        let text = answer["result"]["contents"][0]["text"].as_str();
        if text.is_some_and(|text| text.parse::<usize>().unwrap() >= round) {
            return asked - written;
        }
        assert!(written.elapsed() < DEADLINE, "{agent} stays at {answer}");
        // The pace of a client that polls: often while a notification may still come, then less.
        let wait = if written.elapsed() < PROMPT { 2 } else { 40 };
        tokio::time::sleep(Duration::from_millis(wait)).await;
    }
}

/// The longest time between two sweeps of a replica, as seen from outside.
#[derive(Default)]
struct SweepWatch {
    last: Option<(f64, Instant)>,
    longest: Duration,
}

impl SweepWatch {
    async fn look(&mut self, replica: &Replica) {
        let sweeps = replica.metric("waggle_feed_sweeps_total{outcome=\"ok\"}").await;
        let now = Instant::now();
        let (count, since) = *self.last.get_or_insert((sweeps, now));
        self.longest = self.longest.max(now - since);
        if sweeps > count {
            self.last = Some((sweeps, now));
        }
        // The pace of looks: often enough to see each sweep.
        tokio::time::sleep(Duration::from_millis(50)).await;
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
    let reader = Arc::new(Builder::new(&database).start().await);
    faults.lose_notifications(20);
    let (lags, between_sweeps) = {
        let mut lags = std::pin::pin!(lags(&writer, &reader, 100, 10_000, DEADLINE));
        let mut watching = SweepWatch::default();
        loop {
            tokio::select! {
                lags = &mut lags => break (lags, watching.longest),
                () = watching.look(&reader) => {}
            }
        }
    };
    println!(
        "10,000 writes, a fifth of the wakes lost: p50 {:?}, p99 {:?}, longest {:?}",
        percentile(&lags, 50),
        percentile(&lags, 99),
        percentile(&lags, 100),
    );
    // A change is found by the second sweep after its commit, however long a busy machine takes for them.
    let bound = BOUND.max(3 * between_sweeps);
    assert!(percentile(&lags, 100) <= bound, "the longest took {:?} of {bound:?}", percentile(&lags, 100));
}

#[tokio::test(flavor = "multi_thread")]
async fn notification_announces_a_write_before_the_sweep() {
    let database = database().await;
    let writer = Arc::new(Builder::new(&database).start().await);
    // No sweep comes to the help of a wake that is not sent, not heard or not understood.
    let sweeps = RARE_SWEEPS.as_millis();
    let reader = Arc::new(Builder::new(&database).set("WAGGLE_DATABASE__SWEEP_MS", sweeps).start().await);
    let lags = lags(&writer, &reader, 16, 10_000, RARE_SWEEPS / 2).await;
    println!(
        "10,000 writes, wakes on: p50 {:?}, p99 {:?}, longest {:?}",
        percentile(&lags, 50),
        percentile(&lags, 99),
        percentile(&lags, 100),
    );
    assert!(percentile(&lags, 50) < PROMPT, "p50 {:?}: that was no notification", percentile(&lags, 50));
    assert!(percentile(&lags, 99) < RARE_SWEEPS / 2, "p99 {:?}: that was a sweep", percentile(&lags, 99));
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
    // A kind of change that this version does not know makes it forget, not fail.
    database
        .execute(
            "with bumped as (update heads set revision = revision + 1 \
             where scope = (select uid from agents where slug = 'a') returning scope, revision) \
             insert into changes (scope, revision, ordinal, kind, subject) \
             select scope, revision, 0, 'tool_added', 'hammer' from bumped",
        )
        .await;
    replica.caught_up().await;
    assert_eq!(replica.http.text("a", &key, "x:1").await.as_deref(), Some("read"));
}
