//! Encoded results, kept by what they show and its revision: a change makes others wanted, nothing is flushed.

use std::collections::BTreeMap;

use bytes::Bytes;
use moka::sync::Cache;

use super::call::List;
use super::version::ContentTypes;
use crate::model::ids::AgentId;
use crate::model::prompt::PromptName;
use crate::model::scope::Revision;
use crate::model::uri::ResourceUri;
use crate::model::uri_template::UriTemplate;

/// What a result shows.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Shown {
    /// The contents of a registered resource.
    Resource(ResourceUri),
    /// What this template answers to a URI.
    Rendered(ResourceUri, UriTemplate),
    /// The page of a list after a position.
    Page(List, Option<String>),
    /// What a prompt says to these values of its arguments, in types of content that a revision knows.
    Prompt(PromptName, BTreeMap<String, String>, ContentTypes),
}

impl Shown {
    fn weight(&self) -> usize {
        match self {
            Self::Resource(uri) | Self::Rendered(uri, _) => uri.as_str().len(),
            Self::Page(_, after) => after.as_ref().map_or(0, String::len),
            Self::Prompt(name, arguments, _) => {
                let strings = arguments.iter().map(|(name, value)| name.len() + value.len() + 64);
                name.as_str().len() + strings.sum::<usize>()
            }
        }
    }
}

/// Which dialect a result is encoded in. But for the content of prompts, all legacy revisions have the same results.
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
            u32::try_from(result.len() + key.shown.weight() + 160).unwrap_or(u32::MAX)
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
