//! Repositories over HTTP, served by git's own program.

#[path = "../../../crates/content-source/src/git/tests/server.rs"]
mod server;

use std::time::{Duration, Instant};

use serde_json::json;

use self::server::Server;
use crate::support::app::{Builder, resource};
use crate::support::cluster::database;
use crate::support::events::listen;
use crate::support::repository::git;
use crate::support::wait::eventually;

/// The number of subscribed files.
const FILES: usize = 12;

#[tokio::test]
async fn reference_is_polled_once_in_an_interval_for_all_content() {
    let (database, folder) = (database().await, tempfile::tempdir().unwrap());
    let repository = folder.path().join("repository");
    std::fs::create_dir(&repository).unwrap();
    git(&repository, &["init", "--quiet", "--initial-branch=main"]);
    let names: Vec<_> = (0..FILES).map(|number| format!("{number:02}.md")).collect();
    let change = |text: &str| {
        for name in &names {
            std::fs::write(repository.join(name), text).unwrap();
        }
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "--quiet", "--message", "Change them"]);
    };
    change("one");
    let server = Server::start(folder.path()).await;
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("notes").await;
    let settings = json!({"url": server.url("repository/.git"), "allowNetworks": ["127.0.0.0/8"]});
    let limits = json!({"pollMs": 1_000, "perSecond": 100, "burst": 100});
    let new = json!({"id": "git", "kind": "git", "tenants": "*", "settings": settings, "limits": limits});
    assert_eq!(replica.admin("POST", "/connections", Some(new)).await.status, 201);
    for name in &names {
        let body = json!({"name": name, "source": {"connection": "git", "path": name, "ttlMs": 600_000}});
        let path = resource("notes", &format!("test://{name}"));
        assert_eq!(replica.admin("PUT", &path, Some(body)).await.status, 201);
    }
    let mount = json!({"connection": "git", "path": "", "uri": "file:///repository/"});
    assert_eq!(replica.admin("PUT", "/agents/notes/mounts/all", Some(mount)).await.status, 201);

    let uris: Vec<_> = names.iter().map(|name| format!("test://{name}")).collect();
    let filter = json!({"resourceSubscriptions": uris});
    let mut stream = listen(&replica, "notes", &key, json!(1), filter).await;
    assert_eq!(stream.next_summary().await, "notifications/subscriptions/acknowledged");
    let expected: Vec<_> = uris.iter().map(|uri| format!("updated {uri}")).collect();
    // What is watched for the first time counts as changed.
    let mut events = Vec::new();
    for _ in &names {
        events.push(stream.next_summary().await);
    }
    events.sort();
    assert_eq!(events, expected);

    let polls = || server.paths().iter().filter(|path| path.ends_with("/info/refs")).count();
    let (first, began) = (polls(), Instant::now());
    eventually("five polls", async || polls() >= first + 5).await;
    // At least four rounds, of which the first poll may be late; 13 polls a second if each content had its own.
    assert!(began.elapsed() > Duration::from_secs(3), "{:?}", began.elapsed());

    let (first, began) = (polls(), Instant::now());
    change("two");
    let mut events = Vec::new();
    for _ in &names {
        events.push(stream.next_summary().await);
    }
    events.sort();
    assert_eq!(events, expected);
    let (asked, most) = (polls() - first, began.elapsed().as_secs() + 2);
    assert!(asked as u64 <= most, "{asked} in {:?}", began.elapsed());
    for name in &names {
        let text = replica.http.text("notes", &key, &format!("test://{name}")).await;
        assert_eq!(text.as_deref(), Some("two"), "{name}");
    }
}
