//! Sources ignore the environment of the process: no proxy is used, and no configuration of git is read.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;

use serde_json::{Value, json};
use sqlx::ConnectOptions;
use waggle::model::key::{KeyKind, SecretKey};

use super::upstream::{Upstream, text};
use crate::support::app::resource;
use crate::support::cluster::{Database, database};
use crate::support::http::Answer;
use crate::support::process::{Gateway, Site};
use crate::support::repository::{git, serve_repositories};

/// A gateway as a process, on a database of the test, with an agent.
struct Process {
    site: Site,
    operator: String,
    key: String,
    _gateway: Gateway,
    _database: Database,
}

impl Process {
    async fn start(site: Site) -> Self {
        let (database, operator) =
            (database().await, SecretKey::generate(KeyKind::Operator, &mut rand::rng()));
        let site = site
            .set("DATABASE_URL", database.options.to_url_lossy())
            .set("WAGGLE_ADMIN__OPERATOR_KEY", operator.reveal());
        let gateway = site.serve().await;
        let operator = operator.reveal().to_owned();
        let mut process = Self { site, operator, key: String::new(), _gateway: gateway, _database: database };
        process.make("POST", "/tenants", json!({"id": "acme"})).await;
        process.make("POST", "/agents", json!({"id": "notes", "tenant": "acme"})).await;
        let key = process.make("POST", "/agents/notes/keys", json!({})).await.json();
        key["key"].as_str().unwrap().clone_into(&mut process.key);
        process
    }

    async fn make(&self, method: &str, path: &str, body: Value) -> Answer {
        let made = self.site.http.admin(&self.operator, method, path, Some(body)).await;
        assert_eq!(made.status, 201, "{path}: {}", made.text());
        made
    }

    /// The text at a path of a new connection of a kind.
    async fn text(&self, kind: &str, mut settings: Value, path: &str) -> Option<String> {
        settings["allowNetworks"] = json!(["127.0.0.0/8"]);
        let new = json!({"id": kind, "kind": kind, "tenants": "*", "settings": settings});
        self.make("POST", "/connections", new).await;
        let body = json!({"name": kind, "source": {"connection": kind, "path": path}});
        let uri = format!("test://{kind}");
        self.make("PUT", &resource("notes", &uri), body).await;
        self.site.http.text("notes", &self.key, &uri).await
    }
}

/// A repository in a folder with the file `a.md`.
fn repository(folder: &Path) {
    let repository = folder.join("repository");
    fs::create_dir(&repository).unwrap();
    fs::write(repository.join("a.md"), "of git").unwrap();
    for arguments in
        [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "--message", "Add a file"]]
    {
        git(&repository, arguments);
    }
}

#[tokio::test]
async fn no_proxy_of_the_environment_is_used() {
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let url = format!("http://{}", proxy.local_addr().unwrap());
    let names = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let process =
        Process::start(names.into_iter().fold(Site::new(), |site, name| site.set(name, &url))).await;
    let (upstream, folder) = (Upstream::start().await, tempfile::tempdir().unwrap());
    upstream.answer("a.md", text("of http"));
    upstream.answer_at("/bucket/a.md".to_owned(), text("of s3"));
    repository(folder.path());
    let endpoint = upstream.url().trim_end_matches("/v1/").to_owned();
    let git_url = format!("{}repository/.git", serve_repositories(folder.path()).await);
    let mut read = Vec::new();
    for (kind, settings) in [
        ("http", json!({"baseUrl": upstream.url()})),
        ("s3", json!({"endpoint": endpoint, "bucket": "bucket", "pathStyle": true})),
        ("git", json!({"url": git_url})),
    ] {
        read.push(process.text(kind, settings, "a.md").await.unwrap_or_default());
    }
    assert_eq!(read, ["of http", "of s3", "of git"]);
    assert_eq!(proxy.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "a proxy was connected to");
}

#[tokio::test]
async fn no_configuration_of_git_is_read() {
    let site = Site::new();
    let home = site.folder.root.path().join("home");
    let forbids = "[protocol]\n\tallow = never\n";
    for name in [".gitconfig", "git/config", "system"] {
        let file = home.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, forbids).unwrap();
    }
    let site = site
        .set("HOME", home.display())
        .set("XDG_CONFIG_HOME", home.display())
        .set("GIT_CONFIG_GLOBAL", home.join(".gitconfig").display())
        .set("GIT_CONFIG_SYSTEM", home.join("system").display())
        .set("GIT_CONFIG_COUNT", 1)
        .set("GIT_CONFIG_KEY_0", "protocol.allow")
        .set("GIT_CONFIG_VALUE_0", "never");
    let process = Process::start(site).await;
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    let url = format!("{}repository/.git", serve_repositories(folder.path()).await);
    assert_eq!(process.text("git", json!({"url": url}), "a.md").await.as_deref(), Some("of git"));
}
