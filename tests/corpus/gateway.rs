//! The binary under test, with a separate database.

use std::ffi::OsString;
use std::fs::{self, File};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use sqlx::ConnectOptions;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use waggle::model::key::{KeyKind, SecretKey};

use crate::case::Case;
use crate::cluster::database;
use crate::normalize::{Answer, Variables};

/// The timeout of a start.
const START: Duration = Duration::from_secs(60);
const BINARY: &str = "CORPUS_BINARY";

/// Settings that differ from the defaults: no rate limits, which the corpus would exceed, and a public URL that is the
/// same in each run.
const SETTINGS: [(&str, &str); 7] = [
    ("WAGGLE_SERVER__PUBLIC_URL", "http://127.0.0.1:8094"),
    ("WAGGLE_LIMITS__KEY_PER_SECOND", "0"),
    ("WAGGLE_LIMITS__AGENT_PER_SECOND", "0"),
    ("WAGGLE_LIMITS__TENANT_PER_SECOND", "0"),
    ("WAGGLE_LIMITS__ADDRESS_PER_SECOND", "0"),
    ("WAGGLE_MCP__PAGE_SIZE", "10"),
    ("WAGGLE_LIMITS__BODY_BYTES", "65536"),
];

/// A running gateway; killed when dropped.
pub(crate) struct Gateway {
    client: reqwest::Client,
    address: String,
    operator: String,
    _child: Child,
    _folder: TempDir,
}

fn binary() -> OsString {
    std::env::var_os(BINARY).unwrap_or_else(|| env!("CARGO_BIN_EXE_waggle").into())
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

impl Gateway {
    pub(crate) async fn start() -> Self {
        rustls::crypto::ring::default_provider().install_default().ok();
        let folder = tempfile::Builder::new().prefix("waggle-corpus-").tempdir().unwrap();
        let database = database().await.options.to_url_lossy();
        let operator = SecretKey::generate(KeyKind::Operator, &mut rand::rng()).reveal().to_owned();
        let (address, log) = (free_address(), folder.path().join("log"));
        let mut child = Command::new(binary())
            .args(["serve", "--listen", &address, "--data-dir"])
            .arg(folder.path().join("data"))
            .current_dir(folder.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("DATABASE_URL", database.as_str())
            .env("WAGGLE_ADMIN__OPERATOR_KEY", &operator)
            .envs(SETTINGS)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let client = reqwest::Client::builder().no_proxy().redirect(reqwest::redirect::Policy::none());
        let client = client.timeout(START).build().unwrap();
        let began = Instant::now();
        let ready = format!("http://{address}/readyz");
        while !client.get(&ready).send().await.is_ok_and(|answer| answer.status() == 200) {
            let ended = child.try_wait().unwrap();
            let printed = || fs::read_to_string(&log).unwrap_or_default();
            assert!(
                ended.is_none() && began.elapsed() < START,
                "the gateway did not start: {ended:?} {}",
                printed()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Self { client, address, operator, _child: child, _folder: folder }
    }

    pub(crate) fn operator(&self) -> &str {
        &self.operator
    }

    pub(crate) async fn send(&self, case: &Case, variables: &Variables) -> Answer {
        let url = format!("http://{}{}", self.address, variables.insert(&case.path));
        let mut request = self.client.request(case.method.parse().unwrap(), url);
        for (name, value) in &case.headers {
            request = request.header(name, variables.insert(value));
        }
        let body = match std::str::from_utf8(&case.body) {
            Ok(text) => variables.insert(text).into_bytes(),
            Err(_) => case.body.clone(),
        };
        let response = request.body(body).send().await;
        let response = response.unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let headers = response.headers().iter();
        let headers = headers.map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()));
        Answer {
            status: response.status().as_u16(),
            headers: headers.collect(),
            body: String::from_utf8_lossy(&response.bytes().await.unwrap()).into_owned(),
        }
    }
}
