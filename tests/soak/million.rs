//! A million addresses with unknown keys against the binary with its default limits, and a caller with a valid key
//! beside them.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::ConnectOptions;

use crate::fleet::{Fleet, Urls};
use crate::support::cluster::database;
use crate::support::flood::{flood, percentile, resident, valid_caller};
use crate::{EXCLUSIVE, is_long};

/// The permitted growth of memory: tables of limiters, cached unknown keys, and buffers of connections.
const MAX_GROWTH_MIB: u64 = 256;
/// The interval at which each connection of the slower flood sends.
const PACE: Duration = Duration::from_millis(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn million_addresses_with_unknown_keys_affect_no_other_caller() {
    let _exclusive = EXCLUSIVE.lock().await;
    let addresses = if is_long() { 1_000_000 } else { 20_000 };
    let database = database().await;
    let url = || database.options.to_url_lossy().to_string();
    let settings = [("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1")];
    let fleet = Fleet::start(vec![Urls { database: url(), listen: url() }], &settings).await;
    fleet.admin_retry("POST", "/tenants", Some(json!({"id": "acme"}))).await;
    fleet.admin_retry("POST", "/agents", Some(json!({"id": "a", "tenant": "acme"}))).await;
    let made = fleet.admin_retry("POST", "/agents/a/keys", Some(json!({}))).await.json();
    let key = made["key"].as_str().unwrap();
    let address = ([127, 0, 0, 1], fleet.port(0)).into();
    let process = fleet.pid(0).await.to_string();

    let before = valid_caller(address, "a", key, tokio::time::sleep(Duration::from_secs(3))).await;
    print_latencies("alone", &before);
    let (memory, looked_up) = (resident(&process), number(&fleet, "waggle_key_look_ups_total").await);
    let began = Instant::now();
    let half = addresses / 2;
    for (addresses, pace) in [(0..half, None), (half..addresses, Some(PACE))] {
        let (many, began) = (addresses.len(), Instant::now());
        let (done, flooded) = tokio::sync::oneshot::channel();
        let flooding = tokio::spawn(async move {
            let statuses = flood(address, "a", addresses, 8, pace).await;
            done.send(()).unwrap();
            statuses
        });
        let during = valid_caller(address, "a", key, async { flooded.await.unwrap() }).await;
        let (statuses, took) = (flooding.await.unwrap(), began.elapsed());
        let how = if pace.is_some() { "at a fixed rate" } else { "at full speed" };
        println!("{many} addresses {how}, in {took:.1?}: {statuses:?}");
        print_latencies("meanwhile", &during);
        assert!(statuses.keys().all(|status| [401, 429, 503].contains(status)), "{statuses:?}");
        assert!(percentile(&during, 50) < Duration::from_millis(250), "{:?}", percentile(&during, 50));
    }
    let took = began.elapsed();
    let looked_up = number(&fleet, "waggle_key_look_ups_total").await - looked_up;
    let (grown, limiters) = (resident(&process), number(&fleet, "waggle_limiters{of=\"addresses\"}").await);
    println!("memory {memory} -> {grown} MiB; {looked_up} keys looked up; {limiters} limiters of addresses");
    assert!(grown < memory + MAX_GROWTH_MIB, "{memory} -> {grown} MiB");
    // The default limits: 200 per second, and a burst of 200.
    assert!(looked_up <= 200 * (took.as_secs() + 2), "{looked_up} in {took:?}");
    assert!(limiters <= 100_016, "{limiters}");
}

fn print_latencies(when: &str, waited: &[Duration]) {
    let (half, most) = (percentile(waited, 50), percentile(waited, 99));
    println!("valid caller {when}: {} answers, p50 {half:.1?}, p99 {most:.1?}", waited.len());
}

/// The value of one of the gateway's metrics.
async fn number(fleet: &Fleet, name: &str) -> u64 {
    let text = fleet.http.send(fleet.port(0), "GET", "/metrics", &[], "").await.unwrap().text();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name}: {text}")).parse().unwrap()
}
