//! Hooks of mounts, and of files that mounts serve.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Site, uris};
use crate::support::answers::{answered, exact, normalized, problem};
use crate::support::app::{Replica, resource};
use crate::support::bucket::Bucket;
use crate::support::events::{Events, listen};
use crate::support::wait::eventually;
use crate::support::webhook::Message;

const HOOKS: &str = "/agents/notes/hooks";
const GUIDES: &str = "/agents/notes/mounts/guides";
/// The file of the mount.
const FILE: &str = "file:///guides/a.md";
/// How often the connection is polled: never in the time of a test.
const POLL: u32 = 3_600_000;
/// For how long nothing is scanned without a request.
const QUIET: Duration = Duration::from_secs(3);

/// A site with a mount of a bucket with one object, which is scanned when requested.
async fn mounted() -> (Bucket, Site) {
    let (bucket, site) = (Bucket::start().await, Site::new().await);
    bucket.write("guides/a.md", "one");
    site.connect("bucket", "s3", bucket.connection(), POLL).await;
    site.mount("guides", guides()).await;
    assert_eq!(site.uris().await, ["file:///guides/a.md"]);
    (bucket, site)
}

/// The mount; content is answered without asking the bucket.
fn guides() -> Value {
    json!({"connection": "bucket", "path": "guides/", "uri": "file:///guides/", "ttlMs": 86_400_000})
}

async fn hook(replica: &Replica, body: Value) -> (String, String) {
    let made = replica.admin("POST", HOOKS, Some(body)).await;
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    (made["id"].as_str().unwrap().to_owned(), made["secret"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn signed_request_scans_the_mount_at_once() {
    let (bucket, site) = mounted().await;
    let other = site.other().await;
    let (id, secret) = hook(&site.replica, json!({"mount": "guides"})).await;
    let filter = json!({"resourcesListChanged": true});
    let mut stream = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
    stream.expect_events(&["notifications/subscriptions/acknowledged"]).await;
    bucket.write("guides/b.md", "new");
    assert_eq!(stream.drain(QUIET).await, Vec::<String>::new(), "nothing polls it");
    // Of the replica that does not scan, or of the one that does.
    assert_eq!(Message::new("message-1").send(&other, &id, &secret).await.status, 202);
    stream.expect_events(&["resources"]).await;
    assert_eq!(site.uris().await, ["file:///guides/a.md", "file:///guides/b.md"]);

    // A message that is sent again requests nothing.
    bucket.remove("guides/a.md");
    assert_eq!(Message::new("message-1").send(&site.replica, &id, &secret).await.status, 202);
    assert_eq!(stream.drain(QUIET).await, Vec::<String>::new());
    assert_eq!(Message::new("message-2").send(&site.replica, &id, &secret).await.status, 202);
    stream.expect_events(&["resources"]).await;
    eventually("the other replica lists it", async || uris(&other, &site.key).await.len() == 1).await;
}

#[tokio::test]
async fn hook_outlives_its_mount() {
    let (bucket, site) = mounted().await;
    let (id, secret) = hook(&site.replica, json!({"mount": "guides"})).await;
    assert_eq!(site.replica.admin("DELETE", GUIDES, None).await.status, 204);
    let before = site.replica.admin("GET", "/agents/notes/manifest", None).await;
    assert_eq!(Message::new("message-1").send(&site.replica, &id, &secret).await.status, 202);
    let after = site.replica.admin("GET", "/agents/notes/manifest", None).await;
    assert_eq!(before.header("etag"), after.header("etag"), "nothing changes");
    let listed = site.replica.admin("GET", HOOKS, None).await.json();
    assert_eq!(listed["items"][0]["mount"], "guides");
    // Another mount of the name is scanned.
    site.mount("guides", guides()).await;
    bucket.write("guides/b.md", "new");
    assert_eq!(Message::new("message-2").send(&site.replica, &id, &secret).await.status, 202);
    eventually("it is scanned", async || site.uris().await.len() == 2).await;
    assert_eq!(site.replica.admin("DELETE", &format!("/hooks/{id}"), None).await.status, 204);
}

#[tokio::test]
async fn hook_names_either_resources_or_a_mount() {
    let (_bucket, site) = mounted().await;
    let create = async |body: Value| site.replica.admin("POST", HOOKS, Some(body)).await;
    for (body, detail) in [
        (json!({}), "expected one of uris and mount"),
        (json!({"uris": ["file:///guides/a.md"], "mount": "guides"}), "expected one of uris and mount"),
        (json!({"uris": null, "mount": null}), "expected one of uris and mount"),
        (json!({"mount": "other"}), "mount: no such mount: other"),
        (json!({"mount": "Guides"}), "mount must match ^[a-z0-9][a-z0-9_-]{0,62}$"),
        (json!({"uris": []}), "uris must be a list of 1 to 100 resources"),
        (json!({"uris": ["file:///guide/a.md"]}), "uris: no such resource: file:///guide/a.md"),
    ] {
        let refused = create(body.clone()).await;
        assert_eq!(exact(&refused), problem(400, "invalid_params", detail), "{body}");
    }
    let made = create(json!({"mount": "guides"})).await;
    let secret = made.json()["secret"].clone();
    let mut shown = json!({"id": "<id>", "mount": "guides", "createdAt": "<moment>"});
    let list = site.replica.admin("GET", HOOKS, None).await;
    assert_eq!(normalized(&list), answered(200, None, &json!({"items": [shown], "nextCursor": null})));
    shown["secret"] = secret;
    assert_eq!(normalized(&made), answered(201, Some(made.revision()), &shown));
}

#[tokio::test]
async fn hook_of_a_mounted_file_has_it_read_anew() {
    let (bucket, site) = mounted().await;
    let uri = "file:///guides/a.md";
    let (id, secret) = hook(&site.replica, json!({"uris": [uri]})).await;
    assert_eq!(site.text(uri).await.as_deref(), Some("one"));
    let filter = json!({"resourcesListChanged": true, "resourceSubscriptions": [uri]});
    let mut stream = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
    // What is watched for the first time counts as changed.
    let acknowledged = "notifications/subscriptions/acknowledged";
    stream.expect_events(&[acknowledged, &format!("updated {uri}")]).await;
    bucket.write("guides/a.md", "changed");
    assert_eq!(site.text(uri).await.as_deref(), Some("one"), "it is fresh");
    assert_eq!(Message::new("message-1").send(&site.replica, &id, &secret).await.status, 202);
    stream.expect_events(&[&format!("updated {uri}")]).await;
    assert_eq!(site.text(uri).await.as_deref(), Some("changed"));
}

#[tokio::test]
async fn hook_has_a_file_read_anew_where_a_resource_is_hidden() {
    let (bucket, site) = mounted().await;
    let uri = "file:///guides/a.md";
    let hidden = json!({"name": "a", "labels": ["staff"], "contents": [{"text": "hidden"}]});
    assert_eq!(site.replica.admin("PUT", &resource("notes", uri), Some(hidden)).await.status, 201);
    let (id, secret) = hook(&site.replica, json!({"uris": [uri]})).await;
    let filter = json!({"resourcesListChanged": true, "resourceSubscriptions": [uri]});
    let mut stream = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
    let acknowledged = "notifications/subscriptions/acknowledged";
    stream.expect_events(&[acknowledged, &format!("updated {uri}")]).await;
    assert_eq!(site.text(uri).await.as_deref(), Some("one"));
    bucket.write("guides/a.md", "changed");
    assert_eq!(Message::new("message-1").send(&site.replica, &id, &secret).await.status, 202);
    stream.expect_events(&[&format!("updated {uri}")]).await;
    assert_eq!(site.text(uri).await.as_deref(), Some("changed"));
}

/// Subscribes to the file of the mount; has received the first update.
async fn subscribed(site: &Site) -> Events {
    let filter = json!({"resourceSubscriptions": [FILE]});
    let mut stream = listen(&site.replica, "notes", &site.key, json!(1), filter).await;
    // What is watched for the first time counts as changed.
    let acknowledged = "notifications/subscriptions/acknowledged";
    stream.expect_events(&[acknowledged, &format!("updated {FILE}")]).await;
    stream
}

#[tokio::test]
async fn hook_of_a_mount_reaches_files_with_subscribers() {
    let (bucket, site) = mounted().await;
    let (id, secret) = hook(&site.replica, json!({"mount": "guides"})).await;
    let mut stream = subscribed(&site).await;
    bucket.write("guides/a.md", "changed");
    assert_eq!(Message::new("message-1").send(&site.replica, &id, &secret).await.status, 202);
    stream.expect_events(&[&format!("updated {FILE}")]).await;
    assert_eq!(site.text(FILE).await.as_deref(), Some("changed"));
}

#[tokio::test]
async fn requested_scan_that_fails_is_repeated_as_requested() {
    let (bucket, site) = mounted().await;
    let (id, secret) = hook(&site.replica, json!({"mount": "guides"})).await;
    let mut stream = subscribed(&site).await;
    bucket.write("guides/a.md", "changed");
    bucket.set_missing(true);
    assert_eq!(Message::new("message-1").send(&site.replica, &id, &secret).await.status, 202);
    eventually("the scan fails", async || site.state("guides").await == "degraded").await;
    bucket.set_missing(false);
    stream.expect_events(&[&format!("updated {FILE}")]).await;
    assert_eq!(site.text(FILE).await.as_deref(), Some("changed"));
}
