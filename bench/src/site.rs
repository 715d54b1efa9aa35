//! A PostgreSQL server of its own with the gateways that run on it, all stopped after a measurement.

use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;

use crate::cpu::Postgres;
use crate::database::Database;
use crate::error::Error;
use crate::first_use::forged_key;
use crate::options::gateway_binary;
use crate::process::{self, Process};
use crate::run::interrupted;
use crate::waggle;

/// The timeout of a start.
const START: Duration = Duration::from_mins(2);

/// The server and the running gateways.
pub(crate) struct Site {
    pub(crate) database: Database,
    pub(crate) gateways: Vec<Process>,
    /// The gateway's binary.
    pub(crate) binary: PathBuf,
    /// The temporary directory.
    pub(crate) dir: TempDir,
}

/// Measures on a new site with an empty database, and stops everything, also after an error or an interrupt.
///
/// # Errors
/// As `measure`, and if the database cannot be run.
pub(crate) async fn measured<T>(
    named: Option<&PathBuf>,
    measure: impl AsyncFnOnce(&mut Site) -> Result<T, Error>,
) -> Result<T, Error> {
    let binary = gateway_binary(named)?;
    let dir = TempDir::with_prefix("waggle-bench-").map_err(Error::io("create a temporary directory"))?;
    let database = Database::start(dir.path()).await?;
    let mut site = Site { database, gateways: Vec::new(), binary, dir };
    let outcome = tokio::select! {
        outcome = measure(&mut site) => outcome,
        () = interrupted() => Err(Error::Interrupted),
    };
    site.stop_gateways().await;
    site.database.stop().await?;
    outcome
}

impl Site {
    /// Starts a gateway with additional settings and waits until it is ready; returns its port.
    pub(crate) async fn start(&mut self, settings: &[(&str, &str)]) -> Result<u16, Error> {
        let port = process::free_port()?;
        self.start_at(port, settings).await?;
        Ok(port)
    }

    /// Starts a gateway on `port` and waits until it is ready.
    pub(crate) async fn start_at(&mut self, port: u16, settings: &[(&str, &str)]) -> Result<(), Error> {
        let operator = forged_key("wag", 1);
        let url = self.database.url();
        let mut gateway = waggle::join_at(port, &self.binary, self.dir.path(), &operator, &url, settings)?;
        gateway.ready("/readyz", true, START).await?;
        self.gateways.push(gateway);
        Ok(())
    }

    /// The id of the only gateway.
    pub(crate) fn pid(&self) -> Result<u32, Error> {
        self.gateways.first().map(|gateway| gateway.pid).ok_or(Error::NotRunning { server: "waggle" })
    }

    /// Stops all gateways.
    pub(crate) async fn stop_gateways(&mut self) {
        for gateway in self.gateways.drain(..) {
            gateway.stop().await;
        }
    }

    /// The processes of the database.
    pub(crate) fn postgres(&self) -> Result<Postgres, Error> {
        Ok(Postgres { server: self.database.server()?, data_dir: self.database.data() })
    }
}
