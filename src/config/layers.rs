//! The unparsed values of each layer, with their source.

use std::collections::BTreeMap;

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
