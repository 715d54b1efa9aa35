//! Raw content, as `curl --data-binary @file` sends it.

use serde_json::{Value, json};

use super::ask;
use crate::app::{Builder, Replica, encode, gateway, resource};
use crate::cluster::database;
use crate::whole::{answered, problem, whole};

const CURL: &str = "application/x-www-form-urlencoded";

fn content(uri: &str) -> String {
    format!("/agents/a/resources/content?uri={}", encode(uri))
}

async fn put(replica: &Replica, uri: &str, mime: Option<&str>, bytes: &[u8]) -> Value {
    let headers = mime.map(|mime| ("content-type", mime));
    let path = content(uri);
    let put = ("PUT", path.as_str());
    whole(&ask(replica, &replica.operator, put, headers.as_slice(), bytes.to_vec()).await)
}

/// The MIME type and the bytes of raw content.
async fn get(replica: &Replica, uri: &str) -> (String, Vec<u8>) {
    let answer = replica.admin("GET", &content(uri), None).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    (answer.header("content-type").unwrap().to_owned(), answer.body.to_vec())
}

async fn shown(replica: &Replica, uri: &str) -> Value {
    replica.admin("GET", &resource("a", uri), None).await.json()
}

#[tokio::test]
async fn bytes_come_back_as_they_were_sent_with_their_mime_type() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let text = "text/plain; charset=utf-8";
    for (uri, sent, bytes, answered_as, carrier) in [
        ("x:/dir/a.txt", Some("text/plain"), "ü\r\n".as_bytes(), "text/plain", "text"),
        ("x:kept", Some("Text/HTML; charset=\"UTF-8\""), b"<p>", "Text/HTML; charset=\"UTF-8\"", "text"),
        ("x:json", Some("application/json"), b"{not json", "application/json", "text"),
        ("x:suffix", Some("image/svg+xml"), b"<svg/>", "image/svg+xml", "text"),
        ("x:png", Some("image/png"), b"ASCII", "image/png", "blob"),
        ("x:latin1", Some("text/plain"), b"\xe4", "text/plain", "blob"),
        ("x:curl-text", Some(CURL), b"a=b", text, "text"),
        ("x:curl-bytes", Some(CURL), &every_byte, "application/octet-stream", "blob"),
        ("x:nothing-said", None, b"plain", text, "text"),
        ("x:empty", None, b"", text, "text"),
    ] {
        assert_eq!(put(&replica, uri, sent, bytes).await["status"], 201, "{uri}");
        assert_eq!(get(&replica, uri).await, (answered_as.to_owned(), bytes.to_vec()), "{uri}");
        let part = &shown(&replica, uri).await["contents"][0];
        assert!(part[carrier].is_string(), "{uri}: {part}");
    }
    // The whole of an answer: nothing of somebody else's is rendered as a page of the gateway's.
    let expected = json!({
        "status": 200,
        "headers": {
            "cache-control": "no-store", "content-disposition": "attachment", "content-type": "text/plain",
            "etag": "\"2\"", "x-content-type-options": "nosniff",
        },
        "body": "ü\r\n",
    });
    assert_eq!(whole(&replica.admin("GET", &content("x:/dir/a.txt"), None).await), expected);
    let named = json!({"uri": "x:/dir/a.txt", "name": "a.txt", "mimeType": "text/plain", "contents": [{"text": "ü\r\n"}]});
    assert_eq!(shown(&replica, "x:/dir/a.txt").await, named);
}

#[tokio::test]
async fn raw_content_replaces_the_contents_and_keeps_the_definition() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let body = json!({
        "name": "n", "title": "t", "mimeType": "image/png", "_meta": {"a": 1},
        "contents": [{"text": "one"}, {"text": "two", "uri": "x:2"}],
    });
    assert_eq!(replica.admin("PUT", &resource("a", "x:1"), Some(body)).await.status, 201);
    let several = "the resource has not exactly one content; read it as JSON";
    let read = replica.admin("GET", &content("x:1"), None).await;
    assert_eq!(whole(&read), problem(400, "invalid_params", several));

    let written = |revision| answered(200, Some(revision), &Value::Null);
    assert_eq!(put(&replica, "x:1", Some(CURL), b"bytes").await, written(3));
    let mut expected = json!({
        "uri": "x:1", "name": "n", "title": "t", "mimeType": "image/png", "_meta": {"a": 1},
        "contents": [{"blob": "Ynl0ZXM="}],
    });
    assert_eq!(
        shown(&replica, "x:1").await,
        expected,
        "of the type that it has: a blob, though it could be text"
    );
    assert_eq!(put(&replica, "x:1", Some(CURL), b"bytes").await, written(3), "nothing changed");
    assert_eq!(put(&replica, "x:1", Some("text/plain"), b"bytes").await, written(4));
    (expected["mimeType"], expected["contents"]) = (json!("text/plain"), json!([{"text": "bytes"}]));
    assert_eq!(shown(&replica, "x:1").await, expected);
    let none = replica.admin("GET", &content("x:none"), None).await;
    assert_eq!(whole(&none), problem(404, "not_found", "no such resource"));
}

#[tokio::test]
async fn contents_are_taken_up_to_their_limit_and_no_further() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__CONTENT_BYTES", 65_536).start().await;
    replica.acme("a").await;
    let (most, over) = (vec![0xff; 65_536], vec![0xff; 65_537]);
    let too_large = problem(413, "payload_too_large", "the body is longer than 65536 bytes");
    assert_eq!(put(&replica, "x:1", None, &most).await["status"], 201);
    assert_eq!(put(&replica, "x:1", None, &over).await, too_large);
    assert_eq!(get(&replica, "x:1").await.1, most);

    // Escaped, the text is six times as long on the way.
    let json = async |parts: usize, length: usize| {
        let text = "\\u0041".repeat(length);
        let parts = vec![format!(r#"{{"text":"{text}"}}"#); parts].join(",");
        let body = format!(r#"{{"name":"n","contents":[{parts}]}}"#);
        whole(&super::say(&replica, ("PUT", &resource("a", "x:2")), &body).await)
    };
    assert_eq!(json(2, 32_768).await["status"], 201);
    assert_eq!(json(2, 32_769).await, too_large, "all contents together");
    assert_eq!(json(3, 65_536).await["status"], 413);
    assert_eq!(json(1_000, 1).await["status"], 200);
    assert_eq!(json(1_001, 1).await, problem(400, "invalid_params", "contents: at most 1000"));
}
