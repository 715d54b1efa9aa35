//! Search finds the files that mounts list.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use waggle::model::system::FailPoint;

use super::{Site, guides};
use crate::support::app::resource;
use crate::support::faults::{Fault, FaultScript};
use crate::support::wait::eventually;

/// The URIs that a caller finds.
async fn found(site: &Site, key: &str, query: &str) -> Vec<String> {
    let params = json!({"name": "search", "arguments": {"query": query}});
    let answer = site.replica.http.call("notes", key, "tools/call", params).await;
    let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"));
    let results = serde_json::from_str::<Value>(text).unwrap()["results"].take();
    results.as_array().unwrap().iter().map(|found| found["id"].as_str().unwrap().to_owned()).collect()
}

async fn enable_search(site: &Site) {
    let tools = json!({"tools": ["search"]});
    assert_eq!(site.replica.admin("PATCH", "/agents/notes", Some(tools)).await.status, 200);
}

#[tokio::test]
async fn listed_files_are_found_by_name_and_uri_by_those_who_see_them() {
    let site = Site::new().await;
    site.write("guides/harbour/tides and moons.md", "contents are not searched: comet");
    site.write("guides/harbour/ignored.txt", "");
    let mut body = guides();
    body["labels"] = json!(["staff"]);
    site.mount("guides", body.clone()).await;
    enable_search(&site).await;
    let made = site.replica.admin("POST", "/agents/notes/keys", Some(json!({"labels": ["staff"]}))).await;
    let staff = made.json()["key"].as_str().unwrap().to_owned();
    let tides = ["file:///guides/harbour/tides%20and%20moons.md"];
    for query in ["tides", "moons", "harbour", "guides harbour"] {
        assert_eq!(found(&site, &staff, query).await, tides, "{query}");
        assert_eq!(found(&site, &site.key, query).await, [""; 0], "{query} is hidden");
    }
    for query in ["comet", "ignored"] {
        assert_eq!(found(&site, &staff, query).await, [""; 0], "{query}");
    }
    // Changes of the tree and of the labels are found.
    site.write("guides/harbour/lights.md", "new");
    let lights = ["file:///guides/harbour/lights.md"];
    eventually("the new file is found", async || found(&site, &staff, "lights").await == lights).await;
    site.remove("guides/harbour/tides and moons.md");
    eventually("the old file is not", async || found(&site, &staff, "tides").await.is_empty()).await;
    body["labels"] = json!([]);
    assert_eq!(site.replica.admin("PUT", "/agents/notes/mounts/guides", Some(body)).await.status, 200);
    assert_eq!(found(&site, &site.key, "harbour").await, lights);
    // A registered resource goes before the file of its URI.
    site.replica.put("notes", lights[0], "registered").await;
    assert_eq!(found(&site, &site.key, "registered").await, lights);
    assert_eq!(found(&site, &site.key, "lights").await, lights);
    assert_eq!(site.replica.admin("DELETE", "/agents/notes/mounts/guides", None).await.status, 204);
    assert_eq!(site.replica.admin("DELETE", &resource("notes", lights[0]), None).await.status, 204);
    assert_eq!(found(&site, &site.key, "harbour").await, [""; 0]);
}

#[tokio::test]
async fn file_of_two_mounts_is_one_result() {
    let site = Site::new().await;
    for file in 0..25 {
        site.write(&format!("guides/deep/lantern{file}.md"), "");
    }
    site.mount("guides", guides()).await;
    let mut deep = guides();
    (deep["path"], deep["uri"]) = (json!("guides/deep/"), json!("file:///guides/deep/"));
    site.mount("deep", deep).await;
    enable_search(&site).await;
    let results = found(&site, &site.key, "deep").await;
    assert_eq!(results.len(), 20, "as many as an answer has");
    assert_eq!(results.iter().collect::<BTreeSet<_>>().len(), 20, "{results:?}");
}

#[tokio::test]
async fn files_that_a_mount_within_answers_hide_no_result() {
    let site = Site::new().await;
    // More than are examined first for the results of an answer.
    for file in 0..400 {
        site.write(&format!("guides/deep/lantern{file}.md"), "");
    }
    site.write("other/lamp.md", "");
    site.mount("guides", guides()).await;
    let mut deep = guides();
    (deep["path"], deep["uri"]) = (json!("other/"), json!("file:///guides/deep/"));
    site.mount("deep", deep).await;
    enable_search(&site).await;
    site.replica.put("notes", "x:1", "a lantern in the text").await;
    assert_eq!(found(&site, &site.key, "lantern").await, ["x:1"]);
}

#[tokio::test]
async fn index_is_patched_with_changed_files() {
    let faults = FaultScript::new();
    let site = Site::with_faults(&faults).await;
    for file in 0..1_100 {
        site.write(&format!("guides/lantern{file}.md"), "");
    }
    site.mount("guides", guides()).await;
    enable_search(&site).await;
    site.replica.put("notes", "x:1", "registered").await;
    assert_eq!(found(&site, &site.key, "registered").await, ["x:1"]);
    assert_eq!(found(&site, &site.key, "lantern1099").await, ["file:///guides/lantern1099.md"]);
    // In one step, so that it makes one revision.
    site.write("new.md", "new");
    std::fs::rename(site.root().join("new.md"), site.root().join("guides/a-new.md")).unwrap();
    let is_listed = async || site.uris().await.contains(&"file:///guides/a-new.md".to_owned());
    eventually("the file is listed", is_listed).await;
    // An index that is built anew loads the text of the resource.
    faults.fail(FailPoint::Load, Fault::Refused);
    assert_eq!(found(&site, &site.key, "new").await, ["file:///guides/a-new.md"]);
}
