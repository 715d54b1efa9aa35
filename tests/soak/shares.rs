//! Callers at twice their limits on three replicas, and a quiet tenant beside them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use sqlx::ConnectOptions;

use crate::fleet::{Fleet, Urls, is_release};
use crate::support::cluster::database;
use crate::support::flood::{good_caller, percentile};
use crate::{ALONE, is_long};

const REPLICAS: usize = 3;
/// What a key may have, a second and at once. Of a release so much that one request is less than the hundredth part of
/// what is measured; of a build for tests as much as three of them answer on a small machine.
fn rate() -> (u32, u32) {
    if is_release() { (5, 10) } else { (2, 6) }
}

/// Active keys of one agent.
const KEYS: usize = 10;
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_caller_gets_its_limit_of_each_replica_and_a_quiet_tenant_its_answers() {
    let _alone = ALONE.lock().await;
    let (callers, lasts) = if is_long() { (100, 30) } else { (20, 4) };
    let database = database().await;
    let url = || database.options.to_url_lossy().to_string();
    let urls = (0..REPLICAS).map(|_| Urls { database: url(), listen: url() }).collect();
    let (rate, burst) = (rate().0.to_string(), rate().1.to_string());
    let settings =
        [("WAGGLE_LIMITS__KEY_PER_SECOND", rate.as_str()), ("WAGGLE_LIMITS__KEY_BURST", burst.as_str())];
    let fleet = Arc::new(Fleet::start(urls, &settings).await);
    let keys = keys(&fleet, callers).await;
    fleet.ask("POST", "/tenants", Some(json!({"id": "quiet"}))).await;
    fleet.ask("POST", "/agents", Some(json!({"id": "q", "tenant": "quiet"}))).await;
    let unlimited = json!({"limits": {"perSecond": 0}});
    let quiet = fleet.ask("POST", "/agents/q/keys", Some(unlimited)).await.json();
    let quiet = quiet["key"].as_str().unwrap();

    let address = ([127, 0, 0, 1], fleet.port(0)).into();
    let before = good_caller(address, "q", quiet, tokio::time::sleep(Duration::from_secs(3))).await;
    let each = keys.into_iter().flat_map(|key| (0..REPLICAS).map(move |replica| (key.clone(), replica)));
    let each = each.map(|(key, replica)| {
        let fleet = Arc::clone(&fleet);
        tokio::spawn(async move { ask_for_twice(&fleet, replica, &key, Duration::from_secs(lasts)).await })
    });
    let asking = join_all(each);
    let (asked, got) = tokio::sync::oneshot::channel();
    let noise = async {
        let _ = asked.send(asking.await);
    };
    let beside = good_caller(address, "q", quiet, noise).await;

    let mut shares: Vec<f64> = Vec::new();
    for share in got.await.unwrap() {
        let (got, [least, most]) = share.unwrap();
        shares.push(got / f64::midpoint(least, most));
        assert!((least * 0.98 - 1.0..=most * 1.02).contains(&got), "{got} of {least} to {most}");
    }
    shares.sort_by(f64::total_cmp);
    println!(
        "{callers} callers at {REPLICAS} replicas for {lasts} s at twice their limit: of it they got {:.3} to {:.3}",
        shares[0],
        shares[shares.len() - 1]
    );
    for (when, waited) in [("alone", &before), ("beside them", &beside)] {
        let (half, most) = (percentile(waited, 50), percentile(waited, 99));
        println!("quiet tenant {when}: {} answers, p50 {half:.1?}, p99 {most:.1?}", waited.len());
    }
}

/// So many keys, as many as may be for each agent.
async fn keys(fleet: &Fleet, callers: usize) -> Vec<(String, String)> {
    fleet.ask("POST", "/tenants", Some(json!({"id": "noise"}))).await;
    let mut keys = Vec::new();
    for caller in 0..callers {
        let agent = format!("n{}", caller / KEYS);
        if caller % KEYS == 0 {
            fleet.ask("POST", "/agents", Some(json!({"id": agent, "tenant": "noise"}))).await;
        }
        let made = fleet.ask("POST", &format!("/agents/{agent}/keys"), Some(json!({}))).await.json();
        keys.push((agent, made["key"].as_str().unwrap().to_owned()));
    }
    keys
}

/// Asks for twice what a key may have; answers what it got, and what it may have had at the least and at the most from
/// its first request to its last, each of which was looked at some time before it was answered.
async fn ask_for_twice(
    fleet: &Fleet,
    replica: usize,
    (agent, key): &(String, String),
    lasts: Duration,
) -> (f64, [f64; 2]) {
    let headers = [("x-agent-api-key", key.as_str()), ("content-type", "application/json")];
    let (path, port) = (format!("/{agent}/mcp"), fleet.port(replica));
    let (per_second, burst) = rate();
    let mut pace = tokio::time::interval(Duration::from_secs(1) / (2 * per_second));
    // What may be had at once is asked for at once; twice of what comes back, as it comes.
    let began = Instant::now();
    let (mut got, mut answered) = (0, Vec::new());
    let mut sent = began;
    for number in 0_u32.. {
        if number >= burst {
            pace.tick().await;
        }
        if began.elapsed() > lasts {
            break;
        }
        sent = Instant::now();
        let answer = fleet.http.send(port, "POST", &path, &headers, LIST).await.unwrap();
        assert!([200, 429].contains(&answer.status), "{}", answer.text());
        got += u32::from(answer.status == 200);
        answered.push(Instant::now());
    }
    let may = |span: Duration| f64::from(burst) + f64::from(per_second) * span.as_secs_f64();
    let (first, last) = (answered[0], answered[answered.len() - 1]);
    (f64::from(got), [may(sent - first), may(last - began)])
}
