//! Resources and templates whose content comes from a connection.

mod causes;
mod checker;
mod clock;
mod completions;
mod definitions;
mod directories;
mod environment;
mod failures;
mod git;
mod guide;
mod kept;
mod kinds;
mod leases;
mod own;
mod reads;
mod records;
mod statements;
mod stored;
pub(crate) mod upstream;
mod variants;
mod watching;

use serde_json::{Value, json};
use tempfile::TempDir;

use self::upstream::{Upstream, text};
use crate::support::app::{Builder, Replica, encode, gateway, resource};
use crate::support::cluster::{Database, database};
use crate::support::events::listen;
use crate::support::http::Answer;

/// A gateway with an agent, and a connection to an HTTP API.
struct Site {
    upstream: Upstream,
    _database: Database,
    replica: Replica,
    key: String,
}

/// A gateway with an agent, and a connection `docs` to a folder.
struct Files {
    folder: TempDir,
    _database: Database,
    replica: Replica,
    key: String,
}

impl Files {
    async fn new() -> Self {
        let (database, folder) = (database().await, tempfile::tempdir().unwrap());
        let root = folder.path().canonicalize().unwrap();
        let replica = Builder::new(&database).set("WAGGLE_SOURCES__FILE_ROOTS", root.display()).start().await;
        let key = replica.acme("notes").await;
        let settings = json!({"root": root});
        let new = json!({"id": "docs", "kind": "file", "tenants": ["acme"], "settings": settings});
        let made = replica.admin("POST", "/connections", Some(new)).await;
        assert_eq!(made.status, 201, "{}", made.text());
        Self { folder, _database: database, replica, key }
    }

    fn write(&self, path: &str, text: &str) {
        let file = self.folder.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// Registers a resource `test://name` with the content of a path.
    async fn resource(&self, name: &str, path: &str) {
        let body = json!({"name": name, "source": {"connection": "docs", "path": path}});
        let made = self.replica.admin("PUT", &resource("notes", &format!("test://{name}")), Some(body)).await;
        assert!(made.status.is_success(), "{}", made.text());
    }
}

/// A source of the connection.
fn source(path: &str) -> Value {
    json!({"connection": "api", "path": path})
}

impl Site {
    /// Makes another tenant with the agent `hive`; returns a key of it.
    async fn other_tenant(&self) -> String {
        self.replica.tenant("bee").await;
        self.replica.agent("bee", "hive").await;
        self.replica.key("hive", &["mcp"]).await.1
    }

    /// Subscribes the other tenant to content of the connection, which is polled, and nothing else meanwhile.
    async fn expect_poll_of_other(&self, key: &str) {
        self.upstream.answer("a", text("here"));
        let body = json!({"name": "a", "source": {"connection": "api", "path": "a"}});
        assert_eq!(self.replica.admin("PUT", &resource("hive", "test://a"), Some(body)).await.status, 201);
        let filter = json!({"resourceSubscriptions": ["test://a"]});
        let mut stream = listen(&self.replica, "hive", key, json!(1), filter).await;
        stream.expect_events(&["notifications/subscriptions/acknowledged", "updated test://a"]).await;
        assert_eq!(self.upstream.asked(), [("/v1/a".to_owned(), Some(200))]);
    }

    async fn new() -> Self {
        Self::with_limits(json!({})).await
    }

    async fn with_limits(limits: Value) -> Self {
        let (database, replica) = gateway().await;
        Self::over(database, replica, limits).await
    }

    async fn over(database: Database, replica: Replica, limits: Value) -> Self {
        let upstream = Upstream::start().await;
        let key = replica.acme("notes").await;
        let site = Self { upstream, _database: database, replica, key };
        site.connection("api", json!("*"), limits).await;
        site
    }

    async fn connection(&self, id: &str, tenants: Value, limits: Value) {
        let settings = json!({"baseUrl": self.upstream.url(), "allowNetworks": ["127.0.0.0/8"]});
        let new =
            json!({"id": id, "kind": "http", "tenants": tenants, "settings": settings, "limits": limits});
        let made = self.replica.admin("POST", "/connections", Some(new)).await;
        assert_eq!(made.status, 201, "{}", made.text());
    }

    /// Registers a resource `test://name` with a source.
    async fn resource(&self, name: &str, source: Value) -> Answer {
        let path = resource("notes", &format!("test://{name}"));
        let made = self.replica.admin("PUT", &path, Some(json!({"name": name, "source": source}))).await;
        assert!(made.status.is_success(), "{}", made.text());
        made
    }

    /// Registers a template with a source.
    async fn template(&self, text: &str, body: Value) -> Answer {
        let path = format!("/agents/notes/templates?uriTemplate={}", encode(text));
        self.replica.admin("PUT", &path, Some(body)).await
    }

    /// Reads a URI without a session; the answer's body.
    async fn read(&self, uri: &str) -> Value {
        self.replica.http.call("notes", &self.key, "resources/read", json!({"uri": uri})).await
    }

    /// Opens the agent to anonymous callers.
    async fn publish(&self) {
        let patched = self.replica.admin("PATCH", "/agents/notes", Some(json!({"access": "public"}))).await;
        assert_eq!(patched.status, 200, "{}", patched.text());
    }

    /// Reads a URI without a credential; the answer's body.
    async fn read_anonymously(&self, uri: &str) -> Value {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}});
        let headers = [("content-type", "application/json")];
        self.replica.http.send("POST", "/notes/mcp", &headers, message.to_string()).await.json()
    }

    /// Reads a URI; its text.
    async fn text(&self, uri: &str) -> String {
        let answer = self.read(uri).await;
        answer["result"]["contents"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Reads a URI in the modern era; the result.
    async fn read_modern(&self, uri: &str) -> Value {
        let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {}});
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read",
            "params": {"uri": uri, "_meta": meta}});
        let headers = [
            ("x-agent-api-key", self.key.as_str()),
            ("content-type", "application/json"),
            ("mcp-protocol-version", "2026-07-28"),
            ("mcp-method", "resources/read"),
            ("mcp-name", uri),
        ];
        self.replica.http.send("POST", "/notes/mcp", &headers, message.to_string()).await.json()
    }
}
