//! A hundred thousand addresses with unknown keys. The long form, with a million, is in `tests/soak`.

use std::time::{Duration, Instant};

use crate::support::app::Builder;
use crate::support::cluster::database;
use crate::support::flood::{flood, percentile, resident, valid_caller};

const ADDRESSES: u32 = 100_000;
const REMEMBERED: u64 = 20_000;
const LOOK_UPS: u64 = 50;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flood_of_bad_keys_has_bounded_cost_and_delays_no_caller() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_SERVER__TRUSTED_PROXIES", "127.0.0.1")
        .set("WAGGLE_LIMITS__ADDRESS_PER_SECOND", 1)
        .set("WAGGLE_LIMITS__ADDRESS_BURST", 5)
        .set("WAGGLE_LIMITS__REMEMBERED", REMEMBERED)
        .set("WAGGLE_ACCESS__UNKNOWN_KEYS_PER_SECOND", LOOK_UPS)
        .start()
        .await;
    let key = replica.acme("a").await;
    let address = replica.running.address;
    // How long the caller is measured without a flood.
    let rest = tokio::time::sleep(Duration::from_secs(2));
    let before = valid_caller(address, "a", &key, rest).await;
    let looked_up = replica.running.services.identity.stats().key_look_ups;
    let memory = resident("self");

    let began = Instant::now();
    let (done, flooded) = tokio::sync::oneshot::channel();
    let flooding = tokio::spawn(async move {
        let statuses = flood(address, "a", 0..ADDRESSES, 8, None).await;
        done.send(()).unwrap();
        statuses
    });
    let during = valid_caller(address, "a", &key, async { flooded.await.unwrap() }).await;
    let (statuses, took) = (flooding.await.unwrap(), began.elapsed());

    let looked_up = replica.running.services.identity.stats().key_look_ups - looked_up;
    let metrics = replica.http.get("/metrics").await.text();
    let limiters = metrics.lines().find_map(|line| line.strip_prefix("waggle_limiters{of=\"addresses\"} "));
    println!(
        "{ADDRESSES} addresses in {took:.1?}: {statuses:?}; memory {memory} -> {} MiB; {looked_up} keys looked up; \
         {limiters:?} addresses remembered",
        resident("self")
    );
    for (when, waited) in [("before", &before), ("during", &during)] {
        let (half, most) = (percentile(waited, 50), percentile(waited, 99));
        println!("good caller {when}: {} answers, p50 {half:.1?}, p99 {most:.1?}", waited.len());
    }
    assert_eq!(statuses.values().sum::<u64>(), u64::from(ADDRESSES));
    assert!(statuses.keys().all(|status| [401, 429, 503].contains(status)), "{statuses:?}");
    assert!(looked_up <= LOOK_UPS * (took.as_secs() + 2), "{looked_up} in {took:?}");
    // Threads race for the last entries: each may exceed the limit by one.
    assert!(limiters.unwrap().parse::<u64>().unwrap() <= REMEMBERED + 16, "{limiters:?}");
    assert!(percentile(&during, 50) < Duration::from_millis(250), "{:?}", percentile(&during, 50));
}
