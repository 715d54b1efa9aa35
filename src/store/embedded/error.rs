//! What can go wrong with the embedded database, each with what to do about it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use super::programs::{Programs, Version};

/// Why the embedded database could not be started. The sentences are meant for the person at the terminal.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    /// No PostgreSQL is installed where the gateway looks.
    #[error(
        "no PostgreSQL programs were found, and without a database URL the gateway runs its own database \
         with them. Install PostgreSQL 14 or newer:\n\
         \n  Debian, Ubuntu:  apt install postgresql\
         \n  Fedora:          dnf install postgresql-server\
         \n  Alpine:          apk add postgresql\
         \n  macOS:           brew install postgresql@17\n\
         \nor name the folder that holds `postgres` and `initdb` with WAGGLE_EMBEDDED__BIN_DIR, or set \
         WAGGLE_DATABASE__URL to a database of your own."
    )]
    NoPrograms,

    /// The folder given as `embedded.bin_dir` is not one of PostgreSQL.
    #[error(
        "embedded.bin_dir is {}, where no working PostgreSQL programs `postgres` and `initdb` are; name the \
         folder that holds them (on Debian /usr/lib/postgresql/15/bin), or unset it to have them looked for",
        .0.display()
    )]
    NotABinDir(PathBuf),

    /// Only releases older than the oldest supported one are installed.
    #[error("{} is too old: the embedded database needs PostgreSQL 14 or newer", list(.0))]
    TooOld(Vec<Programs>),

    /// The cluster was made by another major version than those installed.
    #[error(
        "the database in {} was made by PostgreSQL {cluster}, and only {} was found. Install PostgreSQL \
         {cluster} beside it, or name the folder of its programs with WAGGLE_EMBEDDED__BIN_DIR, or bring the \
         database to the other version with pg_upgrade",
        folder.display(),
        list(found)
    )]
    VersionMismatch {
        /// The cluster's folder.
        folder: PathBuf,
        /// The cluster's major version, as it stands in its `PG_VERSION`.
        cluster: String,
        /// The programs that were found.
        found: Vec<Programs>,
    },

    /// Another gateway holds the data directory's lock.
    #[error(
        "another gateway{} already runs on the data directory {}; stop it, or give this one a data directory \
         of its own with --data-dir",
        process(*.pid),
        data_dir.display()
    )]
    InUse {
        /// The data directory.
        data_dir: PathBuf,
        /// The other gateway's process, when it could be read.
        pid: Option<u32>,
    },

    /// The gateway runs as root, and the user that PostgreSQL should run as does not exist.
    #[error(
        "PostgreSQL refuses to run as root, and the user `{0}` that it would run as does not exist. Create it \
         (Debian, Fedora: useradd --system {0}; Alpine: adduser -S {0}), or start the gateway as another user \
         than root"
    )]
    NoUser(String),

    /// PostgreSQL's user cannot get through a folder on the way.
    #[error(
        "PostgreSQL runs as the user `{user}`, who may not pass through {}. Let others pass with \
         `chmod o+x {}`, or choose another place than {}",
        at.display(),
        at.display(),
        wanted.display()
    )]
    Unreachable {
        /// The user that PostgreSQL runs as.
        user: String,
        /// The folder that shuts it out.
        at: PathBuf,
        /// What it should have reached.
        wanted: PathBuf,
    },

    /// Something else stands where the cluster should be.
    #[error(
        "{} is not empty and holds no PostgreSQL cluster (no PG_VERSION file); move it away, or choose \
         another data directory with --data-dir",
        .0.display()
    )]
    NotACluster(PathBuf),

    /// `initdb` failed or took too long.
    #[error("creating the database cluster failed ({how}). The last lines of {}:\n{output}", log.display())]
    CreateFailed {
        /// How `initdb` ended.
        how: Ending,
        /// The server's log file.
        log: PathBuf,
        /// What it said last.
        output: String,
    },

    /// The server ended, or did not accept connections in time.
    #[error("PostgreSQL did not start ({how}). The last lines of {}:\n{output}", log.display())]
    StartFailed {
        /// How the server ended.
        how: Ending,
        /// The server's log file.
        log: PathBuf,
        /// What it said last.
        output: String,
    },

    /// The server of an earlier run does not go away.
    #[error(
        "a PostgreSQL server of an earlier run{} still uses {} after {} seconds; once it has ended (`kill -INT` \
         ends it) start the gateway again",
        process(*.pid),
        folder.display(),
        waited.as_secs()
    )]
    StillRunning {
        /// The cluster's folder.
        folder: PathBuf,
        /// The process that its `postmaster.pid` names.
        pid: Option<u32>,
        /// How long the gateway waited for it.
        waited: Duration,
    },

    /// No folder is short and private enough for the server's socket.
    #[error(
        "none of {} can hold the folder of the database's socket: each is missing, not writable, or its path \
         is too long for a socket",
        paths(.0)
    )]
    NoSocketFolder(Vec<PathBuf>),

    /// The server answers, but its database could not be looked up or created.
    #[error("the embedded server runs, but its database could not be prepared: {0}")]
    Database(#[from] sqlx::Error),

    /// A file or program could not be used.
    #[error("cannot {doing}: {source}")]
    Io {
        /// What was tried.
        doing: String,
        /// What the operating system said.
        source: std::io::Error,
    },
}

/// How a program that should have worked came to its end.
#[derive(Debug)]
pub enum Ending {
    /// It ended by itself.
    Exited(ExitStatus),
    /// It was ended after this long.
    TimedOut(Duration),
    /// It was ended because the gateway stopped.
    Stopped,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => status.fmt(f),
            Self::TimedOut(after) => write!(f, "not done after {} seconds", after.as_secs()),
            Self::Stopped => f.write_str("the gateway stopped"),
        }
    }
}

/// Says what was tried when the operating system refuses.
pub(super) trait Doing<T> {
    fn doing(self, verb: &str, path: &Path) -> Result<T, EmbeddedError>;
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, verb: &str, path: &Path) -> Result<T, EmbeddedError> {
        self.map_err(|source| EmbeddedError::Io { doing: format!("{verb} {}", path.display()), source })
    }
}

fn process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

fn list(found: &[Programs]) -> String {
    let one = |programs: &Programs| {
        let Version { major, minor } = programs.version;
        format!("PostgreSQL {major}.{minor} ({})", programs.folder.display())
    };
    found.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn paths(folders: &[PathBuf]) -> String {
    folders.iter().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(", ")
}
