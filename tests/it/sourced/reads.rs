//! Reads: both eras, MIME types, what is asked of the source and when.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::upstream::{Reply, status, tagged, text};
use super::{Site, source};
use crate::support::app::{Builder, resource};
use crate::support::cluster::{Database, database};
use crate::support::wait::eventually;

fn contents(body: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "result": {"contents": body}})
}

#[tokio::test]
async fn content_is_read_in_both_eras() {
    let site = Site::new().await;
    site.upstream.answer("a", text("hé"));
    site.resource("a", source("a")).await;
    let expected = json!([{"uri": "test://a", "mimeType": "text/plain", "text": "hé"}]);
    assert_eq!(site.read("test://a").await, contents(&expected));
    let mut modern = site.read_modern("test://a").await;
    let left = modern["result"]["ttlMs"].take().as_u64().unwrap();
    assert!((1..=5_000).contains(&left), "{left}");
    let mut result =
        json!({"contents": expected, "resultType": "complete", "ttlMs": null, "cacheScope": "private"});
    result["_meta"] = modern["result"]["_meta"].clone();
    assert!(result["_meta"]["io.modelcontextprotocol/serverInfo"].is_object());
    assert_eq!(modern, json!({"jsonrpc": "2.0", "id": 1, "result": result}));
    assert_eq!(site.upstream.asked(), [("/v1/a".to_owned(), Some(200))]);

    let listed = site.replica.http.call("notes", &site.key, "resources/list", json!({})).await;
    let listed = &listed["result"]["resources"];
    assert_eq!((listed.as_array().unwrap().len(), listed[0].get("size")), (1, None));
}

#[tokio::test]
async fn template_fills_the_path_and_the_query() {
    let site = Site::new().await;
    site.upstream.answer("c/S%C3%A3o%20Paulo/now?units=metric%26x", text("warm"));
    let place = json!({"connection": "api", "path": "c/{city}/now", "query": {"units": "{units}"}});
    let made = site
        .template("test://{city}{?units}", json!({"name": "t", "mimeType": "text/x-t", "source": place}))
        .await;
    assert_eq!(made.status, 201, "{}", made.text());
    let uri = "test://S%C3%A3o%20Paulo?units=metric%26x";
    let expected = json!([{"uri": uri, "mimeType": "text/x-t", "text": "warm"}]);
    assert_eq!(site.read(uri).await, contents(&expected));
    site.upstream.asked();
    for value in ["..", ".", "a%2Fb", "..%2F..", "a%5Cb", "a%00b"] {
        let uri = format!("test://{value}");
        let answer = site.read(&uri).await;
        assert_eq!(answer["error"]["data"]["code"], "resource_not_found", "{uri}: {answer}");
    }
    assert_eq!(site.upstream.asked(), []);
}

#[tokio::test]
async fn mime_type_is_stated_or_guessed_and_decides_the_form() {
    let site = Site::new().await;
    let png = b"\x89PNG\r\n\x1a\n\0";
    let untyped = |body: &[u8]| Reply::Answer(200, Vec::new(), body.to_vec());
    let typed =
        |mime: &str, body: &[u8]| Reply::Answer(200, vec![("content-type", mime.to_owned())], body.to_vec());
    for (name, defined, reply, expected) in [
        ("a", None, untyped(png), json!({"mimeType": "image/png", "blob": "iVBORw0KGgoA"})),
        ("b.md", None, untyped(b"# b"), json!({"mimeType": "text/markdown", "text": "# b"})),
        ("c", None, untyped(b"c"), json!({"mimeType": "text/plain", "text": "c"})),
        ("d", None, untyped(b"\xff"), json!({"mimeType": "application/octet-stream", "blob": "/w=="})),
        (
            "e",
            None,
            typed("text/html; charset=utf-8", b"e"),
            json!({"mimeType": "text/html; charset=utf-8", "text": "e"}),
        ),
        ("f", None, typed("text/plain", b"\xff"), json!({"mimeType": "text/plain", "blob": "/w=="})),
        ("g", Some("image/x-g"), typed("text/plain", b"g"), json!({"mimeType": "image/x-g", "blob": "Zw=="})),
    ] {
        site.upstream.answer(name, reply);
        let uri = format!("test://{name}");
        let body = json!({"name": name, "mimeType": defined, "source": source(name)});
        assert_eq!(site.replica.admin("PUT", &resource("notes", &uri), Some(body)).await.status, 201);
        let mut whole = expected;
        whole["uri"] = json!(uri);
        assert_eq!(site.read(&uri).await, contents(&json!([whole])));
    }
}

#[tokio::test]
async fn path_of_an_api_that_ends_in_a_slash_is_no_directory() {
    let database = database().await;
    let (first, second) = tokio::join!(Builder::new(&database).start(), Builder::new(&database).start());
    let site = Site::over(database, first, json!({})).await;
    site.upstream.answer("v/", text("v"));
    for (name, defined) in [("typed", Some("text/x-v")), ("untyped", None)] {
        let body = json!({"name": name, "mimeType": defined, "source": source("v/")});
        let path = resource("notes", &format!("test://{name}"));
        assert_eq!(site.replica.admin("PUT", &path, Some(body)).await.status, 201);
        let mime_type = defined.unwrap_or("text/plain");
        let expected = json!([{"uri": format!("test://{name}"), "mimeType": mime_type, "text": "v"}]);
        assert_eq!(site.read(&format!("test://{name}")).await, contents(&expected));
    }
    // As patched into memory, and as read from the database.
    second.caught_up().await;
    for replica in [&site.replica, &second] {
        let listed = replica.http.call("notes", &site.key, "resources/list", json!({})).await;
        let types = [0, 1].map(|at| listed["result"]["resources"][at].get("mimeType").cloned());
        assert_eq!(types, [Some(json!("text/x-v")), None], "{listed}");
    }
}

#[tokio::test]
async fn content_is_revalidated_once_it_is_old() {
    let site = Site::new().await;
    site.upstream.answer("a", tagged("one", "1"));
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 0})).await;
    site.resource("kept", json!({"connection": "api", "path": "a", "ttlMs": 60_000})).await;
    let asked = |status| vec![("/v1/a".to_owned(), Some(status))];
    for expected in [asked(200), asked(304), asked(304)] {
        assert_eq!(site.text("test://a").await, "one");
        assert_eq!(site.upstream.asked(), expected);
    }
    assert_eq!(site.text("test://kept").await, "one");
    site.upstream.asked();
    site.upstream.answer("a", tagged("two", "2"));
    assert_eq!((site.text("test://a").await, site.text("test://kept").await), ("two".into(), "one".into()));
    assert_eq!(site.upstream.asked(), asked(200));
    // A change of the definition is a revision, whose content is fetched again.
    site.replica.admin("POST", "/agents/notes/resources/touch?uri=test%3A%2F%2Fkept", None).await;
    assert_eq!(site.text("test://kept").await, "two");
    // As is one of the connection.
    site.upstream.answer("a", tagged("three", "3"));
    let limits = json!({"limits": {"concurrent": 3}});
    assert_eq!(site.replica.admin("PATCH", "/connections/api", Some(limits)).await.status, 200);
    assert_eq!(site.text("test://kept").await, "three");
}

#[tokio::test]
async fn stale_content_is_answered_while_the_source_fails() {
    let site = Site::new().await;
    site.upstream.answer("a", text("one"));
    for (name, stale) in [("stale", 60_000), ("strict", 0)] {
        let place = json!({"connection": "api", "path": "a", "ttlMs": 0, "staleMs": stale});
        site.resource(name, place).await;
        assert_eq!(site.text(&format!("test://{name}")).await, "one");
    }
    site.upstream.answer("a", status(500));
    for _ in 0..3 {
        assert_eq!(site.text("test://stale").await, "one");
    }
    assert_eq!(site.read("test://strict").await["error"]["data"]["reason"], "status");
    site.upstream.answer("a", text("two"));
    eventually("it is revalidated", async || site.text("test://stale").await == "two").await;
}

#[tokio::test]
async fn content_is_as_old_as_the_setting_allows_unless_its_source_says() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_SOURCES__TTL_MS", 0).start().await;
    let site = Site::over(database, replica, json!({})).await;
    site.upstream.answer("a", tagged("one", "1"));
    site.resource("default", source("a")).await;
    site.resource("own", json!({"connection": "api", "path": "a", "ttlMs": 600_000})).await;
    for (name, statuses) in [("default", vec![200, 304]), ("own", vec![200])] {
        for _ in 0..2 {
            assert_eq!(site.text(&format!("test://{name}")).await, "one");
        }
        let asked: Vec<_> = site.upstream.asked().into_iter().filter_map(|(_, status)| status).collect();
        assert_eq!(asked, statuses, "{name}");
    }
}

#[tokio::test]
async fn missing_content_is_remembered_for_a_second() {
    let site = Site::new().await;
    site.resource("a", source("a")).await;
    let missing = site.read("test://a").await;
    assert_eq!(
        missing["error"],
        json!({"code": -32002, "message": "resource not found: test://a",
        "data": {"code": "resource_not_found", "uri": "test://a"}})
    );
    assert_eq!(site.read("test://a").await, missing);
    assert_eq!(site.upstream.count(), 1);
    // Not for longer than content is.
    site.resource("new", json!({"connection": "api", "path": "a", "ttlMs": 0})).await;
    for _ in 0..2 {
        assert_eq!(site.read("test://new").await["error"]["data"]["code"], "resource_not_found");
        assert_eq!(site.upstream.count(), 1);
    }
    site.upstream.answer("a", text("now"));
    // Not for a condition: what is missing is remembered for a second.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(site.text("test://a").await, "now");
}

/// A gateway that admits two thousand requests at once.
fn roomy(database: &Database) -> Builder {
    let mut builder = Builder::new(database);
    for limit in ["CONCURRENT_REQUESTS", "CONCURRENT_PER_KEY", "CONCURRENT_PER_AGENT"] {
        builder = builder.set(&format!("WAGGLE_LIMITS__{limit}"), 2_000);
    }
    builder.set("WAGGLE_SERVER__CONNECTIONS_PER_ADDRESS", 2_000)
}

#[tokio::test]
async fn thousand_cold_reads_on_three_replicas_make_three_fetches() {
    let database = database().await;
    let start = || roomy(&database).start();
    let (first, second, third) = tokio::join!(start(), start(), start());
    let site = Site::over(database, first, json!({})).await;
    site.upstream.answer("a", text("one"));
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 60_000})).await;
    second.caught_up().await;
    third.caught_up().await;
    let replicas = [&site.replica, &second, &third];
    let reads = (0..1_000).map(|n| replicas[n % 3].http.text("notes", &site.key, "test://a"));
    let read = join_all(reads).await;
    assert!(read.iter().all(|text| text.as_deref() == Some("one")));
    assert_eq!(site.upstream.asked(), vec![("/v1/a".to_owned(), Some(200)); 3]);
}

#[tokio::test]
async fn concurrent_cold_reads_make_one_fetch() {
    let database = database().await;
    let replica = roomy(&database).start().await;
    let site = Site::over(database, replica, json!({})).await;
    site.upstream.answer("a", text("one"));
    site.resource("a", json!({"connection": "api", "path": "a", "ttlMs": 60_000})).await;
    let read = join_all((0..1_000).map(|_| site.text("test://a"))).await;
    assert!(read.iter().all(|text| text == "one"));
    assert_eq!(site.upstream.count(), 1);
}

#[tokio::test]
async fn tools_and_prompts_read_from_the_source() {
    let site = Site::new().await;
    site.upstream.answer("a", text("fetched"));
    site.resource("a", source("a")).await;
    let tools = json!({"tools": ["search", "resources"]});
    assert_eq!(site.replica.admin("PATCH", "/agents/notes", Some(tools)).await.status, 200);
    let call = async |name: &str, arguments: Value| {
        let params = json!({"name": name, "arguments": arguments});
        site.replica.http.call("notes", &site.key, "tools/call", params).await["result"].clone()
    };
    let read = call("read_resource", json!({"uri": "test://a"})).await;
    assert_eq!(read["content"], json!([{"type": "text", "text": "fetched"}]));
    let fetched = call("fetch", json!({"id": "test://a"})).await;
    assert!(fetched["content"][0]["text"].as_str().unwrap().contains("fetched"), "{fetched}");
    let prompt = json!({"messages": [{"role": "user", "content":
        {"type": "resource", "resource": {"uri": "test://a"}}}]});
    assert_eq!(site.replica.admin("PUT", "/agents/notes/prompts/p", Some(prompt)).await.status, 201);
    let rendered = site.replica.http.call("notes", &site.key, "prompts/get", json!({"name": "p"})).await;
    let embedded = &rendered["result"]["messages"][0]["content"]["resource"];
    assert_eq!(embedded, &json!({"uri": "test://a", "mimeType": "text/plain", "text": "fetched"}));
    site.upstream.answer("b", status(500));
    site.resource("b", source("b")).await;
    let failed = call("read_resource", json!({"uri": "test://b"})).await;
    assert_eq!(failed["isError"], true);
    assert!(failed["content"][0]["text"].as_str().unwrap().starts_with("source_failed: "), "{failed}");
}
