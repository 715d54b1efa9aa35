//! A running embedded database: started, connected to, stopped.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use sqlx::postgres::PgConnectOptions;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::account::Account;
use crate::cluster::Creation;
use crate::error::EmbeddedError;
use crate::folder::{self, DataFolder};
use crate::guardian::{GuardedProcess, Guardian};
use crate::installation::Installation;
use crate::log::Log;
use crate::monitor;
use crate::options::EmbeddedOptions;
use crate::search::{Search, WELL_KNOWN, choose};
use crate::server::Server;
use crate::socket::SocketFolder;
use crate::tools::Tools;

/// Checks that a supported PostgreSQL is installed where a start searches for it.
///
/// # Errors Those of [`Embedded::start`] for missing programs.
pub async fn check_programs(options: &EmbeddedOptions) -> Result<(), EmbeddedError> {
    find_installation(options).await.map(drop)
}

/// A running embedded database. Dropping it stops the server as well, but only [`Embedded::stop`] waits for that.
#[derive(Debug)]
pub struct Embedded {
    connect_options: PgConnectOptions,
    tools: Tools,
    monitor: JoinHandle<()>,
    stop: DropGuard,
}

impl Embedded {
    /// Whether a data directory holds a cluster.
    ///
    /// # Errors If the directory cannot be read.
    pub fn exists(data_dir: &Path) -> Result<bool, EmbeddedError> {
        Ok(folder::cluster_version(&folder::cluster(data_dir))?.is_some())
    }

    /// Starts the server on the cluster in the data directory, creating what is missing. A server that exits is restarted
    /// until [`Embedded::stop`].
    ///
    /// # Errors See [`EmbeddedError`]; each message says what to do.
    pub async fn start(options: EmbeddedOptions) -> Result<Self, EmbeddedError> {
        let began = Instant::now();
        options.check_name()?;
        let account = Account::select()?;
        let installation = find_installation(&options).await?;
        let server = prepare(options, account, installation).await?;
        let running = first_start(&server).await?;
        tracing::info!(
            elapsed_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            data_dir = %server.data.path().display(),
            programs = %server.installation.folder.display(),
            "embedded database started"
        );
        let connect_options = server.connect_options(&server.name);
        let tools = Tools {
            account: server.guardian.account.clone(),
            programs: server.installation.folder.clone(),
            socket: server.socket.path().to_owned(),
            name: server.name.clone(),
        };
        let stop = server.stop.clone().drop_guard();
        Ok(Self { connect_options, tools, monitor: tokio::spawn(monitor::supervise(server, running)), stop })
    }

    /// How to connect to the database as the cluster's only role, a superuser; both are named
    /// [`EmbeddedOptions::name`]. Other databases of the cluster are reached with `.database(…)`. Stays valid when the
    /// server is restarted.
    pub fn connect_options(&self) -> PgConnectOptions {
        self.connect_options.clone()
    }

    /// Writes a dump of the database, in the custom format of `pg_dump`: one snapshot, while others read and write. A
    /// server that another process runs is asked; else one is started for it.
    ///
    /// # Errors If there is no cluster, or `pg_dump` is missing or fails; besides, those of [`Embedded::start`].
    pub async fn dump(options: EmbeddedOptions, to: File) -> Result<(), EmbeddedError> {
        if !Self::exists(&options.data_dir)? {
            return Err(EmbeddedError::NoCluster(options.data_dir));
        }
        match Self::start(options.clone()).await {
            Ok(started) => {
                let dumped = started.tools.dump(to).await;
                started.stop().await;
                dumped
            }
            Err(in_use @ EmbeddedError::InUse { .. }) => {
                let Some(socket) = SocketFolder::recorded(&options.data_dir) else { return Err(in_use) };
                let programs = find_installation(&options).await?.folder;
                let account = Account::select()?;
                Tools { account, programs, socket, name: options.name }.dump(to).await
            }
            Err(error) => Err(error),
        }
    }

    /// Fills the empty database with a dump, all or nothing.
    ///
    /// # Errors If `pg_restore` is missing or fails.
    pub async fn restore(&self, from: File) -> Result<(), EmbeddedError> {
        self.tools.restore(from).await
    }

    /// Stops the server: open transactions are rolled back, committed ones are on disk. Returns when the server has
    /// exited, at the latest after twice [`EmbeddedLimits::shutdown`](crate::EmbeddedLimits::shutdown) and a few seconds.
    pub async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.monitor.await {
            tracing::warn!(%error, "embedded database monitor failed");
        }
    }
}

async fn find_installation(options: &EmbeddedOptions) -> Result<Installation, EmbeddedError> {
    let search =
        Search { bin_dir: options.bin_dir.as_deref(), patterns: WELL_KNOWN, path: options.path.as_deref() };
    let cluster = folder::cluster(&options.data_dir);
    let version = folder::cluster_version(&cluster)?;
    choose(search.find().await?, &cluster, version)
}

/// Locks the data directory and creates everything in it that the server needs.
async fn prepare(
    options: EmbeddedOptions,
    account: Account,
    installation: Installation,
) -> Result<Server, EmbeddedError> {
    let data = DataFolder::open(&options.data_dir, &account)?;
    account.reaches(&[data.path(), &installation.postgres(), &installation.initdb()]).await?;
    let log = Log::open(data.log())?;
    let socket = SocketFolder::create(&options.name, &data, options.runtime_dir.as_deref(), &account)?;
    let grace = options.limits.shutdown.max(Duration::from_secs(1));
    let guardian = Guardian { account, log, path: options.path, grace };
    let EmbeddedOptions { name, durable, limits, .. } = options;
    let stop = CancellationToken::new();
    let server = Server { socket, name, installation, guardian, durable, limits, stop, data };
    create_cluster(&server).await?;
    Ok(server)
}

async fn create_cluster(server: &Server) -> Result<(), EmbeddedError> {
    // At each start: the `initdb` of an earlier one may still have been writing when that failed.
    server.data.remove_drafts();
    // Checked again under the lock.
    if folder::cluster_version(&server.data.cluster())?.is_some() {
        return Ok(());
    }
    let creation = Creation {
        name: &server.name,
        data: &server.data,
        installation: &server.installation,
        guardian: &server.guardian,
        durable: server.durable,
        deadline: server.limits.create,
    };
    creation.run().await
}

async fn first_start(server: &Server) -> Result<GuardedProcess, EmbeddedError> {
    let running = server.start().await?;
    match server.create_database().await {
        Ok(()) => Ok(running),
        Err(error) => {
            running.stop().await;
            Err(error)
        }
    }
}
