//! The unparsed values of each layer, with their source, and the layer of the command line.

use std::collections::BTreeMap;
use std::path::PathBuf;

use sha2::{Digest, Sha256};

use super::problem::Source;

/// An unparsed value.
pub(super) enum Raw {
    Text(String),
    Integer(i64),
    List(Vec<String>),
    /// Tables of the file: `[[section.key]]`, or inline tables in a list.
    Tables(Vec<serde_json::Map<String, serde_json::Value>>),
    /// An empty table of the file.
    EmptyTable,
    /// A type that no setting accepts, by its description.
    Unsupported(&'static str),
}

impl Raw {
    /// A digest of the value, by which a change of a secret is recognized.
    pub(super) fn digest(&self) -> [u8; 32] {
        let hash = Sha256::new();
        let hash = match self {
            Self::Text(text) => hash.chain_update(text),
            Self::Integer(number) => hash.chain_update(number.to_be_bytes()),
            Self::List(items) => {
                items.iter().fold(hash, |hash, item| hash.chain_update(item).chain_update([0]))
            }
            Self::Tables(_) | Self::EmptyTable | Self::Unsupported(_) => hash,
        };
        hash.finalize().into()
    }
}

/// A value and its source.
pub(super) struct LayerValue {
    pub(super) source: Source,
    pub(super) raw: Raw,
}

/// The values of all layers by setting, in the order of the layers: the last one overrides those before it.
#[derive(Default)]
pub(super) struct Layers(BTreeMap<String, Vec<LayerValue>>);

impl Layers {
    /// Adds a value that overrides earlier ones.
    pub(super) fn push(&mut self, setting: &str, source: Source, raw: Raw) {
        self.0.entry(setting.to_owned()).or_default().push(LayerValue { source, raw });
    }

    /// Removes and returns the values of one setting.
    pub(super) fn take(&mut self, setting: &str) -> Vec<LayerValue> {
        self.0.remove(setting).unwrap_or_default()
    }

    /// The values that were not taken, whose names are not settings.
    pub(super) fn left_over(self) -> impl Iterator<Item = (String, LayerValue)> {
        self.0
            .into_iter()
            .flat_map(|(setting, given)| given.into_iter().map(move |one| (setting.clone(), one)))
    }
}

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
