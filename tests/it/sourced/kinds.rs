//! Changes of content behind the gateway's back, by kinds of connections.
//!
//! Where each kind is tested against a real source; `clients` is `tests/conformance/sources.js` and `sources.py`, in which
//! official SDKs of both eras read, and those for TypeScript are notified and read again.
//!
//! | kind | source | registered, changed, notified in time, read on another replica | clients |
//! |:--|:--|:--|:--|
//! | http | a server of the tests | here | a server of Node |
//! | file | a folder | here (under 1 s), `mounts::changes` | a folder |
//! | s3 | a server of the tests | here | `s3s-fs` |
//! | sql of PostgreSQL | the cluster of the tests | here, by `notifyChannel` | |
//! | sql of SQLite | a file | | a file |
//! | git | a repository in place; `git http-backend` | here; `sourced::git` (on one replica) | `git http-backend` |

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::upstream::{Reply, Upstream, tagged};
use crate::support::app::{Builder, Replica, resource};
use crate::support::cluster::{Database, database};
use crate::support::events::listen;
use crate::support::proxy::Proxy;
use crate::support::repository::git;

/// How often contents are polled.
const POLL: u64 = 1_000;
/// Within which a change of a file is notified.
const OF_FILES: Duration = Duration::from_secs(1);
/// Within which another one is: the time between two polls and a second.
const OF_OTHERS: Duration = Duration::from_millis(POLL + 1_000);

/// Where the contents of a test are.
struct Sources {
    folder: tempfile::TempDir,
    rows: Database,
    proxy: Proxy,
    upstream: Upstream,
}

/// An object of a bucket.
fn object(text: &str) -> Reply {
    let modified = "Wed, 21 Oct 2015 07:28:00 GMT".to_owned();
    let headers = vec![("etag", format!("\"{text}\"")), ("last-modified", modified)];
    Reply::Answer(200, headers, text.as_bytes().to_vec())
}

impl Sources {
    async fn new() -> Self {
        let (folder, rows) = (tempfile::tempdir().unwrap(), database().await);
        for name in ["docs", "repository"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        git(&folder.path().join("repository"), &["init", "--quiet", "--initial-branch=main"]);
        let reader = Self::reader(&rows);
        rows.execute(&format!(
            "create role {reader} login; create table notes (body text); insert into notes values (''); \
             grant select on notes to {reader}"
        ))
        .await;
        let proxy = Proxy::before(&rows.options).await;
        Self { folder, rows, proxy, upstream: Upstream::start().await }
    }

    /// A role that is no superuser, for this test alone.
    fn reader(rows: &Database) -> String {
        format!("reader_of_{}", rows.options.get_database().unwrap())
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    /// The settings of a connection of a kind, and a source in it.
    fn of(&self, kind: &str) -> (Value, Value) {
        let path = json!({"connection": kind, "path": "a.md"});
        let local = json!(["127.0.0.0/8"]);
        match kind {
            "file" => (json!({"root": self.path("docs")}), path),
            "git" => (json!({"url": self.path("repository")}), path),
            "http" => (json!({"baseUrl": self.upstream.url(), "allowNetworks": local}), path),
            "s3" => {
                let endpoint = self.upstream.url().trim_end_matches("/v1/").to_owned();
                let settings = json!({"endpoint": endpoint, "bucket": "bucket", "pathStyle": true,
                    "allowNetworks": local});
                (settings, path)
            }
            _ => {
                let options = &self.proxy.options;
                let (host, port) = (options.get_host(), options.get_port());
                let (reader, name) = (Self::reader(&self.rows), options.get_database().unwrap());
                let url = format!("postgres://{reader}@{host}:{port}/{name}?sslmode=disable");
                let statements = json!({"note": "select body from notes"});
                let settings = json!({"url": url, "allowNetworks": local, "statements": statements,
                    "notifyChannel": "notes changed"});
                let source = json!({"connection": kind, "statement": "@note", "format": "text"});
                (settings, source)
            }
        }
    }

    /// Changes the content of a kind.
    async fn change(&self, kind: &str, text: &str) {
        match kind {
            "file" => fs::write(self.path("docs/a.md"), text).unwrap(),
            "http" => self.upstream.answer("a.md", tagged(text, text)),
            "s3" => self.upstream.answer_at("/bucket/a.md".to_owned(), object(text)),
            "git" => {
                let repository = self.path("repository");
                fs::write(repository.join("a.md"), text).unwrap();
                git(&repository, &["add", "a.md"]);
                git(&repository, &["commit", "--quiet", "--message", "Change it"]);
            }
            _ => {
                let statement = format!("update notes set body = '{text}'; notify \"notes changed\"");
                self.rows.execute(&statement).await;
            }
        }
    }
}

/// Registers a resource with content of a kind.
async fn register(sources: &Sources, replica: &Replica, kind: &str) {
    let (settings, source) = sources.of(kind);
    // What is notified is not polled in time.
    let every = if kind == "sql" { 600_000 } else { POLL };
    let body = json!({"id": kind, "kind": kind, "tenants": "*", "settings": settings,
        "limits": {"pollMs": every}});
    let made = replica.admin("POST", "/connections", Some(body)).await;
    assert_eq!(made.status, 201, "{kind}: {}", made.text());
    let body = json!({"name": kind, "mimeType": "text/plain", "source": source});
    let made = replica.admin("PUT", &resource("notes", &format!("test://{kind}")), Some(body)).await;
    assert_eq!(made.status, 201, "{kind}: {}", made.text());
}

#[tokio::test]
async fn change_of_each_kind_is_notified_in_time_and_read_on_another_replica() {
    let (database, sources) = (database().await, Sources::new().await);
    let roots = ["docs", "repository"].map(|name| sources.path(name).display().to_string()).join(",");
    let builder = || Builder::new(&database).set("WAGGLE_SOURCES__FILE_ROOTS", &roots);
    let (first, second) = tokio::join!(builder().start(), builder().start());
    let key = first.acme("notes").await;
    for kind in ["file", "git", "http", "s3", "sql"] {
        sources.change(kind, "0").await;
        register(&sources, &first, kind).await;
    }
    second.caught_up().await;
    for kind in ["file", "git", "http", "s3", "sql"] {
        let uri = format!("test://{kind}");
        let filter = json!({"resourceSubscriptions": [uri]});
        let mut stream = listen(&first, "notes", &key, json!(1), filter).await;
        let acknowledged = "notifications/subscriptions/acknowledged";
        stream.expect_events(&[acknowledged, &format!("updated {uri}")]).await;
        assert_eq!(second.http.text("notes", &key, &uri).await.unwrap().trim_end(), "0", "{kind}");
        let mut times = Vec::new();
        for round in 1..=3 {
            // A content has one revision a second.
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            let began = Instant::now();
            sources.change(kind, &round.to_string()).await;
            assert_eq!(stream.next_summary().await, format!("updated {uri}"));
            times.push(began.elapsed());
            let text = second.http.text("notes", &key, &uri).await.unwrap();
            assert_eq!(text.trim_end(), round.to_string(), "{kind}");
        }
        println!("{kind}: notified after {times:?}");
        let most = if kind == "file" { OF_FILES } else { OF_OTHERS };
        times.sort_unstable();
        // That of the middle: the machine is busy with other tests.
        assert!(times[1] < most, "{kind}: {times:?}");
    }
}
