//! What completes a variable of a template or an argument of a prompt: listed values, or a place that values come from.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::allocated::{allocated, texts};
use super::fault::{Fault, shortened};
use super::place::{SourcePlace, SourceText};

/// The variable of a place that stands for the text typed so far.
pub const TYPED: &str = "value";

/// The completions of variables or arguments, by name.
pub type Completions = BTreeMap<String, CompletionValues>;

/// Where the values of one variable or argument come from. They are stored as a list, which is empty for a place: that is
/// stored beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged, from = "Vec<String>")]
pub enum CompletionValues {
    /// These.
    Listed(Vec<String>),
    /// From a connection: a JSON list of texts, lines, or the first column of a statement. `{value}` stands for the text
    /// typed so far, other names for what the client gives as context.
    Sourced {
        /// The place.
        #[schema(value_type = SourceText)]
        source: Arc<SourcePlace>,
    },
}

impl From<Vec<String>> for CompletionValues {
    fn from(values: Vec<String>) -> Self {
        Self::Listed(values)
    }
}

impl Default for CompletionValues {
    fn default() -> Self {
        Self::Listed(Vec::new())
    }
}

impl CompletionValues {
    /// Whether nothing is ever offered.
    pub fn is_empty(&self) -> bool {
        matches!(self, Self::Listed(values) if values.is_empty())
    }

    /// The listed values; none for a place.
    pub fn listed(&self) -> &[String] {
        match self {
            Self::Listed(values) => values,
            Self::Sourced { .. } => &[],
        }
    }

    /// The place, if there is one.
    pub fn source(&self) -> Option<&Arc<SourcePlace>> {
        match self {
            Self::Listed(_) => None,
            Self::Sourced { source } => Some(source),
        }
    }

    /// Checks that the variables of a place are among `names`, each of which is `what`, besides [`TYPED`].
    ///
    /// # Errors
    /// [`Fault::InvalidParams`].
    pub fn check<'n>(&self, names: impl IntoIterator<Item = &'n str>, what: &str) -> Result<(), Fault> {
        let Self::Sourced { source } = self else { return Ok(()) };
        let mut names: BTreeSet<_> = names.into_iter().collect();
        names.insert(TYPED);
        match source.place().variables().iter().find(|variable| !names.contains(variable.name)) {
            Some(unknown) => Err(Fault::invalid_params(format!(
                "source: {} is neither `{TYPED}`, which is the text typed so far, nor {what}",
                shortened(unknown.name)
            ))),
            None => Ok(()),
        }
    }

    /// The memory that it takes on the heap.
    pub fn heap(&self) -> usize {
        match self {
            Self::Listed(values) => {
                texts(values.iter().map(String::as_str)) + allocated(values.capacity() * size_of::<String>())
            }
            Self::Sourced { source } => source.memory(),
        }
    }
}
