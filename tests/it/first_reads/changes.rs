//! What a change takes of the database on another replica that has the agent in memory.

use http::StatusCode;
use serde_json::json;
use sqlx::{ConnectOptions, Connection, Executor};

use super::{recorded, statements};
use crate::support::app::{Builder, Replica, resource};
use crate::support::cluster::database;
use crate::support::events::listen;
use crate::support::wait::eventually;

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
async fn change_is_read_once_for_streams_and_memory_as_it_is_acknowledged() {
    let database = database().await;
    let writer = Builder::new(&database).start().await;
    let key = writer.acme("a").await;
    writer.put("a", "x:1", "one").await;
    let (proxy, reader) = recorded(&database).await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("one"));
    let mut events = listen(&reader, "a", &key, json!(1), json!({"resourceSubscriptions": ["x:1"]})).await;
    assert_eq!(events.next_summary().await, "notifications/subscriptions/acknowledged");
    statements(&proxy);
    let mut change = async |text: &str| {
        writer.put("a", "x:1", text).await;
        assert_eq!(events.next_summary().await, "updated x:1");
        assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some(text));
        statements(&proxy)
    };
    // Opening the stream may still read the agent.
    change("opened").await;
    let is_prefetched = |read: &[String]| read.len() == 1 && read[0].contains("from contents");
    for text in ["two", "three"] {
        let read = change(text).await;
        // The change is read on the connection of `LISTEN`, which is not recorded.
        assert!(is_prefetched(&read), "the content: {read:#?}");
    }
    let ours = "from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()";
    database.execute(&format!("select pg_terminate_backend(pid, 5000) {ours}")).await;
    let listening = format!("select count(*) {ours} and application_name like 'waggle-feed/%'");
    eventually("both listen again", async || database.number(&listening).await == 2).await;
    let mut round = 0;
    eventually("changes are read so again on new connections", async || {
        round += 1;
        is_prefetched(&change(&round.to_string()).await)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn change_is_acknowledged_while_its_tables_are_locked() {
    let database = database().await;
    let reader = Builder::new(&database).start().await;
    let key = reader.acme("a").await;
    reader.put("a", "x:1", "one").await;
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("one"));
    let shown = async || {
        let shown = "select application_name from pg_stat_activity
                     where application_name like 'waggle-feed/%' and datname = current_database()";
        sqlx::query_scalar::<_, String>(shown).fetch_one(&mut database.connect().await).await.unwrap()
    };
    let connection = |shown: &str| shown.split('/').nth(1).unwrap().to_owned();
    let before = connection(&shown().await);

    let mut locker = database.options.connect().await.unwrap();
    let mut locked = locker.begin().await.unwrap();
    locked.execute("lock table resources in access exclusive mode").await.unwrap();
    // As another replica sends it that has written.
    let notify =
        "select pg_notify('waggle', replace(uid::text, '-', '') || ':1000,!00000000000000aa') from agents";
    database.execute(notify).await;
    eventually("the request is acknowledged", async || shown().await.contains("/00000000000000aa/")).await;
    assert_eq!(connection(&shown().await), before, "the connection was not lost");
    locked.rollback().await.unwrap();
    assert_eq!(reader.http.text("a", &key, "x:1").await.as_deref(), Some("one"), "no such revision exists");
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
