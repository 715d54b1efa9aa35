//! Batches: which revision accepts them, and what they may contain.

use serde_json::{Value, json};

use super::{MODERN, message, post};
use crate::case::Case;

pub(crate) fn cases() -> Vec<Case> {
    let request = |id: i64, method: &str, params: Value| json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
    let ping = |id: i64| request(id, "ping", json!({}));
    let read = |id: i64, uri: &str| request(id, "resources/read", json!({"uri": uri}));
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let response = json!({"jsonrpc": "2.0", "id": 5, "result": {}});
    let initialize = request(
        1,
        "initialize",
        json!({"protocolVersion": "2025-03-26", "capabilities": {},
        "clientInfo": {"name": "c", "version": "1"}}),
    );
    let batches = [
        ("empty", json!([])),
        ("one", json!([ping(1)])),
        ("two", json!([ping(1), read(2, "test://plain")])),
        ("an unknown resource among others", json!([read(1, "test://none"), ping(2)])),
        ("an unknown method among others", json!([request(1, "x/y", json!({})), ping(2)])),
        ("the same id twice", json!([ping(1), ping(1)])),
        ("a notification among requests", json!([notification, ping(1)])),
        ("only notifications", json!([notification, notification])),
        ("only responses", json!([response])),
        ("a response among requests", json!([response, ping(1)])),
        ("an initialize", json!([initialize])),
        ("an initialize among others", json!([ping(2), initialize])),
        ("a number", json!([1])),
        ("a number among requests", json!([ping(1), 2])),
        ("a batch within", json!([[ping(1)]])),
        ("an id that is null", json!([{"jsonrpc": "2.0", "id": null, "method": "ping"}])),
        ("a subscription", json!([request(1, "resources/subscribe", json!({"uri": "test://plain"}))])),
        ("fifty", (1..=50).map(ping).collect()),
        ("fifty-one", (1..=51).map(ping).collect()),
    ];
    let mut cases = Vec::new();
    for (name, batch) in batches {
        for version in [MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"] {
            let case = post(format!("{name}, {version}"), "alpha", &batch).key("mcp");
            cases.push(case.header("mcp-protocol-version", version));
        }
        cases.push(post(format!("{name}, no version"), "alpha", &batch).key("mcp"));
        cases.push(post(format!("{name}, no credential"), "open", &batch));
    }
    cases.push(post("a message beside it", "alpha", &message("ping", &json!({}))).key("mcp"));
    cases
}
