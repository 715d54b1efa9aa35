//! Requests while the database is unreachable and the spill file is full.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::support::answers::{error, exact};
use crate::support::audit_site::AuditSite;
use crate::support::faults::Fault;
use crate::support::metrics::sample;
use crate::support::wait::eventually;

/// The size of a spill file that is soon full.
const SMALL: (&str, &str) = ("WAGGLE_AUDIT__SPILL_BYTES", "1 MiB");
const BUSY: &str = "the gateway is overloaded or shutting down; try again";

/// A URI of the maximum length, of no resource.
fn long_uri() -> String {
    format!("test://{}", "x".repeat(2_000))
}

/// Clients that read until they are stopped; each returns the number of its requests, all of which were answered.
struct Readers {
    clients: JoinSet<usize>,
    stop: CancellationToken,
}

impl Readers {
    fn start(audit_site: &Arc<AuditSite>, count: usize) -> Self {
        let (mut clients, stop) = (JoinSet::new(), CancellationToken::new());
        for client in 0..count {
            let (audit_site, stop) = (Arc::clone(audit_site), stop.clone());
            clients.spawn(async move {
                for count in 0.. {
                    if stop.is_cancelled() {
                        return count;
                    }
                    assert_eq!(audit_site.read(&format!("{client}-{count}"), &long_uri()).await.status, 200);
                }
                unreachable!()
            });
        }
        Self { clients, stop }
    }

    async fn stop(self) -> usize {
        self.stop.cancel();
        self.clients.join_all().await.into_iter().sum()
    }
}

/// What the gateway logged about lost events.
fn lost_lines(audit_site: &AuditSite) -> Vec<Value> {
    let printed = audit_site.site.printed("stderr");
    // The last line may be incomplete.
    let lines = printed.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["message"].as_str().unwrap().starts_with("audit events lost")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn full_batched_log_loses_events_and_reports_how_many() {
    let (audit_site, gateway) = AuditSite::new(&[SMALL, ("WAGGLE_AUDIT__QUEUE", "400")]).await;
    let audit_site = Arc::new(audit_site);
    audit_site.is_written().await;
    audit_site.proxy.fail(Fault::Refused);
    let readers = Readers::start(&audit_site, 4);
    eventually("events are lost", async || audit_site.number("lost_total").await > 0).await;
    let loses = Instant::now();
    let lines = || lost_lines(&audit_site);
    eventually("the loss is logged repeatedly", async || lines().len() >= 3).await;
    // The queue may have been full before the file.
    eventually("the file is nearly full", async || audit_site.number("spilled_bytes").await > 500_000).await;
    let count = readers.stop().await;
    let logged_for = loses.elapsed();
    let lost = audit_site.number("lost_total").await;
    println!("{count} requests, {lost} of them lost");
    assert!(audit_site.number("waiting").await >= 400);

    audit_site.proxy.fail(Fault::None);
    audit_site.is_written().await;
    assert_eq!(audit_site.number("lost_total").await, lost);
    let reads = "select count(*) from audit_log where method = 'resources/read' and subject <> 'test://a'";
    let recorded = audit_site.database.number(reads).await;
    assert_eq!(recorded + lost, i64::try_from(count).unwrap());
    let mut connection = audit_site.database.connect().await;
    let query = "select concat_ws(' ', method, subject, outcome) from audit_log where method = 'audit/lost'";
    let rows_of_losses: Vec<String> = sqlx::query_scalar(query).fetch_all(&mut connection).await.unwrap();
    assert_eq!(rows_of_losses, [format!("audit/lost {lost} events unavailable")]);
    let rows = audit_site.database.number("select count(*) from audit_log").await;
    assert_eq!(audit_site.number("rows_total").await, rows);
    assert!(gateway.stop().await.success());

    let lines = lines();
    assert!(lines.iter().all(|line| line["level"] == "ERROR"), "{lines:?}");
    let most = usize::try_from(logged_for.as_secs()).unwrap() + 2;
    assert!((3..=most).contains(&lines.len()), "{} in {logged_for:?}", lines.len());
    assert_eq!(audit_site.verify().await.0, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn full_synchronous_log_refuses_requests() {
    let settings = [SMALL, ("WAGGLE_AUDIT__QUEUE", "16"), ("WAGGLE_AUDIT__DURABILITY", "sync")];
    let (audit_site, gateway) = AuditSite::new(&settings).await;
    let audit_site = Arc::new(audit_site);
    audit_site.is_written().await;
    audit_site.proxy.fail(Fault::Refused);
    let mut refused = error(503, "1", -31_017, "unavailable", BUSY);
    refused["headers"]["retry-after"] = json!("1");
    // Until none can be stored; requests that wait for their row are then refused at once.
    let mut answered = 0;
    loop {
        let answer = audit_site.read(&format!("first-{answered}"), &long_uri()).await;
        if answer.status != 200 {
            assert_eq!(exact(&answer)["body"]["error"], refused["body"]["error"]);
            break;
        }
        answered += 1;
    }
    assert!(audit_site.number("spilled_bytes").await > 500_000);
    // The requests are recorded as far as there is space, and all are refused.
    for other in 0..30 {
        assert_eq!(exact(&audit_site.read(&format!("other-{other}"), &long_uri()).await), refused);
    }
    assert_eq!(audit_site.number("waiting").await, 16 + 1);
    assert_eq!(audit_site.number("lost_total").await, 30 - 16);

    audit_site.proxy.fail(Fault::None);
    eventually("requests are admitted again", async || {
        audit_site.read("last", &long_uri()).await.status == 200
    })
    .await;
    audit_site.is_written().await;
    let printed = audit_site.site.printed("stderr");
    assert_eq!(printed.matches("audit rows not durable").count(), 1, "the file is not tried again");
    assert_eq!(printed.matches("audit rows durable again").count(), 1);
    let reads = "select count(*) from audit_log where outcome = 'resource_not_found'";
    // The refused request had been read.
    assert_eq!(audit_site.database.number(reads).await, answered + 1 + 1);
    let refusals = "select count(*) from audit_log where outcome = 'unavailable' and method <> 'audit/lost'";
    assert!(audit_site.database.number(refusals).await >= 16);
    assert!(gateway.stop().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_do_not_wait_longer_than_patience_for_a_slow_database() {
    let (audit_site, gateway) = AuditSite::new(&[("WAGGLE_AUDIT__PATIENCE_MS", "2000")]).await;
    let audit_site = Arc::new(audit_site);
    audit_site.is_written().await;
    // Each write is answered in time, but a batch waits for the one before.
    audit_site
        .database
        .execute(
            "create function slow() returns trigger language plpgsql as $$ \
                begin perform pg_sleep(1.9); return new; end $$",
        )
        .await;
    audit_site
        .database
        .execute("create trigger slow before update on audit_heads for each row execute function slow()")
        .await;
    let readers = Readers::start(&audit_site, 1);
    let (mut written, mut oldest) = (BTreeSet::new(), 0.0_f64);
    eventually("several writes are complete", async || {
        let metrics = audit_site.site.http.get("/metrics").await.text();
        oldest = oldest.max(sample(&metrics, "waggle_audit_oldest_seconds").unwrap().parse().unwrap());
        written.insert(sample(&metrics, "waggle_audit_rows_total").unwrap().to_owned());
        written.len() >= 4
    })
    .await;
    readers.stop().await;
    println!("the oldest event waited for {oldest} s");
    assert!((1.0..3.0).contains(&oldest), "2 s, and not the time of two writes: {oldest}");
    let metrics = audit_site.site.http.get("/metrics").await.text();
    let writes = |suffix: &str| {
        let name = format!("waggle_audit_write_seconds_{suffix}");
        sample(&metrics, &name).unwrap().parse::<u64>().unwrap()
    };
    assert!(writes("count") - writes("bucket{le=\"1\"}") >= 1, "{metrics}");
    audit_site.database.execute("drop trigger slow on audit_heads").await;
    audit_site.is_written().await;
    assert!(gateway.stop().await.success());
    assert_eq!(audit_site.verify().await.0, Some(0));
}
