//! The subjects that a client can subscribe to.

use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde_json::Value;

use super::ids::ResourceUri;
use super::scope::Revision;

/// A part of an agent that clients are notified of when it changes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Subject {
    /// The lists of resources and of resource templates.
    ResourceList,
    /// The list of prompts.
    PromptList,
    /// The list of tools.
    ToolList,
    /// The content of a URI.
    Resource(Arc<SubscribedUri>),
}

/// A subscribed URI, shared by all streams interested in it.
#[derive(Debug)]
pub struct SubscribedUri {
    /// The URI.
    pub uri: ResourceUri,
    /// The URI encoded as a JSON string, once for all events.
    pub json: Box<str>,
}

impl SubscribedUri {
    fn new(uri: ResourceUri) -> Self {
        let json = Value::from(uri.as_str()).to_string().into();
        Self { uri, json }
    }
}

impl PartialEq for SubscribedUri {
    fn eq(&self, other: &Self) -> bool {
        self.uri == other.uri
    }
}

impl Eq for SubscribedUri {}

impl Hash for SubscribedUri {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.uri.hash(state);
    }
}

impl PartialOrd for SubscribedUri {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for SubscribedUri {
    fn cmp(&self, other: &Self) -> Ordering {
        self.uri.cmp(&other.uri)
    }
}

/// An interest in a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Interest {
    /// The subject.
    pub subject: Subject,
    /// Only changes above this revision are sent.
    pub since: Revision,
}

impl Subject {
    /// The content of a URI.
    pub fn resource(uri: ResourceUri) -> Self {
        Self::Resource(Arc::new(SubscribedUri::new(uri)))
    }
}
