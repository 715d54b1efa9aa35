//! What a client may be told of, and since when it wants to know.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;

use super::scope::Revision;
use super::uri::ResourceUri;

/// Something of an agent that clients are told of when it changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The lists of resources and of resource templates.
    ResourceList,
    /// The list of prompts.
    PromptList,
    /// What a URI is answered with.
    Resource(Arc<Watched>),
}

/// A URI that somebody wants to hear of, the same one for all who do.
#[derive(Debug)]
pub struct Watched {
    /// The URI.
    pub uri: ResourceUri,
    /// The same as JSON, so that no event has to encode it.
    pub json: Box<str>,
}

impl Watched {
    fn new(uri: ResourceUri) -> Self {
        let json = Value::from(uri.as_str()).to_string().into();
        Self { uri, json }
    }
}

impl PartialEq for Watched {
    fn eq(&self, other: &Self) -> bool {
        self.uri == other.uri
    }
}

impl Eq for Watched {}

impl Hash for Watched {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.uri.hash(state);
    }
}

impl PartialOrd for Watched {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Watched {
    fn cmp(&self, other: &Self) -> Ordering {
        self.uri.cmp(&other.uri)
    }
}

/// What somebody wants to hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interest {
    /// Of what.
    pub subject: Subject,
    /// Changes above this revision are told.
    pub since: Revision,
}

impl Subject {
    /// What a URI is answered with.
    pub fn resource(uri: ResourceUri) -> Self {
        Self::Resource(Arc::new(Watched::new(uri)))
    }
}
