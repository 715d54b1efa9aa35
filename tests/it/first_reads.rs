//! What a read of something that is not in memory takes of the database: counted in statements, each of which is a round
//! trip.

mod changes;
mod kinds;
mod large;

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use waggle::model::system::{FailPoint, FaultInjector};

use crate::support::app::{Builder, Replica, resource};
use crate::support::cluster::{Database, database};
use crate::support::events::{Session, listen};
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

/// A replica whose statements are recorded, except those of the change feed.
async fn recorded(database: &Database) -> (Proxy, Replica) {
    recorded_with(database, 0).await
}

/// As [`recorded`], and loads this many agents after its start.
async fn recorded_with(database: &Database, warm: usize) -> (Proxy, Replica) {
    let proxy = Proxy::before(&database.options).await;
    let replica = Builder::new(database)
        .set("WAGGLE_DATABASE__SWEEP_MS", 10_000)
        .set("WAGGLE_CACHE__WARM_AGENTS", warm)
        .store(|store| store.connect = proxy.options.clone())
        .start()
        .await;
    (proxy, replica)
}

/// The statements since the last call that are not of background tasks: the audit log, usage, sweeps, the purge of what was
/// deleted, mounts, leases, the pruning of changes, issued keys and keys that expire soon. Snapshots begin with an isolation level.
fn statements(proxy: &Proxy) -> Vec<String> {
    let background = [
        "audit",
        "agent_usage",
        "last_used_at =",
        "pg_snapshot_xmin",
        "set_config('statement_timeout'",
        "set plan_cache_mode",
        "skip locked",
        "deleted_at <",
        "found.requested",
        "leases",
        "pg_try_advisory_xact_lock",
        "with ahead",
        // The hashes of issued keys.
        "select hash from api_keys",
        "changed.hash",
        "delete from changes",
        "expires_at <= $2",
    ];
    let is_background = |text: &String| {
        text.starts_with("begin")
            || matches!(text.as_str(), "commit" | "rollback")
            || background.iter().any(|word| text.contains(word))
    };
    proxy.statements.take().into_iter().filter(|text| !is_background(text)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn first_read_of_an_agent_takes_two_statements() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "one").await;
    writer.put("a", "x:2", "two").await;
    let (proxy, reader) = recorded(&database).await;

    statements(&proxy);
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("one"));
    let first = statements(&proxy);
    assert_eq!(first.len(), 2, "the key, and the agent with the content: {first:#?}");

    assert_eq!(reader.http.text("a", &key, "x:2").await.as_deref(), Some("two"));
    let second = statements(&proxy);
    assert_eq!(second.len(), 1, "the content: {second:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn first_read_of_another_agent_takes_two_statements() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    writer.acme("a").await;
    writer.agent("acme", "b").await;
    let owner = writer.admin("POST", "/tenants/acme/keys", Some(json!({"scopes": ["mcp"]}))).await.json();
    let owner = owner["key"].as_str().unwrap();
    for agent in ["a", "b"] {
        writer.put(agent, "x:1", agent).await;
    }
    let (proxy, reader) = recorded(&database).await;
    let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x:1"}});
    let text = async |agent: &str| {
        reader.http.post_bearer(agent, owner, &read).await.json()["result"]["contents"][0]["text"].clone()
    };
    assert_eq!(text("a").await, "a");

    statements(&proxy);
    assert_eq!(text("b").await, "b");
    let read = statements(&proxy);
    assert_eq!(read.len(), 2, "the slug with its access, and the agent with the content: {read:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn first_read_by_a_tool_loads_the_content_with_the_agent() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    let tools = json!({"tools": ["resources", "search"]});
    assert_eq!(writer.admin("PATCH", "/agents/a", Some(tools)).await.status, 200);
    writer.put("a", "x:1", "one").await;
    for (name, argument) in [("read_resource", "uri"), ("fetch", "id")] {
        let (proxy, reader) = recorded(&database).await;
        statements(&proxy);
        let call = json!({"name": name, "arguments": {argument: "x:1"}});
        let answer = reader.http.call("a", &key, "tools/call", call).await;
        assert!(answer["result"]["content"][0]["text"].as_str().unwrap().contains("one"), "{name}: {answer}");
        let first = statements(&proxy);
        assert_eq!(first.len(), 2, "{name}: the key, and the agent with the content: {first:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_short_contents_are_loaded_with_the_agent() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    // The nth up to 64 KiB / n.
    let text = |letter: &str, bytes: usize| letter.repeat(bytes);
    let (bound, second) = (64 * 1024, 32 * 1024);
    for (uri, texts, expected) in [
        ("x:bound", vec![text("a", bound), text("b", second)], 2),
        ("x:first", vec![text("a", bound + 1), text("b", second)], 3),
        ("x:second", vec![text("a", bound), text("b", second + 1)], 3),
    ] {
        let contents: Vec<_> = texts.iter().map(|text| json!({"text": text})).collect();
        let contents = json!({"name": "n", "contents": contents});
        assert_eq!(writer.admin("PUT", &resource("a", uri), Some(contents)).await.status, 201);
        let (proxy, reader) = recorded(&database).await;
        statements(&proxy);
        let answer = reader.http.call("a", &key, "resources/read", json!({"uri": uri})).await;
        let read = answer["result"]["contents"].as_array().unwrap();
        assert_eq!(read.iter().map(|part| part["text"].as_str().unwrap()).collect::<Vec<_>>(), texts);
        let first = statements(&proxy);
        assert_eq!(first.len(), expected, "{uri}: {first:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn labelled_content_is_not_loaded_with_the_agent() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    let labelled = json!({"scopes": ["mcp"], "labels": ["staff"]});
    let staff = writer.admin("POST", "/agents/a/keys", Some(labelled)).await.json();
    let hidden = json!({"name": "n", "labels": ["staff"], "contents": [{"text": "one"}]});
    assert_eq!(writer.admin("PUT", &resource("a", "x:1"), Some(hidden)).await.status, 201);
    let (proxy, reader) = recorded(&database).await;
    statements(&proxy);
    assert_eq!(reader.http.text("a", &key, "x:1").await, None);
    assert_eq!(reader.metric("waggle_cache_entries{cache=\"contents\"}").await, 0.0);
    statements(&proxy);
    assert_eq!(reader.http.text("a", staff["key"].as_str().unwrap(), "x:1").await.as_deref(), Some("one"));
    let read = statements(&proxy);
    assert_eq!(read.len(), 2, "the key and the content: {read:#?}");
}

/// How many statements read the current revision of an agent.
fn reads_of_heads(proxy: &Proxy) -> usize {
    let is_head = |text: &String| {
        ["revision from heads where scope = any", "revision, floor from heads"]
            .iter()
            .any(|word| text.contains(word))
    };
    statements(proxy).iter().filter(|text| is_head(text)).count()
}

/// As many as are open when a replica is restarted.
const STREAMS: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn streams_opened_at_once_share_reads_of_the_revision() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "one").await;
    let (proxy, reader) = recorded(&database).await;
    let open = || listen(&reader, "a", &key, json!(1), json!({"resourceSubscriptions": ["x:1"]}));
    let _first = open().await;
    statements(&proxy);
    let opened = futures_util::future::join_all((0..STREAMS).map(|_| open())).await;
    let read = reads_of_heads(&proxy);
    assert!((1..STREAMS / 2).contains(&read), "{read} reads for {} streams", opened.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_stream_reads_no_revision_that_its_replica_has_seen() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "one").await;
    let (proxy, reader) = recorded(&database).await;
    let session = Session::open(&reader, "a", &key, "2025-11-25").await;
    let other = Session::open(&reader, "a", &key, "2025-11-25").await;
    let _other = other.stream(&reader, None).await;
    let position = session.stream(&reader, None).await.next().await.unwrap().id.unwrap();
    statements(&proxy);
    let mut resumed = session.stream(&reader, Some(&position)).await;
    assert!(resumed.next().await.unwrap().id.is_some());
    assert_eq!(reads_of_heads(&proxy), 0);
}

/// Makes every load take 5 ms, and counts them.
#[derive(Default)]
struct SlowLoads(AtomicUsize);

impl FaultInjector for SlowLoads {
    fn pause(&self, point: FailPoint) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(async move {
            if point == FailPoint::Load {
                self.0.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
    }

    fn fails(&self, _: FailPoint) -> bool {
        false
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cold_agents_of_one_tenant_do_not_delay_another_tenant() {
    const AGENTS: usize = 200;
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "one").await;
    writer.tenant("busy").await;
    for n in 0..AGENTS {
        writer.agent("busy", &format!("b{n}")).await;
    }
    let owner = writer.admin("POST", "/tenants/busy/keys", Some(json!({"scopes": ["mcp"]}))).await.json();
    let owner = owner["key"].as_str().unwrap();
    let loads = Arc::new(SlowLoads::default());
    // As few loads at a time as can be configured.
    let reader = Builder::new(&database)
        .set("WAGGLE_DATABASE__MAX_CONNECTIONS", 4)
        .set("WAGGLE_DATABASE__ACQUIRE_SECONDS", 60)
        .set("WAGGLE_LIMITS__CONCURRENT_PER_KEY", AGENTS)
        .fault_injector(loads.clone())
        .start()
        .await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    assert_eq!(reader.http.post_bearer("b0", owner, &list).await.status, StatusCode::OK);

    let answered = AtomicUsize::new(0);
    let flood = futures_util::future::join_all((1..AGENTS).map(async |n| {
        let status = reader.http.post_bearer(&format!("b{n}"), owner, &list).await.status;
        answered.fetch_add(1, Ordering::Relaxed);
        status
    }));
    let before = loads.0.load(Ordering::Relaxed);
    let other = async {
        let begun = async || loads.0.load(Ordering::Relaxed) >= before + 20;
        eventually("the tenant's agents are being loaded", begun).await;
        let earlier = answered.load(Ordering::Relaxed);
        assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("one"));
        answered.load(Ordering::Relaxed) - earlier
    };
    let (statuses, overtaken_by) = tokio::join!(flood, other);
    assert_eq!(statuses, [StatusCode::OK; AGENTS - 1]);
    println!("{overtaken_by} of {AGENTS} reads of the other tenant were answered first");
    assert!(overtaken_by < AGENTS / 4, "{overtaken_by}");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_used_last_are_loaded_after_the_start() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    for agent in ["b", "c"] {
        writer.agent("acme", agent).await;
    }
    writer.put("a", "x:1", "one").await;
    // The last calls were some hours ago; those of `b` were earlier, and `c` was only refused.
    database
        .execute(
            "insert into agent_usage (agent, hour, method, calls, errors, denied, bytes_in, bytes_out)
             select uid, date_trunc('hour', now(), 'UTC') - hours * interval '1 hour', 'ping', calls, 0, 0, 0, 0
             from (values ('a', 5, 1), ('b', 9, 7), ('c', 5, 0)) as used (slug, hours, calls)
             join agents using (slug)",
        )
        .await;
    let (proxy, reader) = recorded_with(&database, 10).await;
    let in_memory = async || reader.metric("waggle_cache_entries{cache=\"agents\"}").await;
    eventually("the agent is in memory", async || in_memory().await == 1.0).await;
    // It counts from when it begins to load.
    let is_loading = || statements(&proxy).iter().any(|text| text.starts_with("select 0 as \"source!\""));
    eventually("the agent is loaded", async || is_loading()).await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("one"));
    let first = statements(&proxy);
    assert_eq!(first.len(), 2, "the key and the content: {first:#?}");
    assert_eq!(in_memory().await, 1.0, "no other agent was loaded");
}
