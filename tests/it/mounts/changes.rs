//! Files that change behind the gateway's back are notified, on every replica.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Site, guides, uris};
use crate::support::events::{Session, listen};
use crate::support::wait::eventually;

/// For how long nothing else may be sent.
const QUIET: Duration = Duration::from_secs(2);

#[tokio::test]
async fn changed_files_are_notified_on_another_replica() {
    let site = Site::new().await;
    site.write("guides/a.md", "one");
    site.write("guides/b.md", "one");
    site.mount("guides", guides()).await;
    let other = site.other().await;
    eventually("the other replica lists it", async || uris(&other, &site.key).await.len() == 2).await;
    let session = Session::open(&other, "notes", &site.key, "2025-06-18").await;
    session.subscribe(&other, "file:///guides/a.md").await;
    let mut legacy = session.stream(&other, None).await;
    let filter = json!({"resourcesListChanged": true, "resourceSubscriptions": ["file:///guides/a.md"]});
    let mut modern = listen(&other, "notes", &site.key, json!(1), filter).await;
    assert_eq!(modern.next_summary().await, "notifications/subscriptions/acknowledged");
    // What is watched for the first time counts as changed.
    assert_eq!(modern.next_summary().await, "updated file:///guides/a.md");
    assert_eq!(legacy.next_summary().await, "updated file:///guides/a.md");
    assert_eq!((modern.drain(QUIET).await, legacy.drain(QUIET).await), (vec![], vec![]));

    let began = Instant::now();
    site.write("guides/a.md", "two");
    assert_eq!(modern.next_summary().await, "updated file:///guides/a.md");
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(other.http.text("notes", &site.key, "file:///guides/a.md").await.as_deref(), Some("two"));
    legacy.expect_events(&["updated file:///guides/a.md"]).await;
    modern.expect_events(&[]).await;
    // Of another file, which has no subscriber.
    site.write("guides/b.md", "two");
    assert_eq!((modern.drain(QUIET).await, legacy.drain(QUIET).await), (vec![], vec![]));
    assert_eq!(other.http.text("notes", &site.key, "file:///guides/b.md").await.as_deref(), Some("two"));

    site.write("guides/deep/c.md", "new");
    modern.expect_events(&["resources"]).await;
    assert_eq!(
        uris(&other, &site.key).await,
        ["file:///guides/a.md", "file:///guides/b.md", "file:///guides/deep/c.md"]
    );
    site.remove("guides/a.md");
    let mut events = modern.drain(QUIET).await;
    events.sort();
    assert_eq!(events, ["resources", "updated file:///guides/a.md"]);
    let gone =
        other.http.call("notes", &site.key, "resources/read", json!({"uri": "file:///guides/a.md"})).await;
    assert_eq!(gone["error"]["data"]["code"], "resource_not_found");
    eventually("the state counts them", async || site.status("guides").await["entries"] == 2).await;
}

#[tokio::test]
async fn touched_file_is_no_change_for_its_subscribers() {
    let site = Site::new().await;
    site.write("guides/a.md", "one");
    site.mount("guides", guides()).await;
    let filter = json!({"resourcesListChanged": true, "resourceSubscriptions": ["file:///guides/a.md"]});
    let mut stream = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
    stream.expect_events(&["notifications/subscriptions/acknowledged", "updated file:///guides/a.md"]).await;
    let revision = async || site.replica.admin("GET", "/agents/notes/manifest", None).await.revision();
    let before = revision().await;

    let file = std::fs::File::open(site.root().join("guides/a.md")).unwrap();
    file.set_modified(std::time::SystemTime::now() + Duration::from_secs(60)).unwrap();
    // Another inode, with the same bytes.
    site.write("guides/a.tmp", "one");
    std::fs::rename(site.root().join("guides/a.tmp"), site.root().join("guides/a.md")).unwrap();
    // Found after these by the scan, and the only change.
    site.write("guides/b.md", "one");
    stream.expect_events(&["resources"]).await;
    assert_eq!(stream.drain(QUIET).await, Vec::<String>::new());
    assert_eq!(revision().await, before + 1);

    site.write("guides/a.md", "twice");
    assert_eq!(stream.next_summary().await, "updated file:///guides/a.md");
    assert_eq!(site.text("file:///guides/a.md").await.as_deref(), Some("twice"));
    assert_eq!(stream.drain(QUIET).await, Vec::<String>::new());
    assert_eq!(revision().await, before + 2);
    let listed = site.call("resources/list", json!({})).await;
    assert_eq!(listed["result"]["resources"][0]["size"], 5, "{listed}");
}

#[tokio::test]
async fn change_below_a_registered_resource_is_no_change_of_it() {
    let site = Site::new().await;
    site.write("guides/a.md", "one");
    site.mount("guides", guides()).await;
    site.replica.put("notes", "file:///guides/a.md", "registered").await;
    let filter = json!({"resourcesListChanged": true, "resourceSubscriptions": ["file:///guides/a.md"]});
    let mut stream = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
    assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
    site.write("guides/a.md", "two");
    site.write("guides/b.md", "one");
    stream.expect_events(&["resources"]).await;
    assert_eq!(stream.drain(QUIET).await, Vec::<String>::new());
}

#[tokio::test]
async fn hidden_files_are_not_notified() {
    let site = Site::new().await;
    site.write("guides/a.md", "one");
    let mut body = guides();
    body["labels"] = json!(["staff"]);
    site.mount("guides", body).await;
    let filter = json!({"resourcesListChanged": true});
    let mut stream = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
    assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
    site.write("guides/b.md", "new");
    eventually("the file is found", async || site.status("guides").await["entries"] == 2).await;
    assert_eq!(stream.drain(QUIET).await, Vec::<String>::new());
    // Once it is visible, everything that it serves is.
    let mut open = guides();
    open["labels"] = json!([]);
    assert_eq!(site.replica.admin("PUT", "/agents/notes/mounts/guides", Some(open)).await.status, 200);
    stream.expect_events(&["resources"]).await;
    assert_eq!(site.uris().await.len(), 2);
}

#[tokio::test]
async fn another_place_is_listed_in_the_place_of_the_first() {
    let site = Site::new().await;
    site.write("guides/a.md", "a");
    site.write("other/b.md", "b");
    site.mount("guides", guides()).await;
    assert_eq!(site.uris().await, ["file:///guides/a.md"]);
    let mut other = guides();
    other["path"] = json!("other/");
    assert_eq!(site.replica.admin("PUT", "/agents/notes/mounts/guides", Some(other)).await.status, 200);
    let listed = async || site.uris().await == ["file:///guides/b.md"];
    eventually("the other place is listed", listed).await;
    assert_eq!(site.text("file:///guides/b.md").await.as_deref(), Some("b"));
}

#[tokio::test]
async fn files_are_listed_at_once_after_a_restart() {
    let Site { database, folder, keys, replica, key } = {
        let site = Site::new().await;
        site.write("guides/a.md", "a");
        site.mount("guides", guides()).await;
        site
    };
    replica.running.stop().await;
    std::fs::write(folder.path().join("guides/b.md"), "b").unwrap();
    let again = super::builder(&database, folder.path(), &keys).start().await;
    let first = uris(&again, &key).await;
    assert!(first.starts_with(&["file:///guides/a.md".to_owned()]), "{first:?}");
    eventually("the rescan finds the other", async || uris(&again, &key).await.len() == 2).await;
}
