//! What each layer gives for each setting, unparsed, with its place.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::problem::Place;

/// A value as its layer holds it.
pub(super) enum Raw {
    Text(String),
    Integer(i64),
    List(Vec<String>),
    /// Tables of the file: `[[section.key]]`, or inline tables in a list.
    Tables(Vec<serde_json::Map<String, serde_json::Value>>),
    /// A table of the file with nothing in it.
    EmptyTable,
    /// Nothing that any setting takes; says what it is.
    Unfit(&'static str),
}

impl Raw {
    /// A digest of the value, in the place of a secret one.
    pub(super) fn digest(&self) -> [u8; 32] {
        let hash = Sha256::new();
        let hash = match self {
            Self::Text(text) => hash.chain_update(text),
            Self::Integer(number) => hash.chain_update(number.to_be_bytes()),
            Self::List(items) => {
                items.iter().fold(hash, |hash, item| hash.chain_update(item).chain_update([0]))
            }
            Self::Tables(_) | Self::EmptyTable | Self::Unfit(_) => hash,
        };
        hash.finalize().into()
    }
}

/// A value and where it stands.
pub(super) struct Given {
    pub(super) place: Place,
    pub(super) raw: Raw,
}

/// The values of all layers by setting; of one setting, the last overrides those before it.
#[derive(Default)]
pub(super) struct Layers(BTreeMap<String, Vec<Given>>);

impl Layers {
    /// Adds a value over those already there.
    pub(super) fn push(&mut self, setting: &str, place: Place, raw: Raw) {
        self.0.entry(setting.to_owned()).or_default().push(Given { place, raw });
    }

    /// Takes out what is given for one setting.
    pub(super) fn take(&mut self, setting: &str) -> Vec<Given> {
        self.0.remove(setting).unwrap_or_default()
    }

    /// What nobody has taken: names that are no settings.
    pub(super) fn left_over(self) -> impl Iterator<Item = (String, Given)> {
        self.0
            .into_iter()
            .flat_map(|(setting, given)| given.into_iter().map(move |one| (setting.clone(), one)))
    }
}
