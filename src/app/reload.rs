//! `SIGHUP`: reloads the settings that can be applied to a running gateway, all of them or none.

use super::{AppError, Running, credentials};
use crate::config::{ConfigError, Listing, Loaded, LogFilter, Settings};
use crate::model::system::System;
use crate::server::ServerError;

/// The settings applied without a restart.
const RELOADED: [&str; 6] = [
    "log.filter",
    "server.tls_certificate",
    "server.tls_key",
    "admin.operator_key",
    "admin.operator_keys_file",
    "tokens.issuers",
];

/// Reloads the settings of a process.
pub struct Reloader {
    in_force: Listing,
    load: Box<dyn Fn() -> Result<Loaded, ConfigError> + Send + Sync>,
    set_filter: SetFilter,
}

type SetFilter = Box<dyn Fn(&LogFilter) -> Result<(), String> + Send + Sync>;

/// Why nothing was reloaded.
#[derive(Debug, thiserror::Error)]
enum ReloadError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    App(#[from] AppError),
    #[error("log.filter: {0}")]
    Filter(String),
}

impl Reloader {
    /// For a process started with the listed settings; `load` reads them again, `set_filter` changes the log filter.
    pub fn new(
        in_force: Listing,
        load: impl Fn() -> Result<Loaded, ConfigError> + Send + Sync + 'static,
        set_filter: impl Fn(&LogFilter) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { in_force, load: Box::new(load), set_filter: Box::new(set_filter) }
    }

    /// Reads the settings and applies them to a gateway. An error in any of them changes nothing.
    pub(super) async fn reload(&mut self, running: &Running, embedded: bool) {
        match self.apply(running, embedded).await {
            Ok(listing) => {
                tracing::info!("settings reloaded");
                for setting in self.in_force.differences(&listing) {
                    if !RELOADED.contains(&setting) {
                        tracing::warn!(setting, "setting changed; restart waggle to apply it");
                    }
                }
            }
            Err(error) => tracing::error!(%error, "settings not reloaded; those in force stay"),
        }
    }

    async fn apply(&self, running: &Running, embedded: bool) -> Result<Listing, ReloadError> {
        let Loaded { settings, listing } = (self.load)()?;
        // Everything is validated before the first change.
        let operators = credentials::operators(&settings, embedded, &System::real())?;
        let tls = match (&running.listeners.tls, &settings.server.tls()) {
            (Some(tls), Some(files)) => Some((
                tls,
                tls.prepare(files.clone()).await.map_err(ServerError::from).map_err(AppError::from)?,
            )),
            _ => None,
        };
        let issuers = running.credentials.tokens.prepare(&settings.tokens.issuers).map_err(AppError::from)?;
        (self.set_filter)(&settings.log.filter).map_err(ReloadError::Filter)?;
        if let Some((tls, prepared)) = tls {
            tls.replace(prepared);
        }
        warn_of_tls(running, &settings);
        running.credentials.replace_issuers(issuers, &settings, &running.background);
        // Ends streams of tokens whose issuer was removed.
        running.feed.recheck_streams();
        running.credentials.replace_operators(&operators);
        Ok(listing)
    }
}

/// Open listeners cannot switch between plain HTTP and TLS.
fn warn_of_tls(running: &Running, settings: &Settings) {
    if running.listeners.tls.is_some() != settings.server.tls().is_some() {
        tracing::warn!(
            setting = "server.tls_certificate",
            "TLS cannot be switched on or off by a reload; restart waggle to apply it"
        );
    }
}
