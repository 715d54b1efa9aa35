//! The private directory of the server's Unix socket, the only way to reach the server.
//!
//! The path of a socket has at most about a hundred bytes, so it cannot be in a deep data directory.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::account::Account;
use crate::error::{EmbeddedError, IoContext};
use crate::folder::{self, DataFolder, private_file};

/// Part of the socket's file name; there is no TCP port.
pub(super) const PORT: u16 = 5432;

const FILES: [&str; 2] = [".s.PGSQL.5432", ".s.PGSQL.5432.lock"];
/// The limit of macOS; that of Linux is 107.
const MAX_SOCKET_PATH: usize = 103;

/// A directory of mode 0700 with an unpredictable name, owned by PostgreSQL's user; removed when dropped.
#[derive(Debug)]
pub(super) struct SocketFolder {
    path: PathBuf,
    record: PathBuf,
}

impl SocketFolder {
    /// Creates the directory `<name>-<random>` in the first of `runtime_dir`, `/tmp` and the data directory that can
    /// hold it, and removes that of an earlier process that was killed.
    pub(super) fn create(
        name: &str,
        data: &DataFolder,
        runtime_dir: Option<&Path>,
        account: &Account,
    ) -> Result<Self, EmbeddedError> {
        let record = data.socket_record();
        let prefix = format!("{name}-");
        remove_recorded(&record, &prefix, account);
        // The runtime directory belongs to the owner's user, and denies access to any other.
        let runtime_dir = runtime_dir.filter(|_| !account.is_other());
        let parents: Vec<&Path> = runtime_dir.into_iter().chain([Path::new("/tmp"), data.path()]).collect();
        let name = format!("{prefix}{:016x}", rand::random::<u64>());
        let mut candidates = parents.iter().map(|parent| parent.join(&name)).filter(|path| is_usable(path));
        let path = candidates
            .find(|path| DirBuilder::new().mode(0o700).create(path).is_ok())
            .ok_or_else(|| EmbeddedError::NoSocketFolder(parents.iter().map(PathBuf::from).collect()))?;
        let folder = Self { path, record };
        folder.write_record().context("write", &folder.record)?;
        account.own(&folder.path)?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of the server that another process runs on a data directory.
    pub(super) fn recorded(data_dir: &Path) -> Option<PathBuf> {
        fs::read_to_string(folder::socket_record(data_dir)).ok().map(PathBuf::from)
    }

    fn write_record(&self) -> io::Result<()> {
        let mut file = private_file(OpenOptions::new().write(true).truncate(true), &self.record)?;
        file.write_all(self.path.as_os_str().as_encoded_bytes())
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        remove(&self.path);
        // Without the directory the record has no effect, so a failure is ignored.
        let _ = fs::remove_file(&self.record);
    }
}

/// Whether the path is short enough, and contains no separator of PostgreSQL's list of socket directories.
fn is_usable(folder: &Path) -> bool {
    let Some(text) = folder.to_str() else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    folder.is_absolute() && text.chars().all(plain) && text.len() + 1 + FILES[0].len() <= MAX_SOCKET_PATH
}

/// Removes the directory that `record` names, unless the path now belongs to something else.
fn remove_recorded(record: &Path, prefix: &str, account: &Account) {
    let Ok(path) = fs::read_to_string(record) else { return };
    let path = Path::new(&path);
    let named = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()));
    let ours =
        |meta: fs::Metadata| meta.is_dir() && meta.uid() == account.uid() && meta.mode() & 0o7777 == 0o700;
    if named && fs::symlink_metadata(path).is_ok_and(ours) {
        remove(path);
    }
}

/// Removes a socket directory with PostgreSQL's files, and nothing else. The guardian may have done so already.
fn remove(folder: &Path) {
    for file in FILES {
        let _ = fs::remove_file(folder.join(file));
    }
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_with_long_or_ambiguous_socket_paths_are_not_used() {
        assert!(is_usable(Path::new("/run/user/1000/notes-0123456789abcdef")));
        assert!(!is_usable(Path::new("/run/a,b/notes-0123456789abcdef")));
        assert!(!is_usable(Path::new("run/notes-0123456789abcdef")));
        let longest = MAX_SOCKET_PATH - 1 - FILES[0].len();
        assert!(is_usable(&PathBuf::from(format!("/{}", "x".repeat(longest - 1)))));
        assert!(!is_usable(&PathBuf::from(format!("/{}", "x".repeat(longest)))));
    }
}
