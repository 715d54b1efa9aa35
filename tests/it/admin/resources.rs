//! `/agents/{agent}/resources` in JSON, and `touch`.

use serde_json::{Value, json};

use super::send_json;
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::{Replica, gateway, resource};

async fn put(replica: &Replica, uri: &str, body: &str) -> Value {
    normalized(&send_json(replica, ("PUT", &resource("a", uri)), body).await)
}

async fn get(replica: &Replica, uri: &str) -> String {
    replica.admin("GET", &resource("a", uri), None).await.text()
}

#[tokio::test]
async fn resource_is_created_read_replaced_touched_and_deleted() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let none = Value::Null;
    let first = json!({"name": "n", "contents": [{"text": "one"}]});
    assert_eq!(put(&replica, "x:1", &first.to_string()).await, answered(201, Some(2), &none));
    let mut shown = json!({"uri": "x:1", "name": "n", "contents": [{"text": "one"}]});
    let read = async || normalized(&replica.admin("GET", &resource("a", "x:1"), None).await);
    assert_eq!(read().await, answered(200, Some(2), &shown));

    shown = json!({
        "uri": "x:1", "name": "智能体配置", "title": "t", "description": "", "mimeType": "text/plain",
        "annotations": {"audience": ["user", "assistant"], "priority": 1, "lastModified": "2025-01-12T15:00:58Z"},
        "icons": [{"src": "data:image/png;base64,AA==", "mimeType": "image/png", "sizes": ["any"], "theme": "dark"}],
        "_meta": {"example.com/a": [1, {"b": null}]},
        "contents": [
            {"uri": "x:1/part", "mimeType": "text/markdown", "text": "# ü\n"},
            {"mimeType": "application/octet-stream", "blob": "AAH/"},
            {"text": ""},
        ],
    });
    assert_eq!(put(&replica, "x:1", &shown.to_string()).await, answered(200, Some(3), &none));
    // The owner's timestamp is kept.
    let mut expected = shown.clone();
    expected["annotations"]["lastModified"] = json!("<moment>");
    assert_eq!(read().await, answered(200, Some(3), &expected));

    assert_eq!(put(&replica, "x:2", &first.to_string()).await, answered(201, Some(4), &none));
    let path = resource("a", "x:1").replace("resources?", "resources/touch?");
    let touch = async || normalized(&replica.admin("POST", &path, None).await);
    assert_eq!(touch().await, answered(202, Some(5), &none));
    assert_eq!(touch().await, answered(202, Some(6), &none));
    assert_eq!(read().await, answered(200, Some(6), &expected));

    let remove = async || normalized(&replica.admin("DELETE", &resource("a", "x:1"), None).await);
    assert_eq!(remove().await, answered(204, Some(7), &none));
    let gone = problem(404, "not_found", "no such resource");
    assert_eq!((remove().await, read().await, touch().await), (gone.clone(), gone.clone(), gone));
}

#[tokio::test]
async fn meta_of_contents_is_stored_and_read_as_sent() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let body = |meta: &str| {
        format!(r#"{{"name":"n","contents":[{{"text":"t","_meta":{meta}}},{{"blob":"AA=="}}]}}"#)
    };
    let sent = r#"{"example.com/z":12345678901234567890123,  "a":-0.0, "\u00e9" : "\/" }"#;
    let written = |revision| answered(200, Some(revision), &Value::Null);
    assert_eq!(put(&replica, "x:1", &body(sent)).await, answered(201, Some(2), &Value::Null));
    assert_eq!(put(&replica, "x:1", &body(sent)).await, written(2), "nothing changed");
    let contents =
        |own: &str| format!(r#""contents":[{{{own}"text":"t","_meta":{sent}}},{{{own}"blob":"AA=="}}]"#);
    assert_eq!(get(&replica, "x:1").await, format!(r#"{{"uri":"x:1","name":"n",{}}}"#, contents("")));
    let read = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x:1"}});
    let answer = async || replica.http.post("a", &key, &read).await.text();
    let expected = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{{}}}}}"#, contents(r#""uri":"x:1","#));
    // Encoded, and cached.
    assert_eq!([answer().await, answer().await], [expected.clone(), expected]);
    assert_eq!(put(&replica, "x:1", &body("{}")).await, written(3));
    assert!(answer().await.contains(r#""text":"t","_meta":{}}"#));
    assert_eq!(put(&replica, "x:1", &body("null")).await, written(4));
    assert!(!answer().await.contains("_meta"));
}

#[tokio::test]
async fn listed_resource_has_definition_and_size_but_no_content() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let full = json!({
        "name": "n", "title": "t", "description": "d", "mimeType": "text/plain", "annotations": {"priority": 0.5},
        "icons": [], "_meta": {}, "contents": [{"text": "ü"}],
    });
    put(&replica, "x:1", &full.to_string()).await;
    put(&replica, "x:2", r#"{"name":"two","contents":[{"text":"a"},{"blob":"AAA="}]}"#).await;
    put(&replica, "x:3", r#"{"name":"none","contents":[]}"#).await;
    put(&replica, "x:4", r#"{"name":"blob","contents":[{"blob":"AAECAw=="}]}"#).await;
    let items = json!([
        {
            "uri": "x:1", "name": "n", "title": "t", "description": "d", "mimeType": "text/plain",
            "annotations": {"priority": 0.5}, "icons": [], "_meta": {}, "size": 2,
        },
        {"uri": "x:2", "name": "two"},
        {"uri": "x:3", "name": "none"},
        {"uri": "x:4", "name": "blob", "size": 4},
    ]);
    let listed = normalized(&replica.admin("GET", "/agents/a/resources", None).await);
    assert_eq!(listed, answered(200, None, &json!({"items": items, "nextCursor": null})));
}

#[tokio::test]
async fn resource_metadata_is_kept_byte_for_byte() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let annotations =
        r#"{ "priority" : 1.0e0,"lastModified":"2025-01-12T15:00:58Z" ,"audience": [ "user"] }"#;
    let icons = "[ {\"src\":\"data:,\\u00e4\\/\" ,\n\t\"x\" : 1e2 } ]".replace("\\u00e4", "a");
    let meta = r#"{"z":12345678901234567890123,  "a":-0.0, "\u00e9" : "\ud83d\ude00\/", "e":{} }"#;
    let body = format!(
        r#"{{"name":"n","annotations":{annotations},"icons":{icons},"_meta":{meta},"contents":[{{"text":"t"}}]}}"#
    );
    assert_eq!(put(&replica, "x:1", &body).await["status"], 201);
    let shown =
        format!(r#"{{"uri":"x:1","name":"n","annotations":{annotations},"icons":{icons},"_meta":{meta},"#);
    assert_eq!(get(&replica, "x:1").await, format!(r#"{shown}"contents":[{{"text":"t"}}]}}"#));
    let listed = replica.admin("GET", "/agents/a/resources", None).await.text();
    assert_eq!(listed, format!(r#"{{"items":[{shown}"size":1}}],"nextCursor":null}}"#));
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/list"});
    let answer = replica.http.post("a", &key, &list).await.text();
    let expected = shown.replace(r#","icons""#, r#","size":1,"icons""#);
    let expected = expected.strip_suffix(',').unwrap();
    assert_eq!(answer, format!(r#"{{"jsonrpc":"2.0","id":1,"result":{{"resources":[{expected}}}]}}}}"#));
}

#[tokio::test]
async fn put_without_a_change_keeps_the_revision() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let body = r#"{"name":"n","_meta":{"a":1},"contents":[{"text":"one"},{"blob":"AA=="}]}"#;
    assert_eq!(put(&replica, "x:1", body).await, answered(201, Some(2), &Value::Null));
    let unchanged = answered(200, Some(2), &Value::Null);
    assert_eq!(put(&replica, "x:1", body).await, unchanged);
    // The answer of GET is valid for PUT; null means absent.
    assert_eq!(put(&replica, "x:1", &get(&replica, "x:1").await).await, unchanged);
    let spelled_out = body.replace(r#""name""#, r#""uri":"x:1","title":null,"icons":null,"name""#);
    assert_eq!(put(&replica, "x:1", &spelled_out).await, unchanged);
    for (revision, change) in [
        (3, body.replace("one", "two")),
        (4, body.replace(r#""a":1"#, r#""a": 1"#)),
        (5, body.replace(r#"{"text":"one"},"#, "")),
        (6, body.replace(r#"{"text":"one"},{"blob":"AA=="}"#, r#"{"blob":"AA=="},{"text":"one"}"#)),
        (7, body.replace(r#""text":"one""#, r#""text":"one","mimeType":"a/b""#)),
        (8, body.to_owned()),
    ] {
        assert_eq!(
            put(&replica, "x:1", &change).await,
            answered(200, Some(revision), &Value::Null),
            "{change}"
        );
    }
    assert_eq!(replica.admin("GET", "/agents/a", None).await.revision(), 8);
}

#[tokio::test]
async fn resource_limit_of_an_agent_is_enforced_and_frees_on_delete() {
    let database = crate::support::cluster::database().await;
    let replica = crate::support::app::Builder::new(&database)
        .set("WAGGLE_LIMITS__RESOURCES_PER_AGENT", 2)
        .start()
        .await;
    replica.acme("a").await;
    let body = r#"{"name":"n","contents":[]}"#;
    let full = problem(400, "invalid_params", "the agent's limit of resources is reached; delete one first");
    for (uri, expected) in [("x:1", 201), ("x:2", 201), ("x:3", 400), ("x:2", 200)] {
        assert_eq!(put(&replica, uri, body).await["status"], expected, "{uri}");
    }
    assert_eq!(put(&replica, "x:3", body).await, full);
    assert_eq!(replica.admin("DELETE", &resource("a", "x:1"), None).await.status, 204);
    assert_eq!(put(&replica, "x:3", body).await["status"], 201);
    assert_eq!(put(&replica, "x:1", body).await, full);
}

#[tokio::test]
async fn icons_with_unsafe_sources_are_refused() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let put = async |src: &str| {
        let body = json!({"name": "n", "icons": [{"src": src}], "contents": []});
        normalized(&replica.admin("PUT", &resource("a", "x:icon"), Some(body)).await)
    };
    for src in ["javascript:alert(1)", "JavaScript:alert(1)", "file:///etc/passwd", "ftp://h/i.png"] {
        let wrong = "icons[0].src must be an http, https or data URI";
        assert_eq!(put(src).await, problem(400, "invalid_params", wrong), "{src}");
    }
    for src in ["https://h/i.png", "HTTP://h/i.png", "data:image/png;base64,AA=="] {
        assert!(put(src).await["status"].as_u64().unwrap() < 300, "{src}");
    }
}
