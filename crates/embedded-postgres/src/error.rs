//! Errors of an embedded database, each with what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use crate::installation::{Installation, Version};

/// Why an embedded database could not be started. The messages address the user of the program.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// The name is not a plain identifier.
    #[error("{0:?} cannot name an embedded database: expected at most 24 of a-z, 0-9 and _, a letter first")]
    InvalidName(String),

    /// PostgreSQL is not installed in any directory that is searched.
    #[error(
        "no PostgreSQL programs were found; install PostgreSQL 14 or newer:\n\
         \n  Debian, Ubuntu:  apt install postgresql\
         \n  Fedora:          dnf install postgresql-server\
         \n  Alpine:          apk add postgresql\
         \n  macOS:           brew install postgresql@17"
    )]
    NotInstalled,

    /// The given directory does not contain PostgreSQL's programs.
    #[error("{} contains no working PostgreSQL programs `postgres` and `initdb`", .0.display())]
    NotABinDir(PathBuf),

    /// Only releases older than the oldest supported one are installed.
    #[error("{} is too old: expected PostgreSQL 14 or newer", list(.0))]
    TooOld(Vec<Installation>),

    /// The cluster was created by another major version than those installed.
    #[error(
        "the database in {} was created by PostgreSQL {cluster}, and only {} was found; install PostgreSQL {cluster}, \
         or convert the database with pg_upgrade",
        folder.display(),
        list(found)
    )]
    VersionMismatch {
        /// The directory of the cluster.
        folder: PathBuf,
        /// The cluster's major version, from its `PG_VERSION`.
        cluster: String,
        /// The installations that were found.
        found: Vec<Installation>,
    },

    /// Another process holds the lock of the data directory.
    #[error("the data directory {} is in use by another process{}", data_dir.display(), process(*.pid))]
    InUse {
        /// The data directory.
        data_dir: PathBuf,
        /// The other process, if it could be read.
        pid: Option<u32>,
    },

    /// The owner runs as root, and the user to run PostgreSQL as does not exist.
    #[error(
        "PostgreSQL refuses to run as root, and the user `{0}` to run it as does not exist; create it \
         (Debian, Fedora: useradd --system {0}; Alpine: adduser -S {0}), or start as another user than root"
    )]
    NoUser(String),

    /// PostgreSQL's user has no access to a directory.
    #[error(
        "PostgreSQL runs as the user `{user}`, which has no search permission on {}; grant it with `chmod o+x {}`, \
         or choose another path than {}",
        at.display(),
        at.display(),
        wanted.display()
    )]
    Unreachable {
        /// The user that PostgreSQL runs as.
        user: String,
        /// The directory that denies access.
        at: PathBuf,
        /// The path to be reached.
        wanted: PathBuf,
    },

    /// The directory of the cluster contains other files.
    #[error(
        "{} is not empty and contains no PostgreSQL cluster (no PG_VERSION file); move it away, or choose another data \
         directory",
        .0.display()
    )]
    NotACluster(PathBuf),

    /// `initdb` failed or timed out.
    #[error("creating the database cluster failed ({reason}). The last lines of {}:\n{output}", log.display())]
    CreateFailed {
        /// How `initdb` ended.
        reason: ExitReason,
        /// The server's log file.
        log: PathBuf,
        /// Its last lines.
        output: String,
    },

    /// The server exited, or did not accept connections in time.
    #[error("PostgreSQL did not start ({reason}). The last lines of {}:\n{output}", log.display())]
    StartFailed {
        /// How the server ended.
        reason: ExitReason,
        /// The server's log file.
        log: PathBuf,
        /// Its last lines.
        output: String,
    },

    /// The server of an earlier process does not exit.
    #[error(
        "a PostgreSQL server of an earlier run{} still uses {} after {} s; stop it with `kill -INT` and start again",
        process(*.pid),
        folder.display(),
        waited.as_secs()
    )]
    StillRunning {
        /// The directory of the cluster.
        folder: PathBuf,
        /// The process in its `postmaster.pid`.
        pid: Option<u32>,
        /// How long it was waited for.
        waited: Duration,
    },

    /// No directory is short and private enough for the server's socket.
    #[error(
        "none of {} can hold the directory of the server's socket: each is missing, not writable, or its path is too \
         long for a socket",
        paths(.0)
    )]
    NoSocketFolder(Vec<PathBuf>),

    /// The server runs, but its database could not be looked up or created.
    #[error("the server runs, but its database could not be created: {0}")]
    Database(#[from] sqlx::Error),

    /// There is nothing to dump.
    #[error("there is no database in {}", .0.display())]
    NoCluster(PathBuf),

    /// `pg_dump` or `pg_restore` failed.
    #[error("{program} failed ({status}): {output}")]
    ToolFailed {
        /// The name of the program.
        program: &'static str,
        /// How it ended.
        status: ExitStatus,
        /// The end of what it reported.
        output: String,
    },

    /// A file or program could not be used.
    #[error("cannot {action}: {source}")]
    Io {
        /// The attempted action.
        action: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// How a failed program ended.
#[derive(Debug)]
pub enum ExitReason {
    /// It exited.
    Exited(ExitStatus),
    /// It was stopped after this timeout.
    TimedOut(Duration),
    /// It was stopped because the embedded database was stopped.
    Stopped,
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => status.fmt(f),
            Self::TimedOut(after) => write!(f, "timed out after {} s", after.as_secs()),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// Adds the attempted action to an error of the operating system.
pub(super) trait IoContext<T> {
    fn context(self, verb: &str, path: &Path) -> Result<T, EmbeddedError>;
}

impl<T> IoContext<T> for std::io::Result<T> {
    fn context(self, verb: &str, path: &Path) -> Result<T, EmbeddedError> {
        self.map_err(|source| EmbeddedError::Io { action: format!("{verb} {}", path.display()), source })
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

fn list(found: &[Installation]) -> String {
    let one = |installation: &Installation| {
        let Version { major, minor } = installation.version;
        format!("PostgreSQL {major}.{minor} ({})", installation.folder.display())
    };
    found.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn paths(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}
