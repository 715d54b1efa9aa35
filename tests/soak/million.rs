//! A million addresses with keys that nobody has, against the real binary with its own limits, and somebody with a good
//! key beside them.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::ConnectOptions;

use crate::cluster::database;
use crate::fleet::{Fleet, Urls};
use crate::flood::{flood, good_caller, percentile, resident};
use crate::{ALONE, is_long};

/// In MiB: what the tables of the limits, the keys that were looked up and the buffers of connections may take together.
const GROWTH: u64 = 256;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_million_addresses_with_bad_keys_cost_no_memory_no_database_and_nobody_else_his_time() {
    let _alone = ALONE.lock().await;
    let addresses = if is_long() { 1_000_000 } else { 20_000 };
    let database = database().await;
    let url = || database.options.to_url_lossy().to_string();
    let settings = [("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1")];
    let fleet = Fleet::start(vec![Urls { database: url(), listen: url() }], &settings).await;
    fleet.ask("POST", "/tenants", Some(json!({"id": "acme"}))).await;
    fleet.ask("POST", "/agents", Some(json!({"id": "a", "tenant": "acme"}))).await;
    let made = fleet.ask("POST", "/agents/a/keys", Some(json!({}))).await.json();
    let key = made["key"].as_str().unwrap();
    let address = ([127, 0, 0, 1], fleet.port(0)).into();
    let process = fleet.pid(0).await.to_string();

    let before = good_caller(address, "a", key, tokio::time::sleep(Duration::from_secs(3))).await;
    let (memory, looked_up) = (resident(&process), number(&fleet, "waggle_key_look_ups_total").await);
    let began = Instant::now();
    let (done, flooded) = tokio::sync::oneshot::channel();
    let flooding = tokio::spawn(async move {
        let statuses = flood(address, "a", addresses, 8).await;
        done.send(()).unwrap();
        statuses
    });
    let during = good_caller(address, "a", key, async { flooded.await.unwrap() }).await;
    let (statuses, took) = (flooding.await.unwrap(), began.elapsed());
    let looked_up = number(&fleet, "waggle_key_look_ups_total").await - looked_up;
    let (grown, limiters) = (resident(&process), number(&fleet, "waggle_limiters{of=\"addresses\"}").await);
    println!(
        "{addresses} addresses in {took:.1?}: {statuses:?}; memory {memory} -> {grown} MiB; {looked_up} keys looked \
         up; {limiters} addresses remembered"
    );
    for (when, waited) in [("before", &before), ("during", &during)] {
        let (half, most) = (percentile(waited, 50), percentile(waited, 99));
        println!("good caller {when}: {} answers, p50 {half:.1?}, p99 {most:.1?}", waited.len());
    }
    assert!(statuses.keys().all(|status| [401, 429, 503].contains(status)), "{statuses:?}");
    assert!(grown < memory + GROWTH, "{memory} -> {grown} MiB");
    // By the defaults: 200 in a second, and 200 at once.
    assert!(looked_up <= 200 * (took.as_secs() + 2), "{looked_up} in {took:?}");
    assert!(limiters <= 100_016, "{limiters}");
    assert!(percentile(&during, 50) < Duration::from_millis(250), "{:?}", percentile(&during, 50));
}

/// The value of one of the gateway's metrics.
async fn number(fleet: &Fleet, name: &str) -> u64 {
    let told = fleet.http.send(fleet.port(0), "GET", "/metrics", &[], "").await.unwrap().text();
    let value = told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name}: {told}")).parse().unwrap()
}
