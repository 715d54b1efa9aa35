//! The files of mounts are listed and read.

use serde_json::{Value, json};

use super::{Site, builder, guides, uris};
use crate::support::app::{encode, resource};
use crate::support::proxy::Proxy;
use crate::support::wait::eventually;

fn missing(uri: &str) -> Value {
    json!({"code": -32002, "message": format!("resource not found: {uri}"),
        "data": {"code": "resource_not_found", "uri": uri}})
}

#[tokio::test]
async fn file_of_a_large_mount_is_read_and_listed_by_a_replica_that_has_nothing_in_memory() {
    let site = Site::new().await;
    for number in 0..1_050 {
        site.write(&format!("guides/{number}.md"), "# a");
    }
    site.mount("guides", guides()).await;
    let proxy = Proxy::before(&site.database.options).await;
    let other = builder(&site.database, site.folder.path(), &site.keys);
    let other = other.store(|store| store.connect = proxy.options.clone()).start().await;
    let read = json!({"uri": "file:///guides/7.md"});
    let answers = [&site.replica, &other]
        .map(|replica| replica.http.call("notes", &site.key, "resources/read", read.clone()));
    let [read, cold] = futures_util::future::join_all(answers).await.try_into().unwrap();
    assert_eq!(read, cold);
    let is_part = |text: &String| text.starts_with("with answering");
    assert!(proxy.statements.take().iter().any(is_part), "it is read before the others are in memory");
    assert_eq!(cold["result"]["contents"][0]["text"], "# a", "{cold}");
    assert_eq!(uris(&other, &site.key).await, site.uris().await);
}

#[tokio::test]
async fn files_are_listed_and_read() {
    let site = Site::new().await;
    site.write("guides/a.md", "# a");
    site.write("guides/b/c d.md", "# c");
    site.write("guides/b/no.txt", "no");
    site.write("other.md", "no");
    let mut body = guides();
    body["annotations"] = json!({"priority": 0.5});
    site.mount("guides", body).await;
    let listed = site.call("resources/list", json!({})).await;
    let mut resources = listed["result"]["resources"].clone();
    for resource in resources.as_array_mut().unwrap() {
        assert!(resource["annotations"]["lastModified"].take().is_string(), "{resource}");
    }
    let file = |uri: &str, name: &str| {
        json!({"uri": uri, "name": name, "mimeType": "text/markdown", "size": 3,
            "annotations": {"priority": 0.5, "lastModified": null}})
    };
    assert_eq!(
        resources,
        json!([file("file:///guides/a.md", "a.md"), file("file:///guides/b/c%20d.md", "c d.md")])
    );
    let read = site.call("resources/read", json!({"uri": "file:///guides/b/c%20d.md"})).await;
    assert_eq!(
        read["result"]["contents"],
        json!([{"uri": "file:///guides/b/c%20d.md", "mimeType": "text/markdown", "text": "# c"}])
    );
    for uri in [
        "file:///guides/b/no.txt",
        "file:///guides/",
        "file:///guides/b",
        "file:///guides/none.md",
        "file:///guides/../other.md",
        "file:///guides/%2e%2e/other.md",
        "file:///guides/b/c%20d%2Emd",
    ] {
        let answer = site.call("resources/read", json!({"uri": uri})).await;
        assert_eq!(answer["error"], missing(uri));
    }
    // Pages continue within a mount.
    site.replica.put("notes", "file:///guides/b/a", "registered").await;
    site.replica.put("notes", "a:first", "registered").await;
    let all = ["a:first", "file:///guides/a.md", "file:///guides/b/a", "file:///guides/b/c%20d.md"];
    assert_eq!(site.uris().await, all);
}

#[tokio::test]
async fn excluded_files_are_neither_listed_nor_read() {
    let site = Site::new().await;
    let (kept, excluded) = (["a.md", "b/c.md"], ["drafts/d.md", "drafts/deep/e.md", "b/f.draft.md"]);
    for path in kept.iter().chain(&excluded) {
        site.write(&format!("guides/{path}"), "text");
    }
    let mut body = guides();
    body["exclude"] = json!(["drafts/**", "**/*.draft.md"]);
    site.mount("guides", body).await;
    let uri = |path: &str| format!("file:///guides/{path}");
    assert_eq!(site.uris().await, kept.map(uri));
    for path in kept {
        assert_eq!(site.text(&uri(path)).await.as_deref(), Some("text"), "{path}");
    }
    for path in excluded {
        let answer = site.call("resources/read", json!({"uri": uri(path)})).await;
        assert_eq!(answer["error"], missing(&uri(path)));
    }
}

#[tokio::test]
async fn pages_merge_mounts_and_registered_resources() {
    let site = Site::with(&[("WAGGLE_MCP__PAGE_SIZE", "2")]).await;
    for number in 0..5 {
        site.write(&format!("guides/{number}.md"), "x");
        site.write(&format!("guides/deep/{number}.md"), "x");
    }
    site.mount("guides", guides()).await;
    let deep = json!({"connection": "docs", "path": "guides/deep/", "uri": "file:///guides/deep/", "include": ["[0-2].md"]});
    site.mount("deep", deep).await;
    site.replica.put("notes", "file:///guides/3.md", "registered").await;
    let (mut seen, mut cursor) = (Vec::new(), None::<String>);
    loop {
        let params = cursor.as_ref().map_or(json!({}), |cursor| json!({"cursor": cursor}));
        let page = site.call("resources/list", params).await["result"].clone();
        let resources = page["resources"].as_array().unwrap();
        assert!((1..=2).contains(&resources.len()));
        seen.extend(resources.iter().map(|resource| resource["uri"].as_str().unwrap().to_owned()));
        match page["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }
    let mut expected: Vec<_> = (0..5).map(|number| format!("file:///guides/{number}.md")).collect();
    expected.extend((0..5).map(|number| format!("file:///guides/deep/{number}.md")));
    assert_eq!(seen, expected);
}

#[tokio::test]
async fn registered_then_longest_mount_then_template_answers() {
    let site = Site::new().await;
    site.write("guides/a.md", "of guides");
    site.write("deep/a.md", "of deep");
    let template = format!("/agents/notes/templates?uriTemplate={}", encode("file:///{+path}"));
    let body = json!({"name": "t", "template": "of the template"});
    assert_eq!(site.replica.admin("PUT", &template, Some(body)).await.status, 201);
    let text = async |uri: &str| site.text(uri).await.unwrap_or_default();
    assert_eq!(text("file:///guides/a.md").await, "of the template");
    site.mount("guides", guides()).await;
    assert_eq!(text("file:///guides/a.md").await, "of guides");
    assert_eq!(text("file:///guides/a.txt").await, "of the template");
    let all = json!({"connection": "docs", "uri": "file:///"});
    site.mount("all", all).await;
    assert_eq!(text("file:///guides/a.md").await, "of guides");
    assert_eq!(text("file:///deep/a.md").await, "of deep");
    site.replica.put("notes", "file:///guides/a.md", "registered").await;
    assert_eq!(text("file:///guides/a.md").await, "registered");
    assert_eq!(site.uris().await, ["file:///deep/a.md", "file:///guides/a.md"]);
    let removed = site.replica.admin("DELETE", &resource("notes", "file:///guides/a.md"), None).await;
    assert_eq!(removed.status, 204);
    assert_eq!(text("file:///guides/a.md").await, "of guides");
}

#[tokio::test]
async fn files_over_the_limit_are_read_and_not_listed() {
    let site = Site::with(&[("WAGGLE_LIMITS__MOUNT_ENTRIES", "2")]).await;
    for name in ["a", "b", "c"] {
        site.write(&format!("guides/{name}.md"), name);
    }
    site.mount("guides", guides()).await;
    let status = site.status("guides").await;
    assert_eq!(
        (&status["state"], &status["entries"], &status["reason"]),
        (&json!("degraded"), &json!(2), &json!("too_large"))
    );
    assert_eq!(site.uris().await, ["file:///guides/a.md", "file:///guides/b.md"]);
    assert_eq!(site.text("file:///guides/c.md").await.as_deref(), Some("c"));
}

#[tokio::test]
async fn tree_of_too_many_other_files_is_not_read_to_its_end() {
    let site = Site::with(&[("WAGGLE_LIMITS__MOUNT_ENTRIES", "2")]).await;
    for number in 0..30 {
        site.write(&format!("guides/{number}/other.txt"), "not included");
    }
    site.mount("guides", guides()).await;
    let status = site.status("guides").await;
    assert_eq!(
        (&status["state"], &status["entries"], &status["reason"]),
        (&json!("degraded"), &json!(0), &json!("too_large"))
    );
}

#[tokio::test]
async fn tree_that_is_missing_fails_with_a_reason() {
    let site = Site::new().await;
    site.mount("guides", guides()).await;
    let status = site.status("guides").await;
    assert_eq!((&status["state"], &status["reason"]), (&json!("failed"), &json!("not_found")));
    site.write("guides/a.md", "late");
    eventually("it is scanned again", async || site.state("guides").await == "ready").await;
    assert_eq!(site.uris().await, ["file:///guides/a.md"]);
}

#[tokio::test]
async fn empty_tree_that_was_listed_is_degraded_once_scans_fail() {
    let site = Site::new().await;
    let guides_folder = site.root().join("guides");
    std::fs::create_dir(&guides_folder).unwrap();
    site.mount("guides", guides()).await;
    assert_eq!(site.state("guides").await, "ready");
    std::fs::remove_dir(&guides_folder).unwrap();
    eventually("a scan fails", async || site.state("guides").await != "ready").await;
    let status = site.status("guides").await;
    assert_eq!(
        (&status["state"], &status["reason"], &status["entries"]),
        (&json!("degraded"), &json!("not_found"), &json!(0))
    );
    site.write("guides/a.md", "late");
    eventually("it is scanned again", async || site.state("guides").await == "ready").await;
    assert_eq!(site.uris().await, ["file:///guides/a.md"]);
}

#[tokio::test]
async fn hidden_mount_does_not_exist() {
    let site = Site::new().await;
    site.write("guides/a.md", "secret");
    let mut body = guides();
    body["labels"] = json!(["staff"]);
    site.mount("guides", body).await;
    let made = site.replica.admin("POST", "/agents/notes/keys", Some(json!({"labels": ["staff"]}))).await;
    let staff = made.json()["key"].as_str().unwrap().to_owned();
    let read = async |key: &str, uri: &str| {
        site.replica.http.call("notes", key, "resources/read", json!({"uri": uri})).await
    };
    assert_eq!(site.uris().await, Vec::<String>::new());
    let hidden = read(&site.key, "file:///guides/a.md").await;
    assert_eq!(hidden["error"], missing("file:///guides/a.md"));
    assert_eq!(super::uris(&site.replica, &staff).await, ["file:///guides/a.md"]);
    assert_eq!(read(&staff, "file:///guides/a.md").await["result"]["contents"][0]["text"], "secret");
    let template = format!("/agents/notes/templates?uriTemplate={}", encode("file:///{+path}"));
    let body = json!({"name": "t", "template": "of the template"});
    assert_eq!(site.replica.admin("PUT", &template, Some(body)).await.status, 201);
    assert_eq!(site.text("file:///guides/a.md").await.as_deref(), Some("of the template"));
}

#[tokio::test]
async fn tools_list_and_read_files() {
    let site = Site::new().await;
    site.write("guides/a.md", "# a");
    site.mount("guides", guides()).await;
    let tools = json!({"tools": ["search", "resources"]});
    assert_eq!(site.replica.admin("PATCH", "/agents/notes", Some(tools)).await.status, 200);
    let call = async |name: &str, arguments: Value| {
        let answer = site.call("tools/call", json!({"name": name, "arguments": arguments})).await;
        answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
    };
    assert!(call("list_resources", json!({})).await.contains("file:///guides/a.md"));
    assert_eq!(call("read_resource", json!({"uri": "file:///guides/a.md"})).await, "# a");
    assert!(call("fetch", json!({"id": "file:///guides/a.md"})).await.contains("# a"));
}

#[tokio::test]
async fn kept_files_are_those_of_the_mount_that_a_caller_sees() {
    let site = Site::new().await;
    site.write("guides/inner/a.md", "# open");
    site.write("hidden/a.md", "# hidden");
    site.mount("guides", guides()).await;
    let hidden = json!({"connection": "docs", "path": "hidden/", "uri": "file:///guides/inner/",
        "include": ["**/*.md"], "labels": ["staff"]});
    site.mount("hidden", hidden).await;
    let made = site.replica.admin("POST", "/agents/notes/keys", Some(json!({"labels": ["staff"]}))).await;
    let staff = made.json()["key"].as_str().unwrap().to_owned();
    for _ in 0..3 {
        for (key, expected) in [(&staff, "# hidden"), (&site.key, "# open")] {
            let text = site.replica.http.text("notes", key, "file:///guides/inner/a.md").await;
            assert_eq!(text.as_deref(), Some(expected));
        }
    }
    assert_eq!(site.replica.metric("waggle_cache_entries{cache=\"results\"}").await, 2.0);
}
