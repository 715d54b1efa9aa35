//! Trees of connections whose files are resources of an agent.

mod admin;
mod changes;
mod files;
mod hooks;
mod kinds;
mod refused;
mod search;
mod takeover;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::connections::Keys;
use crate::support::app::{Builder, Replica};
use crate::support::cluster::{Database, database};
use crate::support::faults::FaultScript;
use crate::support::wait::eventually;

/// A gateway with the agent `notes`, and a connection `docs` to a folder.
struct Site {
    database: Database,
    folder: TempDir,
    keys: Keys,
    replica: Replica,
    key: String,
}

impl Site {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(settings: &[(&str, &str)]) -> Self {
        Self::built(|builder| {
            settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value))
        })
        .await
    }

    async fn with_faults(faults: &Arc<FaultScript>) -> Self {
        Self::built(|builder| builder.fault_injector(faults.clone())).await
    }

    async fn built(build: impl FnOnce(Builder) -> Builder) -> Self {
        let (database, folder, keys) = (database().await, tempfile::tempdir().unwrap(), Keys::new());
        let replica = build(builder(&database, folder.path(), &keys)).start().await;
        let key = replica.acme("notes").await;
        let site = Self { database, folder, keys, replica, key };
        site.connect("docs", "file", (json!({"root": site.root()}), json!({})), 30_000).await;
        site
    }

    /// Creates a connection with these settings and secrets, which is polled so often.
    async fn connect(&self, id: &str, kind: &str, (settings, secrets): (Value, Value), poll_ms: u32) {
        let limits = json!({"pollMs": poll_ms});
        let new = json!({"id": id, "kind": kind, "tenants": ["acme"], "settings": settings, "secrets": secrets,
            "limits": limits});
        let made = self.replica.admin("POST", "/connections", Some(new)).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }

    /// Another replica.
    async fn other(&self) -> Replica {
        builder(&self.database, self.folder.path(), &self.keys).start().await
    }

    fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    fn write(&self, path: &str, text: &str) {
        let file = self.root().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn remove(&self, path: &str) {
        std::fs::remove_file(self.root().join(path)).unwrap();
    }

    /// Registers a mount, and waits until it is listed.
    async fn mount(&self, name: &str, body: Value) {
        let path = format!("/agents/notes/mounts/{name}");
        let made = self.replica.admin("PUT", &path, Some(body)).await;
        assert!(made.status.is_success(), "{}", made.text());
        self.listed(name).await;
    }

    /// Waits until a mount is scanned.
    async fn listed(&self, name: &str) {
        let is_scanned = async || !matches!(self.state(name).await.as_str(), "scanning");
        eventually("the mount is scanned", is_scanned).await;
    }

    async fn status(&self, name: &str) -> Value {
        self.replica.admin("GET", &format!("/agents/notes/mounts/{name}"), None).await.json()
    }

    async fn state(&self, name: &str) -> String {
        self.status(name).await["state"].as_str().unwrap().to_owned()
    }

    async fn call(&self, method: &str, params: Value) -> Value {
        self.replica.http.call("notes", &self.key, method, params).await
    }

    async fn text(&self, uri: &str) -> Option<String> {
        self.replica.http.text("notes", &self.key, uri).await
    }

    /// The URIs of the first page.
    async fn uris(&self) -> Vec<String> {
        uris(&self.replica, &self.key).await
    }
}

fn builder(database: &Database, folder: &Path, keys: &Keys) -> Builder {
    let root = folder.canonicalize().unwrap();
    keys.replica(database).set("WAGGLE_SOURCES__FILE_ROOTS", root.display())
}

async fn uris(replica: &Replica, key: &str) -> Vec<String> {
    let page = replica.http.call("notes", key, "resources/list", json!({})).await;
    let resources = page["result"]["resources"].as_array().unwrap_or_else(|| panic!("{page}"));
    resources.iter().map(|resource| resource["uri"].as_str().unwrap().to_owned()).collect()
}

fn guides() -> Value {
    json!({"connection": "docs", "path": "guides/", "uri": "file:///guides/", "include": ["**/*.md"]})
}
