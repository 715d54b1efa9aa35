//! No row is lost while the database is unreachable, and no row of an answered request when a process is killed.
//!
//! `SOAK=long` runs the long profile.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::JoinSet;

use crate::support::folder::kill_hard;
use crate::support::process::{Site, ready_again};
use crate::support::wait::eventually;

const CLIENTS: usize = 16;
/// The maximum time until rows of a spill file are in the log.
const CATCHES_UP: Duration = Duration::from_secs(30);

fn long() -> bool {
    std::env::var("SOAK").is_ok_and(|soak| soak == "long")
}

/// Creates an agent with a resource; returns a key of it.
async fn prepare(site: &Site) -> String {
    let owner = site.tenant("acme", ["research".to_owned()]).await;
    let body = json!({"name": "a", "contents": [{"text": "a"}]});
    let put = site.admin("PUT", "/agents/research/resources?uri=test%3A%2F%2Fa", Some(body)).await;
    assert_eq!(put.status, 201);
    owner
}

/// Reads until `goal` requests were sent or `stop` is set; returns the ids of the answered requests and of the others.
async fn read(
    site: Arc<Site>,
    key: String,
    client: usize,
    sent: Arc<AtomicUsize>,
    goal: usize,
    stop: Arc<AtomicBool>,
) -> (BTreeSet<String>, BTreeSet<String>) {
    let bearer = format!("Bearer {key}");
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "test://a"}})
        .to_string();
    let (mut answered, mut unanswered) = (BTreeSet::new(), BTreeSet::new());
    while !stop.load(Ordering::Relaxed) {
        let number = sent.fetch_add(1, Ordering::Relaxed);
        if number >= goal {
            break;
        }
        let id = format!("{client}-{number}");
        let headers = [
            ("authorization", bearer.as_str()),
            ("content-type", "application/json"),
            ("x-request-id", id.as_str()),
        ];
        if site.http.try_send("POST", "/research/mcp", &headers, body.clone()).await.is_ok() {
            answered.insert(id);
        } else {
            unanswered.insert(id);
            // The gateway is down for a while; the client retries after a pause.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    (answered, unanswered)
}

/// How many rows each request has.
async fn counted(site: &Site) -> BTreeMap<String, usize> {
    let bearer = format!("Bearer {}", site.operator());
    let headers = [("authorization", bearer.as_str()), ("accept", "application/x-ndjson")];
    let answer = site.http.send("GET", "/admin/v1/audit?method=resources%2Fread", &headers, "").await;
    let mut counts = BTreeMap::new();
    for line in answer.text().lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        *counts.entry(row["requestId"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    counts
}

/// How many rows each request has, once the log is complete.
async fn counted_all(site: &Site, answered: &BTreeSet<String>) -> BTreeMap<String, usize> {
    let began = Instant::now();
    loop {
        let counts = counted(site).await;
        let missing = answered.iter().filter(|id| !counts.contains_key(*id)).count();
        if missing == 0 {
            return counts;
        }
        assert!(began.elapsed() < CATCHES_UP, "{missing} of {} have no row", answered.len());
        // Each check reads the whole log.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

async fn verified(site: &Site) -> String {
    let output = site.command("audit").arg("verify").output().await.unwrap();
    assert!(output.status.success(), "{output:?}\n{}", site.printed("stderr"));
    String::from_utf8(output.stdout).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_request_has_one_row_despite_a_database_outage() {
    let requests = if long() { 200_000 } else { 6_000 };
    let site = Arc::new(Site::unlimited());
    let gateway = site.serve().await;
    let key = prepare(&site).await;
    let (sent, stop) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let (site, sent, stop) = (Arc::clone(&site), Arc::clone(&sent), Arc::clone(&stop));
        clients.spawn(read(site, key.clone(), client, sent, requests, stop));
    }
    eventually("a third is sent", async || sent.load(Ordering::Relaxed) >= requests / 3).await;
    kill_hard(site.folder.postmaster().unwrap());
    let (mut answered, mut unanswered) = (BTreeSet::new(), BTreeSet::new());
    for (some, others) in clients.join_all().await {
        answered.extend(some);
        unanswered.extend(others);
    }
    assert_eq!((answered.len(), unanswered.len()), (requests, 0));
    ready_again(&site).await;
    assert!(site.printed("stderr").contains("spill file"), "the database was never unreachable");
    assert!(gateway.stop().await.success());
    println!("{}", verified(&site).await);
    let gateway = site.serve().await;
    let counts = counted_all(&site, &answered).await;
    assert!(answered.iter().all(|id| counts.get(id) == Some(&1)));
    assert_eq!(counts.len(), requests);
    assert!(gateway.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn synchronous_log_keeps_answered_requests_across_kills() {
    let kills = if long() { 20 } else { 4 };
    let site = Arc::new(Site::unlimited().set("WAGGLE_AUDIT__DURABILITY", "sync"));
    let mut gateway = site.serve().await;
    let key = prepare(&site).await;
    let (mut answered, mut unanswered) = (BTreeSet::new(), BTreeSet::new());
    for round in 0..kills {
        let (sent, stop) = (Arc::new(AtomicUsize::new(round * 1_000_000)), Arc::new(AtomicBool::new(false)));
        let mut clients = JoinSet::new();
        for client in 0..CLIENTS {
            let (site, sent, stop) = (Arc::clone(&site), Arc::clone(&sent), Arc::clone(&stop));
            clients.spawn(read(site, key.clone(), client, sent, usize::MAX, stop));
        }
        // Not for a condition: processes are killed at arbitrary times.
        tokio::time::sleep(Duration::from_millis(300 + 170 * (round as u64 % 5))).await;
        // The database, both, the gateway.
        if round % 3 != 2 {
            kill_hard(site.folder.postmaster().unwrap());
            tokio::time::sleep(Duration::from_millis(150 * (round as u64 % 3 + 1))).await;
        }
        if round % 3 == 0 {
            ready_again(&site).await;
            stop.store(true, Ordering::Relaxed);
        } else {
            gateway.kill().await;
            stop.store(true, Ordering::Relaxed);
            gateway = site.serve().await;
        }
        for (some, others) in clients.join_all().await {
            answered.extend(some);
            unanswered.extend(others);
        }
    }
    assert!(answered.len() > 100, "{}", answered.len());
    assert!(gateway.stop().await.success());
    println!("{} answered, {} not; {}", answered.len(), unanswered.len(), verified(&site).await);
    let gateway = site.serve().await;
    let counts = counted_all(&site, &answered).await;
    let lost: Vec<_> = answered.iter().filter(|id| counts.get(*id) != Some(&1)).collect();
    assert!(lost.is_empty(), "{} of {}: {:?}", lost.len(), answered.len(), &lost[..lost.len().min(5)]);
    assert!(
        counts.iter().all(|(id, count)| *count == 1 && (answered.contains(id) || unanswered.contains(id)))
    );
    assert!(gateway.stop().await.success());
}
