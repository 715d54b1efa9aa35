//! Encoded results, kept by what they show and its revision: a change makes others wanted, nothing is flushed.

use bytes::Bytes;
use moka::sync::Cache;

use crate::model::ids::AgentId;
use crate::model::scope::Revision;
use crate::model::uri::ResourceUri;

/// What a result shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Shown {
    /// The contents of a resource.
    Resource(ResourceUri),
    /// The page of the list of resources after a URI.
    Resources(Option<String>),
}

/// Which dialect a result is encoded in. All legacy revisions have the same results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Dialect {
    /// With the agent's description, as it was at this revision, and whether everybody may read the agent.
    Modern { described: Revision, public: bool },
    /// Bare.
    Legacy,
}

/// A result, whoever asks for it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct ResultKey {
    pub(super) agent: AgentId,
    pub(super) dialect: Dialect,
    pub(super) shown: Shown,
    /// Of what is shown: a busy agent does not lose what did not change.
    pub(super) revision: Revision,
}

/// The encoded results in memory, up to a number of bytes; the least used go first.
#[derive(Debug)]
pub(super) struct Results(Cache<ResultKey, Bytes>);

impl Results {
    pub(super) fn new(max_bytes: u64) -> Self {
        let weigh = |key: &ResultKey, result: &Bytes| {
            let shown = match &key.shown {
                Shown::Resource(uri) => uri.as_str().len(),
                Shown::Resources(after) => after.as_ref().map_or(0, String::len),
            };
            u32::try_from(result.len() + shown + 160).unwrap_or(u32::MAX)
        };
        Self(Cache::builder().max_capacity(max_bytes).weigher(weigh).build())
    }

    pub(super) fn get(&self, key: &ResultKey) -> Option<Bytes> {
        self.0.get(key)
    }

    pub(super) fn keep(&self, key: ResultKey, result: &Bytes) {
        self.0.insert(key, result.clone());
    }
}
