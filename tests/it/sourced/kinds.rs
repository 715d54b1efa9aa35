//! Changes of content behind the gateway's back, by kinds of connections.
//!
//! Each kind is registered, changed, notified in time, and read on another replica, there also by the official SDK for Rust in
//! both eras. `tests/conformance/sources.js` and `sources.py` do it with the SDKs for TypeScript, and read with that for Python.
//!
//! | kind | source here | source in `tests/conformance` |
//! |:--|:--|:--|
//! | http | a server of the tests | a server of Node |
//! | file | a folder; notified within 1 s | a folder |
//! | s3 | a server of the tests; `s3s-fs` in `mounts::kinds` | `s3s-fs` |
//! | sql of PostgreSQL | the cluster of the tests, by `notifyChannel` | |
//! | sql of SQLite | a file | a file |
//! | git | a repository in place; `git http-backend` | `git http-backend` |

use std::fs;
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};
use rmcp::model::{ClientConfig, ProtocolVersion, ReadResourceRequestParams, ResourceContents};
use rmcp::service::{ClientLifecycleMode, ClientServiceExt};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use serde_json::{Value, json};

use super::upstream::{Reply, Upstream, tagged};
use crate::support::app::{Builder, Replica, resource};
use crate::support::cluster::{Database, database};
use crate::support::events::listen;
use crate::support::proxy::Proxy;
use crate::support::repository::{git, serve_repositories};
use crate::support::wait::eventually;

/// The kinds, by the ids of their connections.
const KINDS: [&str; 7] = ["file", "git", "git-http", "http", "s3", "postgresql", "sqlite"];
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
    /// The URL of the folder, served by `git http-backend`.
    repositories: String,
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
        for name in ["docs", "repository", "tables"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        git(&folder.path().join("repository"), &["init", "--quiet", "--initial-branch=main"]);
        let tables = rusqlite::Connection::open(folder.path().join("tables/notes.db")).unwrap();
        tables.execute_batch("create table notes (body text); insert into notes values ('')").unwrap();
        let reader = Self::reader(&rows);
        rows.execute(&format!(
            "create role {reader} login; create table notes (body text); insert into notes values (''); \
             grant select on notes to {reader}"
        ))
        .await;
        let proxy = Proxy::before(&rows.options).await;
        let repositories = serve_repositories(folder.path()).await;
        Self { folder, rows, proxy, upstream: Upstream::start().await, repositories }
    }

    /// A role that is no superuser, for this test alone.
    fn reader(rows: &Database) -> String {
        format!("reader_of_{}", rows.options.get_database().unwrap())
    }

    /// The name of the file of a kind. The kinds of repositories share one.
    fn file(kind: &str) -> &'static str {
        if kind == "git-http" { "b.md" } else { "a.md" }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().canonicalize().unwrap().join(name)
    }

    /// The settings of a connection of a kind, and a source in it.
    fn of(&self, kind: &str) -> (Value, Value) {
        let path = json!({"connection": kind, "path": Self::file(kind)});
        let local = json!(["127.0.0.0/8"]);
        let statements = json!({"note": "select body from notes"});
        let statement = json!({"connection": kind, "statement": "@note", "format": "text"});
        match kind {
            "file" => (json!({"root": self.path("docs")}), path),
            "git" => (json!({"url": self.path("repository")}), path),
            "git-http" => (
                json!({"url": format!("{}repository/.git", self.repositories), "allowNetworks": local}),
                path,
            ),
            "sqlite" => {
                let url = format!("sqlite:{}", self.path("tables/notes.db").display());
                (json!({"url": url, "statements": statements}), statement)
            }
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
                let settings = json!({"url": url, "allowNetworks": local, "statements": statements,
                    "notifyChannel": "notes changed"});
                (settings, statement)
            }
        }
    }

    /// Changes the content of a kind.
    async fn change(&self, kind: &str, text: &str) {
        match kind {
            "file" => fs::write(self.path("docs/a.md"), text).unwrap(),
            "http" => self.upstream.answer("a.md", tagged(text, text)),
            "s3" => self.upstream.answer_at("/bucket/a.md".to_owned(), object(text)),
            "sqlite" => {
                let tables = rusqlite::Connection::open(self.path("tables/notes.db")).unwrap();
                tables.execute("update notes set body = ?1", [text]).unwrap();
            }
            "git" | "git-http" => {
                let repository = self.path("repository");
                fs::write(repository.join(Self::file(kind)), text).unwrap();
                git(&repository, &["add", "."]);
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
    let every = if kind == "postgresql" { 600_000 } else { POLL };
    let of = match kind {
        "postgresql" | "sqlite" => "sql",
        "git-http" => "git",
        _ => kind,
    };
    let body = json!({"id": kind, "kind": of, "tenants": "*", "settings": settings,
        "limits": {"pollMs": every}});
    let made = replica.admin("POST", "/connections", Some(body)).await;
    assert_eq!(made.status, 201, "{kind}: {}", made.text());
    let body = json!({"name": kind, "mimeType": "text/plain", "source": source});
    let made = replica.admin("PUT", &resource("notes", &format!("test://{kind}")), Some(body)).await;
    assert_eq!(made.status, 201, "{kind}: {}", made.text());
}

/// Reads by the official SDK for Rust.
async fn read_by_sdk(replica: &Replica, key: &str, uri: &str, version: ProtocolVersion) -> String {
    let config = StreamableHttpClientTransportConfig::with_uri(format!(
        "http://{}/notes/mcp",
        replica.running.address
    ));
    let name = HeaderName::from_static("x-agent-api-key");
    let config = config.custom_headers([(name, HeaderValue::from_str(key).unwrap())].into());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let transport = StreamableHttpClientTransport::with_client(http, config);
    let mode = if version == ProtocolVersion::V_2026_07_28 {
        ClientLifecycleMode::Discover { preferred_versions: vec![version.clone()] }
    } else {
        ClientLifecycleMode::Initialize
    };
    let client = ClientConfig::default().with_protocol_version(version);
    let client = client.serve_with_lifecycle(transport, mode).await.unwrap();
    let read = client.read_resource(ReadResourceRequestParams::new(uri)).await.unwrap();
    client.cancel().await.unwrap();
    match read.contents.as_slice() {
        [ResourceContents::TextResourceContents { text, .. }] => text.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn change_of_each_kind_is_notified_in_time_and_read_on_another_replica() {
    let (database, sources) = (database().await, Sources::new().await);
    let roots =
        ["docs", "repository", "tables"].map(|name| sources.path(name).display().to_string()).join(",");
    let builder = || Builder::new(&database).set("WAGGLE_SOURCES__FILE_ROOTS", &roots);
    let (first, second) = tokio::join!(builder().start(), builder().start());
    let key = first.acme("notes").await;
    for kind in KINDS {
        sources.change(kind, "0").await;
        register(&sources, &first, kind).await;
    }
    second.caught_up().await;
    for kind in KINDS {
        let uri = format!("test://{kind}");
        let filter = json!({"resourceSubscriptions": [uri]});
        let mut stream = listen(&first, "notes", &key, json!(1), filter).await;
        let acknowledged = "notifications/subscriptions/acknowledged";
        stream.expect_events(&[acknowledged, &format!("updated {uri}")]).await;
        assert_eq!(second.http.text("notes", &key, &uri).await.unwrap().trim_end(), "0", "{kind}");
        let mut times = Vec::new();
        for round in 1..=3 {
            // Not for a condition: a content has one revision a second.
            tokio::time::sleep(Duration::from_millis(1_200)).await;
            let began = Instant::now();
            sources.change(kind, &round.to_string()).await;
            assert_eq!(stream.next_summary().await, format!("updated {uri}"));
            times.push(began.elapsed());
            let text = second.http.text("notes", &key, &uri).await.unwrap();
            assert_eq!(text.trim_end(), round.to_string(), "{kind}");
        }
        for version in [ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28] {
            assert_eq!(read_by_sdk(&second, &key, &uri, version).await.trim_end(), "3", "{kind}");
        }
        println!("{kind}: notified after {times:?}");
        let most = if kind == "file" { OF_FILES } else { OF_OTHERS };
        times.sort_unstable();
        // That of the middle: the machine is busy with other tests.
        assert!(times[1] < most, "{kind}: {times:?}");
    }
}

#[tokio::test]
async fn disabled_connection_listens_no_more() {
    let (database, sources) = (database().await, Sources::new().await);
    let replica = Builder::new(&database).start().await;
    let key = replica.acme("notes").await;
    register(&sources, &replica, "postgresql").await;
    let filter = json!({"resourceSubscriptions": ["test://postgresql"]});
    let mut stream = listen(&replica, "notes", &key, json!(1), filter).await;
    stream.expect_events(&["notifications/subscriptions/acknowledged", "updated test://postgresql"]).await;
    // The second change is notified within a second of the first.
    for text in ["1", "2"] {
        sources.change("postgresql", text).await;
        assert_eq!(stream.next_summary().await, "updated test://postgresql");
        assert_eq!(replica.http.text("notes", &key, "test://postgresql").await.unwrap().trim_end(), text);
    }
    let sessions = format!(
        "select count(*) from pg_stat_activity where usename = '{}' and datname = current_database()",
        Sources::reader(&sources.rows)
    );
    assert!(sources.rows.number(&sessions).await > 0);
    let disabled = replica.admin("PATCH", "/connections/postgresql", Some(json!({"enabled": false}))).await;
    assert_eq!(disabled.status, 200);
    eventually("no session is left", async || sources.rows.number(&sessions).await == 0).await;
}
