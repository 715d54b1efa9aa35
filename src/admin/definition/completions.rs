//! Completions as sent: a list of values, or an object with a source.

use std::fmt;
use std::sync::Arc;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::model::completion::CompletionValues;
use crate::model::fault::Fault;
use crate::model::json::Object;
use crate::model::place::{SourcePlace, SourceText};

/// The values for a variable or an argument.
#[derive(Debug)]
pub(crate) enum CompletionsInput {
    /// These.
    Listed(Vec<String>),
    /// From a connection.
    Sourced(CompletionSource),
}

/// Where values come from.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct CompletionSource {
    source: Object<SourceText>,
}

impl<'de> Deserialize<'de> for CompletionsInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(InputVisitor)
    }
}

struct InputVisitor;

impl<'de> Visitor<'de> for InputVisitor {
    type Value = CompletionsInput;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, values: A) -> Result<CompletionsInput, A::Error> {
        Deserialize::deserialize(SeqAccessDeserializer::new(values)).map(CompletionsInput::Listed)
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<CompletionsInput, A::Error> {
        Deserialize::deserialize(MapAccessDeserializer::new(members)).map(CompletionsInput::Sourced)
    }
}

impl CompletionsInput {
    /// Validates the place.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] that begins with `source`.
    pub(crate) fn check(self) -> Result<CompletionValues, Fault> {
        match self {
            Self::Listed(values) => Ok(CompletionValues::Listed(values)),
            Self::Sourced(CompletionSource { source: Object(text) }) => {
                Ok(CompletionValues::Sourced { source: Arc::new(SourcePlace::new(text)?) })
            }
        }
    }
}
