//! Helpers of the tests: data directories, rows, processes.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use embedded_postgres::{Embedded, EmbeddedError, EmbeddedOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sqlx::postgres::PgConnection;
use sqlx::{ConnectOptions, Connection};
use tempfile::TempDir;

/// The timeout of any single step of a test, on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_mins(1);

/// A data directory below a directory that every user may enter.
pub(crate) struct Site {
    pub(crate) root: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { root }
    }

    pub(crate) fn data_dir(&self) -> PathBuf {
        self.root.path().join("data")
    }

    pub(crate) fn options(&self) -> EmbeddedOptions {
        options(&self.data_dir())
    }

    pub(crate) async fn start(&self) -> Embedded {
        Embedded::start(self.options()).await.unwrap()
    }

    /// The error of a start that must fail.
    pub(crate) async fn refusal(&self, options: EmbeddedOptions) -> EmbeddedError {
        Embedded::start(options).await.unwrap_err()
    }

    pub(crate) fn postmaster(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.data_dir().join("postgres/postmaster.pid")).ok()?;
        text.lines().next()?.trim().parse().ok().map(Pid::from_raw)
    }

    /// The shutdown requests in the server's log: `smart`, `fast` or `immediate`.
    pub(crate) fn shutdowns(&self) -> Vec<String> {
        let log = fs::read_to_string(self.data_dir().join("postgres.log")).unwrap();
        let mode =
            |line: &str| Some(line.split_once("received ")?.1.split_once(" shutdown request")?.0.to_owned());
        log.lines().filter_map(mode).collect()
    }

    pub(crate) fn socket_folder(&self) -> Option<PathBuf> {
        fs::read_to_string(self.data_dir().join("embedded.socket")).ok().map(PathBuf::from)
    }
}

/// Options of a database that need not survive a crash of the machine.
pub(crate) fn options(data_dir: &Path) -> EmbeddedOptions {
    EmbeddedOptions { durable: false, ..durable(data_dir) }
}

/// Options of a durable database.
pub(crate) fn durable(data_dir: &Path) -> EmbeddedOptions {
    EmbeddedOptions { path: std::env::var_os("PATH"), ..EmbeddedOptions::new("test", data_dir) }
}

pub(crate) async fn connect(embedded: &Embedded) -> PgConnection {
    embedded.connect_options().connect().await.unwrap()
}

pub(crate) async fn create_table(connection: &mut PgConnection) {
    sqlx::query("create table if not exists rows (number bigint primary key)")
        .execute(connection)
        .await
        .unwrap();
}

pub(crate) async fn insert(connection: &mut PgConnection, number: i64) {
    sqlx::query("insert into rows (number) values ($1)").bind(number).execute(connection).await.unwrap();
}

pub(crate) async fn rows(embedded: &Embedded) -> Vec<i64> {
    let mut connection = connect(embedded).await;
    let all = sqlx::query_scalar("select number from rows order by number");
    let rows = all.fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    rows
}

pub(crate) async fn setting(embedded: &Embedded, name: &str) -> String {
    let mut connection = connect(embedded).await;
    sqlx::query_scalar("select current_setting($1)").bind(name).fetch_one(&mut connection).await.unwrap()
}

/// Waits until `condition` holds.
pub(crate) async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let began = Instant::now();
    while !condition().await {
        assert!(began.elapsed() < STEP_TIMEOUT, "timed out: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub(crate) fn kill_hard(pid: Pid) {
    kill(pid, Signal::SIGKILL).unwrap();
}

/// Whether the process exists and is not a zombie.
pub(crate) fn is_alive(pid: Pid) -> bool {
    let output =
        std::process::Command::new("ps").args(["-o", "stat=", "-p", &pid.to_string()]).output().unwrap();
    let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

pub(crate) fn parent(pid: Pid) -> Pid {
    printed_pids("ps", &["-o", "ppid=", "-p", &pid.to_string()])[0]
}

pub(crate) fn children(pid: Pid) -> Vec<Pid> {
    printed_pids("pgrep", &["-P", &pid.to_string()])
}

fn printed_pids(program: &str, arguments: &[&str]) -> Vec<Pid> {
    let output = std::process::Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(|pid| Pid::from_raw(pid.parse().unwrap())).collect()
}
