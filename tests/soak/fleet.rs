//! Replicas of the real binary on one database, that can be killed and started again.

use std::ffi::OsString;
use std::fs::File;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::sync::Mutex;
use waggle::model::key::{KeyKind, SecretKey};
use waggle::model::sources::Sources;

use crate::http::{Answer, Http};

/// The longest that a replica may take to be ready.
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

/// Where a replica finds its database.
pub(crate) struct Urls {
    pub(crate) database: String,
    pub(crate) listen: String,
}

/// The gateway as it was built for the tests, or the one that `SOAK_BINARY` names: a release, to see how it fares.
fn binary() -> OsString {
    std::env::var_os(BINARY).unwrap_or_else(|| env!("CARGO_BIN_EXE_waggle").into())
}

/// Whether a release was named.
pub(crate) fn is_release() -> bool {
    std::env::var_os(BINARY).is_some()
}

impl Fleet {
    /// Starts a replica for each of these.
    pub(crate) async fn start(urls: Vec<Urls>, settings: &[(&'static str, &str)]) -> Self {
        let operator = SecretKey::generate(KeyKind::Operator, &mut Sources::system().csprng().unwrap());
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

    /// The port of any of them, whether it is up or not.
    pub(crate) fn any(&self) -> u16 {
        self.port(rand::random_range(0..self.len()))
    }

    /// Ends a replica as a power cut would, and starts it again.
    pub(crate) async fn kill(&self, number: usize) {
        if let Some(mut child) = self.replicas[number].child.lock().await.take() {
            child.kill().await.unwrap();
        }
        // For how long the replica is away.
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
            // Its database was taken from it while it started: whoever runs it starts it again.
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

    /// The process of a replica that runs.
    pub(crate) async fn pid(&self, number: usize) -> u32 {
        self.replicas[number].child.lock().await.as_ref().and_then(Child::id).unwrap()
    }

    /// What a replica logged.
    pub(crate) fn log(&self, number: usize) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{number}.log"))).unwrap_or_default()
    }

    /// Asks the admin surface of one replica, once; `None` where nobody answers.
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

    /// Asks replicas until one of them answers with something else than that it cannot.
    pub(crate) async fn ask(&self, method: &str, path: &str, body: Option<serde_json::Value>) -> Answer {
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

/// A port below those that connections are given, so that none of them is in the way when a replica starts again.
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
