//! The gateway as a process, on the embedded database unless a test says otherwise.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::StatusCode;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::cluster::Database;
use super::folder::TestFolder;
use super::http::{Answer, Client};
use super::wait::{DEADLINE, eventually};

/// The data directory, address, settings and output of the gateways that a test runs one after another.
pub(crate) struct Site {
    pub(crate) folder: TestFolder,
    pub(crate) address: SocketAddr,
    pub(crate) http: Client,
    variables: Vec<(String, String)>,
}

/// A running gateway process; killed when dropped.
pub(crate) struct Gateway {
    child: Child,
    /// The time from its start until it was ready.
    pub(crate) start: Duration,
}

impl Site {
    pub(crate) fn new() -> Self {
        let address = free_address();
        Self { folder: TestFolder::new(), address, http: Client::new(address), variables: Vec::new() }
    }

    /// A site without rate limits.
    pub(crate) fn unlimited() -> Self {
        let rates = ["KEY", "AGENT", "TENANT", "ADDRESS"];
        rates
            .into_iter()
            .fold(Self::new(), |site, of| site.set(&format!("WAGGLE_LIMITS__{of}_PER_SECOND"), 0))
    }

    pub(crate) fn set(mut self, name: &str, value: impl ToString) -> Self {
        self.variables.push((name.to_owned(), value.to_string()));
        self
    }

    /// The binary with a subcommand and the flags of a gateway, in an environment with nothing but the settings.
    pub(crate) fn command(&self, subcommand: &str) -> Command {
        let mut command = self.client(subcommand);
        command.args(["--listen", &self.address.to_string(), "--data-dir"]).arg(self.folder.data_dir());
        command
    }

    /// The binary with a subcommand, in an environment with nothing but the settings.
    pub(crate) fn client(&self, subcommand: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_waggle"));
        command
            .arg(subcommand)
            .current_dir(&self.folder.root)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("WAGGLE_SERVER__DRAIN_SECONDS", "0")
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    /// Starts `waggle serve` and waits until it is ready.
    pub(crate) async fn serve(&self) -> Gateway {
        self.start("serve").await
    }

    /// Starts a subcommand that serves and waits until it is ready; its output is appended to files.
    pub(crate) async fn start(&self, subcommand: &str) -> Gateway {
        self.start_with(subcommand, &[]).await
    }

    /// As [`start`](Self::start), with further arguments.
    pub(crate) async fn start_with(&self, subcommand: &str, arguments: &[&str]) -> Gateway {
        let mut command = self.command(subcommand);
        command.args(arguments);
        let add_to = |name| File::options().append(true).create(true).open(self.printed_in(name)).unwrap();
        let began = Instant::now();
        let mut child = command.stdout(add_to("stdout")).stderr(add_to("stderr")).spawn().unwrap();
        while !self.is_ready().await {
            let ended = child.try_wait().unwrap();
            assert!(ended.is_none() && began.elapsed() < DEADLINE, "{ended:?}: {}", self.printed("stderr"));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Gateway { child, start: began.elapsed() }
    }

    pub(crate) async fn is_ready(&self) -> bool {
        let answer = self.http.try_send("GET", "/readyz", &[], "").await;
        answer.is_ok_and(|answer| answer.status == StatusCode::OK)
    }

    fn printed_in(&self, name: &str) -> PathBuf {
        self.folder.root.path().join(name)
    }

    /// What the gateways printed to `stdout` or `stderr`.
    pub(crate) fn printed(&self, name: &str) -> String {
        fs::read_to_string(self.printed_in(name)).unwrap()
    }

    pub(crate) fn operator_file(&self) -> PathBuf {
        self.folder.data_dir().join("operator.key")
    }

    pub(crate) fn operator(&self) -> String {
        fs::read_to_string(self.operator_file()).unwrap().trim().to_owned()
    }

    /// Calls the administration API as the operator.
    pub(crate) async fn admin(&self, method: &str, path: &str, body: Option<Value>) -> Answer {
        self.http.admin(&self.operator(), method, path, body).await
    }

    /// Creates a tenant with agents; returns an owner key.
    pub(crate) async fn tenant(&self, tenant: &str, agents: impl IntoIterator<Item = String>) -> String {
        let make = async |path: &str, body: Value| {
            let made = self.admin("POST", path, Some(body)).await;
            assert_eq!(made.status, StatusCode::CREATED, "{}", made.text());
            made.json()
        };
        make("/tenants", json!({"id": tenant})).await;
        for agent in agents {
            make("/agents", json!({"id": agent, "tenant": tenant})).await;
        }
        let key = make(&format!("/tenants/{tenant}/keys"), json!({})).await;
        key["key"].as_str().unwrap().to_owned()
    }
}

impl Gateway {
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap())
    }

    /// Kills the process.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }

    pub(crate) fn terminate(&self) {
        kill(self.pid(), Signal::SIGTERM).unwrap();
    }

    /// Waits until the process has exited.
    pub(crate) async fn ended(mut self) -> ExitStatus {
        tokio::time::timeout(DEADLINE, self.child.wait()).await.unwrap().unwrap()
    }

    /// Sends `SIGTERM` and waits until the process has exited.
    pub(crate) async fn stop(self) -> ExitStatus {
        self.terminate();
        self.ended().await
    }
}

/// Waits until the site's gateway is ready again.
pub(crate) async fn ready_again(site: &Site) {
    eventually("the gateway is ready again", async || site.is_ready().await).await;
}

/// A loopback address without a listener.
pub(crate) fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// The index of the replica that holds the lease of the only connection.
pub(crate) async fn lease_holder(database: &Database, sites: &[Arc<Site>]) -> Option<usize> {
    let mut connection = database.connect().await;
    let holder: Option<Option<String>> =
        sqlx::query_scalar("select holder::text from leases where expires_at > now()")
            .fetch_optional(&mut connection)
            .await
            .unwrap();
    let holder = holder.flatten()?;
    sites.iter().position(|site| site.printed("stderr").contains(&holder))
}
