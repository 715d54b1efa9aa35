//! Pages of lists, and their cursors.

use serde_json::{Value, json};

use crate::support::answers::{normalized, problem};
use crate::support::app::{Replica, gateway};

/// Reads a list to its end; returns the `member` of its items by page.
async fn walk(replica: &Replica, path: &str, limit: usize, member: &str) -> Vec<Vec<String>> {
    let mut pages = Vec::new();
    let mut cursor = String::new();
    loop {
        let separator = if path.contains('?') { '&' } else { '?' };
        let page =
            replica.admin("GET", &format!("{path}{separator}limit={limit}{cursor}"), None).await.json();
        let items = page["items"].as_array().unwrap().iter();
        pages.push(items.map(|item| item[member].as_str().unwrap().to_owned()).collect());
        match &page["nextCursor"] {
            Value::String(next) => cursor = format!("&cursor={next}"),
            end => {
                assert_eq!(*end, Value::Null);
                return pages;
            }
        }
    }
}

#[tokio::test]
async fn list_is_complete_and_ordered_for_any_page_size() {
    let (database, replica) = gateway().await;
    replica.acme("a").await;
    database
        .execute(
            "insert into resources (tenant, agent, uri, name, source, revision, last_modified) \
             select tenant, uid, 'x:' || n, 'n', 'inline', 1, now() from agents, generate_series(1, 1000) n",
        )
        .await;
    let mut expected: Vec<_> = (1..=1_000).map(|n| format!("x:{n}")).collect();
    expected.sort_unstable();
    for (limit, pages) in [(500, 2), (499, 3), (100, 10)] {
        let read = walk(&replica, "/agents/a/resources", limit, "uri").await;
        assert_eq!((read.len(), read.concat()), (pages, expected.clone()), "pages of {limit}");
        assert!(read[..pages - 1].iter().all(|page| page.len() == limit));
    }
    let first = replica.admin("GET", "/agents/a/resources", None).await.json();
    assert_eq!(first["items"].as_array().unwrap().len(), 100, "by default");
}

#[tokio::test]
async fn every_list_can_be_paged_by_one() {
    let (_database, replica) = gateway().await;
    let ids = ["b", "a0", "a-b", "a_b", "a"];
    for id in ids {
        replica.tenant(id).await;
    }
    for id in ids {
        replica.agent("b", id).await;
    }
    replica.agent("a", "other").await;
    let sorted = ["a", "a-b", "a0", "a_b", "b"].map(|id| vec![id.to_owned()]);
    assert_eq!(walk(&replica, "/tenants", 1, "id").await, sorted);
    assert_eq!(walk(&replica, "/agents?tenant=b", 1, "id").await, sorted);
    let all = walk(&replica, "/agents", 1, "id").await.concat();
    assert_eq!(all, ["a", "a-b", "a0", "a_b", "b", "other"]);

    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(vec![replica.key("a", &["mcp"]).await.0]);
    }
    // Oldest first, by id; ids of the same millisecond have no defined order.
    ids.sort_unstable();
    assert_eq!(walk(&replica, "/agents/a/keys", 1, "id").await, ids);
    let owner = replica.admin("POST", "/tenants/a/keys", Some(json!({}))).await.json();
    let owner = owner["id"].as_str().unwrap().to_owned();
    assert_eq!(walk(&replica, "/tenants/a/keys", 1, "id").await, [[owner]]);
    for uri in ["x:b", "x:a", "x:A"] {
        replica.put("a", uri, "").await;
    }
    assert_eq!(walk(&replica, "/agents/a/resources", 1, "uri").await, [["x:A"], ["x:a"], ["x:b"]]);
    let templates: Vec<_> =
        ["b:{v}", "a:{v}", "A:{v}"].map(|t| json!({"uriTemplate": t, "name": "n", "template": ""})).into();
    let messages = json!([{"role": "user", "content": {"type": "text", "text": ""}}]);
    let prompts: Vec<_> = ["b", "a", "A"].map(|p| json!({"name": p, "messages": messages})).into();
    let manifest = json!({"apiVersion": "waggle/v1", "templates": templates, "prompts": prompts});
    assert_eq!(replica.admin("PUT", "/agents/a/manifest", Some(manifest)).await.status, 200);
    let read = walk(&replica, "/agents/a/templates", 1, "uriTemplate").await;
    assert_eq!(read, [["A:{v}"], ["a:{v}"], ["b:{v}"]]);
    assert_eq!(walk(&replica, "/agents/a/prompts", 1, "name").await, [["A"], ["a"], ["b"]]);
}

#[tokio::test]
async fn page_limit_is_a_number_from_1_to_500() {
    let (_database, replica) = gateway().await;
    replica.acme("a").await;
    for list in [
        "/tenants",
        "/agents",
        "/agents/a/keys",
        "/tenants/acme/keys",
        "/agents/a/resources",
        "/agents/a/templates",
        "/agents/a/prompts",
    ] {
        for limit in ["1", "500"] {
            assert_eq!(replica.admin("GET", &format!("{list}?limit={limit}"), None).await.status, 200);
        }
        for (limit, detail) in [
            ("0", "limit must be 1 to 500"),
            ("501", "limit must be 1 to 500"),
            ("-1", "limit must be 1 to 500"),
            ("abc", "query: limit: must be a whole number"),
            ("1.5", "query: limit: must be a whole number"),
            ("", "query: limit: must be a whole number"),
            ("99999999999999999999", "query: limit: must be a whole number"),
        ] {
            let answer = replica.admin("GET", &format!("{list}?limit={limit}"), None).await;
            assert_eq!(normalized(&answer), problem(400, "invalid_params", detail), "{list} {limit:?}");
        }
    }
}

#[tokio::test]
async fn cursor_of_another_list_is_refused() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    replica.agent("acme", "b").await;
    replica.tenant("bee").await;
    replica.agent("bee", "c").await;
    let lists = [
        "/tenants",
        "/agents",
        "/agents?tenant=acme",
        "/agents/a/keys",
        "/tenants/acme/keys",
        "/agents/a/resources",
        "/agents/b/resources",
    ];
    for _ in 0..2 {
        replica.key("a", &["mcp"]).await;
        super::owner(&replica, "acme").await;
    }
    for agent in ["a", "b"] {
        replica.put(agent, "x:1", "").await;
        replica.put(agent, "x:2", "").await;
    }
    let mut cursors = Vec::new();
    for list in lists {
        let separator = if list.contains('?') { '&' } else { '?' };
        let page = replica.admin("GET", &format!("{list}{separator}limit=1"), None).await.json();
        cursors.push(page["nextCursor"].as_str().unwrap().to_owned());
    }
    let refused = problem(400, "invalid_params", "cursor is not valid for this list");
    let follow = async |list: &str, cursor: &str| {
        let separator = if list.contains('?') { '&' } else { '?' };
        let cursor = crate::support::app::encode(cursor);
        normalized(&replica.admin("GET", &format!("{list}{separator}cursor={cursor}"), None).await)
    };
    for (list, own) in lists.iter().zip(&cursors) {
        for cursor in &cursors {
            let answer = follow(list, cursor).await;
            if cursor == own {
                assert_eq!(answer["status"], 200, "{list}");
            } else {
                assert_eq!(answer, refused, "{list} {cursor}");
            }
        }
        let mut flipped = own.clone().into_bytes();
        flipped[3] = if flipped[3] == b'A' { b'B' } else { b'A' };
        let flipped = String::from_utf8(flipped).unwrap();
        for invalid in
            ["", "x", "AAAA", "ä", "\0", &flipped, &own[1..], &format!("{own}="), &format!("{own}AA")]
        {
            assert_eq!(follow(list, invalid).await, refused, "{list} {invalid:?}");
        }
    }
    // The MCP endpoint has other cursors.
    let answer = replica.http.call("a", &key, "resources/list", json!({"cursor": cursors[5]})).await;
    assert_eq!(answer["error"]["code"], -32602);
}
