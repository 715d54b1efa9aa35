//! Pages of lists.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{MODERN, REVISIONS, call_as};
use crate::support::app::{Builder, Replica, gateway};
use crate::support::cluster::database;

/// Reads the list to its end; returns the URIs by page.
async fn walk(replica: &Replica, key: &str, revision: Option<&str>) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut params = json!({});
    loop {
        let page = call_as(replica, key, revision, "resources/list", params).await.json();
        let items = page["result"]["resources"].as_array().unwrap().iter();
        pages.push(items.map(|item| item["uri"].as_str().unwrap().to_owned()).collect());
        if revision == Some(MODERN) {
            assert_eq!(page["result"]["cacheScope"], "private", "the same on all pages");
        }
        match page["result"].get("nextCursor") {
            Some(next) => params = json!({"cursor": next}),
            None => return pages,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_are_listed_in_pages_in_byte_order() {
    let (_database, replica) = gateway().await;
    let replica = Arc::new(replica);
    let key = replica.acme("a").await;
    // Neither numeric nor alphabetical order.
    let mut uris: Vec<_> = (0..248).map(|n| format!("x:{n}")).chain(["x:A".into(), "x:a".into()]).collect();
    let mut writers = JoinSet::new();
    for chunk in uris.chunks(25) {
        let (replica, chunk) = (Arc::clone(&replica), chunk.to_vec());
        writers.spawn(async move {
            for uri in chunk {
                replica.put("a", &uri, "").await;
            }
        });
    }
    writers.join_all().await;
    uris.sort_unstable();
    for revision in REVISIONS {
        let pages = walk(&replica, &key, revision).await;
        let lengths: Vec<_> = pages.iter().map(Vec::len).collect();
        assert_eq!((lengths, pages.concat()), (vec![100, 100, 50], uris.clone()), "{revision:?}");
    }
}

#[tokio::test]
async fn page_size_is_configurable_and_the_last_has_no_cursor() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_MCP__PAGE_SIZE", 2).start().await;
    let key = replica.acme("a").await;
    let lengths = async || walk(&replica, &key, None).await.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(lengths().await, [0]);
    for (uri, expected) in [("x:1", vec![1]), ("x:2", vec![2]), ("x:3", vec![2, 1]), ("x:4", vec![2, 2])] {
        replica.put("a", uri, "").await;
        assert_eq!(lengths().await, expected);
    }
}

#[tokio::test]
async fn cursor_stays_valid_while_the_list_changes() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_MCP__PAGE_SIZE", 1).start().await;
    let key = replica.acme("a").await;
    replica.agent("acme", "b").await;
    let (_, other) = replica.key("b", &["mcp"]).await;
    for uri in ["x:2", "x:4", "x:6"] {
        replica.put("a", uri, "").await;
        replica.put("b", uri, "").await;
    }
    let first = replica.http.call("a", &key, "resources/list", json!({})).await;
    let cursor = first["result"]["nextCursor"].as_str().unwrap().to_owned();
    let next =
        async |cursor: &str| replica.http.call("a", &key, "resources/list", json!({"cursor": cursor})).await;
    let uri = |page: &Value| page["result"]["resources"][0]["uri"].as_str().map(str::to_owned);
    assert_eq!(uri(&next(&cursor).await).as_deref(), Some("x:4"));
    replica.put("a", "x:3", "").await;
    assert_eq!(uri(&next(&cursor).await).as_deref(), Some("x:3"));
    replica.admin("DELETE", &crate::support::app::resource("a", "x:2"), None).await;
    assert_eq!(uri(&next(&cursor).await).as_deref(), Some("x:3"), "though the place it names is gone");

    let refused = json!({"code": -32602, "message": "cursor is not valid for this list", "data": {"code": "invalid_params"}});
    let foreign = replica.http.call("b", &other, "resources/list", json!({"cursor": cursor})).await;
    assert_eq!(foreign["error"], refused);
    let admin = replica.admin("GET", "/agents/a/resources?limit=1", None).await.json();
    let mut flipped = cursor.clone().into_bytes();
    flipped[5] = if flipped[5] == b'A' { b'B' } else { b'A' };
    let flipped = String::from_utf8(flipped).unwrap();
    let invalid =
        ["", "0", "x:2", "AAAA", "\0", &flipped, &cursor[1..], admin["nextCursor"].as_str().unwrap()];
    for invalid in invalid {
        assert_eq!(next(invalid).await["error"], refused, "{invalid:?}");
    }
    for (wrong, message) in
        [(json!(1), "params.cursor must be a string"), (Value::Null, "params.cursor must be a string")]
    {
        let answer = replica.http.call("a", &key, "resources/list", json!({"cursor": wrong})).await;
        assert_eq!(answer["error"]["message"], message);
    }
}

/// The lists of definitions, and the member with the name of their items.
const LISTS: [(&str, &str, &str); 3] = [
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    ("prompts/list", "prompts", "name"),
];

#[tokio::test]
async fn altered_or_foreign_list_cursors_are_refused() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_MCP__PAGE_SIZE", 2).start().await;
    let key = replica.acme("a").await;
    let text = json!({"type": "text", "text": "t"});
    let named = |n: usize| format!("n{n}");
    let resources: Vec<_> =
        (0..3).map(|n| json!({"uri": format!("x:{n}"), "name": "n", "contents": []})).collect();
    let templates: Vec<_> =
        (0..3).map(|n| json!({"uriTemplate": format!("t{n}:{{a}}"), "name": "n", "template": ""})).collect();
    let prompts: Vec<_> =
        (0..3).map(|n| json!({"name": named(n), "messages": [{"role": "user", "content": text}]})).collect();
    let manifest = json!({
        "apiVersion": "waggle/v1", "resources": resources, "templates": templates, "prompts": prompts,
    });
    assert_eq!(replica.admin("PUT", "/agents/a/manifest", Some(manifest)).await.status, 200);
    let mut cursors = Vec::new();
    for (method, list, called) in LISTS {
        let first = replica.http.call("a", &key, method, json!({})).await;
        let cursor = first["result"]["nextCursor"].as_str().unwrap().to_owned();
        let second = replica.http.call("a", &key, method, json!({"cursor": cursor})).await;
        let items = |page: &Value| {
            let items = page["result"][list].as_array().unwrap().clone();
            items.iter().map(|item| item[called].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!((items(&first).len(), items(&second).len()), (2, 1), "{method}");
        assert!(
            items(&first).last() < items(&second).first() && second["result"].get("nextCursor").is_none()
        );
        cursors.push(cursor);
    }
    for (at, (method, ..)) in LISTS.into_iter().enumerate() {
        let refused = async |cursor: &str| {
            let answer = replica.http.call("a", &key, method, json!({"cursor": cursor})).await;
            assert_eq!(answer["error"]["code"], -32602, "{method} {cursor:?}");
        };
        for (other, cursor) in cursors.iter().enumerate() {
            if other != at {
                refused(cursor).await;
            }
        }
        for bit in 0..cursors[at].len() * 8 {
            let mut flipped = cursors[at].clone().into_bytes();
            flipped[bit / 8] ^= 1 << (bit % 8);
            // Altered bytes may not be UTF-8; the cursor is sent as text.
            refused(&flipped.iter().map(|byte| char::from(*byte)).collect::<String>()).await;
        }
    }
}
