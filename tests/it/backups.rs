//! `waggle backup` and `waggle restore` of the embedded database.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::apply::{Output, output};
use crate::support::events::Events;
use crate::support::folder::{children, signal_all};
use crate::support::http::Answer;
use crate::support::process::Site;

/// Runs a command about a folder; `DIR` stands for the folder of the test in what is printed.
async fn run(site: &Site, command: &str, folder: &Path, more: &[&str]) -> Output {
    let ended = site.command(command).arg(folder).args(more).output().await.unwrap();
    let root = site.folder.root.path().to_str().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap().replace(root, "DIR");
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_of_a_serving_gateway_is_restored_elsewhere() {
    let site = Site::new();
    let gateway = site.serve().await;
    let owner = site.tenant("acme", ["research".to_owned()]).await;
    let put = json!({"name": "n", "contents": [{"text": "before"}]});
    let path = "/agents/research/resources?uri=x%3A1";
    assert!(site.admin("PUT", path, Some(put)).await.status.is_success());
    let backup = site.folder.root.path().join("backup");
    let wrote = "wrote DIR/backup with the database and the key files operator.key, audit.key, sources.key\n";
    assert_eq!(run(&site, "backup", &backup, &[]).await, output(0, wrote, ""));
    for (name, mode) in [("", 0o700), ("keys", 0o700), ("database.dump", 0o600), ("keys/operator.key", 0o600)]
    {
        let found = fs::metadata(backup.join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!(found, mode, "{name}");
    }
    let again = "DIR/backup exists already; a backup is written to a new folder\n";
    assert_eq!(run(&site, "backup", &backup, &[]).await, output(1, "", again));
    let later = json!({"name": "n", "contents": [{"text": "after"}]});
    assert!(site.admin("PUT", path, Some(later)).await.status.is_success());
    let in_use =
        "DIR/data is not empty; a backup is restored into an empty data directory, named with --data-dir\n";
    assert_eq!(run(&site, "restore", &backup, &[]).await, output(1, "", in_use));
    let operator = site.operator();
    gateway.stop().await;

    let other = Site::new();
    let (code, out, error) = run(&other, "restore", &backup, &[]).await;
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert!(out.starts_with("restored the database of 2") && out.ends_with(" into DIR/data\n"), "{out}");
    assert_eq!(other.operator(), operator);
    let gateway = other.serve().await;
    let restored = other.admin("GET", path, None).await.json();
    assert_eq!(restored["contents"], json!([{"text": "before"}]));
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": "x:1"}});
    let headers = [("content-type", "application/json"), ("authorization", &format!("Bearer {owner}"))];
    let read: Value = other.http.send("POST", "/research/mcp", &headers, body.to_string()).await.json();
    assert_eq!(read["result"]["contents"][0]["text"], "before", "a key of before the backup is valid");
    gateway.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn backup_of_a_database_that_does_not_answer_is_given_up() {
    let site = Site::new();
    let gateway = site.serve().await;
    let backup = site.folder.root.path().join("backup");
    let postmaster = site.folder.postmaster().unwrap();
    let database: Vec<_> = children(postmaster).into_iter().chain([postmaster]).collect();
    signal_all(&database, Signal::SIGSTOP);
    let stalled = "the copy of the database has not grown for 1 s; see whether the database answers, or raise --stall-seconds\n";
    assert_eq!(run(&site, "backup", &backup, &["--stall-seconds", "1"]).await, output(1, "", stalled));
    let left: Vec<_> =
        fs::read_dir(site.folder.root.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().contains("backup")), "{left:?}");
    signal_all(&database, Signal::SIGCONT);
    assert_eq!(run(&site, "backup", &backup, &[]).await.0, Some(0));
    gateway.stop().await;
}

/// What a session sends to an agent of a site.
struct Client<'s> {
    site: &'s Site,
    bearer: &'s str,
    session: &'s str,
}

impl Client<'_> {
    const PATH: &'static str = "/research/mcp";

    fn headers<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let own = [("authorization", self.bearer), ("content-type", "application/json")];
        let session = (!self.session.is_empty()).then_some(("mcp-session-id", self.session));
        own.into_iter().chain(session).chain(more.iter().copied()).collect()
    }

    async fn call(&self, method: &str, params: Value) -> Answer {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let answer = self.site.http.send("POST", Self::PATH, &self.headers(&[]), message).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer
    }

    async fn stream(&self, last_event_id: Option<&str>) -> Events {
        let mut more = vec![("accept", "text/event-stream")];
        more.extend(last_event_id.map(|id| ("last-event-id", id)));
        Events::of(self.site.http.respond("GET", Self::PATH, &self.headers(&more), "").await.unwrap())
    }
}

/// Of events of before the backup, during it and after it, of which the last one names a revision that no longer exists.
#[tokio::test(flavor = "multi_thread")]
async fn streams_resume_after_a_restoration_with_everything() {
    let site = Site::new();
    let gateway = site.serve().await;
    let owner = site.tenant("acme", ["research".to_owned()]).await;
    let bearer = format!("Bearer {owner}");
    let path = "/agents/research/resources?uri=x%3A1";
    let put = async |site: &Site, text: &str| {
        let body = json!({"name": "n", "contents": [{"text": text}]});
        assert!(site.admin("PUT", path, Some(body)).await.status.is_success());
    };
    put(&site, "first").await;
    let opening = json!({
        "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "it", "version": "1"}
    });
    let opened = Client { site: &site, bearer: &bearer, session: "" }.call("initialize", opening).await;
    let session = opened.header("mcp-session-id").unwrap();
    let client = Client { site: &site, bearer: &bearer, session };
    client.call("resources/subscribe", json!({"uri": "x:1"})).await;
    let mut stream = client.stream(None).await;
    let mut ids = Vec::new();
    let backup = site.folder.root.path().join("backup");
    for (nth, text) in ["before", "during", "lost"].into_iter().enumerate() {
        put(&site, text).await;
        let event = stream.next().await.unwrap();
        assert_eq!(event.summary(), "updated x:1");
        ids.push(event.id.unwrap());
        if nth == 1 {
            assert_eq!(run(&site, "backup", &backup, &[]).await.0, Some(0));
        }
    }
    drop(stream);
    gateway.stop().await;

    let other = Site::new();
    assert_eq!(run(&other, "restore", &backup, &[]).await.0, Some(0));
    let gateway = other.serve().await;
    let client = Client { site: &other, bearer: &bearer, session };
    // The lost revision is given again, to another change.
    put(&other, "new").await;
    for id in &ids {
        let mut stream = client.stream(Some(id)).await;
        let mut received = Vec::new();
        while received.len() < 4 {
            received.push(stream.next_summary().await);
        }
        received.sort_unstable();
        assert_eq!(received, ["prompts", "resources", "tools", "updated x:1"]);
    }
    let mut stream = client.stream(ids.last().map(String::as_str)).await;
    for _ in 0..4 {
        stream.next().await.unwrap();
    }
    put(&other, "newer").await;
    assert_eq!(stream.next_summary().await, "updated x:1", "it goes on live");
    gateway.stop().await;
}

#[tokio::test]
async fn refused_backups_and_restores_leave_nothing_behind() {
    let site = Site::new();
    let folder = site.folder.root.path().join("backup");
    let none = "there is no database in DIR/data\n";
    assert_eq!(run(&site, "backup", &folder, &[]).await, output(1, "", none));
    let (code, out, error) =
        run(&site, "backup", &folder, &["--database-url", "postgres://127.0.0.1/x"]).await;
    assert_eq!((code, out.as_str()), (Some(1), ""));
    assert!(error.starts_with("database.url is set, and only the embedded database is backed up"), "{error}");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("database.dump"), "not a dump").unwrap();
    let missing = "DIR/backup/backup.json: No such file or directory (os error 2)\n";
    assert_eq!(run(&site, "restore", &folder, &[]).await, output(1, "", missing));
    let description =
        json!({"format": 1, "waggle": "0", "createdAt": "2026-01-01T00:00:00Z", "keys": [], "elsewhere": []});
    fs::write(folder.join("backup.json"), description.to_string()).unwrap();
    let (code, _, error) = run(&site, "restore", &folder, &[]).await;
    assert!(code == Some(1) && error.starts_with("pg_restore failed"), "{error}");
    let left: Vec<_> =
        fs::read_dir(&site.folder.root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["backup"]);
}
