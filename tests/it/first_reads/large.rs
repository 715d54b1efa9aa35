//! Of an agent that is too large to be loaded for one call, the first reads load what answers them.

use futures_util::future::join_all;
use serde_json::{Value, json};
use waggle::model::system::FailPoint;

use super::{recorded, statements};
use crate::support::app::{Builder, Replica, encode, resource};
use crate::support::cluster::{Database, database};
use crate::support::faults::{Fault, FaultScript, Hold};
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

/// More than are loaded for one call.
const RESOURCES: usize = 1_050;

/// Publishes an agent `a` of many resources `x:1` and so on, each with its number as text, and of each other kind.
async fn large(database: &Database) -> (Replica, String) {
    let writer = Builder::new(database).start().await;
    let key = writer.acme("a").await;
    let resources = (1..=RESOURCES)
        .map(|n| json!({"uri": format!("x:{n}"), "name": "n", "contents": [{"text": n.to_string()}]}));
    let text = json!({"type": "text", "text": "hello"});
    let skill = "---\nname: s\ndescription: Says hello.\n---\n";
    let manifest = json!({
        "apiVersion": "waggle/v1",
        "resources": resources.collect::<Vec<_>>(),
        "templates": [{"uriTemplate": "t:{a}", "name": "n", "template": "<{{ a }}>"}],
        "prompts": [{"name": "p", "messages": [{"role": "user", "content": text}]}],
        "skills": [{"path": "s", "files": [{"path": "SKILL.md", "text": skill}]}],
    });
    let put = writer.admin("PUT", "/agents/a/manifest", Some(manifest)).await;
    assert_eq!(put.status, 200, "{}", put.text());
    (writer, key)
}

/// How the statements since the last call read the agent: `some` with a limit or of all of it, `part` of what answers a URI.
fn reads(proxy: &Proxy) -> Vec<&'static str> {
    let read = |text: &String| match text.starts_with("with answering") {
        true => Some("part"),
        false => text.starts_with("select 0 as").then_some("some"),
    };
    statements(proxy).iter().filter_map(read).collect()
}

async fn text(reader: &Replica, key: &str, uri: &str) -> Option<String> {
    reader.http.text("a", key, uri).await
}

/// How many bytes the snapshots of agents take in memory.
async fn bytes(reader: &Replica) -> f64 {
    reader.metric("waggle_cache_bytes{cache=\"agents\"}").await
}

#[tokio::test(flavor = "multi_thread")]
async fn reads_of_a_large_agent_load_what_answers_them() {
    let database = database().await;
    let (writer, key) = large(&database).await;
    let (proxy, reader) = recorded(&database).await;
    statements(&proxy);
    assert_eq!(text(&reader, &key, "x:7").await.as_deref(), Some("7"));
    let first = statements(&proxy);
    assert_eq!(first.len(), 3, "the key, some of the agent, and the part with the content: {first:#?}");
    assert_eq!(text(&reader, &key, "x:7").await.as_deref(), Some("7"));
    assert_eq!(statements(&proxy), [""; 0]);
    assert_eq!(text(&reader, &key, "x:8").await.as_deref(), Some("8"));
    let second = statements(&proxy);
    assert_eq!(second.len(), 1, "the part with the content: {second:#?}");

    assert_eq!(text(&reader, &key, "t:1").await.as_deref(), Some("<1>"));
    let skill = text(&reader, &key, "skill://s/SKILL.md").await;
    assert!(skill.is_some_and(|text| text.contains("Says hello.")));
    let unknown = reader.http.call("a", &key, "resources/read", json!({"uri": "y:1"})).await;
    assert_eq!(unknown["error"]["data"]["uri"], "y:1", "{unknown}");
    assert_eq!(reads(&proxy), ["part"; 3]);
    assert!(bytes(&reader).await < 32_768.0, "{}", bytes(&reader).await);

    // A change reaches what is in memory, and what was not there.
    writer.put("a", "x:7", "seven").await;
    writer.put("a", "y:1", "new").await;
    assert_eq!(writer.admin("DELETE", &resource("a", "x:8"), None).await.status, 204);
    let changed = async || text(&reader, &key, "x:8").await.is_none();
    eventually("the change is known", changed).await;
    assert_eq!(text(&reader, &key, "x:7").await.as_deref(), Some("seven"));
    assert_eq!(text(&reader, &key, "y:1").await.as_deref(), Some("new"));
    assert!(reads(&proxy).iter().all(|read| *read == "part"));
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_of_a_large_agent_have_all_of_it() {
    let database = database().await;
    let (writer, key) = large(&database).await;
    let (_proxy, reader) = recorded(&database).await;
    assert_eq!(text(&reader, &key, "x:7").await.as_deref(), Some("7"));
    for (method, list) in [
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
        ("prompts/list", "prompts"),
    ] {
        let all = async |replica: &Replica| {
            let (mut all, mut params) = (Vec::new(), json!({}));
            loop {
                let page = replica.http.call("a", &key, method, params).await["result"].take();
                all.extend(page[list].as_array().unwrap().iter().cloned());
                match &page["nextCursor"] {
                    Value::Null => return all,
                    cursor => params = json!({"cursor": cursor}),
                }
            }
        };
        assert_eq!(all(&reader).await, all(&writer).await, "{method}");
    }
    // The part gives way to all of it.
    assert_eq!(text(&reader, &key, "x:9").await.as_deref(), Some("9"));
    assert!(bytes(&reader).await > 500_000.0, "{}", bytes(&reader).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn description_of_a_large_agent_is_read_without_its_definitions() {
    let database = database().await;
    let (_writer, key) = large(&database).await;
    let (proxy, reader) = recorded(&database).await;
    let client = json!({"name": "c", "version": "1"});
    let initialize = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client});
    let opened = reader.http.call("a", &key, "initialize", initialize).await;
    assert_eq!(opened["result"]["serverInfo"]["name"], "a", "{opened}");
    assert_eq!(reads(&proxy), ["some", "part"]);
    assert!(bytes(&reader).await < 8_192.0, "{}", bytes(&reader).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn labelled_resource_of_a_large_agent_is_hidden_and_may_be_answered_by_a_template() {
    let database = database().await;
    let (writer, key) = large(&database).await;
    let staff = json!({"scopes": ["mcp"], "labels": ["staff"]});
    let staff = writer.admin("POST", "/agents/a/keys", Some(staff)).await.json();
    let staff = staff["key"].as_str().unwrap();
    for uri in ["z:1", "t:2"] {
        let hidden = json!({"name": "n", "labels": ["staff"], "contents": [{"text": "hidden"}]});
        assert_eq!(writer.admin("PUT", &resource("a", uri), Some(hidden)).await.status, 201);
    }
    let (proxy, reader) = recorded(&database).await;
    for (key, read) in [(key.as_str(), [None, Some("<2>")]), (staff, [Some("hidden"); 2])] {
        for (uri, read) in ["z:1", "t:2"].into_iter().zip(read) {
            assert_eq!(text(&reader, key, uri).await.as_deref(), read, "{uri}");
        }
    }
    assert_eq!(reads(&proxy), ["some", "part", "part"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn large_agent_that_is_read_often_is_loaded() {
    let database = database().await;
    let (_writer, key) = large(&database).await;
    // By reads of many resources, and of one.
    for (number, least) in [((|read| read) as fn(usize) -> usize, 50), (|_| 1, 500)] {
        let (proxy, reader) = recorded(&database).await;
        let mut read = 0;
        let is_loaded = async || bytes(&reader).await > 500_000.0;
        while !is_loaded().await && read < RESOURCES {
            read += 1;
            let number = number(read);
            assert_eq!(text(&reader, &key, &format!("x:{number}")).await, Some(number.to_string()));
        }
        eventually("all of the agent is loaded", is_loaded).await;
        assert!(read >= least, "{read}");
        reads(&proxy);
        assert_eq!(text(&reader, &key, "x:1049").await.as_deref(), Some("1049"));
        assert_eq!(reads(&proxy), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_of_a_large_agent_share_its_loads() {
    let database = database().await;
    let (_writer, key) = large(&database).await;
    let (proxy, faults) = (Proxy::before(&database.options).await, FaultScript::new());
    let reader = Builder::new(&database)
        .store(|store| store.connect = proxy.options.clone())
        .fault_injector(faults.clone())
        .start()
        .await;
    assert_eq!(text(&reader, &key, "x:7").await.as_deref(), Some("7"));
    assert_eq!(reads(&proxy), ["some", "part"]);
    // The first load is held until others have begun.
    let held = || (faults.hold(FailPoint::SnapshotBetweenReads), faults.arrivals(FailPoint::Load));
    let others_begin = async |(held, before): (Hold, usize)| {
        let others = async || faults.arrivals(FailPoint::Load) >= before + 4;
        held.meanwhile(eventually("others begin", others)).await;
    };
    let first = held();
    let read = join_all((0..20).map(|_| text(&reader, &key, "x:8")));
    let (read, ()) = tokio::join!(read, others_begin(first));
    assert!(read.iter().all(|read| read.as_deref() == Some("8")), "{read:?}");
    assert_eq!(reads(&proxy), ["part"]);
    let first = held();
    let list = join_all((0..20).map(|_| reader.http.call("a", &key, "prompts/list", json!({}))));
    let (listed, ()) = tokio::join!(list, others_begin(first));
    assert!(listed.iter().all(|listed| listed["result"]["prompts"][0]["name"] == "p"), "{listed:?}");
    assert_eq!(reads(&proxy), ["some"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_find_what_a_large_agent_has() {
    let database = database().await;
    let (writer, key) = large(&database).await;
    let tools = json!({"tools": ["resources", "prompts", "search"]});
    assert_eq!(writer.admin("PATCH", "/agents/a", Some(tools)).await.status, 200);
    // Names that are URIs, too.
    let text = json!({"type": "text", "text": "hello"});
    let prompt = json!({"messages": [{"role": "user", "content": text}]});
    assert_eq!(writer.admin("PUT", "/agents/a/prompts/team:greet", Some(prompt)).await.status, 201);
    let template = json!({"name": "n", "description": "Without variables.", "template": "body"});
    let path = format!("/agents/a/templates?uriTemplate={}", encode("x:9"));
    assert_eq!(writer.admin("PUT", &path, Some(template)).await.status, 201);
    for (name, arguments) in [
        ("read_resource", json!({"uri": "x:7"})),
        ("get_prompt", json!({"name": "team:greet"})),
        ("fetch", json!({"id": "x:7"})),
        ("fetch", json!({"id": "x:9"})),
        ("fetch", json!({"id": "prompt:team:greet"})),
        ("fetch", json!({"id": "t:{a}"})),
    ] {
        let (_proxy, reader) = recorded(&database).await;
        let params = json!({"name": name, "arguments": arguments});
        let call = async |replica: &Replica| replica.http.call("a", &key, "tools/call", params.clone()).await;
        let (cold, warm) = (call(&reader).await, call(&writer).await);
        assert_eq!(cold, warm, "{name} {arguments}");
        assert_ne!(cold["result"]["isError"], true, "{name} {arguments}: {cold}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_is_large_by_the_rows_of_any_table() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    writer.tenant("acme").await;
    let parts = [json!({"text": "one"}), json!({"text": "two"})];
    let resources: Vec<_> =
        (1..=501).map(|n| json!({"uri": format!("x:{n}"), "name": "n", "contents": parts})).collect();
    let text = json!({"type": "text", "text": "hello"});
    let message = json!({"role": "user", "content": text});
    let prompts: Vec<_> =
        (1..=1_001).map(|n| json!({"name": format!("p{n}"), "messages": [message]})).collect();
    for (agent, resources, prompts) in
        [("parts", &resources[..], &[][..]), ("prompts", &resources[..1], &prompts)]
    {
        writer.agent("acme", agent).await;
        let key = writer.key(agent, &["mcp"]).await.1;
        let manifest = json!({"apiVersion": "waggle/v1", "resources": resources, "prompts": prompts});
        let put = writer.admin("PUT", &format!("/agents/{agent}/manifest"), Some(manifest)).await;
        assert_eq!(put.status, 200, "{agent}: {}", put.text());
        let (proxy, reader) = recorded(&database).await;
        let read = reader.http.call(agent, &key, "resources/read", json!({"uri": "x:1"})).await;
        assert_eq!(read["result"]["contents"].as_array().map(Vec::len), Some(2), "{agent}: {read}");
        assert_eq!(reads(&proxy).last(), Some(&"part"), "{agent}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_of_a_large_agent_are_read_while_all_of_it_is_loaded() {
    let database = database().await;
    let (_writer, key) = large(&database).await;
    let faults = FaultScript::new();
    let reader = Builder::new(&database).fault_injector(faults.clone()).start().await;
    let loaded = faults.hold(FailPoint::CacheFillRead);
    let list = reader.http.call("a", &key, "prompts/list", json!({}));
    let read = loaded.meanwhile(text(&reader, &key, "x:7"));
    let (listed, read) = tokio::join!(list, read);
    assert_eq!(read.as_deref(), Some("7"));
    assert_eq!(listed["result"]["prompts"][0]["name"], "p", "{listed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn part_that_has_changed_is_answered_from_memory_while_the_database_is_away() {
    let database = database().await;
    let (writer, key) = large(&database).await;
    let faults = FaultScript::new();
    let reader = Builder::new(&database).fault_injector(faults.clone()).start().await;
    assert_eq!(text(&reader, &key, "x:7").await.as_deref(), Some("7"));
    // The change is known before the database is away, and what changed is not loaded.
    faults.fail(FailPoint::Load, Fault::Refused);
    writer.put("a", "x:7", "seven").await;
    eventually("the change is known", async || text(&reader, &key, "x:7").await.is_none()).await;
    faults.fail(FailPoint::Sweep, Fault::Refused);
    assert_eq!(text(&reader, &key, "x:7").await.as_deref(), Some("7"));
    for point in [FailPoint::Load, FailPoint::Sweep] {
        faults.fail(point, Fault::None);
    }
    let is_new = async || text(&reader, &key, "x:7").await.as_deref() == Some("seven");
    eventually("the database is back", is_new).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_agent_is_answered_from_memory_while_the_database_is_away() {
    let database = database().await;
    let (_writer, key) = large(&database).await;
    let (proxy, reader) = recorded(&database).await;
    for uri in ["x:7", "t:1"] {
        assert!(text(&reader, &key, uri).await.is_some());
    }
    proxy.fail(Fault::Refused);
    for (uri, expected) in [("x:7", "7"), ("t:1", "<1>")] {
        assert_eq!(text(&reader, &key, uri).await.as_deref(), Some(expected));
    }
    let other = reader.http.call("a", &key, "resources/read", json!({"uri": "x:8"})).await;
    assert!(other["error"]["message"].is_string(), "{other}");
}
