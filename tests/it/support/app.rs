//! Starts gateways in the process of the test.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Value, json};
use tempfile::TempDir;
use waggle::app::{self, AppError, Running};
use waggle::config::{self, Environment, Flags, Purpose};
use waggle::http::operator_keys::OperatorKeys;
use waggle::model::key::{KeyKind, SecretKey};
use waggle::model::system::{Clock, FaultInjector, System};
use waggle::store::StoreOptions;

use super::cluster::{Database, database, store_options};
use super::http::{Answer, Client};
use super::metrics::sample;
use super::wait::eventually;

/// A gateway in the process of the test.
pub(crate) struct Replica {
    pub(crate) running: Running,
    pub(crate) operator: String,
    pub(crate) http: Client,
    /// Its spill directory, removed with it.
    pub(crate) _spill: TempDir,
}

/// Tests send more requests than the default rates allow, and start with nothing in memory. Tests of rates and of warming
/// set their own.
const DEFAULTS: [(&str, &str); 5] = [
    ("WAGGLE_CACHE__WARM_AGENTS", "0"),
    ("WAGGLE_LIMITS__KEY_PER_SECOND", "0"),
    ("WAGGLE_LIMITS__AGENT_PER_SECOND", "0"),
    ("WAGGLE_LIMITS__TENANT_PER_SECOND", "0"),
    ("WAGGLE_LIMITS__ADDRESS_PER_SECOND", "0"),
];

/// Configures a gateway before its start.
pub(crate) struct Builder {
    database: StoreOptions,
    settings: Vec<(String, String)>,
    system: System,
    spill: TempDir,
}

impl Builder {
    pub(crate) fn new(database: &Database) -> Self {
        Self {
            database: store_options(database.options.clone()),
            settings: Vec::new(),
            system: System::real(),
            spill: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.settings.push((name.to_owned(), value.to_string()));
        self
    }

    pub(crate) fn store(mut self, change: impl FnOnce(&mut StoreOptions)) -> Self {
        change(&mut self.database);
        self
    }

    pub(crate) fn fault_injector(mut self, injector: Arc<dyn FaultInjector>) -> Self {
        self.system.fault_injector = Some(injector);
        self
    }

    pub(crate) fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.system.clock = clock;
        self
    }

    pub(crate) async fn start(self) -> Replica {
        let replica = self.start_unready().await;
        replica.ready().await;
        replica
    }

    /// Starts the gateway without waiting until it is ready.
    pub(crate) async fn start_unready(self) -> Replica {
        let (running, operator, spill) = self.try_start().await.unwrap();
        let http = Client::new(running.address);
        Replica { http, running, operator, _spill: spill }
    }

    /// Why the gateway does not start.
    pub(crate) async fn refused(self) -> String {
        self.try_start().await.map(|_| ()).unwrap_err().to_string()
    }

    async fn try_start(self) -> Result<(Running, String, TempDir), AppError> {
        let operator = SecretKey::generate(KeyKind::Operator, &mut System::real().csprng().unwrap());
        let environment: Environment = DEFAULTS
            .into_iter()
            .chain([
                ("WAGGLE_SERVER__LISTEN", "127.0.0.1:0"),
                ("WAGGLE_AUDIT__SPILL_DIR", self.spill.path().to_str().unwrap()),
            ])
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .chain(self.settings)
            .collect();
        let settings = config::load(&environment, &Flags::default(), Purpose::Assist).ok().unwrap().settings;
        let keys = OperatorKeys::new([&operator]);
        let running = app::start(&settings, self.database, keys, self.system).await?;
        Ok((running, operator.reveal().to_owned(), self.spill))
    }
}

/// A gateway on a database of its own, with default settings except for the rates.
pub(crate) async fn gateway() -> (Database, Replica) {
    let database = database().await;
    let replica = Builder::new(&database).start().await;
    (database, replica)
}

impl Replica {
    pub(crate) async fn ready(&self) {
        let is_ready = async || self.http.get("/readyz").await.status == StatusCode::OK;
        eventually("the gateway is ready", is_ready).await;
    }

    /// The value of a metric; the name includes its labels.
    pub(crate) async fn metric(&self, name: &str) -> f64 {
        let metrics = self.http.get("/metrics").await.text();
        sample(&metrics, name).unwrap_or_else(|| panic!("no {name} in {metrics}")).parse().unwrap()
    }

    /// Waits until the replica has this many open streams.
    pub(crate) async fn has_streams(&self, count: usize) {
        let streams = async || {
            let metrics = self.http.get("/metrics").await.text();
            let lines = metrics.lines().filter(|line| line.starts_with("waggle_streams{"));
            lines.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum::<usize>()
        };
        eventually(&format!("{count} open streams"), async || streams().await == count).await;
    }

    /// Waits until this replica has received all changes committed so far: until a sweep that began later has ended.
    pub(crate) async fn caught_up(&self) {
        let sweeps = async || self.metric("waggle_feed_sweeps_total{outcome=\"ok\"}").await;
        // A running sweep may have begun before the last commit.
        let enough = sweeps().await + 2.0;
        eventually("two more sweeps", async || sweeps().await >= enough).await;
    }

    /// Sends an administration call as the operator.
    pub(crate) async fn admin(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.http.admin(&self.operator, method, path, body).await
    }

    pub(crate) async fn tenant(&self, id: &str) {
        let made = self.admin("POST", "/tenants", Some(json!({"id": id}))).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    }

    pub(crate) async fn agent(&self, tenant: &str, id: &str) {
        let made = self.admin("POST", "/agents", Some(json!({"id": id, "tenant": tenant}))).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
    }

    /// Creates a key of an agent with these scopes; returns its id and secret.
    pub(crate) async fn key(&self, agent: &str, scopes: &[&str]) -> (String, String) {
        let path = format!("/agents/{agent}/keys");
        let made = self.admin("POST", &path, Some(json!({"scopes": scopes}))).await;
        assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
        let made = made.json();
        (made["id"].as_str().unwrap().to_owned(), made["key"].as_str().unwrap().to_owned())
    }

    /// Creates the tenant `acme` with an agent; returns a key of the agent with the scopes `mcp` and `registry`.
    pub(crate) async fn acme(&self, agent: &str) -> String {
        self.tenant("acme").await;
        self.agent("acme", agent).await;
        self.key(agent, &["mcp", "registry"]).await.1
    }

    /// Writes a resource with one text; returns its revision.
    pub(crate) async fn put(&self, agent: &str, uri: &str, text: &str) -> i64 {
        let body = json!({"name": "a name", "contents": [{"text": text}]});
        let answer = self.admin("PUT", &resource(agent, uri), Some(body)).await;
        assert!(answer.status.is_success(), "{} {}", answer.status, answer.text());
        answer.revision()
    }
}

/// The path of a resource in the administration API.
pub(crate) fn resource(agent: &str, uri: &str) -> String {
    format!("/agents/{agent}/resources?uri={}", encode(uri))
}

/// The key with its last character changed.
pub(crate) fn mistyped(key: &str) -> String {
    let (good, last) = key.split_at(key.len() - 1);
    format!("{good}{}", if last == "x" { "y" } else { "x" })
}

pub(crate) fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
