//! Replicas of the built binary on one database, which can be killed and restarted.

use std::ffi::OsString;
use std::fs::File;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use waggle::model::key::{KeyKind, SecretKey};
use waggle::model::system::System;

use crate::http::{Answer, Http};

/// The maximum time until a replica is ready.
const START: Duration = Duration::from_secs(60);
const BINARY: &str = "SOAK_BINARY";

/// All replicas.
#[derive(Debug)]
pub(crate) struct Fleet {
    replicas: Vec<Replica>,
    pub(crate) operator: String,
    pub(crate) http: Http,
    folder: TempDir,
}

#[derive(Debug)]
struct Replica {
    port: u16,
    variables: Vec<(&'static str, String)>,
    child: Mutex<Option<Child>>,
}

/// How a replica connects to its database.
pub(crate) struct Urls {
    pub(crate) database: String,
    pub(crate) listen: String,
}

/// The binary under test: the one built with the tests, or `SOAK_BINARY`, such as a release.
fn binary() -> OsString {
    std::env::var_os(BINARY).unwrap_or_else(|| env!("CARGO_BIN_EXE_waggle").into())
}

/// Whether `SOAK_BINARY` is set.
pub(crate) fn is_release() -> bool {
    std::env::var_os(BINARY).is_some()
}

impl Fleet {
    /// Starts one replica per entry.
    pub(crate) async fn start(urls: Vec<Urls>, settings: &[(&'static str, &str)]) -> Self {
        let operator = SecretKey::generate(KeyKind::Operator, &mut System::real().csprng().unwrap());
        let operator = operator.reveal().to_owned();
        let replica = |Urls { database, listen }| {
            let mut variables = vec![
                ("WAGGLE_DATABASE__URL", database),
                ("WAGGLE_DATABASE__LISTEN_URL", listen),
                ("WAGGLE_ADMIN__OPERATOR_KEY", operator.clone()),
                ("WAGGLE_SERVER__DRAIN_SECONDS", "0".to_owned()),
                ("WAGGLE_LIMITS__KEY_PER_SECOND", "0".to_owned()),
                ("WAGGLE_LIMITS__AGENT_PER_SECOND", "0".to_owned()),
                ("WAGGLE_LIMITS__TENANT_PER_SECOND", "0".to_owned()),
            ];
            variables.extend(settings.iter().map(|(name, value)| (*name, (*value).to_owned())));
            Replica { port: free_port(), variables, child: Mutex::new(None) }
        };
        let replicas = urls.into_iter().map(replica).collect();
        let fleet = Self { replicas, operator, http: Http::new(), folder: tempfile::tempdir().unwrap() };
        for number in 0..fleet.len() {
            fleet.up(number).await;
        }
        fleet
    }

    pub(crate) fn len(&self) -> usize {
        self.replicas.len()
    }

    pub(crate) fn port(&self, number: usize) -> u16 {
        self.replicas[number % self.len()].port
    }

    /// The port of a random replica, running or not.
    pub(crate) fn any(&self) -> u16 {
        self.port(rand::random_range(0..self.len()))
    }

    /// Kills a replica with `SIGKILL` and restarts it.
    pub(crate) async fn kill(&self, number: usize) {
        if let Some(mut child) = self.replicas[number].child.lock().await.take() {
            child.kill().await.unwrap();
        }
        // How long the replica is down.
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.up(number).await;
    }

    /// Starts a replica and waits until it is ready.
    async fn up(&self, number: usize) {
        let replica = &self.replicas[number];
        let mut place = replica.child.lock().await;
        let log = self.folder.path().join(format!("{number}.log"));
        let log = File::options().append(true).create(true).open(log).unwrap();
        let mut command = Command::new(binary());
        command
            .args(["serve", "--listen", &format!("127.0.0.1:{}", replica.port)])
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(replica.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true);
        let mut child = command.spawn().unwrap();
        let began = Instant::now();
        while !self.is_ready(number).await {
            assert!(began.elapsed() < START, "replica {number}: {}", self.log(number));
            tokio::time::sleep(Duration::from_millis(20)).await;
            // Its database failed while it started: its supervisor restarts it.
            if child.try_wait().unwrap().is_some() {
                child = command.spawn().unwrap();
            }
        }
        *place = Some(child);
    }

    pub(crate) async fn is_ready(&self, number: usize) -> bool {
        let answer = self.http.send(self.port(number), "GET", "/readyz", &[], "").await;
        answer.is_some_and(|answer| answer.status == 200)
    }

    /// The process id of a running replica.
    pub(crate) async fn pid(&self, number: usize) -> u32 {
        self.replicas[number].child.lock().await.as_ref().and_then(Child::id).unwrap()
    }

    /// The log of a replica.
    pub(crate) fn log(&self, number: usize) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{number}.log"))).unwrap_or_default()
    }

    /// Sends an administration call to one replica, once; `None` without an answer.
    pub(crate) async fn admin(
        &self,
        port: u16,
        method: &str,
        path: &str,
        more: &[(&str, &str)],
        body: String,
    ) -> Option<Answer> {
        let bearer = format!("Bearer {}", self.operator);
        let mut headers = vec![("authorization", bearer.as_str())];
        headers.extend_from_slice(more);
        self.http.send(port, method, &format!("/admin/v1{path}"), &headers, body).await
    }

    /// Sends an administration call to random replicas until one answers with another status than 503.
    pub(crate) async fn admin_retry(
        &self,
        method: &str,
        path: &str,
        body: Option<serde_json::Value>,
    ) -> Answer {
        let json = [("content-type", "application/json")];
        let more = if body.is_some() { &json[..] } else { &[] };
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let began = Instant::now();
        loop {
            match self.admin(self.any(), method, path, more, body.clone()).await {
                Some(answer) if answer.status < 500 => return answer,
                last => assert!(began.elapsed() < START, "{method} {path}: {last:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// A free port below the range of ephemeral ports, so that it is still free when the replica restarts.
pub(crate) fn free_port() -> u16 {
    loop {
        let port = rand::random_range(15_000..30_000);
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

pub(crate) fn encode(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}
