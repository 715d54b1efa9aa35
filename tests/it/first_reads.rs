//! What a read of something that is not in memory takes of the database: counted in statements, each of which is a round
//! trip.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::StatusCode;
use serde_json::json;
use waggle::model::sources::{FailPoint, FaultInjector};

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
        "set_config",
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
    let (short, long) = ("x".repeat(32 * 1024), "y".repeat(32 * 1024 + 1));
    for (uri, texts, expected) in [("x:bound", [&short, &short], 2), ("x:long", [&short, &long], 3)] {
        let contents = json!({"name": "n", "contents": texts.map(|text| json!({"text": text}))});
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

#[tokio::test(flavor = "multi_thread")]
async fn change_is_read_in_one_statement_without_the_unchanged_definitions() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    let resources: Vec<_> = (0..50)
        .map(|n| json!({"uri": format!("x:{n:02}"), "name": "n", "contents": [{"text": "as it was"}]}))
        .collect();
    let template = json!({"uriTemplate": "t:{a}", "name": "n", "template": "<{{ a }}>"});
    let message = json!({"role": "user", "content": {"type": "text", "text": "hello"}});
    let prompt = json!({"name": "p", "messages": [message]});
    let manifest = json!({
        "apiVersion": "waggle/v1", "resources": resources, "templates": [template], "prompts": [prompt],
    });
    assert_eq!(writer.admin("PUT", "/agents/a/manifest", Some(manifest)).await.status, 200);
    let (proxy, reader) = recorded(&database).await;
    let names = async |method: &str, list: &str| {
        let answer = reader.http.call("a", &key, method, json!({})).await;
        let all = answer["result"][list].as_array().unwrap().clone();
        all.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names("resources/list", "resources").await, ["n"; 50]);

    // A definition that is read again from now on would show this.
    database.execute("update resources set name = 'spoiled' where uri <> 'x:07'").await;
    database.execute("update templates set name = 'spoiled'").await;
    statements(&proxy);
    let changed = json!({"name": "changed", "contents": [{"text": "new"}]});
    let put = writer.admin("PUT", &resource("a", "x:07"), Some(changed)).await;
    assert_eq!(put.status, 200, "{}", put.text());
    eventually("the change is in memory", async || {
        names("resources/list", "resources").await.contains(&"changed".to_owned())
    })
    .await;
    let refresh = statements(&proxy);
    assert_eq!(refresh.len(), 1, "{refresh:#?}");
    let mut expected = vec!["n".to_owned(); 50];
    expected[7] = "changed".to_owned();
    assert_eq!(names("resources/list", "resources").await, expected);
    assert_eq!(names("resources/templates/list", "resourceTemplates").await, ["n"]);
    assert_eq!(names("prompts/list", "prompts").await, ["p"]);
    assert_eq!(reader.http.text("a", &key, "x:07").await.as_deref(), Some("new"));
}

#[tokio::test(flavor = "multi_thread")]
async fn change_is_read_once_for_streams_and_memory() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "one").await;
    let (proxy, reader) = recorded(&database).await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("one"));
    let mut events = listen(&reader, "a", &key, json!(1), json!({"resourceSubscriptions": ["x:1"]})).await;
    assert_eq!(events.next_summary().await, "notifications/subscriptions/acknowledged");
    statements(&proxy);
    for text in ["two", "three"] {
        writer.put("a", "x:1", text).await;
        assert_eq!(events.next_summary().await, "updated x:1");
        assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some(text));
        let read = statements(&proxy);
        assert_eq!(read.len(), 2, "the change, and the content: {read:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_resources_are_answered_as_by_a_replica_that_loads_them() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    writer.put("a", "x:0", "other").await;
    let reader = Builder::new(&database).start().await;
    let full = json!({
        "name": "n", "title": "t", "description": "d", "mimeType": "text/markdown", "annotations": {"priority": 1},
        "icons": [{"src": "https://icons.test/i.png"}], "_meta": {"of.test/resource": 1},
        "contents": [{"text": "one", "mimeType": "text/x-part", "_meta": {"of.test/part": 2}}],
    });
    let mut parts = full.clone();
    parts["contents"] = json!([
        {"uri": "x:1/a", "text": "first", "_meta": {"of.test/part": 1}},
        {"uri": "x:1/b", "blob": "AAEC", "mimeType": "image/png"},
        {"uri": "x:1/c", "text": "last"},
    ]);
    let short = |text: &str| json!({"name": text, "contents": [{"text": text}]});
    let empty = json!({"name": "empty", "contents": []});
    let gone = serde_json::Value::Null;
    let one = |uri: &'static str, body: &serde_json::Value| vec![(uri, body.clone())];
    let many = |count: usize| (0..count).map(|n| ("x:1", short(&n.to_string()))).collect::<Vec<_>>();
    for (step, changes) in [
        one("x:1", &full),
        one("x:1", &short("two")),
        one("x:1", &parts),
        one("x:1", &full),
        one("x:1", &gone),
        one("x:1", &empty),
        vec![("x:1", gone.clone()), ("x:1", full.clone())],
        vec![("x:1", short("three")), ("x:2", parts.clone()), ("x:0", full.clone())],
        many(4),
        many(9),
        vec![("x:0", gone.clone()), ("x:2", gone.clone())],
    ]
    .into_iter()
    .enumerate()
    {
        let answers = async |replica: &Replica| {
            let mut all = vec![replica.http.call("a", &key, "resources/list", json!({})).await];
            for uri in ["x:0", "x:1", "x:2"] {
                all.push(replica.http.call("a", &key, "resources/read", json!({"uri": uri})).await);
            }
            all
        };
        answers(&reader).await;
        for (uri, body) in changes {
            let method = if body.is_null() { "DELETE" } else { "PUT" };
            let answer = writer.admin(method, &resource("a", uri), (!body.is_null()).then_some(body)).await;
            assert!(answer.status.is_success(), "{}", answer.text());
        }
        let loaded = Builder::new(&database).start().await;
        let expected = answers(&loaded).await;
        eventually(&format!("step {step} is in memory"), async || answers(&reader).await == expected).await;
        loaded.running.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changes_of_a_resource_in_parts_are_read_in_one_statement_after_the_first() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "one").await;
    let (proxy, reader) = recorded(&database).await;
    let name = async || {
        let answer = reader.http.call("a", &key, "resources/list", json!({})).await;
        answer["result"]["resources"][0]["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(name().await, "a name");
    statements(&proxy);
    for (changed, expected) in [("two", 2), ("three", 1), ("four", 1)] {
        let body = json!({"name": changed, "contents": [{"text": "a"}, {"text": "b"}]});
        let put = writer.admin("PUT", &resource("a", "x:1"), Some(body)).await;
        assert_eq!(put.status, 200, "{}", put.text());
        eventually("the change is in memory", async || name().await == changed).await;
        let read = statements(&proxy);
        assert_eq!(read.len(), expected, "{changed}: {read:#?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn change_of_another_kind_than_the_last_takes_at_most_two_statements() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "one").await;
    let (proxy, reader) = recorded(&database).await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("one"));
    let prompts = async || {
        let answer = reader.http.call("a", &key, "prompts/list", json!({})).await;
        answer["result"]["prompts"].as_array().unwrap().len()
    };
    let message = json!({"role": "user", "content": {"type": "text", "text": "hello"}});
    statements(&proxy);
    for (count, expected) in [(1, 2), (2, 1)] {
        let prompt = json!({"messages": [message]});
        let put = writer.admin("PUT", &format!("/agents/a/prompts/p{count}"), Some(prompt)).await;
        assert_eq!(put.status, StatusCode::CREATED, "{}", put.text());
        eventually("the prompt is in memory", async || prompts().await == count).await;
        let read = statements(&proxy);
        assert_eq!(read.len(), expected, "prompt {count}: {read:#?}");
    }
    for text in ["two", "three"] {
        writer.put("a", "x:1", text).await;
        eventually("the content is in memory", async || {
            reader.http.text("a", &key, "x:1").await.as_deref() == Some(text)
        })
        .await;
        let read = statements(&proxy);
        assert_eq!(read.len(), 2, "the resource, and its content: {read:#?}");
    }
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
