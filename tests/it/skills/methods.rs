//! `skills/list`, `skills/get`, `resources/directory/read`, and the reads of files, in every revision. Answers are compared
//! whole.

use serde_json::{Value, json};

use super::{body, digest, put, skill_md};
use crate::endpoint::{MODERN, REVISIONS, call_as};
use crate::support::answers::{error, message, normalized};
use crate::support::app::{Builder, gateway};
use crate::support::cluster::database;

/// The result of a revision with these members, with cache hints in all revisions. The agent is private and named `a`.
fn result_as(revision: Option<&str>, members: Value) -> Value {
    let mut result = members;
    result["ttlMs"] = json!(0);
    result["cacheScope"] = json!("private");
    if revision == Some(MODERN) {
        let server = json!({"name": "a", "version": env!("CARGO_PKG_VERSION")});
        result["resultType"] = json!("complete");
        result["_meta"] = json!({"io.modelcontextprotocol/serverInfo": server});
    }
    message(&json!({"jsonrpc": "2.0", "id": 7, "result": result}))
}

fn entry(path: &str, text: &str, frontmatter: Value, files: &[(&str, &str)]) -> Value {
    let uri = |file: &str| format!("skill://{path}/{file}");
    let file = |name: &str, text: &str| json!({"uri": uri(name), "digest": digest(text), "size": text.len()});
    let first = file("SKILL.md", text);
    let others = files.iter().map(|(name, text)| file(name, text));
    let resources: Vec<_> = std::iter::once(first).chain(others).collect();
    json!({"uri": uri("SKILL.md"), "frontmatter": frontmatter, "resources": resources})
}

fn listed(uri: &str, name: &str, mime_type: &str, size: Option<usize>) -> Value {
    let mut listed = json!({
        "uri": uri, "name": name, "mimeType": mime_type, "annotations": {"lastModified": "<moment>"},
    });
    if let Some(size) = size {
        listed["size"] = json!(size);
    }
    listed
}

#[tokio::test]
async fn skills_are_listed_got_and_read_in_every_revision() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let text = "---\nname: refunds\nx: 1.0\ndescription: |-\n  How to\n  refund\nmetadata:\n  b: '1'\n  a: x\n---\n# Refunds\n";
    let files = [("references/policy.md", "Policy"), ("scripts/run.py", "pass")];
    let mut sent = body("refunds", &files);
    sent["files"][0]["text"] = json!(text);
    put(&replica, "acme/refunds", sent).await;
    put(&replica, "acme-2/other", body("other", &[])).await;
    replica.put("a", "x:plain", "plain").await;
    let frontmatter = json!({"name": "refunds", "x": 1.0, "description": "How to\nrefund", "metadata": {"b": "1", "a": "x"}});
    let refunds = entry("acme/refunds", text, frontmatter, &files);
    let other_text = skill_md("other");
    let other =
        entry("acme-2/other", &other_text, json!({"name": "other", "description": "Does other"}), &[]);
    let mut skill_md = listed("skill://acme/refunds/SKILL.md", "refunds", "text/markdown", Some(text.len()));
    skill_md["description"] = json!("How to\nrefund");
    let mut other_md =
        listed("skill://acme-2/other/SKILL.md", "other", "text/markdown", Some(other_text.len()));
    other_md["description"] = json!("Does other");
    for revision in REVISIONS {
        let call = async |method: &str, params: Value| {
            normalized(&call_as(&replica, &key, revision, method, params).await)
        };
        let result = |members: Value| result_as(revision, members);
        let list = call_as(&replica, &key, revision, "skills/list", json!({})).await;
        assert_eq!(normalized(&list), result(json!({"skills": [other, refunds]})));
        let order =
            r#"{"name":"refunds","x":1.0,"description":"How to\nrefund","metadata":{"b":"1","a":"x"}}"#;
        assert!(list.text().contains(order), "in the order and with the types written: {}", list.text());
        let get = call("skills/get", json!({"uri": "skill://acme/refunds/SKILL.md"})).await;
        assert_eq!(get, result(json!({"skill": refunds})));

        let directory = async |uri: &str| call("resources/directory/read", json!({"uri": uri})).await;
        let folder = |uri: &str, name: &str| listed(uri, name, "inode/directory", None);
        assert_eq!(
            directory("skill://acme").await,
            result(json!({"resources": [folder("skill://acme/refunds", "refunds")]}))
        );
        let inside = json!([
            skill_md,
            folder("skill://acme/refunds/references", "references"),
            folder("skill://acme/refunds/scripts", "scripts"),
        ]);
        assert_eq!(directory("skill://acme/refunds").await, result(json!({"resources": inside})));
        let policy =
            listed("skill://acme/refunds/references/policy.md", "policy.md", "text/markdown", Some(6));
        assert_eq!(
            directory("skill://acme/refunds/references").await,
            result(json!({"resources": [policy]}))
        );

        let refused = |what: &str, uri: &str| {
            let mut expected = error(200, "7", -32602, "invalid_params", &format!("unknown {what}: {uri}"));
            expected["body"]["error"]["data"]["uri"] = json!(uri);
            expected
        };
        for uri in [
            "skill://acme/missing/SKILL.md",
            "skill://acme/refunds",
            "skill://acme/refunds/scripts/run.py",
            "x:plain",
        ] {
            assert_eq!(call("skills/get", json!({"uri": uri})).await, refused("skill", uri));
        }
        for uri in [
            "skill://acme/refunds/SKILL.md",
            "skill://acme/refunds/",
            "skill://ac",
            "skill://acme/refunds/references/policy.md",
            "x:plain",
            "x:",
        ] {
            assert_eq!(directory(uri).await, refused("directory", uri));
        }
        let missing = call("skills/get", json!({})).await;
        assert_eq!(missing["body"]["error"]["message"], "params.uri is required");

        let read = call_as(
            &replica,
            &key,
            revision,
            "resources/read",
            json!({"uri": "skill://acme/refunds/SKILL.md"}),
        )
        .await
        .json();
        let contents =
            json!([{"uri": "skill://acme/refunds/SKILL.md", "mimeType": "text/markdown", "text": text}]);
        assert_eq!(read["result"]["contents"], contents);
        let folder =
            call_as(&replica, &key, revision, "resources/read", json!({"uri": "skill://acme/refunds"}))
                .await
                .json();
        assert_eq!(folder["error"]["message"], "resource not found: skill://acme/refunds");
        let resources = call("resources/list", json!({})).await["body"]["result"]["resources"].clone();
        let uris: Vec<_> =
            resources.as_array().unwrap().iter().map(|listed| listed["uri"].as_str().unwrap()).collect();
        assert_eq!(uris, ["skill://acme-2/other/SKILL.md", "skill://acme/refunds/SKILL.md", "x:plain"]);
        assert_eq!(resources[1], skill_md);
    }
}

#[tokio::test]
async fn bytes_are_read_exactly_as_text_or_blob() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let mut sent = body("s", &[("empty", ""), ("crlf.txt", "a\r\n\u{feff}b")]);
    let files = sent["files"].as_array_mut().unwrap();
    files.push(json!({"path": "nul.txt", "blob": "AGE=", "mimeType": "text/plain"}));
    files.push(json!({"path": "text.png", "blob": "YQ==", "mimeType": "image/png"}));
    put(&replica, "s", sent).await;
    for (file, content) in [
        ("empty", json!({"mimeType": "text/plain", "text": ""})),
        ("crlf.txt", json!({"mimeType": "text/plain", "text": "a\r\n\u{feff}b"})),
        ("nul.txt", json!({"mimeType": "text/plain", "blob": "AGE="})),
        ("text.png", json!({"mimeType": "image/png", "text": "a"})),
    ] {
        let uri = format!("skill://s/{file}");
        let mut expected = content;
        expected["uri"] = json!(uri);
        let read = replica.http.call("a", &key, "resources/read", json!({"uri": uri})).await;
        assert_eq!(read["result"]["contents"], json!([expected]));
    }
}

#[tokio::test]
async fn pages_never_split_an_entry() {
    let database = database().await;
    let replica = Builder::new(&database).set("WAGGLE_MCP__PAGE_SIZE", 2).start().await;
    let key = replica.acme("a").await;
    for name in ["a", "b", "c", "d", "e"] {
        put(&replica, &format!("p/{name}"), body(name, &[("x/1", "1"), ("x/2", "2"), ("y", "3")])).await;
    }
    replica.put("a", "skill://p/bb", "").await;
    let walk = async |method: &str, params: Value, list: &str| {
        let (mut pages, mut params) = (Vec::new(), params);
        loop {
            let page = replica.http.call("a", &key, method, params.clone()).await["result"].take();
            let items =
                page[list].as_array().unwrap().iter().map(|item| item["uri"].as_str().unwrap().to_owned());
            pages.push(items.collect::<Vec<_>>());
            match page.get("nextCursor") {
                Some(next) => params["cursor"] = next.clone(),
                None => return pages,
            }
        }
    };
    let md = |name: &str| format!("skill://p/{name}/SKILL.md");
    let skills = walk("skills/list", json!({}), "skills").await;
    assert_eq!(skills, [vec![md("a"), md("b")], vec![md("c"), md("d")], vec![md("e")]]);
    let resources = walk("resources/list", json!({}), "resources").await;
    let expected = [vec![md("a"), md("b")], vec!["skill://p/bb".to_owned(), md("c")], vec![md("d"), md("e")]];
    assert_eq!(resources, expected);
    let folder = |name: &str| format!("skill://p/{name}");
    let above = walk("resources/directory/read", json!({"uri": "skill://p"}), "resources").await;
    assert_eq!(above, [vec![folder("a"), folder("b")], vec![folder("c"), folder("d")], vec![folder("e")]]);
    let inside = walk("resources/directory/read", json!({"uri": "skill://p/a"}), "resources").await;
    assert_eq!(inside, [vec![md("a"), folder("a/x")], vec![folder("a/y")]]);

    let first = replica.http.call("a", &key, "skills/list", json!({})).await;
    let cursor = first["result"]["nextCursor"].clone();
    for (method, params) in [
        ("resources/list", json!({"cursor": cursor})),
        ("resources/directory/read", json!({"uri": "skill://p", "cursor": cursor})),
    ] {
        let refused = replica.http.call("a", &key, method, params).await;
        assert_eq!(refused["error"]["message"], "cursor is not valid for this list");
    }
}

#[tokio::test]
async fn large_skills_are_on_pages_of_their_own() {
    let (_database, replica) = gateway().await;
    let key = replica.acme("a").await;
    let long = "d".repeat(100);
    let files: Vec<_> = (0..511).map(|n| (format!("{long}/{long}/{n}"), String::new())).collect();
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
    for name in ["a", "b", "c", "d", "e"] {
        put(&replica, name, body(name, &files)).await;
    }
    let first = replica.http.call("a", &key, "skills/list", json!({})).await["result"].take();
    let skills = first["skills"].as_array().unwrap();
    assert!((1..5).contains(&skills.len()) && first["nextCursor"].is_string());
    assert!(skills.iter().all(|skill| skill["resources"].as_array().unwrap().len() == 512));
}
