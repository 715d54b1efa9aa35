//! JSON-RPC batches, which only one revision supports.

use serde_json::{Value, json};

use super::{MODERN, post};
use crate::support::answers::{error, exact, message};
use crate::support::app::{Builder, Replica, gateway};
use crate::support::cluster::database;

async fn batch(replica: &Replica, key: &str, revision: Option<&str>, body: String) -> Value {
    let mut headers = vec![("x-agent-api-key", key)];
    headers.extend(revision.map(|revision| ("mcp-protocol-version", revision)));
    exact(&post(replica, "/a/mcp", &headers, body).await)
}

fn pings(count: usize) -> String {
    let all: Vec<_> = (0..count).map(|id| json!({"jsonrpc": "2.0", "id": id, "method": "ping"})).collect();
    Value::from(all).to_string()
}

#[tokio::test]
async fn batch_messages_are_answered_separately_in_order() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.put("a", "x:1", "text").await;
    let body = r#"[
        {"jsonrpc":"2.0","id":"r","method":"resources/read","params":{"uri":"x:1"}},
        {"jsonrpc":"2.0","method":"notifications/progress"},
        {"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"x:2"}},
        {"jsonrpc":"2.0","id":3,"result":{}},
        {"jsonrpc":"2.0","id":4,"method":"nope"},
        {"jsonrpc":"2.0","id":null,"method":"ping"},
        {"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"info"}},
        {"jsonrpc":"2.0","id":2,"method":"ping"},
        [],
        1
    ]"#;
    let error = |id: Value, code: i32, message: &str, data: Value| json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": message, "data": data}});
    let invalid = |id, sentence| error(id, -32600, sentence, json!({"code": "invalid_request"}));
    let expected = json!([
        {"jsonrpc": "2.0", "id": "r", "result": {"contents": [{"uri": "x:1", "text": "text"}]}},
        error(json!(2), -32002, "resource not found: x:2", json!({"code": "resource_not_found", "uri": "x:2"})),
        error(json!(4), -32601, "unknown method: nope", json!({"code": "method_not_found"})),
        invalid(Value::Null, "id must be an integer or a string of at most 1024 bytes"),
        error(json!(5), -32600, "logging/setLevel needs a session; send initialize first", json!({"code": "session_required"})),
        {"jsonrpc": "2.0", "id": 2, "result": {}},
        invalid(Value::Null, "a message must be an object"),
        invalid(Value::Null, "a message must be an object"),
    ]);
    for revision in [None, Some("2025-03-26")] {
        assert_eq!(
            batch(&replica, &key, revision, body.to_owned()).await,
            message(&expected),
            "{revision:?}"
        );
    }
}

#[tokio::test]
async fn calls_are_refused_once_the_answers_to_a_batch_are_too_long() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_LIMITS__CONTENT_BYTES", 1_000).start().await;
    let key = replica.acme("a").await;
    let text = "x".repeat(600);
    replica.put("a", "x:1", &text).await;
    let read =
        |id: i32| json!({"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": {"uri": "x:1"}});
    let sent =
        json!([read(1), read(2), read(3), {"jsonrpc": "2.0", "method": "notifications/progress"}, read(4)]);
    let answered =
        |id: i32| json!({"jsonrpc": "2.0", "id": id, "result": {"contents": [{"uri": "x:1", "text": text}]}});
    let refused = |id: i32| {
        let message =
            "the answers to this batch have more than 1000 bytes already; send this message on its own";
        json!({"jsonrpc": "2.0", "id": id, "error": {
            "code": -31014, "message": message, "data": {"code": "payload_too_large"},
        }})
    };
    let expected = json!([answered(1), answered(2), refused(3), refused(4)]);
    assert_eq!(batch(&replica, &key, None, sent.to_string()).await, message(&expected));
}

#[tokio::test]
async fn a_batch_has_from_1_to_50_messages_and_no_initialize() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let refused = |sentence| error(400, "null", -32600, "invalid_request", sentence);
    for revision in [None, Some("2025-03-26")] {
        let batch = async |body: String| batch(&replica, &key, revision, body).await;
        for count in [1, 50] {
            let pongs: Vec<_> =
                (0..count).map(|id| json!({"jsonrpc": "2.0", "id": id, "result": {}})).collect();
            assert_eq!(batch(pings(count)).await, message(&pongs.into()), "{count}");
        }
        for count in [0, 51, 5_000] {
            assert_eq!(batch(pings(count)).await, refused("a batch has from 1 to 50 messages"), "{count}");
        }
        let initialize =
            r#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"initialize"}]"#;
        assert_eq!(batch(initialize.to_owned()).await, refused("initialize must not be part of a batch"));
        let unanswered = r#"[{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":1,"result":{}}]"#;
        assert_eq!(batch(unanswered.to_owned()).await, json!({"status": 202, "headers": {}, "body": null}));
    }
}

#[tokio::test]
async fn batches_are_refused_in_other_revisions() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    for (revision, id) in [("2024-11-05", "null"), ("2025-06-18", "null"), ("2025-11-25", ""), (MODERN, "")] {
        let answer = batch(&replica, &key, Some(revision), pings(1)).await;
        assert_eq!(
            answer,
            error(400, id, -32600, "invalid_request", "this revision has no batches"),
            "{revision}"
        );
    }
    // Only the header decides the era of a batch: this is one of 2025-03-26 with an unknown member.
    let meta = super::meta(MODERN);
    let member = json!([{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"_meta": meta}}]);
    let answer = batch(&replica, &key, None, member.to_string()).await;
    assert_eq!(answer, message(&json!([{"jsonrpc": "2.0", "id": 1, "result": {}}])));
}
