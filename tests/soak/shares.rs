//! Callers that send at twice their limits to three replicas, and a quiet tenant beside them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use sqlx::ConnectOptions;

use crate::fleet::{Fleet, Urls, is_release};
use crate::support::cluster::database;
use crate::support::flood::{percentile, valid_caller};
use crate::{EXCLUSIVE, is_long};

const REPLICAS: usize = 3;
/// The rate and burst of a key. For a release so high that one request is less than 1 % of the measurement; for a debug
/// build as high as three of them can answer on a small machine.
fn rate() -> (u32, u32) {
    if is_release() { (5, 10) } else { (2, 6) }
}

/// Active keys of one agent.
const KEYS: usize = 10;
const LIST: &str = r#"{"jsonrpc":"2.0","id":1,"method":"resources/list"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_caller_gets_its_limit_beside_overloaded_ones() {
    let _exclusive = EXCLUSIVE.lock().await;
    let (callers, duration) = if is_long() { (100, 30) } else { (20, 4) };
    let database = database().await;
    let url = || database.options.to_url_lossy().to_string();
    let urls = (0..REPLICAS).map(|_| Urls { database: url(), listen: url() }).collect();
    let (rate, burst) = (rate().0.to_string(), rate().1.to_string());
    let settings =
        [("WAGGLE_LIMITS__KEY_PER_SECOND", rate.as_str()), ("WAGGLE_LIMITS__KEY_BURST", burst.as_str())];
    let fleet = Arc::new(Fleet::start(urls, &settings).await);
    let keys = keys(&fleet, callers).await;
    fleet.admin_retry("POST", "/tenants", Some(json!({"id": "quiet"}))).await;
    fleet.admin_retry("POST", "/agents", Some(json!({"id": "q", "tenant": "quiet"}))).await;
    let unlimited = json!({"limits": {"perSecond": 0}});
    let quiet = fleet.admin_retry("POST", "/agents/q/keys", Some(unlimited)).await.json();
    let quiet = quiet["key"].as_str().unwrap();

    let address = ([127, 0, 0, 1], fleet.port(0)).into();
    let before = valid_caller(address, "q", quiet, tokio::time::sleep(Duration::from_secs(3))).await;
    let each = keys.into_iter().flat_map(|key| (0..REPLICAS).map(move |replica| (key.clone(), replica)));
    let each = each.map(|(key, replica)| {
        let fleet = Arc::clone(&fleet);
        tokio::spawn(async move {
            request_twice_the_rate(&fleet, replica, &key, Duration::from_secs(duration)).await
        })
    });
    let requests = join_all(each);
    let (done, got) = tokio::sync::oneshot::channel();
    let noise = async {
        let _ = done.send(requests.await);
    };
    let beside = valid_caller(address, "q", quiet, noise).await;

    let mut shares: Vec<f64> = Vec::new();
    for share in got.await.unwrap() {
        let (got, [least, most]) = share.unwrap();
        shares.push(got / f64::midpoint(least, most));
        assert!((least * 0.98 - 1.0..=most * 1.02).contains(&got), "{got} of {least} to {most}");
    }
    shares.sort_by(f64::total_cmp);
    println!(
        "{callers} callers, {REPLICAS} replicas, {duration} s at twice the limit: admitted {:.3} to {:.3} of the limit",
        shares[0],
        shares[shares.len() - 1]
    );
    for (when, waited) in [("alone", &before), ("beside them", &beside)] {
        let (half, most) = (percentile(waited, 50), percentile(waited, 99));
        println!("quiet tenant {when}: {} answers, p50 {half:.1?}, p99 {most:.1?}", waited.len());
    }
}

/// Creates keys, as many per agent as permitted.
async fn keys(fleet: &Fleet, callers: usize) -> Vec<(String, String)> {
    fleet.admin_retry("POST", "/tenants", Some(json!({"id": "noise"}))).await;
    let mut keys = Vec::new();
    for caller in 0..callers {
        let agent = format!("n{}", caller / KEYS);
        if caller % KEYS == 0 {
            fleet.admin_retry("POST", "/agents", Some(json!({"id": agent, "tenant": "noise"}))).await;
        }
        let made = fleet.admin_retry("POST", &format!("/agents/{agent}/keys"), Some(json!({}))).await.json();
        keys.push((agent, made["key"].as_str().unwrap().to_owned()));
    }
    keys
}

/// Sends at twice the rate of a key; returns the number of admitted requests, and the least and the most that the limit
/// permits between the first and the last request, given that each was charged some time before its answer.
async fn request_twice_the_rate(
    fleet: &Fleet,
    replica: usize,
    (agent, key): &(String, String),
    duration: Duration,
) -> (f64, [f64; 2]) {
    let headers = [("x-agent-api-key", key.as_str()), ("content-type", "application/json")];
    let (path, port) = (format!("/{agent}/mcp"), fleet.port(replica));
    let (per_second, burst) = rate();
    let mut pace = tokio::time::interval(Duration::from_secs(1) / (2 * per_second));
    // The burst is sent at once, the rest at twice the rate.
    let began = Instant::now();
    let (mut got, mut answered) = (0, Vec::new());
    let mut sent = began;
    for number in 0_u32.. {
        if number >= burst {
            pace.tick().await;
        }
        if began.elapsed() > duration {
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
