//! A gateway process whose database can be made unreachable.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::json;
use sqlx::ConnectOptions;
use waggle::model::key::{KeyKind, SecretKey};

use super::app::encode;
use super::cluster::{Database, database};
use super::faults::Fault;
use super::http::Answer;
use super::metrics::sample;
use super::process::{Gateway, Site};
use super::proxy::Proxy;
use super::wait::eventually;

/// A site with the agent `research` and its resource `test://a`.
pub(crate) struct AuditSite {
    pub(crate) database: Database,
    pub(crate) proxy: Proxy,
    pub(crate) site: Site,
    /// A key of the agent.
    pub(crate) key: String,
}

impl AuditSite {
    /// Starts the first gateway.
    pub(crate) async fn new(settings: &[(&str, &str)]) -> (Self, Gateway) {
        let database = database().await;
        let proxy = Proxy::before(&database.options).await;
        let operator = SecretKey::generate(KeyKind::Operator, &mut rand::rng());
        let site = settings
            .iter()
            .fold(Site::unlimited(), |site, (name, value)| site.set(name, value))
            .set("DATABASE_URL", proxy.options.to_url_lossy())
            .set("WAGGLE_ADMIN__OPERATOR_KEY", operator.reveal());
        fs::create_dir_all(site.folder.data_dir()).unwrap();
        fs::write(site.operator_file(), operator.reveal()).unwrap();
        let gateway = site.serve().await;
        let key = site.tenant("acme", ["research".to_owned()]).await;
        let body = json!({"name": "a", "contents": [{"text": "a"}]});
        let path = format!("/agents/research/resources?uri={}", encode("test://a"));
        assert_eq!(site.admin("PUT", &path, Some(body)).await.status, 201);
        let post = Self { database, proxy, site, key };
        assert_eq!(post.read("known", "test://a").await.status, 200);
        (post, gateway)
    }

    /// Reads a resource in a request with this id.
    pub(crate) async fn read(&self, id: &str, uri: &str) -> Answer {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": "resources/read", "params": {"uri": uri}});
        let bearer = format!("Bearer {}", self.key);
        let headers =
            [("authorization", bearer.as_str()), ("content-type", "application/json"), ("x-request-id", id)];
        self.site.http.send("POST", "/research/mcp", &headers, message.to_string()).await
    }

    /// Reads `count` times; returns the request ids.
    pub(crate) async fn read_often(&self, name: &str, count: usize) -> Vec<String> {
        let ids: Vec<_> = (0..count).map(|number| format!("{name}-{number}")).collect();
        for id in &ids {
            assert_eq!(self.read(id, "test://a").await.status, 200);
        }
        ids
    }

    /// A metric of the audit log.
    pub(crate) async fn number(&self, name: &str) -> i64 {
        let metrics = self.site.http.get("/metrics").await.text();
        sample(&metrics, &format!("waggle_audit_{name}")).unwrap().parse().unwrap()
    }

    /// Waits until all events are on disk or in the database.
    pub(crate) async fn is_safe(&self) {
        eventually("all events are safe", async || self.number("waiting").await == 0).await;
    }

    /// Waits until the log has all events and changes.
    pub(crate) async fn is_written(&self) {
        eventually("all events are in the log", async || {
            self.number("waiting").await == 0
                && self.number("spilled_bytes").await == 0
                && self.database.number("select count(*) from audit_outbox").await == 0
        })
        .await;
    }

    /// Waits until the log has `count` rows of reads.
    pub(crate) async fn has_read(&self, count: usize) {
        let query = "select count(*) from audit_log where method = 'resources/read'";
        let count = i64::try_from(count).unwrap();
        eventually("all reads are in the log", async || self.database.number(query).await >= count).await;
    }

    /// The request ids of reads, in the order in which their rows were committed.
    pub(crate) async fn reads(&self) -> Vec<String> {
        let mut connection = self.database.connect().await;
        let query = "select request from audit_log where method = 'resources/read' \
                     order by xmin::text::bigint, seq";
        sqlx::query_scalar(query).fetch_all(&mut connection).await.unwrap()
    }

    /// Starts the next gateway while the database is unreachable for a while.
    pub(crate) async fn start_without_database(&self) -> Gateway {
        self.proxy.fail(Fault::Refused);
        let back = async {
            // Not for a condition: the gateway starts during this time, without its database.
            tokio::time::sleep(Duration::from_millis(500)).await;
            self.proxy.fail(Fault::None);
        };
        tokio::join!(self.site.serve(), back).0
    }

    /// The spill files.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let folders = fs::read_dir(self.site.folder.data_dir().join("audit")).unwrap();
        let files = folders.flat_map(|folder| fs::read_dir(folder.unwrap().path()).unwrap());
        let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        files.sort();
        files
    }

    /// The exit code and output of `waggle audit verify`.
    pub(crate) async fn verify(&self) -> (Option<i32>, String) {
        let output = self.site.command("audit").arg("verify").output().await.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }
}
