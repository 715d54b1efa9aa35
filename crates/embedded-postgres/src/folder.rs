//! The data directory: its files, and the lock against a second process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::fcntl::OFlag;

use crate::account::Account;
use crate::error::{EmbeddedError, IoContext};

const CLUSTER: &str = "postgres";
const LOCK: &str = "embedded.lock";

/// The data directory, locked until this is dropped.
#[derive(Debug)]
pub(super) struct DataFolder {
    path: PathBuf,
    _lock: File,
}

impl DataFolder {
    /// Creates the directory if it is missing, and locks it against a second process.
    pub(super) fn open(path: &Path, account: &Account) -> Result<Self, EmbeddedError> {
        create(path, account).context("create the data directory", path)?;
        let path = path.canonicalize().context("open the data directory", path)?;
        let lock = lock(&path)?;
        Ok(Self { path, _lock: lock })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of the cluster.
    pub(super) fn cluster(&self) -> PathBuf {
        cluster(&self.path)
    }

    /// A new path beside the cluster's, to create a cluster in.
    pub(super) fn draft(&self) -> PathBuf {
        self.path.join(format!("{CLUSTER}.initdb-{:016x}", rand::random::<u64>()))
    }

    /// Removes incomplete clusters of processes that were killed while creating them.
    pub(super) fn remove_drafts(&self) {
        let Ok(entries) = fs::read_dir(&self.path) else { return };
        let prefix = format!("{CLUSTER}.initdb-");
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with(&prefix) {
                remove_draft(&entry.path());
            }
        }
    }

    pub(super) fn log(&self) -> PathBuf {
        self.path.join("postgres.log")
    }

    /// The file that holds the path of the socket's directory.
    pub(super) fn socket_record(&self) -> PathBuf {
        socket_record(&self.path)
    }
}

/// The file of a data directory that holds the path of the socket's directory.
pub(super) fn socket_record(data_dir: &Path) -> PathBuf {
    data_dir.join("embedded.socket")
}

/// Removes an incomplete cluster. Its `initdb` may still be exiting; what cannot be removed is left to the next start.
pub(super) fn remove_draft(draft: &Path) {
    if let Err(error) = fs::remove_dir_all(draft) {
        tracing::warn!(folder = %draft.display(), %error, "incomplete cluster not removed");
    }
}

/// The directory of the cluster in a data directory.
pub(super) fn cluster(data_dir: &Path) -> PathBuf {
    data_dir.join(CLUSTER)
}

/// The major version that the cluster was created by, if there is a cluster.
pub(super) fn cluster_version(cluster: &Path) -> Result<Option<String>, EmbeddedError> {
    let file = cluster.join("PG_VERSION");
    match fs::read_to_string(&file) {
        Ok(version) => Ok(Some(version.trim().to_owned())),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error).context("read", &file),
        Err(_) if is_empty(cluster) => Ok(None),
        Err(_) => Err(EmbeddedError::NotACluster(cluster.to_owned())),
    }
}

/// Whether `folder` is empty or missing.
fn is_empty(folder: &Path) -> bool {
    fs::read_dir(folder).map_or(true, |mut entries| entries.next().is_none())
}

/// Opens a private file of the owner in the data directory, never through a symbolic link of another user.
pub(super) fn private_file(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    options.create(true).mode(0o600).custom_flags(OFlag::O_NOFOLLOW.bits()).open(path)
}

/// Creates `path` and its missing parents: private, but executable if PostgreSQL runs as another user.
fn create(path: &Path, account: &Account) -> io::Result<()> {
    let mode = if account.is_other() { 0o711 } else { 0o700 };
    let path = std::path::absolute(path)?;
    let missing: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    for folder in missing.into_iter().rev() {
        match fs::create_dir(folder) {
            Ok(()) => fs::set_permissions(folder, fs::Permissions::from_mode(mode))?,
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn lock(data_dir: &Path) -> Result<File, EmbeddedError> {
    let path = data_dir.join(LOCK);
    let mut file = private_file(OpenOptions::new().read(true).write(true), &path).context("open", &path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let read = (&mut file).take(16).read_to_string(&mut holder);
            let pid = read.ok().and_then(|_| holder.trim().parse().ok());
            return Err(EmbeddedError::InUse { data_dir: data_dir.to_owned(), pid });
        }
        Err(TryLockError::Error(error)) => return Err(error).context("lock", &path),
    }
    file.set_len(0).and_then(|()| writeln!(file, "{}", std::process::id())).context("write", &path)?;
    Ok(file)
}
