//! Audit rows name the connection that content was taken from.

use serde_json::{Value, json};
use waggle::audit::verify::{Evidence, verify};
use waggle::store::audit::scan::AuditScan;

use super::upstream::{status, text};
use super::{Site, source};
use crate::support::wait::{eventually, eventually_some};

/// The rows of a method, oldest first: subject, outcome and connection.
async fn rows(site: &Site, method: &str, count: usize) -> Vec<Value> {
    let query = format!("/audit?method={}", crate::support::app::encode(method));
    eventually_some("the rows of the method", async || {
        let items = site.replica.admin("GET", &query, None).await.json()["items"].take();
        let items = items.as_array().unwrap().clone();
        let row =
            |row: &Value| json!([row["subject"], row["outcome"], row.get("connection"), row["version"]]);
        (items.len() == count).then(|| items.iter().rev().map(row).collect())
    })
    .await
}

#[tokio::test]
async fn row_names_the_connection_that_content_came_from() {
    let site = Site::new().await;
    let tools = json!({"tools": ["resources"]});
    assert_eq!(site.replica.admin("PATCH", "/agents/notes", Some(tools)).await.status, 200);
    site.upstream.answer("a", text("one"));
    site.upstream.answer("b", status(500));
    for name in ["a", "b", "none"] {
        site.resource(name, source(name)).await;
    }
    site.replica.put("notes", "test://inline", "inline").await;
    for uri in ["test://a", "test://a", "test://b", "test://none", "test://inline", "test://unknown"] {
        site.read(uri).await;
    }
    let expected = [
        json!(["test://a", "ok", "api", 3]),
        json!(["test://a", "ok", "api", 3]),
        json!(["test://b", "source_failed", "api", 3]),
        json!(["test://none", "resource_not_found", "api", 3]),
        json!(["test://inline", "ok", null, 1]),
        json!(["test://unknown", "resource_not_found", null, 1]),
    ];
    assert_eq!(rows(&site, "resources/read", 6).await, expected);

    let call = json!({"name": "read_resource", "arguments": {"uri": "test://a"}});
    site.replica.http.call("notes", &site.key, "tools/call", call).await;
    assert_eq!(rows(&site, "tools/call", 1).await, [json!(["test://a", "ok", "api", 3])]);

    let completions = json!({"v": {"source": source("a")}, "w": ["x"]});
    let template = json!({"name": "t", "template": "x", "completions": completions});
    assert_eq!(site.template("test://t/{v}/{w}", template).await.status, 201);
    for argument in ["v", "w"] {
        let params = json!({"ref": {"type": "ref/resource", "uri": "test://t/{v}/{w}"},
            "argument": {"name": argument, "value": ""}});
        site.replica.http.call("notes", &site.key, "completion/complete", params).await;
    }
    let completed = rows(&site, "completion/complete", 2).await;
    assert_eq!(completed, [json!([null, "ok", "api", 3]), json!([null, "ok", null, 1])]);

    // A batch has a row for each message.
    let read = |id: u8, uri: &str| json!({"jsonrpc": "2.0", "id": id, "method": "resources/read", "params": {"uri": uri}});
    let batch = json!([read(1, "test://inline"), read(2, "test://a"), read(3, "test://inline")]);
    site.replica.http.post("notes", &site.key, &batch).await;
    let batched: Vec<_> =
        rows(&site, "resources/read", 9).await[6..].iter().map(|row| row[2].clone()).collect();
    assert_eq!(batched, [Value::Null, json!("api"), Value::Null]);

    let test = json!({"source": {"path": "a"}});
    site.replica.admin("POST", "/connections/api/test", Some(test)).await;
    let tested = rows(&site, "POST /admin/v1/connections/{connection}/test", 1).await;
    assert_eq!(tested, [json!(["api", "ok", "api", 3])]);

    let bearer = format!("Bearer {}", site.replica.operator);
    let headers = [("authorization", bearer.as_str()), ("accept", "text/csv")];
    let csv = site.replica.http.send("GET", "/admin/v1/audit?method=tools/call", &headers, "").await.text();
    let (head, row) = csv.split_once("\r\n").unwrap();
    let column = head.split(',').position(|name| name == "connection").unwrap();
    assert_eq!(row.split(',').nth(column), Some("api"), "{csv}");

    // The chain is whole, whichever versions its rows have.
    eventually("every row verifies", async || {
        let mut scan = AuditScan::begin(&site._database.options).await.unwrap();
        let evidence = Evidence { checkpoints: Vec::new(), trusted: Vec::new() };
        let report = verify(&mut scan, &evidence).await.unwrap();
        scan.end().await.unwrap();
        assert_eq!(report.findings, Vec::<String>::new());
        report.rows > 0
    })
    .await;
}
