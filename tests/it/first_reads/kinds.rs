//! The first read of an agent looks for other definitions than resources only if the agent has ever had some.

use serde_json::json;
use sqlx::{ConnectOptions, Executor};

use super::{recorded, statements};
use crate::support::app::Builder;
use crate::support::cluster::database;
use crate::support::proxy::Proxy;

/// Whether a statement reads an agent, and looks for other definitions than resources.
fn looks_for_others(text: &str) -> Option<bool> {
    text.contains(" from templates d where ").then(|| !text.contains(" from templates d where false"))
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_of_resources_is_read_without_the_other_kinds() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "one").await;
    let (proxy, reader) = recorded(&database).await;
    statements(&proxy);
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("one"));
    let read: Vec<_> = statements(&proxy).iter().filter_map(|text| looks_for_others(text)).collect();
    assert_eq!(read, [false]);
}

#[tokio::test(flavor = "multi_thread")]
async fn definitions_of_every_other_kind_are_read_with_their_agent() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    writer.tenant("acme").await;
    let text = json!({"type": "text", "text": "hello"});
    let skill = "---\nname: s\ndescription: Says hello.\n---\n";
    let kinds = [
        (
            "templates",
            json!({"uriTemplate": "t:{a}", "name": "n", "template": "<{{ a }}>"}),
            "resources/templates/list",
            "resourceTemplates",
        ),
        (
            "prompts",
            json!({"name": "p", "messages": [{"role": "user", "content": text}]}),
            "prompts/list",
            "prompts",
        ),
        (
            "skills",
            json!({"path": "s", "files": [{"path": "SKILL.md", "text": skill}]}),
            "resources/list",
            "resources",
        ),
    ];
    for (kind, definition, method, list) in kinds {
        writer.agent("acme", kind).await;
        let key = writer.key(kind, &["mcp"]).await.1;
        let mut manifest =
            json!({"apiVersion": "waggle/v1", "resources": [], "templates": [], "prompts": []});
        manifest[kind] = json!([definition]);
        let put = writer.admin("PUT", &format!("/agents/{kind}/manifest"), Some(manifest)).await;
        assert_eq!(put.status, 200, "{kind}: {}", put.text());
        let (proxy, reader) = recorded(&database).await;
        statements(&proxy);
        let listed = reader.http.call(kind, &key, method, json!({})).await;
        assert_eq!(listed["result"][list].as_array().map(Vec::len), Some(1), "{kind}: {listed}");
        let read: Vec<_> = statements(&proxy).iter().filter_map(|text| looks_for_others(text)).collect();
        assert_eq!(read, [true], "{kind}");
    }
    // Mounts need a connection; their own tests list their files.
    let noted = "select count(distinct event_object_table) from information_schema.triggers \
                 where action_statement like '%agent_has_other_definitions%' \
                 and event_object_table in ('templates', 'prompts', 'skills', 'mounts')";
    assert_eq!(database.number(noted).await, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn definition_added_after_its_agent_was_looked_up_is_read() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    let (proxy, reader) = recorded(&database).await;
    // Of the agent, only whether it may be used is in memory from now on.
    let pong = reader.http.call("a", &key, "ping", json!({})).await;
    assert_eq!(pong["result"], json!({}));
    let message = json!({"role": "user", "content": {"type": "text", "text": "hello"}});
    let put = writer.admin("PUT", "/agents/a/prompts/p", Some(json!({"messages": [message]}))).await;
    assert_eq!(put.status, 201, "{}", put.text());
    statements(&proxy);
    let listed = reader.http.call("a", &key, "prompts/list", json!({})).await;
    assert_eq!(listed["result"]["prompts"][0]["name"], "p", "{listed}");
    let read: Vec<_> = statements(&proxy).iter().filter_map(|text| looks_for_others(text)).collect();
    assert_eq!(read, [false, true]);
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_too_large_to_cache_is_not_read_twice_for_each_call() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    let proxy = Proxy::before(&database.options).await;
    let reader = Builder::new(&database)
        .set("WAGGLE_CACHE__BYTES", 16 << 20)
        .set("WAGGLE_DATABASE__SWEEP_MS", 10_000)
        .store(|store| store.connect = proxy.options.clone())
        .start()
        .await;
    database
        .execute(
            "insert into resources (tenant, agent, uri, name, description, source, revision, last_modified) \
             select tenant, uid, 'x:' || n, 'n', repeat('x', 4000), 'inline', 1, now() \
             from agents, generate_series(1, 4000) n",
        )
        .await;
    let list = async || {
        statements(&proxy);
        let listed = reader.http.call("a", &key, "prompts/list", json!({})).await;
        let read: Vec<_> = statements(&proxy).iter().filter_map(|text| looks_for_others(text)).collect();
        (listed["result"]["prompts"].as_array().map(Vec::len), read)
    };
    // First some of it, of which it turns out to be large.
    for read in [vec![false; 2], vec![false], vec![false]] {
        assert_eq!(list().await, (Some(0), read));
    }
    let message = json!({"role": "user", "content": {"type": "text", "text": "hello"}});
    let put = writer.admin("PUT", "/agents/a/prompts/p", Some(json!({"messages": [message]}))).await;
    assert_eq!(put.status, 201, "{}", put.text());
    for read in [vec![false, true], vec![true], vec![true]] {
        assert_eq!(list().await, (Some(1), read));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_definition_is_noted_for_every_role() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    writer.acme("a").await;
    let role = format!("{}_inserts", database.options.get_database().unwrap());
    database
        .execute(&format!(
            "insert into contents (tenant, agent, hash, bytes) select tenant, uid, sha256('x'), 'x' from agents; \
             create role {role} login; grant usage on schema public to {role}; \
             grant insert on prompts to {role}; grant select (tenant, uid) on agents to {role}"
        ))
        .await;
    let mut connection = database.options.clone().username(&role).connect().await.unwrap();
    connection.execute("set search_path = ''").await.unwrap();
    let insert = "insert into public.prompts (tenant, agent, name, arguments, messages, revision) \
                  select tenant, uid, 'p', '[]', sha256('x'), 1 from public.agents";
    connection.execute(insert).await.unwrap();
    assert_eq!(database.number("select count(*) from agents where only_resources").await, 0);
}
