//! `waggle config check`: validates the files, directories and ports of the settings. Changes nothing.

use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use embedded_postgres::check_programs;
use nix::unistd::{AccessFlags, access};

use super::{AppError, credentials, embedded};
use crate::config::Settings;
use crate::server::tls::Tls;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Checked {
    /// Problems that prevent a start, each with its setting.
    pub problems: Vec<String>,
    /// Addresses of listeners that are in use, each with its setting; by the gateway itself, if it is running.
    pub in_use: Vec<(&'static str, SocketAddr)>,
}

/// Checks everything on this machine that the settings name.
pub async fn check(settings: &Settings) -> Checked {
    let mut checked = Checked::default();
    if let Some(files) = &settings.server.tls() {
        checked.note("server.tls_certificate", Tls::load(files.clone()).await);
    }
    if let Some(file) = &settings.admin.operator_keys_file {
        checked.note("admin.operator_keys_file", credentials::operator_keys(file));
    }
    if settings.database.url.is_none() {
        let found = check_programs(&embedded::options(settings)).await;
        checked.note("embedded.bin_dir", found.map_err(AppError::from));
        checked.note("embedded.data_dir", check_directory(&settings.embedded.data_dir));
    }
    if let Some(directory) = &settings.audit.spill_dir {
        checked.note("audit.spill_dir", check_directory(directory));
    }
    checked.listen("server.listen", settings.server.listen);
    if let Some(address) = settings.admin.listen {
        checked.listen("admin.listen", address);
    }
    checked
}

impl Checked {
    fn note<T, E: std::fmt::Display>(&mut self, setting: &str, result: Result<T, E>) {
        if let Err(error) = result {
            self.problems.push(format!("{setting}: {error}"));
        }
    }

    fn listen(&mut self, setting: &'static str, address: SocketAddr) {
        match TcpListener::bind(address) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                self.in_use.push((setting, address));
            }
            Err(error) => self.problems.push(format!("{setting}: cannot listen on {address}: {error}")),
        }
    }
}

/// Whether a directory can be written to, or created if it is missing.
fn check_directory(directory: &Path) -> Result<(), String> {
    let name = directory.display();
    let mut ancestors =
        directory.ancestors().map(|path| if path.as_os_str().is_empty() { Path::new(".") } else { path });
    let existing = ancestors.find(|path| path.exists()).unwrap_or(Path::new("/"));
    if !existing.is_dir() {
        return Err(format!("{} is not a directory", existing.display()));
    }
    access(existing, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|error| {
        if existing == directory {
            format!("{name} cannot be written to: {}", error.desc())
        } else {
            format!("{name} does not exist and cannot be made in {}: {}", existing.display(), error.desc())
        }
    })
}

#[cfg(test)]
mod tests {
    use super::check_directory;

    #[test]
    fn missing_directories_are_accepted_if_they_can_be_created() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert_eq!(check_directory(folder.path()), Ok(()));
        assert_eq!(check_directory(&folder.path().join("a/b")), Ok(()));
        assert!(!folder.path().join("a").exists());
        let expected = Err(format!("{} is not a directory", file.display()));
        assert_eq!(check_directory(&file), expected);
        assert_eq!(check_directory(&file.join("below")), expected);
    }
}
