//! `waggle`: the gateway on its embedded database, with the fixture registered over the administration API.

use std::collections::HashMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::cpu::Postgres;
use crate::error::{Error, excerpt};
use crate::fixture::{
    self, LABELLED_LISTER, LABELLED_READER, LISTER, MIME_TYPE, OTHER_LABEL, PROMPT, READER, RENDERER,
    Resource, URI_TEMPLATE,
};
use crate::http::{self, Connection};
use crate::process::{self, Process};

const TENANT: &str = "bench";
/// The first start also creates the database.
const START: Duration = Duration::from_mins(2);
const CALL: Duration = Duration::from_secs(10);
/// Limits above what the benchmark reaches, so that they are checked and never refuse.
const HIGH_LIMITS: [(&str, &str); 12] = [
    ("WAGGLE_SERVER__DRAIN_SECONDS", "0"),
    ("WAGGLE_SERVER__CONNECTIONS_PER_ADDRESS", "100000"),
    ("WAGGLE_LIMITS__STREAMS_PER_KEY", "100000"),
    ("WAGGLE_SESSIONS__PER_PRINCIPAL", "100000"),
    ("WAGGLE_LIMITS__KEY_PER_SECOND", "1000000"),
    ("WAGGLE_LIMITS__KEY_BURST", "1000000"),
    ("WAGGLE_LIMITS__AGENT_PER_SECOND", "1000000"),
    ("WAGGLE_LIMITS__AGENT_BURST", "1000000"),
    ("WAGGLE_LIMITS__TENANT_PER_SECOND", "1000000"),
    ("WAGGLE_LIMITS__TENANT_BURST", "1000000"),
    ("WAGGLE_LIMITS__CONCURRENT_PER_KEY", "100000"),
    ("WAGGLE_LIMITS__CONCURRENT_PER_AGENT", "100000"),
];

/// A gateway with the fixture registered.
pub(crate) struct Waggle {
    pub(crate) process: Process,
    pub(crate) postgres: Postgres,
    /// The agent key of each agent.
    pub(crate) keys: HashMap<&'static str, String>,
}

impl Waggle {
    /// Starts `binary` on a new database below `dir`, with additional settings.
    pub(crate) fn start(binary: &Path, dir: &Path, settings: &[(&str, &str)]) -> Result<Self, Error> {
        if !binary.is_file() {
            return Err(Error::NoGateway(binary.to_owned()));
        }
        let port = process::free_port()?;
        let data_dir = dir.join("data");
        let mut embedded = command(binary, dir, port);
        embedded.env("WAGGLE_EMBEDDED__DATA_DIR", &data_dir).envs(settings.iter().copied());
        let process = Process::start("waggle", embedded, port, dir)?;
        let postgres = Postgres { server: process.pid, data_dir };
        Ok(Self { process, postgres, keys: HashMap::new() })
    }

    /// Waits until the gateway is ready.
    pub(crate) async fn ready(&mut self) -> Result<(), Error> {
        self.process.ready("/readyz", true, START).await
    }

    /// Waits until the gateway is ready, registers the fixture, and stores the keys of its agents.
    pub(crate) async fn register_fixture(&mut self) -> Result<(), Error> {
        self.ready().await?;
        let mut admin = self.admin().await?;
        admin.create_tenant().await?;
        for agent in [READER, LISTER, RENDERER, LABELLED_READER, LABELLED_LISTER] {
            self.keys.insert(agent, admin.register(agent).await?);
        }
        Ok(())
    }

    /// Connects to the administration API as the operator.
    pub(crate) async fn admin(&self) -> Result<Admin, Error> {
        let file = self.postgres.data_dir.join("operator.key");
        let key = fs::read_to_string(&file)
            .map_err(Error::io(format!("read the operator key from {}", file.display())))?;
        Admin::open(self.process.port, key.trim()).await
    }

    /// Starts another gateway on the same database and waits until it is ready.
    pub(crate) async fn replica(&self, binary: &Path, dir: &Path) -> Result<Process, Error> {
        let read = |file: &str| {
            let path = self.postgres.data_dir.join(file);
            let text = fs::read_to_string(&path).map_err(Error::io(format!("read {}", path.display())))?;
            Ok::<_, Error>(text.trim().to_owned())
        };
        let (key, socket) = (read("operator.key")?, read("embedded.socket")?);
        let socket = utf8_percent_encode(&socket, NON_ALPHANUMERIC);
        let database = format!("postgres:///waggle?user=waggle&host={socket}");
        let mut process = join(binary, dir, &key, &database)?;
        process.ready("/readyz", true, START).await?;
        Ok(process)
    }

    /// Stops the gateway; if it had to be killed, also its database.
    pub(crate) async fn stop(self) {
        if !self.process.stop().await {
            for pid in self.postgres.pids() {
                process::signal(pid, Signal::SIGQUIT);
            }
        }
    }
}

/// Lets other users pass through a directory: the database runs as another user when this is root.
pub(crate) fn allow_passage(dir: &Path) -> Result<(), Error> {
    fs::set_permissions(dir, Permissions::from_mode(0o711))
        .map_err(Error::io(format!("set the permissions of {}", dir.display())))
}

/// Starts a gateway on an existing database, with this operator key.
pub(crate) fn join(binary: &Path, dir: &Path, key: &str, database: &str) -> Result<Process, Error> {
    join_at(process::free_port()?, binary, dir, key, database, &[])
}

/// Starts a gateway on `port`, with additional settings.
pub(crate) fn join_at(
    port: u16,
    binary: &Path,
    dir: &Path,
    key: &str,
    database: &str,
    settings: &[(&str, &str)],
) -> Result<Process, Error> {
    let mut command = command(binary, dir, port);
    command.env("WAGGLE_ADMIN__OPERATOR_KEY", key).env("WAGGLE_DATABASE__URL", database);
    command.envs(settings.iter().copied());
    Process::start("waggle", command, port, dir)
}

fn command(binary: &Path, dir: &Path, port: u16) -> Command {
    let mut command = clean(binary, dir);
    command.envs(HIGH_LIMITS).arg("--listen").arg(format!("127.0.0.1:{port}")).arg("serve");
    command
}

/// The gateway's binary without settings from the environment, in `dir`.
pub(crate) fn clean(binary: &Path, dir: &Path) -> Command {
    let mut command = Command::new(binary);
    for (name, _) in std::env::vars_os() {
        if name == "DATABASE_URL" || name.to_string_lossy().starts_with("WAGGLE_") {
            command.env_remove(name);
        }
    }
    command.current_dir(dir);
    command
}

/// A connection to the administration API as the operator.
pub(crate) struct Admin {
    connection: Connection,
    port: u16,
    /// The `Authorization` header.
    pub(crate) authorization: String,
}

impl Admin {
    /// Connects with an operator key.
    pub(crate) async fn open(port: u16, key: &str) -> Result<Self, Error> {
        let authorization = format!("Bearer {key}");
        Ok(Self { connection: Connection::open(port).await?, port, authorization })
    }

    /// Creates the tenant that agents are created in.
    pub(crate) async fn create_tenant(&mut self) -> Result<(), Error> {
        self.call("POST", "/tenants", &json!({ "id": TENANT, "name": "Bench" })).await.map(|_| ())
    }

    /// Creates an agent without definitions.
    pub(crate) async fn create(&mut self, agent: &str) -> Result<(), Error> {
        let body = json!({ "id": agent, "tenant": TENANT, "name": agent });
        self.call("POST", "/agents", &body).await.map(|_| ())
    }

    /// Creates an agent with its resources; returns its key.
    pub(crate) async fn register(&mut self, agent: &str) -> Result<String, Error> {
        self.create(agent).await?;
        let seen = fixture::resources_of(agent).into_iter().map(|seen| (seen, fixture::label_of(agent)));
        let hidden = fixture::hidden_of(agent).into_iter().map(|hidden| (hidden, Some(OTHER_LABEL)));
        for (resource, label) in seen.chain(hidden) {
            let uri = utf8_percent_encode(&resource.uri, NON_ALPHANUMERIC);
            let mut body = body_of(&resource);
            if let Some(label) = label {
                body["labels"] = json!([label]);
            }
            self.call("PUT", &format!("/agents/{agent}/resources?uri={uri}"), &body).await?;
        }
        if agent == RENDERER {
            self.register_rendered().await?;
        }
        if agent == READER {
            self.call("PATCH", &format!("/agents/{agent}"), &json!({ "tools": ["resources"] })).await?;
        }
        self.issue(agent).await
    }

    /// Creates a key of an agent.
    pub(crate) async fn issue(&mut self, agent: &str) -> Result<String, Error> {
        let keys = format!("/agents/{agent}/keys");
        let mut body = json!({ "name": "bench", "scopes": ["mcp"] });
        if let Some(label) = fixture::label_of(agent) {
            body["labels"] = json!([label]);
        }
        let issued = self.call("POST", &keys, &body).await?;
        let key = issued["key"].as_str().map(str::to_owned);
        key.ok_or(Error::AdminAnswer { call: format!("POST {keys}"), member: "key" })
    }

    async fn register_rendered(&mut self) -> Result<(), Error> {
        let template = utf8_percent_encode(URI_TEMPLATE, NON_ALPHANUMERIC);
        let body = json!({ "name": "chapters", "mimeType": MIME_TYPE, "template": fixture::body() });
        self.call("PUT", &format!("/agents/{RENDERER}/templates?uriTemplate={template}"), &body).await?;
        let content = json!({ "type": "text", "text": fixture::body() });
        let prompt = json!({
            "arguments": [{ "name": "number", "required": true }],
            "messages": [{ "role": "user", "content": content }],
        });
        self.call("PUT", &format!("/agents/{RENDERER}/prompts/{PROMPT}"), &prompt).await.map(|_| ())
    }

    /// Makes a call with a JSON body; returns the answer.
    ///
    /// # Errors
    /// If it is no success.
    pub(crate) async fn call(&mut self, method: &str, path: &str, body: &Value) -> Result<Value, Error> {
        self.send(method, path, Some(body)).await
    }

    /// Reads an object.
    ///
    /// # Errors
    /// As [`call`](Self::call).
    pub(crate) async fn get(&mut self, path: &str) -> Result<Value, Error> {
        self.send("GET", path, None).await
    }

    async fn send(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, Error> {
        let target = format!("/admin/v1{path}");
        let headers = [("Accept", "application/json"), ("Authorization", self.authorization.as_str())];
        let request = http::request(method, &target, self.port, &headers, body);
        let late = Error::TimedOut { server: "waggle", seconds: CALL.as_secs() };
        let answer = timeout(CALL, self.connection.exchange(&request)).await.map_err(|_| late)??;
        if !(200..300).contains(&answer.status) {
            let (status, body) = (answer.status, excerpt(answer.body));
            return Err(Error::AdminRefused { call: format!("{method} {target}"), status, body });
        }
        Ok(serde_json::from_slice(answer.body).unwrap_or_default())
    }
}

fn body_of(resource: &Resource) -> Value {
    json!({
        "name": resource.name,
        "description": resource.description,
        "mimeType": resource.mime_type,
        "contents": [{ "text": resource.text }],
    })
}
