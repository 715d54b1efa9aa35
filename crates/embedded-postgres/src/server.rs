//! Starts the PostgreSQL server and waits until it answers.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::error::{EmbeddedError, ExitReason, IoContext};
use crate::folder::DataFolder;
use crate::guardian::{GuardedProcess, Guardian, Program};
use crate::installation::Installation;
use crate::options::EmbeddedLimits;
use crate::socket::{PORT, SocketFolder};

/// The delay between two attempts to connect; it grows, since each attempt adds a line to the log of a recovering
/// server.
const FIRST_DELAY: Duration = Duration::from_millis(20);
const MAX_DELAY: Duration = Duration::from_millis(250);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// The delay between two starts while an earlier server is still shutting down.
const PREDECESSOR_DELAY: Duration = Duration::from_millis(100);
/// PostgreSQL's messages while another server, or one of its children, still uses the cluster.
const PREDECESSOR: [&str; 2] =
    ["lock file \"postmaster.pid\" already exists", "pre-existing shared memory block"];

/// Sized for a small machine that also runs the owner. The command line overrides the configuration files.
const SETTINGS: &[&str] = &[
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "shared_buffers=64MB",
    "max_wal_size=512MB",
    "jit=off",
    "logging_collector=off",
    "log_destination=stderr",
    "log_checkpoints=off",
    // Terse: the details quote rows.
    "log_error_verbosity=terse",
    "lc_messages=C",
    "timezone=UTC",
    "log_timezone=UTC",
];
/// For tests: a crash of the machine may lose all data.
const NOT_DURABLE: &[&str] = &["fsync=off", "synchronous_commit=off", "full_page_writes=off"];

/// Starts the server, first and after a crash. Holds the lock of the data directory.
#[derive(Debug)]
pub(super) struct Server {
    // Dropped in this order: the lock last.
    pub(super) socket: SocketFolder,
    /// The database, its role, and the cluster's name in the list of processes.
    pub(super) name: String,
    pub(super) installation: Installation,
    pub(super) guardian: Guardian,
    pub(super) durable: bool,
    pub(super) limits: EmbeddedLimits,
    /// Cancels a start in progress.
    pub(super) stop: CancellationToken,
    pub(super) data: DataFolder,
}

impl Server {
    /// How to connect to `database`.
    pub(super) fn connect_options(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(self.socket.path())
            .port(PORT)
            .username(&self.name)
            .database(database)
            .ssl_mode(PgSslMode::Disable)
    }

    /// Starts the server and returns when it accepts connections. Retries while the server of an earlier process is
    /// still shutting down.
    pub(super) async fn start(&self) -> Result<GuardedProcess, EmbeddedError> {
        let waited = self.limits.predecessor;
        let deadline = Instant::now() + waited;
        loop {
            match self.try_start().await {
                Err(EmbeddedError::StartFailed { output, .. })
                    if is_predecessor(&output) && !self.stop.is_cancelled() => {}
                result => return result,
            }
            let folder = self.data.cluster();
            if Instant::now() >= deadline {
                return Err(EmbeddedError::StillRunning { pid: recorded_pid(&folder), folder, waited });
            }
            sleep(PREDECESSOR_DELAY).await;
        }
    }

    async fn try_start(&self) -> Result<GuardedProcess, EmbeddedError> {
        let log = &self.guardian.log;
        let mark = log.end();
        let path = self.installation.postgres();
        let mut server = self.spawn(&path).context("run", &path)?;
        let reason = match self.wait_ready(&mut server).await {
            StartOutcome::Ready => return Ok(server),
            StartOutcome::Ended(status) => ExitReason::Exited(status.context("wait for", &path)?),
            StartOutcome::Late => {
                server.stop().await;
                ExitReason::TimedOut(self.limits.ready)
            }
            StartOutcome::Stopped => {
                server.stop().await;
                ExitReason::Stopped
            }
        };
        Err(EmbeddedError::StartFailed { reason, log: log.path().to_owned(), output: log.quote(mark) })
    }

    fn spawn(&self, path: &Path) -> io::Result<GuardedProcess> {
        let cluster = self.data.cluster();
        self.guardian.spawn(&Program {
            path,
            arguments: self.arguments(&cluster),
            environment: vec![("PG_GRANDPARENT_PID", known_pid(&cluster).to_string())],
            folder: &cluster,
            socket: Some(self.socket.path()),
        })
    }

    fn arguments(&self, cluster: &Path) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["-D".into(), cluster.into(), "-k".into()];
        arguments.extend([self.socket.path().into(), "-p".into(), PORT.to_string().into()]);
        let durability = if self.durable { &[] } else { NOT_DURABLE };
        let connections = format!("max_connections={}", self.limits.max_connections);
        let name = format!("cluster_name={}", self.name);
        for setting in SETTINGS.iter().chain(durability).copied().chain([connections.as_str(), name.as_str()])
        {
            arguments.extend(["-c".into(), setting.into()]);
        }
        arguments
    }

    async fn wait_ready(&self, server: &mut GuardedProcess) -> StartOutcome {
        tokio::select! {
            status = server.wait() => StartOutcome::Ended(status),
            () = self.stop.cancelled() => StartOutcome::Stopped,
            ready = timeout(self.limits.ready, self.answers()) => ready.map_or(StartOutcome::Late, |()| StartOutcome::Ready),
        }
    }

    /// Returns once the server has answered a query.
    async fn answers(&self) {
        let options = self.connect_options("postgres");
        let mut delay = FIRST_DELAY;
        while !matches!(timeout(CONNECT_TIMEOUT, ask(&options)).await, Ok(Ok(()))) {
            sleep(delay).await;
            delay = (delay + delay / 8).min(MAX_DELAY);
        }
    }

    /// Creates the database if it is missing.
    pub(super) async fn create_database(&self) -> Result<(), EmbeddedError> {
        let create = async {
            let mut connection = self.connect_options("postgres").connect().await?;
            let exists = "select exists (select from pg_database where datname = $1)";
            if !sqlx::query_scalar(exists).bind(&self.name).fetch_one(&mut connection).await? {
                // The name was checked to be a plain identifier.
                let create = AssertSqlSafe(format!("create database \"{}\"", self.name));
                sqlx::query(create).execute(&mut connection).await?;
            }
            connection.close().await
        };
        let late = || Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into()));
        timeout(self.limits.ready, create).await.unwrap_or_else(|_| late())?;
        Ok(())
    }
}

/// The outcome of a start.
enum StartOutcome {
    Ready,
    Ended(io::Result<ExitStatus>),
    Late,
    Stopped,
}

async fn ask(options: &PgConnectOptions) -> sqlx::Result<()> {
    let mut connection = PgConnection::connect_with(options).await?;
    sqlx::query("select 1").execute(&mut connection).await?;
    connection.close().await
}

fn is_predecessor(output: &str) -> bool {
    PREDECESSOR.iter().any(|sign| output.contains(sign))
}

/// The process that the cluster's `postmaster.pid` names.
fn recorded_pid(cluster: &Path) -> Option<u32> {
    let text = fs::read_to_string(cluster.join("postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

/// A process that PostgreSQL must not mistake for an earlier server.
///
/// In a container process ids repeat from run to run: that of a dead server may be the id of a thread of this process,
/// which looks like a live server and would prevent every start. PostgreSQL exempts the process passed to it; it checks
/// independently whether the cluster's shared memory is in use.
fn known_pid(cluster: &Path) -> u32 {
    let is_own = |pid: &u32| PathBuf::from(format!("/proc/self/task/{pid}")).exists();
    recorded_pid(cluster).filter(is_own).unwrap_or_else(std::process::id)
}
