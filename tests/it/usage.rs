//! Quotas for all replicas together, and usage reports.

mod quota_shares;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use time::macros::datetime;

use crate::support::app::{Builder, Replica};
use crate::support::clock::ManualClock;
use crate::support::cluster::{Database, database};
use crate::support::http::Answer;
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

async fn list(replica: &Replica, agent: &str, key: &str) -> Answer {
    replica.http.post(agent, key, &json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"})).await
}

/// How many lists are answered until one is refused for a quota.
async fn until_refused(replica: &Replica, agent: &str, key: &str) -> u32 {
    for answered in 0.. {
        let answer = list(replica, agent, key).await;
        if answer.status == 429 {
            assert_eq!(answer.json()["error"]["data"]["code"], "quota_exceeded");
            return answered;
        }
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    0
}

async fn limit(replica: &Replica, path: &str, limits: Value) {
    let set = replica.admin("PATCH", path, Some(json!({"limits": limits}))).await;
    assert_eq!(set.status, 200, "{}", set.text());
}

/// Waits until the replica knows that its database is unreachable.
async fn is_away(replica: &Replica) {
    let away = "database_unreachable";
    eventually("the database is away", async || replica.http.get("/readyz").await.text().contains(away))
        .await;
}

/// Three replicas, and the agent `a` with a key.
async fn three(database: &Database) -> (Vec<Arc<Replica>>, String) {
    let replicas = join_all((0..3).map(|_| Builder::new(database).start())).await;
    let key = replicas[0].acme("a").await;
    (replicas.into_iter().map(Arc::new).collect(), key)
}

#[tokio::test]
async fn three_replicas_share_one_quota() {
    let database = database().await;
    let (replicas, key) = three(&database).await;
    limit(&replicas[0], "/agents/a", json!({"callsPerDay": 2_000, "callsPerMonth": 3_000})).await;
    join_all(replicas.iter().map(|replica| replica.caught_up())).await;
    let mut given_out = 0;
    for quota in [2_000_u32, 1_000] {
        let answered = AtomicU32::new(0);
        join_all((0..24).map(async |caller| {
            let count = until_refused(&replicas[caller % 3], "a", &key).await;
            answered.fetch_add(count, Ordering::Relaxed);
        }))
        .await;
        // The share of a replica without callers is returned.
        given_out += i64::from(answered.load(Ordering::Relaxed));
        let taken = "select calls from quotas where period = 'month'";
        eventually("the unused share is returned", async || database.number(taken).await == given_out).await;
        let rest = until_refused(&replicas[0], "a", &key).await;
        let (answered, lay) = (answered.into_inner(), f64::from(rest) / f64::from(quota));
        assert_eq!(answered + rest, quota);
        assert!(lay <= 0.01, "{rest} of {quota} were refused before they were used up");
        given_out += i64::from(rest);
        // The monthly quota continues where the daily one ended.
        limit(&replicas[0], "/agents/a", json!({"callsPerMonth": 3_000})).await;
        join_all(replicas.iter().map(|replica| replica.caught_up())).await;
    }
}

#[tokio::test]
async fn exhausted_quota_is_refused_with_its_reset_time() {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-12-31 23:59 UTC));
    let replica = Builder::new(&database).clock(clock.clone()).start().await;
    let key = replica.acme("a").await;
    limit(&replica, "/tenants/acme", json!({"callsPerDay": 2})).await;
    replica.agent("acme", "b").await;
    let (_, other) = replica.key("b", &["mcp"]).await;
    assert_eq!(
        [list(&replica, "a", &key).await.status, list(&replica, "b", &other).await.status],
        [200, 200]
    );
    let refused = list(&replica, "a", &key).await;
    assert_eq!((refused.status.as_u16(), refused.header("retry-after")), (429, Some("60")));
    let expected = json!({
        "jsonrpc": "2.0",
        "id": 1,
        "error": {
            "code": -31016,
            "message": "daily call quota of this tenant exceeded",
            "data": {"code": "quota_exceeded", "retryAfterMs": 60_000, "scope": "tenant"},
        },
    });
    assert_eq!(refused.json(), expected);
    clock.advance(time::Duration::minutes(1));
    assert_eq!(until_refused(&replica, "a", &key).await, 2, "it is another day");
    limit(&replica, "/tenants/acme", json!({"callsPerDay": 5})).await;
    assert_eq!(until_refused(&replica, "a", &key).await, 3, "three more");
    limit(&replica, "/tenants/acme", Value::Null).await;
    assert_eq!(list(&replica, "a", &key).await.status, 200);
}

#[tokio::test]
async fn refused_calls_take_no_quota_and_batches_count_requests() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    limit(&replica, "/agents/a", json!({"callsPerMonth": 10})).await;
    limit(&replica, "/tenants/acme", json!({"callsPerDay": 4})).await;
    assert_eq!(until_refused(&replica, "a", &key).await, 4);
    for _ in 0..10 {
        assert_eq!(list(&replica, "a", &key).await.status, 429);
    }
    limit(&replica, "/tenants/acme", Value::Null).await;
    let member = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let batch = replica.http.post("a", &key, &json!([member, note, member])).await;
    assert_eq!(batch.json().as_array().unwrap().len(), 2, "{}", batch.text());
    assert_eq!(until_refused(&replica, "a", &key).await, 4);
}

#[tokio::test]
async fn discovery_is_answered_after_the_quota_is_used_up() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    limit(&replica, "/agents/a", json!({"callsPerDay": 1, "bytesPerDay": 2_000})).await;
    let modern = async |header: Option<&str>, method: &str| {
        let client = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": client}});
        let mut headers = vec![
            ("x-agent-api-key", &*key),
            ("content-type", "application/json"),
            ("mcp-protocol-version", "2026-07-28"),
        ];
        headers.extend(header.map(|method| ("mcp-method", method)));
        let answer = replica.http.send("POST", "/a/mcp", &headers, message.to_string()).await;
        (answer.status.as_u16(), answer.json()["error"]["code"].take())
    };
    let (discover, listing) = ("server/discover", "resources/list");
    for _ in 0..10 {
        assert_eq!(modern(Some(discover), discover).await, (200, Value::Null), "nor does it take bytes");
    }
    // An unknown method of the other era is a call like others.
    limit(&replica, "/agents/a", json!({"callsPerDay": 2, "bytesPerDay": 2_000})).await;
    let unknown = json!({"jsonrpc": "2.0", "id": "x".repeat(1_000), "method": discover});
    for code in [-32601, -31016] {
        assert_eq!(replica.http.post("a", &key, &unknown).await.json()["error"]["code"], code);
    }
    limit(&replica, "/agents/a", json!({"callsPerDay": 2, "bytesPerDay": 1_000_000})).await;
    assert_eq!(until_refused(&replica, "a", &key).await, 1);
    for _ in 0..2 {
        assert_eq!(modern(Some(discover), discover).await, (200, Value::Null));
        // Refused for the missing header, not for the quota.
        assert_eq!(modern(None, discover).await, (400, json!(-32020)));
        assert_eq!(modern(Some(discover), listing).await, (429, json!(-31016)), "the body decides");
        assert_eq!(modern(Some(listing), listing).await, (429, json!(-31016)));
    }
}

#[tokio::test]
async fn anonymous_callers_have_a_quota_of_their_own() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__STRANGERS_PERCENT", 50).start().await;
    let own = replica.acme("a").await;
    replica.agent("acme", "b").await;
    let (_, elsewhere) = replica.key("b", &["mcp"]).await;
    replica.tenant("rival").await;
    replica.agent("rival", "r").await;
    let (_, foreign) = replica.key("r", &["mcp"]).await;
    replica.admin("PATCH", "/agents/a", Some(json!({"access": "public"}))).await;
    limit(&replica, "/tenants/acme", json!({"callsPerDay": 10})).await;
    limit(&replica, "/tenants/rival", json!({"callsPerDay": 3})).await;
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"}).to_string();
    let anonymous = async || {
        let headers = [("content-type", "application/json")];
        replica.http.send("POST", "/a/mcp", &headers, body.clone()).await
    };
    for _ in 0..3 {
        assert_eq!(anonymous().await.status, 200);
    }
    assert_eq!(until_refused(&replica, "a", &foreign).await, 2, "both share half of the tenant's quota");
    let refused = anonymous().await;
    assert_eq!(
        (refused.status.as_u16(), &refused.json()["error"]["data"]["code"]),
        (429, &json!("quota_exceeded"))
    );
    assert_eq!(list(&replica, "a", &own).await.status, 200);
    assert_eq!(until_refused(&replica, "b", &elsewhere).await, 9, "the tenant's quota was not charged");
    assert_eq!(until_refused(&replica, "r", &foreign).await, 3, "nor of that of the foreign key's tenant");

    limit(&replica, "/tenants/acme", Value::Null).await;
    limit(&replica, "/agents/a", json!({"callsPerDay": 4, "strangersPercent": 0})).await;
    assert_eq!(anonymous().await.status, 429);
    assert_eq!(until_refused(&replica, "a", &own).await, 4);
}

#[tokio::test]
async fn unused_quota_is_returned_at_shutdown() {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("a").await;
    limit(&replica, "/agents/a", json!({"callsPerDay": 100_000})).await;
    for _ in 0..3 {
        assert_eq!(list(&replica, "a", &key).await.status, 200);
    }
    let taken = "select calls from quotas where period = 'day'";
    assert!(database.number(taken).await > 100);
    replica.running.stop().await;
    assert_eq!(database.number(taken).await, 3);
}

#[tokio::test]
async fn calls_during_an_outage_are_charged_afterwards() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let replica = Builder::new(&database)
        .set("WAGGLE_DATABASE__ACQUIRE_SECONDS", 1)
        .store(|options| {
            options.acquire = Duration::from_secs(1);
            options.connect = proxy.options.clone();
            options.listen = proxy.options.clone();
        })
        .start()
        .await;
    let key = replica.acme("a").await;
    limit(&replica, "/agents/a", json!({"callsPerDay": 20})).await;
    assert_eq!(list(&replica, "a", &key).await.status, 200);
    proxy.swallow(true);
    is_away(&replica).await;
    for _ in 0..5 {
        let answer = list(&replica, "a", &key).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    proxy.swallow(false);
    let is_ready = async || replica.http.get("/readyz").await.text() == r#"{"status":"ready"}"#;
    eventually("the database is there", is_ready).await;
    // Not for a condition: for five seconds the reservation whose connection stays silent goes on.
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(until_refused(&replica, "a", &key).await, 14);
}

#[tokio::test]
async fn usage_that_could_not_be_written_is_written_once_later() {
    let database = database().await;
    let proxy = Proxy::before(&database.options).await;
    let replica = Builder::new(&database)
        .set("WAGGLE_USAGE__SETTLE_SECONDS", 1)
        .store(|options| {
            options.statement = Duration::from_secs(1);
            options.connect = proxy.options.clone();
        })
        .start()
        .await;
    let key = replica.acme("a").await;
    let settled = "select coalesce(sum(calls), 0)::bigint from agent_usage where method = 'resources/list'";
    // Loads what the list is answered from. Usage whose answer is lost is written twice, so that none of the list may be
    // under way before.
    replica.http.call("a", &key, "prompts/list", json!({})).await;
    proxy.swallow(true);
    assert_eq!(list(&replica, "a", &key).await.status, 200);
    // Not for a condition: usage that is written during this time is lost without a broken connection and without a visible
    // sign.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    assert_eq!(database.number(settled).await, 0);
    proxy.swallow(false);
    eventually("the call is settled", async || database.number(settled).await >= 1).await;
    // What is still to be written is written now.
    replica.running.stop().await;
    assert_eq!(database.number(settled).await, 1);
}

#[tokio::test]
async fn usage_is_reported_by_hour_or_day_and_method() {
    let database = database().await;
    let clock = ManualClock::at(datetime!(2026-05-01 10:59:59 UTC));
    let replica = Builder::new(&database).clock(clock.clone()).start().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "one").await;
    let read =
        |uri: &str| json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}});
    let mut bytes = [0, 0];
    for uri in ["x:1", "x:1", "x:none"] {
        bytes[0] += read(uri).to_string().len();
        bytes[1] += replica.http.post("a", &key, &read(uri)).await.body.len();
    }
    clock.advance(time::Duration::seconds(2));
    let unknown = json!({"jsonrpc": "2.0", "id": 1, "method": "no/such"});
    replica.http.post("a", &key, &unknown).await;
    limit(&replica, "/agents/a", json!({"callsPerDay": 0})).await;
    assert_eq!(list(&replica, "a", &key).await.status, 429);
    limit(&replica, "/agents/a", Value::Null).await;
    let member = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    replica.http.post("a", &key, &json!([member, member])).await;

    let usage = async |query: &str| {
        let answer = replica.admin("GET", &format!("/agents/a/usage{query}"), None).await;
        let mut items = answer.json()["items"].take();
        for item in items.as_array_mut().unwrap() {
            for (shown, sum) in [("bytes", true), ("bytesIn", false), ("bytesOut", false)] {
                let value = item[shown].take();
                let whole = item["method"] == "resources/read" && sum;
                assert!(!whole || value == (bytes[0] + bytes[1]) as u64, "{value} {bytes:?}");
                item.as_object_mut().unwrap().remove(shown);
            }
        }
        items
    };
    let item = |at: &str, method: &str, calls: u32, errors: u32, denied: u32| json!({"at": at, "method": method, "calls": calls, "errors": errors, "denied": denied});
    let (ten, eleven) = ("2026-05-01T10:00:00Z", "2026-05-01T11:00:00Z");
    let expected = json!([
        item(ten, "resources/read", 3, 1, 0),
        item(eleven, "other", 1, 1, 0),
        item(eleven, "ping", 2, 0, 0),
        item(eleven, "resources/list", 1, 0, 1),
    ]);
    eventually("all is counted", async || usage("").await == expected).await;
    assert_eq!(usage("?from=2026-05-01T11:00:00Z").await.as_array().unwrap().len(), 3);
    assert_eq!(usage("?to=2026-05-01T11:00:00Z").await, json!([item(ten, "resources/read", 3, 1, 0)]));
    assert_eq!(usage("?from=2026-05-01&to=2026-05-02").await, expected);
    assert_eq!(usage("?bucket=day").await[2], item("2026-05-01T00:00:00Z", "resources/list", 1, 0, 1));
    for (query, detail) in [
        ("?from=2026-05-01T11:00:00Z&to=2026-05-01T10:00:00Z", "from must not be after to"),
        ("?from=2026-03-01T11:00:00Z", "from and to may be at most 31 days apart with this bucket"),
    ] {
        let refused = replica.admin("GET", &format!("/agents/a/usage{query}"), None).await;
        assert_eq!((refused.status.as_u16(), refused.json()["detail"].as_str()), (400, Some(detail)));
    }
    let refused = replica.http.admin(&key, "GET", "/agents/a/usage", None).await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn remaining_quota_of_a_tenant_is_a_metric() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_METRICS__TENANTS", 10).start().await;
    let key = replica.acme("a").await;
    limit(&replica, "/tenants/acme", json!({"callsPerDay": 5})).await;
    limit(&replica, "/agents/a", json!({"callsPerDay": 9})).await;
    for _ in 0..2 {
        replica.http.call("a", &key, "resources/list", json!({})).await;
    }
    let text = replica.http.get("/metrics").await.text();
    let samples: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("waggle_tenant_quota_remaining{tenant=")).collect();
    let [sample] = samples[..] else { panic!("{samples:?}") };
    assert_eq!(sample.split_once(',').unwrap().1, r#"period="day",unit="calls"} 3"#);
}

#[tokio::test]
async fn tenants_have_no_metrics_of_their_own_unless_set() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_METRICS__TENANTS", 0).start().await;
    let key = replica.acme("a").await;
    limit(&replica, "/tenants/acme", json!({"callsPerDay": 5})).await;
    replica.http.call("a", &key, "resources/list", json!({})).await;
    let text = replica.http.get("/metrics").await.text();
    assert!(
        text.lines().any(|line| line.starts_with("waggle_requests_total{method=\"resources/list\"")),
        "{text}"
    );
    let samples: Vec<_> = text.lines().filter(|line| line.starts_with("waggle_tenant_")).collect();
    assert_eq!(samples, [""; 0]);
}
