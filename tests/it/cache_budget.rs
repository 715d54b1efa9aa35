//! The memory of all caches: one budget, divided by use and fairly between tenants.

use std::sync::Arc;

use futures_util::future::join_all;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};

use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::load_counter::LoadCounter;
use crate::support::process::Site;
use crate::support::wait::eventually;

const MIB: u64 = 1 << 20;

/// Clients that read at once.
const CLIENTS: usize = 8;

/// Creates a tenant with a public agent of the same name, which has one resource.
async fn publish(replica: &Replica, name: &str, text: &str) {
    replica.tenant(name).await;
    let agent = json!({"id": name, "tenant": name, "access": "public"});
    assert!(replica.admin("POST", "/agents", Some(agent)).await.status.is_success());
    replica.put(name, "x:0", text).await;
}

/// Copies the resource of an agent to so many URIs, `x:1` and so on, with the same contents.
async fn copy_resource(database: &Database, agent: &str, copies: usize) {
    let of_agent = format!(
        "from {{}} r join agents a on a.uid = r.agent, generate_series(1, {copies}) n where a.slug = '{agent}'"
    );
    let resources = of_agent.replace("{}", "resources");
    database
        .execute(&format!(
            "insert into resources (tenant, agent, uri, name, source, revision, last_modified) \
             select r.tenant, r.agent, 'x:' || n, r.name, r.source, r.revision, r.last_modified {resources}"
        ))
        .await;
    let contents = of_agent.replace("{}", "resource_contents");
    database
        .execute(&format!(
            "insert into resource_contents (tenant, agent, uri, ordinal, mime_type, kind, hash, size) \
             select r.tenant, r.agent, 'x:' || n, r.ordinal, r.mime_type, r.kind, r.hash, r.size {contents}"
        ))
        .await;
}

/// Calls a method of agents without a credential; fails if one has no result.
async fn call_all(replica: &Replica, calls: impl IntoIterator<Item = (String, &'static str, Value)>) {
    stream::iter(calls)
        .map(async |(agent, method, params)| {
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
            let headers = [("content-type", "application/json")];
            let path = format!("/{agent}/mcp");
            let answer = replica.http.send("POST", &path, &headers, message.to_string()).await.json();
            assert!(answer["result"].is_object(), "{agent} {params}: {answer}");
        })
        .buffer_unordered(CLIENTS)
        .collect()
        .await
}

async fn read_all(replica: &Replica, agent: &str, resources: usize) {
    let call = |n| (agent.to_owned(), "resources/read", json!({"uri": format!("x:{n}")}));
    call_all(replica, (0..=resources).map(call)).await;
}

/// The bytes of all caches.
async fn cached_bytes(replica: &Replica) -> u64 {
    let metrics = replica.http.get("/metrics").await.text();
    let lines = metrics.lines().filter(|line| line.starts_with("waggle_cache_bytes{"));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn four_thousand_active_agents_stay_in_memory_by_default() {
    const AGENTS: usize = 4_000;
    let database = database().await;
    let loads = Arc::new(LoadCounter::default());
    let replica = Builder::new(&database).fault_injector(Arc::clone(&loads) as Arc<_>).start().await;
    publish(&replica, "acme", "text").await;
    database
        .execute(&format!(
            "insert into agents (uid, tenant, slug, name, access, enabled, created_at) \
             select gen_random_uuid(), tenant, 'a' || n, name, access, enabled, created_at \
             from agents, generate_series(1, {AGENTS}) n where slug = 'acme'"
        ))
        .await;
    database.execute("insert into heads select uid, 1, 0 from agents where slug <> 'acme'").await;
    let list = || call_all(&replica, (1..=AGENTS).map(|n| (format!("a{n}"), "resources/list", json!({}))));
    list().await;
    let first = loads.count();
    assert!(first >= AGENTS, "{first} loads");
    for _ in 0..2 {
        list().await;
        assert_eq!(loads.count(), first, "nothing is loaded again");
    }
    // And the agent that was created over the administration API, if it was read.
    let agents = replica.metric("waggle_cache_entries{cache=\"agents\"}").await;
    assert!(agents >= AGENTS as f64, "{agents}");
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_of_one_tenant_evicts_nothing_that_another_uses() {
    const BUDGET: u64 = 16 * MIB;
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    publish(&writer, "quiet", "text").await;
    publish(&writer, "loud", &"x".repeat(64 << 10)).await;
    copy_resource(&database, "quiet", 100).await;
    copy_resource(&database, "loud", 1_000).await;
    // Has no agent in memory, so that it reads the copies too.
    let replica = Builder::new(&database).set("WAGGLE_CACHE__BYTES", BUDGET).start().await;
    read_all(&replica, "loud", 0).await;
    read_all(&replica, "quiet", 100).await;
    let misses = async || {
        let of = async |cache: &str| {
            let name = format!("waggle_cache_look_ups_total{{cache=\"{cache}\",outcome=\"miss\"}}");
            replica.metric(&name).await
        };
        (of("results").await, of("agents").await, of("tenants").await)
    };
    let before = misses().await;
    // Four times the budget, twice.
    for _ in 0..2 {
        read_all(&replica, "loud", 1_000).await;
        assert!(cached_bytes(&replica).await <= BUDGET);
    }
    let evicted = replica.metric("waggle_cache_evictions_total{cache=\"results\"}").await;
    assert!(evicted >= 1_500.0, "{evicted} of 2,000 results");
    let after_flood = misses().await;
    assert!(after_flood.0 >= before.0 + 1_500.0, "{before:?} {after_flood:?}");
    assert_eq!(after_flood.2, before.2, "tenants remain in memory");
    // The flood may evict the definitions of its own agent, but nothing of the other tenant.
    read_all(&replica, "quiet", 100).await;
    assert_eq!(misses().await, after_flood);
}

#[tokio::test(flavor = "multi_thread")]
async fn content_above_a_quarter_of_the_budget_is_served_and_not_cached() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_CACHE__BYTES", 16 * MIB).start().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:0", "small").await;
    let large = "x".repeat(5 << 20);
    let body = json!({"name": "large", "contents": [{"text": large}]});
    let path = crate::support::app::resource("a", "x:1");
    assert!(replica.admin("PUT", &path, Some(body)).await.status.is_success());
    assert!(replica.http.text("a", &key, "x:0").await.is_some());
    let before = cached_bytes(&replica).await;
    for _ in 0..2 {
        let read = replica.http.text("a", &key, "x:1").await;
        assert_eq!(read.as_deref(), Some(&*large));
    }
    assert!(cached_bytes(&replica).await < before + (64 << 10), "{before}");
    assert_eq!(replica.metric("waggle_cache_evictions_total{cache=\"results\"}").await, 0.0);
}

/// The resident memory of a process. See `proc_pid_status(5)`: kB are 1,024 bytes.
fn resident(pid: nix::unistd::Pid) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() * 1024
}

/// The short version of `make verify-memory`, on the gateway as a process, since it has the allocator that ships.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn resident_memory_stays_within_the_budget() {
    const BUDGET: u64 = 16 * MIB;
    const RESOURCES: usize = 400;
    let site = Site::unlimited().set("WAGGLE_CACHE__BYTES", BUDGET);
    let gateway = site.serve().await;
    site.tenant("acme", ["a".to_owned()]).await;
    let key = site.admin("POST", "/agents/a/keys", Some(json!({"scopes": ["mcp"]}))).await.json();
    let key = key["key"].as_str().unwrap();
    let text = "x".repeat(128 << 10);
    for n in 0..RESOURCES {
        let body = json!({"name": "n", "contents": [{"text": format!("{n} {text}")}]});
        let path = crate::support::app::resource("a", &format!("x:{n}"));
        assert!(site.admin("PUT", &path, Some(body)).await.status.is_success());
    }
    let idle = resident(gateway.pid());
    for n in 0..RESOURCES {
        assert!(site.http.text("a", key, &format!("x:{n}")).await.is_some());
    }
    let grown = resident(gateway.pid()).saturating_sub(idle);
    assert!(grown < BUDGET * 115 / 100 + 24 * MIB, "{} MiB", grown / MIB);
}

#[tokio::test]
async fn results_too_long_for_the_cache_are_encoded_with_a_render_permit() {
    let database = database().await;
    let replica = Builder::new(&database)
        .set("WAGGLE_CACHE__BYTES", 16 << 20)
        .set("WAGGLE_LIMITS__CONCURRENT_RENDERS", 1)
        .set("WAGGLE_LIMITS__WAITING_RENDERS", 0)
        .start()
        .await;
    let key = replica.acme("a").await;
    let long = "long ".repeat(1 << 20);
    replica.put("a", "x:long", &long).await;
    assert_eq!(replica.http.text("a", &key, "x:long").await.as_deref(), Some(&*long));
    let embedded = json!({"type": "resource", "resource": {"uri": "x:long"}});
    let prompt = json!({"messages": [{"role": "user", "content": embedded}]});
    assert_eq!(replica.http.admin(&key, "PUT", "/agents/a/prompts/p", Some(prompt)).await.status, 201);
    // Each request encodes it again, one at a time; none waits here.
    for (method, params) in
        [("resources/read", json!({"uri": "x:long"})), ("prompts/get", json!({"name": "p"}))]
    {
        let call = async || replica.http.call("a", &key, method, params.clone()).await;
        eventually(&format!("{method} at the same time is refused"), async || {
            let answers = join_all((0..4).map(|_| call())).await;
            let refused =
                answers.iter().filter(|answer| answer["error"]["data"]["code"] == "unavailable").count();
            let answered = answers.iter().filter(|answer| answer["result"].is_object()).count();
            assert_eq!(refused + answered, answers.len());
            refused > 0
        })
        .await;
    }
}
