//! The layer of the command line.

use std::path::PathBuf;

use super::layers::{Layers, Raw};
use super::problem::Source;

/// `--config`, and the flags that are settings, as typed.
#[derive(Clone, Default)]
pub struct Flags {
    /// `--config`: the configuration file.
    pub config: Option<PathBuf>,
    /// `--data-dir`: `embedded.data_dir`.
    pub data_dir: Option<String>,
    /// `--listen`: `server.listen`.
    pub listen: Option<String>,
    /// `--database-url`: `database.url`.
    pub database_url: Option<String>,
    /// `--log-format`: `log.format`.
    pub log_format: Option<String>,
    /// `--log-filter`: `log.filter`.
    pub log_filter: Option<String>,
}

impl Flags {
    pub(super) fn add_to(&self, layers: &mut Layers) {
        let flags = [
            ("--data-dir", "embedded.data_dir", &self.data_dir),
            ("--listen", "server.listen", &self.listen),
            ("--database-url", "database.url", &self.database_url),
            ("--log-format", "log.format", &self.log_format),
            ("--log-filter", "log.filter", &self.log_filter),
        ];
        for (flag, setting, value) in flags {
            if let Some(text) = value {
                layers.push(setting, Source::Flag(flag), Raw::Text(text.clone()));
            }
        }
    }
}
