//! The process that runs the shared cluster, and the files by which test processes find it.
//!
//! The folder `postgres` of the target directory contains:
//!
//! - `lock`: locked by a process while it starts, joins or ends the cluster;
//! - `keeper`: locked by the keeper until it ends;
//! - `url`: how to connect to the cluster, while it runs;
//! - `data`: the path of its data directory, which is in memory if there is enough, else in the system's folder for
//!   temporary files: where the server's user can reach it;
//! - `leases/<prefix>`: a file for each process that uses the cluster, locked until that process ends.
//!
//! The operating system releases a file lock when its process ends, for any reason. The keeper then drops the databases
//! that the process left, whose names begin with the prefix, and ends the cluster once there has been no lease for
//! [`IDLE`], or at `SIGTERM`. If the keeper is killed, its server ends with it; its data directory is removed at the next
//! start.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use embedded_postgres::{Embedded, EmbeddedOptions};
use nix::sys::statvfs::{Statvfs, statvfs};
use nix::unistd::{AccessFlags, access};
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions, Connection};
use tokio::signal::unix::{SignalKind, signal};

use super::drop_database;

/// How long the cluster runs without a test process.
const IDLE: Duration = Duration::from_mins(3);
/// The interval at which the keeper checks the leases.
const POLL: Duration = Duration::from_secs(1);
/// The pause between two checks of a starting cluster.
const PAUSE: Duration = Duration::from_millis(20);
/// The timeout of a start.
const START: Duration = Duration::from_secs(90);
/// A file system in memory. Each test has a database, which is 300 files for a few seconds: on a disk, a tenth of the CPU
/// of all tests finds inodes for them.
const MEMORY: &str = "/dev/shm";
/// How many bytes must be free there. 174 MB were in use in the middle of a run; the server keeps up to 1 GB of its log.
const MEMORY_FREE: u64 = 4 << 30;
/// Set in the environment of the keeper's process.
const KEEPER: &str = "WAGGLE_TEST_CLUSTER";

/// The right of a process to use the cluster, until the process ends.
pub(super) struct Lease {
    _file: File,
}

impl Lease {
    /// Joins the cluster, starting it if necessary; returns how to connect.
    pub(super) async fn acquire(prefix: &str) -> (PgConnectOptions, Self) {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("postgres");
        fs::create_dir_all(folder.join("leases")).unwrap();
        let lock = open(&folder.join("lock"));
        lock.lock().unwrap();
        let file = open(&folder.join("leases").join(prefix));
        file.try_lock().unwrap();
        (join(&folder).await, Self { _file: file })
    }
}

fn open(path: &Path) -> File {
    File::options().create(true).append(true).open(path).unwrap()
}

fn is_locked(path: &Path) -> bool {
    File::open(path).is_ok_and(|file| file.try_lock().is_err())
}

/// How to connect to the cluster. Starts a keeper if none runs, and waits for its cluster.
async fn join(folder: &Path) -> PgConnectOptions {
    let (began, mut started) = (Instant::now(), None::<Child>);
    loop {
        if let Some(options) = running(folder).await {
            return options;
        }
        let log = || fs::read_to_string(folder.join("log")).unwrap_or_default();
        assert!(began.elapsed() < START, "no cluster: {}", log());
        match &mut started {
            Some(keeper) => assert!(keeper.try_wait().unwrap().is_none(), "no cluster: {}", log()),
            None if is_locked(&folder.join("keeper")) => {}
            None => started = Some(start(folder)),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

async fn running(folder: &Path) -> Option<PgConnectOptions> {
    let options: PgConnectOptions = fs::read_to_string(folder.join("url")).ok()?.parse().unwrap();
    let connection = options.connect().await.ok()?;
    connection.close().await.unwrap();
    Some(options)
}

/// Starts a keeper: this program in a process group of its own, which outlives the caller.
fn start(folder: &Path) -> Child {
    let _ = fs::remove_file(folder.join("url"));
    let log = File::create(folder.join("log")).unwrap();
    let (_, module) = module_path!().split_once("::").unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &format!("{module}::keeper_process"), "--nocapture"])
        .env(KEEPER, folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .process_group(0)
        .spawn()
        .unwrap()
}

/// Runs the keeper if this process was started as one; otherwise does nothing.
#[tokio::test]
async fn keeper_process() {
    let Some(folder) = std::env::var_os(KEEPER).map(PathBuf::from) else { return };
    let keeper = open(&folder.join("keeper"));
    keeper.try_lock().unwrap();
    if let Ok(former) = fs::read_to_string(folder.join("data")) {
        let _ = fs::remove_dir_all(former);
    }
    let data = tempfile::Builder::new().prefix("waggle-tests-").tempdir_in(parent()).unwrap();
    fs::set_permissions(data.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.join("data"), data.path().as_os_str().as_encoded_bytes()).unwrap();
    let mut options = EmbeddedOptions::new("waggle", data.path().join("data"));
    (options.durable, options.path) = (false, std::env::var_os("PATH"));
    options.limits.max_connections = 600;
    let embedded = Embedded::start(options).await.unwrap();
    let options = embedded.connect_options();
    let draft = folder.join("url.draft");
    fs::write(&draft, options.to_url_lossy().as_str()).unwrap();
    fs::rename(draft, folder.join("url")).unwrap();
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let lock = tokio::select! {
        lock = keep(&folder, &options) => lock,
        _ = terminated.recv() => None,
    };
    let _ = fs::remove_file(folder.join("url"));
    embedded.stop().await;
    drop((data, keeper, lock));
}

/// Where the data directory is made.
fn parent() -> PathBuf {
    let is_free = |disk: Statvfs| disk.blocks_available() * disk.fragment_size() >= MEMORY_FREE;
    let in_memory = statvfs(MEMORY).is_ok_and(is_free) && access(MEMORY, AccessFlags::W_OK).is_ok();
    if in_memory { MEMORY.into() } else { std::env::temp_dir() }
}

/// Waits until no process has used the cluster for [`IDLE`], or the folder is gone; returns with the lock that prevents
/// others from joining.
async fn keep(folder: &Path, options: &PgConnectOptions) -> Option<File> {
    let mut used = Instant::now();
    loop {
        tokio::time::sleep(POLL).await;
        let lock = File::open(folder.join("lock")).ok()?;
        // A process that holds the lock is about to take a lease.
        if lock.try_lock().is_err() {
            used = Instant::now();
            continue;
        }
        for lease in fs::read_dir(folder.join("leases")).ok()? {
            let lease = lease.unwrap();
            if is_locked(&lease.path()) {
                used = Instant::now();
            } else {
                drop_databases(options, lease.file_name().to_str().unwrap()).await;
                let _ = fs::remove_file(lease.path());
            }
        }
        if used.elapsed() >= IDLE {
            return Some(lock);
        }
    }
}

async fn drop_databases(options: &PgConnectOptions, prefix: &str) {
    let mut connection = options.connect().await.unwrap();
    let named = sqlx::query_scalar("select datname from pg_database where starts_with(datname, $1)");
    let names: Vec<String> = named.bind(prefix).fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    for name in names {
        drop_database(options, &name).await;
    }
}
