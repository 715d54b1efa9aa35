//! Starts the PostgreSQL server and waits until it answers.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{ConnectOptions, Connection};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::error::{Doing, EmbeddedError, Ending};
use super::folder::DataFolder;
use super::guardian::{Guarded, Guardian, Program};
use super::programs::Programs;
use super::socket::{PORT, SocketFolder};
use super::{DATABASE, EmbeddedLimits, USER};

/// The pause between two tries to connect; it grows, because each try is a line in the log of a server that
/// is recovering.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
const CONNECT_DEADLINE: Duration = Duration::from_secs(2);
/// The pause between two starts while an earlier server is still ending.
const PREDECESSOR_PAUSE: Duration = Duration::from_millis(100);
/// What PostgreSQL says while another server, or one of its children, still holds the cluster.
const PREDECESSOR: [&str; 2] =
    ["lock file \"postmaster.pid\" already exists", "pre-existing shared memory block"];

/// For a small machine that also runs the gateway. The command line outranks the configuration files.
const SETTINGS: &[&str] = &[
    "listen_addresses=",
    "unix_socket_permissions=0700",
    "shared_buffers=64MB",
    "max_wal_size=512MB",
    "jit=off",
    "cluster_name=waggle",
    "logging_collector=off",
    "log_destination=stderr",
    "log_checkpoints=off",
    // Without the details, which quote rows.
    "log_error_verbosity=terse",
    "lc_messages=C",
    "timezone=UTC",
    "log_timezone=UTC",
];
/// For tests: a crash of the machine may lose everything.
const NOT_DURABLE: &[&str] = &["fsync=off", "synchronous_commit=off", "full_page_writes=off"];

/// Everything that starting the server takes, first and after a crash. Holds the data directory's lock.
#[derive(Debug)]
pub(super) struct Server {
    // Dropped in this order: the lock goes last.
    pub(super) socket: SocketFolder,
    pub(super) programs: Programs,
    pub(super) guardian: Guardian,
    pub(super) durable: bool,
    pub(super) limits: EmbeddedLimits,
    /// Ends a start that is under way.
    pub(super) stop: CancellationToken,
    pub(super) data: DataFolder,
}

impl Server {
    /// How to connect to `database`.
    pub(super) fn connect_options(&self, database: &str) -> PgConnectOptions {
        PgConnectOptions::new_without_pgpass()
            .socket(self.socket.path())
            .port(PORT)
            .username(USER)
            .database(database)
            .ssl_mode(PgSslMode::Disable)
    }

    /// Starts the server and returns when it answers. Where that of an earlier run is still ending, tries again
    /// for a while.
    pub(super) async fn start(&self) -> Result<Guarded, EmbeddedError> {
        let waited = self.limits.predecessor;
        let patience = Instant::now() + waited;
        loop {
            match self.try_start().await {
                Err(EmbeddedError::StartFailed { output, .. })
                    if is_predecessor(&output) && !self.stop.is_cancelled() => {}
                result => return result,
            }
            let folder = self.data.cluster();
            if Instant::now() >= patience {
                return Err(EmbeddedError::StillRunning { pid: recorded_pid(&folder), folder, waited });
            }
            sleep(PREDECESSOR_PAUSE).await;
        }
    }

    async fn try_start(&self) -> Result<Guarded, EmbeddedError> {
        let log = &self.guardian.log;
        let mark = log.end();
        let path = self.programs.postgres();
        let mut server = self.spawn(&path).doing("run", &path)?;
        let how = match self.wait_ready(&mut server).await {
            Started::Ready => return Ok(server),
            Started::Ended(status) => Ending::Exited(status.doing("wait for", &path)?),
            Started::Late => {
                server.end().await;
                Ending::TimedOut(self.limits.ready)
            }
            Started::Stopped => {
                server.end().await;
                Ending::Stopped
            }
        };
        Err(EmbeddedError::StartFailed { how, log: log.path().to_owned(), output: log.quote(mark) })
    }

    fn spawn(&self, path: &Path) -> io::Result<Guarded> {
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
        for setting in SETTINGS.iter().chain(durability).copied().chain([connections.as_str()]) {
            arguments.extend(["-c".into(), setting.into()]);
        }
        arguments
    }

    async fn wait_ready(&self, server: &mut Guarded) -> Started {
        tokio::select! {
            status = server.wait() => Started::Ended(status),
            () = self.stop.cancelled() => Started::Stopped,
            ready = timeout(self.limits.ready, self.answers()) => ready.map_or(Started::Late, |()| Started::Ready),
        }
    }

    /// Returns when the server has answered a query.
    async fn answers(&self) {
        let options = self.connect_options("postgres");
        let mut pause = FIRST_PAUSE;
        while !matches!(timeout(CONNECT_DEADLINE, ask(&options)).await, Ok(Ok(()))) {
            sleep(pause).await;
            pause = (pause + pause / 8).min(LONGEST_PAUSE);
        }
    }

    /// Creates the gateway's database where it is missing.
    pub(super) async fn create_database(&self) -> Result<(), EmbeddedError> {
        let create = async {
            let mut connection = self.connect_options("postgres").connect().await?;
            let exists = "select exists (select from pg_database where datname = $1)";
            if !sqlx::query_scalar(exists).bind(DATABASE).fetch_one(&mut connection).await? {
                sqlx::query("create database waggle").execute(&mut connection).await?;
            }
            connection.close().await
        };
        let late = || Err(sqlx::Error::Io(io::ErrorKind::TimedOut.into()));
        timeout(self.limits.ready, create).await.unwrap_or_else(|_| late())?;
        Ok(())
    }
}

/// What became of a start.
enum Started {
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

/// A process that PostgreSQL shall not take for an earlier server.
///
/// In a container numbers repeat from run to run: the dead server's may be that of a thread of this gateway,
/// which looks like a live process and would keep the server from ever starting. PostgreSQL exempts the one
/// process named to it; whether the cluster's shared memory is still in use it checks apart from that.
fn known_pid(cluster: &Path) -> u32 {
    let is_own = |pid: &u32| PathBuf::from(format!("/proc/self/task/{pid}")).exists();
    recorded_pid(cluster).filter(is_own).unwrap_or_else(std::process::id)
}
