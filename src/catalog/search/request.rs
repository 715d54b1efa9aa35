//! What is searched for.

use std::sync::Arc;

use search::Query;

use super::document::SearchedKind;
use crate::model::fault::Fault;

/// The maximum length of a query in characters.
const MAX_QUERY_CHARS: usize = 256;
/// The number of results where no other is asked for.
pub const DEFAULT_RESULTS: usize = 20;
/// The maximum number of results.
pub const MAX_RESULTS: usize = 500;

/// What is searched for.
#[derive(Debug, Clone)]
pub struct SearchRequest {
    pub(super) query: Arc<Query>,
    pub(super) kind: Option<SearchedKind>,
    pub(super) limit: usize,
}

impl SearchRequest {
    /// Checks a query. Finds at most [`DEFAULT_RESULTS`] definitions, of every kind.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`], which names the parameter `name`.
    pub fn parse(name: &str, query: &str) -> Result<Self, Fault> {
        // Only so many characters are counted.
        let length = query.chars().take(MAX_QUERY_CHARS + 1).count();
        if !(1..=MAX_QUERY_CHARS).contains(&length) {
            return Err(Fault::invalid_params(format!("{name} must have 1 to {MAX_QUERY_CHARS} characters")));
        }
        Ok(Self { query: Arc::new(Query::parse(query)), kind: None, limit: DEFAULT_RESULTS })
    }

    /// Finds definitions of one kind only.
    #[must_use]
    pub fn of_kind(self, kind: Option<SearchedKind>) -> Self {
        Self { kind, ..self }
    }

    /// Finds at most `limit` definitions, and no more than [`MAX_RESULTS`].
    #[must_use]
    pub fn limited(self, limit: usize) -> Self {
        Self { limit: limit.min(MAX_RESULTS), ..self }
    }
}
