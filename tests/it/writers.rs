//! Concurrent writers of one agent and of several.

mod shared_commits;
mod statements;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use serde_json::json;
use tokio::task::JoinSet;
use waggle::model::system::FailPoint;

use crate::support::app::{Builder, Replica};
use crate::support::cluster::database;
use crate::support::faults::FaultScript;
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

/// A resource of an agent.
const PATH: &str = "/agents/a/resources?uri=x:1";

#[tokio::test(flavor = "multi_thread")]
async fn thousand_writers_leave_no_gap_and_delay_no_other_agent() {
    let database = database().await;
    // A busy machine may take longer for a thousand writes than the default wait of a writer.
    let builder = Builder::new(&database).set("WAGGLE_WRITES__WAIT_SECONDS", 60);
    let builder = builder.set("WAGGLE_SERVER__REQUEST_SECONDS", 60);
    // Each writer has a connection of its own from one address, and other clients connect too.
    let builder = builder.set("WAGGLE_SERVER__CONNECTIONS_PER_ADDRESS", 2_000);
    let replica = Arc::new(builder.start().await);
    replica.tenant("acme").await;
    replica.agent("acme", "busy").await;
    replica.agent("acme", "quiet").await;
    let undisturbed = p99(quiet_writes(&replica, 0, || false).await);

    let mut writers = JoinSet::new();
    for n in 0..1_000 {
        let replica = Arc::clone(&replica);
        writers.spawn(async move {
            let mut revisions = Vec::new();
            for round in 0..2 {
                revisions.push(replica.put("busy", &format!("x:{n}"), &round.to_string()).await);
            }
            revisions
        });
    }
    let noise = tokio::spawn(writers.join_all());
    let disturbed = p99(quiet_writes(&replica, 1, || noise.is_finished()).await);
    let revisions: Vec<_> = noise.await.unwrap().into_iter().flatten().collect();

    // Revision 1 created the agent.
    let distinct: BTreeSet<_> = revisions.iter().copied().collect();
    assert_eq!(distinct, (2..=2_001).collect());
    assert_eq!(revisions.len(), distinct.len());
    let logged = "select count(distinct revision) from changes where scope = (select uid from agents where slug = 'busy')";
    assert_eq!(database.number(logged).await, 2_001);
    println!(
        "a quiet agent's writes: p99 {undisturbed:?} undisturbed, {disturbed:?} beside a thousand writers"
    );
}

/// Writes to the quiet agent, two hundred times or until stopped, whichever is later.
async fn quiet_writes(replica: &Replica, life: usize, end: impl Fn() -> bool) -> Vec<Duration> {
    let mut took = Vec::new();
    for round in 0.. {
        let began = Instant::now();
        replica.put("quiet", "x:1", &format!("{life}-{round}")).await;
        took.push(began.elapsed());
        if round >= 200 && (life == 0 || end()) {
            break;
        }
        // The interval of a quiet writer.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    took
}

fn p99(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() * 99 / 100]
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_beyond_the_queue_of_an_agent_are_refused() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_WRITES__QUEUE_PER_AGENT", 5).start().await;
    let replica = Arc::new(replica);
    replica.tenant("acme").await;
    replica.agent("acme", "a").await;
    let mut writers = JoinSet::new();
    for n in 0..200 {
        let replica = Arc::clone(&replica);
        writers.spawn(async move {
            let body = serde_json::json!({"name": "n", "contents": [{"text": "t"}]});
            let answer = replica
                .admin("PUT", &crate::support::app::resource("a", &format!("x:{n}")), Some(body))
                .await;
            if answer.status.is_success() {
                return true;
            }
            assert_eq!(answer.status, http::StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(answer.header("retry-after"), Some("1"));
            assert_eq!(answer.json()["code"], "unavailable");
            false
        });
    }
    let written = writers.join_all().await.into_iter().filter(|written| *written).count();
    assert!((1..200).contains(&written), "{written}");
    let count = database.number("select count(*) from resources").await;
    assert_eq!(usize::try_from(count).unwrap(), written);
}

#[tokio::test(flavor = "multi_thread")]
async fn write_of_a_disconnected_client_is_completed() {
    use waggle::model::system::FailPoint;
    let database = database().await;
    let faults = crate::support::faults::FaultScript::new();
    let writer = Builder::new(&database).fault_injector(faults.clone()).start().await;
    let reader = Builder::new(&database).set("WAGGLE_DATABASE__SWEEP_MS", 10_000).start().await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "old").await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("old"));
    let held = faults.hold(FailPoint::BeforeCommit);
    let caller = {
        let http = writer.http.clone();
        let operator = writer.operator.clone();
        tokio::spawn(async move {
            let body = serde_json::json!({"name": "a name", "contents": [{"text": "new"}]});
            http.admin(&operator, "PUT", &crate::support::app::resource("a", "x:1"), Some(body)).await
        })
    };
    held.meanwhile(async {
        caller.abort();
        assert!(caller.await.unwrap_err().is_cancelled());
    })
    .await;
    let is_new = async || reader.http.text("a", &key, "x:1").await.as_deref() == Some("new");
    eventually("the write is read on the other replica", is_new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_write_delays_the_next_for_seconds_only() {
    let database = database().await;
    let (proxy, faults) = (Proxy::before(&database.options).await, FaultScript::new());
    let cut_off = Builder::new(&database).fault_injector(faults.clone());
    let cut_off = Arc::new(cut_off.store(|store| store.connect = proxy.options.clone()).start().await);
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    let held = faults.hold(FailPoint::BeforeCommit);
    let lost = Arc::clone(&cut_off);
    let body = |text: &str| json!({"name": "n", "contents": [{"text": text}]});
    let losing = body("lost");
    let losing = tokio::spawn(async move { lost.admin("PUT", PATH, Some(losing)).await.status });
    held.meanwhile(async {
        proxy.swallow(true);
        // A client retries after this answer.
        let writing = async {
            while replica.admin("PUT", PATH, Some(body("next"))).await.status != StatusCode::CREATED {}
        };
        tokio::time::timeout(Duration::from_secs(15), writing).await.unwrap();
    })
    .await;
    assert_eq!(losing.await.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(replica.http.text("a", &key, "x:1").await.as_deref(), Some("next"));
}

#[tokio::test(flavor = "multi_thread")]
async fn waits_that_the_database_causes_are_not_an_overload() {
    let database = database().await;
    let (proxy, faults) = (Proxy::before(&database.options).await, FaultScript::new());
    let replica = Builder::new(&database)
        .fault_injector(faults.clone())
        .set("WAGGLE_WRITES__WAIT_SECONDS", 4)
        .set("WAGGLE_SERVER__REQUEST_SECONDS", 6)
        .store(|store| (store.connect, store.listen) = (proxy.options.clone(), proxy.options.clone()))
        .start()
        .await;
    replica.acme("a").await;
    let replica = Arc::new(replica);
    let held = faults.hold(FailPoint::BeforeCommit);
    let body = || Some(json!({"name": "n", "contents": []}));
    let write = || {
        let replica = Arc::clone(&replica);
        tokio::spawn(async move { replica.admin("PUT", PATH, body()).await })
    };
    // The first is ended by the deadline of its request, and the second has waited for the permit of the first.
    let first = write();
    held.meanwhile(async {
        let second = write();
        // Not for a condition: the second write waits in memory, which cannot be observed.
        tokio::time::sleep(Duration::from_millis(500)).await;
        proxy.swallow(true);
        for write in [second, first] {
            let answer = write.await.unwrap();
            assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(answer.json()["code"], "storage_unavailable", "{}", answer.text());
        }
    })
    .await;
}
