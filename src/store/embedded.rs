//! The private PostgreSQL server of a gateway that is given no database.
//!
//! The data directory holds the cluster (`postgres/`), the server's log (`postgres.log`), a lock against a second
//! gateway (`embedded.lock`) and the name of the folder that the server's socket is in (`embedded.socket`). There
//! is no TCP port; the socket's folder is open to one user alone.
//!
//! The server ends with the gateway, however that ends. Starting blocks the thread for short file operations:
//! nothing is served yet.

mod account;
mod cluster;
mod error;
mod folder;
mod guardian;
mod log;
mod monitor;
mod programs;
mod server;
mod socket;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use account::Account;
use cluster::Creation;
pub use error::{EmbeddedError, Ending};
use folder::DataFolder;
use guardian::{Guarded, Guardian};
use log::Log;
pub use programs::{Programs, Version};
use programs::{Search, WELL_KNOWN};
use server::Server;
use socket::SocketFolder;

/// The cluster's only role, its superuser.
const USER: &str = "waggle";
/// The gateway's database.
const DATABASE: &str = "waggle";

/// Checks that the programs of a supported PostgreSQL are installed, as a start would look for them.
///
/// # Errors
/// As [`Embedded::start`] where they are missing.
pub async fn check_programs(options: &EmbeddedOptions) -> Result<(), EmbeddedError> {
    choose_programs(options).await.map(drop)
}

/// How to run the embedded database.
#[derive(Debug, Clone)]
pub struct EmbeddedOptions {
    /// The gateway's data directory; created where it is missing.
    pub data_dir: PathBuf,
    /// The folder of the programs `postgres` and `initdb`; looked for where it is not given.
    pub bin_dir: Option<PathBuf>,
    /// Whether a commit survives a crash of the machine. `false` is for tests, and faster.
    pub durable: bool,
    /// The value of `PATH`: where programs are looked for last.
    pub path: Option<OsString>,
    /// The value of `XDG_RUNTIME_DIR`: where the socket's folder is made if that user runs the server. Otherwise
    /// in `/tmp`.
    pub runtime_dir: Option<PathBuf>,
    /// Waits and sizes.
    pub limits: EmbeddedLimits,
}

impl EmbeddedOptions {
    /// A durable database in `data_dir`, everything else by default: no `PATH` and no `XDG_RUNTIME_DIR`.
    pub fn new(data_dir: impl Into<PathBuf>) -> Self {
        Self {
            data_dir: data_dir.into(),
            bin_dir: None,
            durable: true,
            path: None,
            runtime_dir: None,
            limits: EmbeddedLimits::default(),
        }
    }
}

/// Waits and sizes of the embedded database.
#[derive(Debug, Clone)]
pub struct EmbeddedLimits {
    /// How long creating the cluster may take.
    pub create: Duration,
    /// How long the server may take until it answers, recovery after a crash included.
    pub ready: Duration,
    /// How long to wait for the server of an earlier run to end.
    pub predecessor: Duration,
    /// How long the server may take to end when asked; twice that and it is killed. In whole seconds, at least 1.
    pub shutdown: Duration,
    /// How many connections the server accepts.
    pub max_connections: u16,
}

impl Default for EmbeddedLimits {
    fn default() -> Self {
        Self {
            create: Duration::from_mins(1),
            ready: Duration::from_mins(1),
            predecessor: Duration::from_secs(15),
            shutdown: Duration::from_secs(8),
            max_connections: 100,
        }
    }
}

/// A running embedded database. When it is dropped the server ends too, but only [`Embedded::stop`] waits for it.
#[derive(Debug)]
pub struct Embedded {
    connect_options: PgConnectOptions,
    monitor: JoinHandle<()>,
    stop: DropGuard,
}

impl Embedded {
    /// Whether a data directory has a cluster.
    ///
    /// # Errors
    /// When that cannot be seen.
    pub fn exists(data_dir: &Path) -> Result<bool, EmbeddedError> {
        Ok(folder::cluster_version(&folder::cluster(data_dir))?.is_some())
    }

    /// Starts the server on the cluster in the data directory, creating what is missing. A server that dies is
    /// started again until [`Embedded::stop`].
    ///
    /// # Errors
    ///
    /// Each [`EmbeddedError`] says what to do about it.
    pub async fn start(options: EmbeddedOptions) -> Result<Self, EmbeddedError> {
        let began = Instant::now();
        let account = Account::fitting()?;
        let programs = choose_programs(&options).await?;
        let server = prepare(options, account, programs).await?;
        let running = first_start(&server).await?;
        tracing::info!(
            after = ?began.elapsed(),
            data_dir = %server.data.path().display(),
            programs = %server.programs.folder.display(),
            "the embedded database runs"
        );
        Ok(Self::watched(server, running))
    }

    /// How to connect: the database `waggle` as the cluster's only role, its superuser `waggle`. Other databases
    /// of the cluster are reached with `.database(…)`. Stays valid when the server is started again.
    pub fn connect_options(&self) -> PgConnectOptions {
        self.connect_options.clone()
    }

    /// Ends the server: open transactions are rolled back, everything committed is written. Returns when it has
    /// ended, at the latest after twice [`EmbeddedLimits::shutdown`] and a few seconds.
    pub async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.monitor.await {
            tracing::warn!(%error, "the embedded database's monitor failed");
        }
    }

    fn watched(server: Server, running: Guarded) -> Self {
        let connect_options = server.connect_options(DATABASE);
        let stop = server.stop.clone().drop_guard();
        Self { connect_options, monitor: tokio::spawn(monitor::watch(server, running)), stop }
    }
}

async fn choose_programs(options: &EmbeddedOptions) -> Result<Programs, EmbeddedError> {
    let search =
        Search { bin_dir: options.bin_dir.as_deref(), places: WELL_KNOWN, path: options.path.as_deref() };
    let cluster = folder::cluster(&options.data_dir);
    let version = folder::cluster_version(&cluster)?;
    programs::choose(search.find().await?, &cluster, version)
}

/// Takes the data directory and puts everything into it that the server needs.
async fn prepare(
    options: EmbeddedOptions,
    account: Account,
    programs: Programs,
) -> Result<Server, EmbeddedError> {
    let data = DataFolder::open(&options.data_dir, &account)?;
    account.reaches(&[data.path(), &programs.postgres(), &programs.initdb()]).await?;
    let log = Log::open(data.log())?;
    let socket = SocketFolder::create(&data, options.runtime_dir.as_deref(), &account)?;
    let grace = options.limits.shutdown.max(Duration::from_secs(1));
    let guardian = Guardian { account, log, path: options.path, grace };
    let EmbeddedOptions { durable, limits, .. } = options;
    let stop = CancellationToken::new();
    let server = Server { socket, programs, guardian, durable, limits, stop, data };
    create_cluster(&server).await?;
    Ok(server)
}

async fn create_cluster(server: &Server) -> Result<(), EmbeddedError> {
    // At each start: an `initdb` that was killed may still have been writing when the last one looked.
    server.data.remove_drafts();
    // Looked at again under the lock.
    if folder::cluster_version(&server.data.cluster())?.is_some() {
        return Ok(());
    }
    let creation = Creation {
        data: &server.data,
        programs: &server.programs,
        guardian: &server.guardian,
        durable: server.durable,
        deadline: server.limits.create,
    };
    creation.run().await
}

async fn first_start(server: &Server) -> Result<Guarded, EmbeddedError> {
    let running = server.start().await?;
    match server.create_database().await {
        Ok(()) => Ok(running),
        Err(error) => {
            running.end().await;
            Err(error)
        }
    }
}
