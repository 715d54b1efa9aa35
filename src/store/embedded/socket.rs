//! The private folder of the server's Unix socket: the only way to reach the server.
//!
//! The path of a socket is at most about a hundred bytes long, so it cannot lie in a deep data directory.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::account::Account;
use super::error::{Doing, EmbeddedError};
use super::folder::{DataFolder, private_file};

/// Part of the socket's file name; there is no TCP port.
pub(super) const PORT: u16 = 5432;

const PREFIX: &str = "waggle-";
const FILES: [&str; 2] = [".s.PGSQL.5432", ".s.PGSQL.5432.lock"];
/// What macOS allows, less than Linux' 107.
const LONGEST_SOCKET: usize = 103;

/// A folder of mode 0700 with an unpredictable name, owned by PostgreSQL's user; removed when dropped.
#[derive(Debug)]
pub(super) struct SocketFolder {
    path: PathBuf,
    record: PathBuf,
}

impl SocketFolder {
    /// Creates the folder in the first place of `runtime_dir`, `/tmp` and the data directory that can hold it,
    /// and removes that of an earlier run that was killed.
    pub(super) fn create(
        data: &DataFolder,
        runtime_dir: Option<&Path>,
        account: &Account,
    ) -> Result<Self, EmbeddedError> {
        let record = data.socket_record();
        remove_recorded(&record, account);
        // The runtime directory belongs to the gateway's user, and shuts out any other.
        let runtime_dir = runtime_dir.filter(|_| !account.is_other());
        let places: Vec<&Path> = runtime_dir.into_iter().chain([Path::new("/tmp"), data.path()]).collect();
        let name = format!("{PREFIX}{:016x}", rand::random::<u64>());
        let mut candidates = places.iter().map(|place| place.join(&name)).filter(|path| is_usable(path));
        let path = candidates
            .find(|path| DirBuilder::new().mode(0o700).create(path).is_ok())
            .ok_or_else(|| EmbeddedError::NoSocketFolder(places.iter().map(PathBuf::from).collect()))?;
        let folder = Self { path, record };
        folder.write_record().doing("write", &folder.record)?;
        account.own(&folder.path)?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn write_record(&self) -> io::Result<()> {
        let mut file = private_file(OpenOptions::new().write(true).truncate(true), &self.record)?;
        file.write_all(self.path.as_os_str().as_encoded_bytes())
    }
}

impl Drop for SocketFolder {
    fn drop(&mut self) {
        remove(&self.path);
        // Without a folder the record is harmless, so a failure is too.
        let _ = fs::remove_file(&self.record);
    }
}

/// Short enough, and nothing in it that PostgreSQL's list of folders would take apart.
fn is_usable(folder: &Path) -> bool {
    let Some(text) = folder.to_str() else { return false };
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    folder.is_absolute() && text.chars().all(plain) && text.len() + 1 + FILES[0].len() <= LONGEST_SOCKET
}

/// Removes the folder that `record` names if it is one of ours: another may lie at that place by now.
fn remove_recorded(record: &Path, account: &Account) {
    let Ok(path) = fs::read_to_string(record) else { return };
    let path = Path::new(&path);
    let named = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
    let ours =
        |meta: fs::Metadata| meta.is_dir() && meta.uid() == account.uid() && meta.mode() & 0o7777 == 0o700;
    if named && fs::symlink_metadata(path).is_ok_and(ours) {
        remove(path);
    }
}

/// Removes a socket folder with what PostgreSQL puts there, and nothing else. The guardian may have done it.
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
    fn a_folder_whose_socket_path_would_be_too_long_or_odd_is_not_used() {
        assert!(is_usable(Path::new("/run/user/1000/waggle-0123456789abcdef")));
        assert!(!is_usable(Path::new("/run/a,b/waggle-0123456789abcdef")));
        assert!(!is_usable(Path::new("run/waggle-0123456789abcdef")));
        let longest = LONGEST_SOCKET - 1 - FILES[0].len();
        assert!(is_usable(&PathBuf::from(format!("/{}", "x".repeat(longest - 1)))));
        assert!(!is_usable(&PathBuf::from(format!("/{}", "x".repeat(longest)))));
    }
}
