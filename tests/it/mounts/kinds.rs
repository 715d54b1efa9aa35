//! Mounts of repositories and of buckets, whose files change behind the gateway's back.

use std::fs;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Site, uris};
use crate::support::bucket::Bucket;
use crate::support::events::listen;
use crate::support::repository::{git, serve_repositories};

/// How often the connections are polled.
const POLL: u32 = 1_000;
/// For how long nothing else may be sent: a few polls.
const QUIET: Duration = Duration::from_secs(3);

/// Where the files of a mount are.
enum Origin {
    /// A bare repository that is served over HTTP, and a clone of it in which commits are made.
    Repository(TempDir),
    Bucket(Bucket),
}

impl Origin {
    fn repository() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["repository.git", "clone"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        git(&folder.path().join("repository.git"), &["init", "--quiet", "--bare", "--initial-branch=main"]);
        git(&folder.path().join("clone"), &["init", "--quiet", "--initial-branch=main"]);
        Self::Repository(folder)
    }

    async fn connection(&self) -> (&'static str, (Value, Value)) {
        match self {
            Self::Repository(folder) => {
                let url = serve_repositories(folder.path()).await + "repository.git";
                ("git", (json!({"url": url, "allowNetworks": ["127.0.0.0/8"]}), json!({})))
            }
            Self::Bucket(bucket) => ("s3", bucket.connection()),
        }
    }

    fn write(&self, path: &str, text: &str) {
        match self {
            Self::Repository(folder) => {
                let file = folder.path().join("clone").join(path);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
                Self::push(folder);
            }
            Self::Bucket(bucket) => bucket.write(path, text),
        }
    }

    fn remove(&self, path: &str) {
        match self {
            Self::Repository(folder) => {
                fs::remove_file(folder.path().join("clone").join(path)).unwrap();
                Self::push(folder);
            }
            Self::Bucket(bucket) => bucket.remove(path),
        }
    }

    fn push(folder: &TempDir) {
        let clone = folder.path().join("clone");
        git(&clone, &["add", "--all"]);
        git(&clone, &["commit", "--quiet", "--message", "Change it"]);
        git(&clone, &["push", "--quiet", "../repository.git", "main"]);
    }
}

/// The files of a mount of an origin are listed, read, and notified on another replica when they change.
async fn is_followed(origin: Origin) {
    let site = Site::new().await;
    origin.write("guides/a.md", "one");
    origin.write("guides/deep/no.txt", "no");
    origin.write("other.md", "no");
    let (kind, connection) = origin.connection().await;
    site.connect("origin", kind, connection, POLL).await;
    let mount =
        json!({"connection": "origin", "path": "guides/", "uri": "file:///guides/", "include": ["**/*.md"]});
    site.mount("guides", mount).await;
    assert_eq!(site.state("guides").await, "ready", "{}", site.status("guides").await);
    assert_eq!(site.uris().await, ["file:///guides/a.md"]);
    assert_eq!(site.text("file:///guides/a.md").await.as_deref(), Some("one"));

    let other = site.other().await;
    let filter = json!({"resourcesListChanged": true, "resourceSubscriptions": ["file:///guides/a.md"]});
    let mut stream = listen(&other, "notes", &site.key, json!(1), filter).await;
    // What is watched for the first time counts as changed.
    let acknowledged = "notifications/subscriptions/acknowledged";
    stream.expect_events(&[acknowledged, "updated file:///guides/a.md"]).await;
    origin.write("guides/a.md", "changed");
    assert_eq!(stream.next_summary().await, "updated file:///guides/a.md");
    let text = async |uri: &str| other.http.text("notes", &site.key, uri).await;
    assert_eq!(text("file:///guides/a.md").await.as_deref(), Some("changed"));
    assert_eq!(stream.drain(QUIET).await, Vec::<String>::new());

    // Characters that end the path of a URI are encoded in it.
    let deep = "file:///guides/deep%3F/b%20%231.md";
    origin.write("guides/deep?/b #1.md", "new");
    assert_eq!(stream.next_summary().await, "resources");
    assert_eq!(uris(&other, &site.key).await, ["file:///guides/a.md", deep]);
    assert_eq!(text(deep).await.as_deref(), Some("new"));
    origin.remove("guides/a.md");
    let mut events = [stream.next_summary().await, stream.next_summary().await];
    events.sort();
    assert_eq!(events, ["resources", "updated file:///guides/a.md"]);
    assert_eq!(stream.drain(QUIET).await, Vec::<String>::new());
    assert_eq!(uris(&other, &site.key).await, [deep]);
    assert_eq!(text("file:///guides/a.md").await, None);
}

#[tokio::test]
async fn files_of_a_repository_over_http_are_followed() {
    is_followed(Origin::repository()).await;
}

#[tokio::test]
async fn objects_of_a_bucket_are_followed() {
    is_followed(Origin::Bucket(Bucket::start().await)).await;
}
