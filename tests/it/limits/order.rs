//! The order in which the checks of a request take place.

use serde_json::json;

use super::{lists, message};
use crate::support::app::{Builder, mistyped};
use crate::support::cluster::database;

#[tokio::test]
async fn checks_of_a_request_take_place_in_the_documented_order() {
    let database = database().await;
    let mut builder = Builder::new(&database).set("WAGGLE_LIMITS__BODY_BYTES", 1_024);
    for unlimited in ["AGENT", "TENANT"] {
        builder = builder.set(&format!("WAGGLE_LIMITS__{unlimited}_PER_SECOND"), 0);
    }
    // After one request, a key is refused for minutes.
    builder = builder.set("WAGGLE_LIMITS__KEY_PER_SECOND", 1);
    for method in ["LIST", "READ", "PROMPT", "COMPLETE", "STREAM", "OTHER"] {
        builder = builder.set(&format!("WAGGLE_COSTS__{method}"), 400);
    }
    let replica = builder.start().await;
    let exhausted = replica.acme("a").await;
    let (_, fresh) = replica.key("a", &["mcp"]).await;
    // A refused content type and a body that is too long are charged.
    let (_, other) = replica.key("a", &["mcp"]).await;
    let (_, lengthy) = replica.key("a", &["mcp"]).await;
    assert_eq!(lists(&replica, "a", &exhausted, 1).await, [200]);
    let wrong = mistyped(&fresh);
    let long = message("x/unknown", json!({"long": "x".repeat(2_000)})).to_string();
    let short = message("x/unknown", json!({})).to_string();
    let page = ("origin", "https://evil.example");
    let key = |key| ("x-agent-api-key", key);
    let (text, json) = (("content-type", "text/plain"), ("content-type", "application/json"));
    // Each request lacks the first fault of the one before it.
    for (headers, body, expected) in [
        (&[key(&*wrong), text, page][..], &long, "forbidden_origin"),
        (&[key(&wrong), text], &long, "unauthenticated"),
        (&[key(&other), text], &long, "unsupported_media_type"),
        (&[key(&exhausted), json], &long, "rate_limited"),
        // Whatever a header says that the body is.
        (&[key(&exhausted), json, ("mcp-method", "server/discover")], &long, "rate_limited"),
        (&[key(&lengthy), json], &long, "payload_too_large"),
        (&[key(&fresh), json], &short, "method_not_found"),
    ] {
        let answer = replica.http.send("POST", "/a/mcp", headers, body.clone()).await;
        let answered = answer.json();
        assert_eq!(answered["error"]["data"]["code"], expected, "{answered}");
        assert_eq!(answered["id"], 1, "of each body that is not too long to be read: {answered}");
    }
}
