//! Raw content, as `curl --data-binary @file` sends it.

use serde_json::{Value, json};

use super::send;
use crate::support::answers::{answered, normalized, problem};
use crate::support::app::{Builder, Replica, encode, gateway, resource};
use crate::support::cluster::database;

const CURL: &str = "application/x-www-form-urlencoded";

fn content(uri: &str) -> String {
    format!("/agents/a/resources/content?uri={}", encode(uri))
}

async fn put(replica: &Replica, uri: &str, mime: Option<&str>, bytes: &[u8]) -> Value {
    let headers = mime.map(|mime| ("content-type", mime));
    let path = content(uri);
    let put = ("PUT", path.as_str());
    normalized(&send(replica, &replica.operator, put, headers.as_slice(), bytes.to_vec()).await)
}

/// The MIME type and the bytes of raw content.
async fn get(replica: &Replica, uri: &str) -> (String, Vec<u8>) {
    let answer = replica.admin("GET", &content(uri), None).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    (answer.header("content-type").unwrap().to_owned(), answer.body.to_vec())
}

async fn definition(replica: &Replica, uri: &str) -> Value {
    replica.admin("GET", &resource("a", uri), None).await.json()
}

#[tokio::test]
async fn raw_content_keeps_its_bytes_and_mime_type() {
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
        let part = &definition(&replica, uri).await["contents"][0];
        assert!(part[carrier].is_string(), "{uri}: {part}");
    }
    // The headers too: foreign content is never rendered as a page of the gateway.
    let expected = json!({
        "status": 200,
        "headers": {
            "cache-control": "no-store", "content-disposition": "attachment", "content-type": "text/plain",
            "etag": "\"2\"", "x-content-type-options": "nosniff",
        },
        "body": "ü\r\n",
    });
    assert_eq!(normalized(&replica.admin("GET", &content("x:/dir/a.txt"), None).await), expected);
    let named = json!({"uri": "x:/dir/a.txt", "name": "a.txt", "mimeType": "text/plain", "contents": [{"text": "ü\r\n"}]});
    assert_eq!(definition(&replica, "x:/dir/a.txt").await, named);
}

#[tokio::test]
async fn raw_content_replaces_the_content_and_keeps_the_definition() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let mut shown_as = json!({
        "uri": "x:1", "name": "n", "title": "t", "mimeType": "image/png", "_meta": {"a": 1},
        "contents": [{"blob": "AA==", "uri": "x:own", "_meta": {"b": 2}}],
    });
    assert_eq!(replica.admin("PUT", &resource("a", "x:1"), Some(shown_as.clone())).await.status, 201);
    let written = |revision| answered(200, Some(revision), &Value::Null);
    assert_eq!(put(&replica, "x:1", Some(CURL), b"bytes").await, written(3));
    shown_as["contents"] = json!([{"blob": "Ynl0ZXM=", "uri": "x:own", "_meta": {"b": 2}}]);
    assert_eq!(
        definition(&replica, "x:1").await,
        shown_as,
        "of its current type: a blob, although it could be text"
    );
    assert_eq!(put(&replica, "x:1", Some(CURL), b"bytes").await, written(3), "nothing changed");
    assert_eq!(put(&replica, "x:1", Some("text/plain"), b"bytes").await, written(4));
    shown_as["mimeType"] = json!("text/plain");
    shown_as["contents"] = json!([{"text": "bytes", "uri": "x:own", "_meta": {"b": 2}}]);
    assert_eq!(definition(&replica, "x:1").await, shown_as);
    let none = replica.admin("GET", &content("x:none"), None).await;
    assert_eq!(normalized(&none), problem(404, "not_found", "no such resource"));
}

#[tokio::test]
async fn raw_content_without_a_type_keeps_the_previous_type() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let mut shown_as = json!({
        "uri": "x:1", "name": "n", "mimeType": "image/png",
        "contents": [{"text": "a", "mimeType": "application/vnd.chart"}],
    });
    assert_eq!(replica.admin("PUT", &resource("a", "x:1"), Some(shown_as.clone())).await.status, 201);
    put(&replica, "x:1", None, b"b").await;
    shown_as["contents"][0]["text"] = json!("b");
    assert_eq!(definition(&replica, "x:1").await, shown_as);
    put(&replica, "x:1", Some("text/csv"), b"c").await;
    shown_as["contents"][0] = json!({"text": "c", "mimeType": "text/csv"});
    assert_eq!(definition(&replica, "x:1").await, shown_as, "a declared type is that of the content");
    put(&replica, "x:1", Some("text/csv ; charset=iso-8859-1"), b"caf\xe9").await;
    let latin1 = ("text/csv ; charset=iso-8859-1".to_owned(), b"caf\xe9".to_vec());
    assert_eq!(get(&replica, "x:1").await, latin1);
    put(&replica, "x:1", None, b"cafe").await;
    let kept = json!([{"blob": "Y2FmZQ==", "mimeType": "text/csv ; charset=iso-8859-1"}]);
    assert_eq!(definition(&replica, "x:1").await["contents"], kept, "no text with another declared charset");
}

#[tokio::test]
async fn raw_content_does_not_replace_several_contents() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    let body =
        json!({"name": "n", "contents": [{"text": "one"}, {"text": "two", "uri": "x:2"}, {"blob": ""}]});
    assert_eq!(replica.admin("PUT", &resource("a", "x:1"), Some(body)).await.status, 201);
    let several = "the resource does not have exactly one content; read it as JSON";
    let read = replica.admin("GET", &content("x:1"), None).await;
    assert_eq!(normalized(&read), problem(400, "invalid_params", several));
    let wrong = "the resource has 3 contents, expected at most one; replace all of them as JSON";
    for mime in [None, Some("text/plain")] {
        assert_eq!(put(&replica, "x:1", mime, b"x").await, problem(400, "invalid_params", wrong));
    }
}

#[tokio::test]
async fn a_body_in_a_content_coding_is_refused() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let (encoding, json_type) = (("content-encoding", "gzip"), ("content-type", "application/json"));
    let wrong = "Content-Encoding is not supported; send the body as it is";
    let path = content("x:1");
    let raw = send(&replica, &replica.operator, ("PUT", &path), &[encoding], b"x".to_vec()).await;
    assert_eq!(normalized(&raw), problem(415, "unsupported_media_type", wrong));
    let more = [json_type, encoding];
    let agent = send(&replica, &replica.operator, ("PATCH", "/agents/a"), &more, b"{}".to_vec()).await;
    assert_eq!(normalized(&agent), problem(415, "unsupported_media_type", wrong));
    let spaced = [("content-type", "application/json ; charset=utf-8")];
    let agent = send(&replica, &replica.operator, ("PATCH", "/agents/a"), &spaced, b"{}".to_vec()).await;
    assert_eq!(agent.status, 200, "{}", agent.text());
    let headers = [("x-agent-api-key", key.as_str()), json_type, encoding];
    let message = r#"{"jsonrpc":"2.0","id":7,"method":"ping"}"#;
    let answer = replica.http.send("POST", "/a/mcp", &headers, message).await;
    assert_eq!((answer.status.as_u16(), &answer.json()["error"]["code"]), (415, &json!(-32600)));
    assert_eq!((&answer.json()["id"], &answer.json()["error"]["message"]), (&json!(7), &json!(wrong)));
}

#[tokio::test]
async fn content_beyond_its_size_limit_is_refused() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__CONTENT_BYTES", 65_536).start().await;
    replica.acme("a").await;
    let (most, over) = (vec![0xff; 65_536], vec![0xff; 65_537]);
    let too_large = problem(413, "payload_too_large", "the body is longer than 65536 bytes");
    assert_eq!(put(&replica, "x:1", None, &most).await["status"], 201);
    assert_eq!(put(&replica, "x:1", None, &over).await, too_large);
    assert_eq!(get(&replica, "x:1").await.1, most);

    // Escaped, the text is six times as long in the request.
    let json = async |parts: usize, length: usize| {
        let text = "\\u0041".repeat(length);
        let parts = vec![format!(r#"{{"text":"{text}"}}"#); parts].join(",");
        let body = format!(r#"{{"name":"n","contents":[{parts}]}}"#);
        normalized(&super::send_json(&replica, ("PUT", &resource("a", "x:2")), &body).await)
    };
    assert_eq!(json(2, 32_768).await["status"], 201);
    assert_eq!(json(2, 32_769).await, too_large, "all contents together");
    assert_eq!(json(3, 65_536).await["status"], 413);
    assert_eq!(json(1_000, 1).await["status"], 200);
    assert_eq!(json(1_001, 1).await, problem(400, "invalid_params", "contents: at most 1000"));
}
