//! `waggle config check`: validates the files, directories and ports of the settings. Changes nothing.

use std::fmt::Display;
use std::net::{SocketAddr, TcpListener};

use embedded_postgres::check_programs;

use super::directory::check_directory;
use super::files::{FileProblem, problems};
use super::probe::is_gateway;
use super::{AppError, embedded};
use crate::config::Settings;

/// The result of a check.
#[derive(Debug, Default)]
pub struct Checked {
    /// Files and directories that are not as their settings require.
    pub files: Vec<FileProblem>,
    /// Addresses that cannot be listened on, each with its setting.
    pub ports: Vec<String>,
    /// Addresses of listeners that are in use.
    pub in_use: Vec<UsedAddress>,
}

/// An address of a listener that is in use.
#[derive(Debug)]
pub struct UsedAddress {
    /// The setting.
    pub setting: &'static str,
    /// The address.
    pub address: SocketAddr,
    /// Whether a gateway answers there.
    pub by_gateway: bool,
}

/// Checks everything on this machine that the settings name.
pub async fn check(settings: &Settings) -> Checked {
    let mut checked = Checked { files: problems(settings).await, ..Checked::default() };
    if settings.database.url.is_none() {
        let found = check_programs(&embedded::options(settings)).await;
        checked.embedded("embedded.bin_dir", found.map_err(AppError::from));
        checked.embedded("embedded.data_dir", check_directory(&settings.embedded.data_dir));
    }
    checked.listen("server.listen", settings.server.listen, settings).await;
    if let Some(address) = settings.admin.listen {
        checked.listen("admin.listen", address, settings).await;
    }
    checked
}

impl Checked {
    /// The problems that prevent a start, each with its setting.
    pub fn fatal(&self) -> Vec<String> {
        let files = self.files.iter().filter(|found| found.prevents_start).map(ToString::to_string);
        files.chain(self.ports.iter().cloned()).collect()
    }

    fn embedded<T, E: Display>(&mut self, setting: &'static str, result: Result<T, E>) {
        let problem = result.err().map(|error| error.to_string());
        self.files.extend(problem.map(|problem| FileProblem { setting, problem, prevents_start: true }));
    }

    async fn listen(&mut self, setting: &'static str, address: SocketAddr, settings: &Settings) {
        match TcpListener::bind(address) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => {
                let by_gateway = is_gateway(settings.server.local_url(address).as_str()).await;
                self.in_use.push(UsedAddress { setting, address, by_gateway });
            }
            Err(error) => self.ports.push(format!("{setting}: cannot listen on {address}: {error}")),
        }
    }
}
