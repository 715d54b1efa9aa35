//! The parameters and results of calls that both eras have, independent of their encoding.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;

use super::ids::ResourceUri;
use super::listed::ListedResource;
use super::message::PromptMessage;
use super::prompt::Prompt;
use super::resource::{Part, PartKind};
use super::scope::Revision;
use super::template::ResourceTemplate;

/// The lists of definitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum List {
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
    /// `prompts/list`.
    Prompts,
}

/// The owner of the argument to complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// An argument of the prompt of this name.
    Prompt(String),
    /// A variable of this resource template.
    Template(String),
}

/// What is to be completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletionRequest {
    /// Of what.
    pub reference: Reference,
    /// Which argument or variable.
    pub argument: String,
    /// The text typed so far.
    pub value: String,
    /// The values of other arguments or variables that the client knows.
    pub context: BTreeMap<String, String>,
}

/// A page of one of the lists.
#[derive(Debug, Clone)]
pub enum ListPage {
    /// Resources, in byte order of their URIs.
    Resources(Page<ListedResource>),
    /// Resource templates, in byte order.
    Templates(Page<Arc<ResourceTemplate>>),
    /// Prompts, in byte order of their names.
    Prompts(Page<Arc<Prompt>>),
}

impl ListPage {
    /// The key of the last definition, if more follow.
    pub fn last(&self) -> Option<String> {
        match self {
            Self::Resources(page) => page.last().map(|resource| resource.uri().to_string()),
            Self::Templates(page) => page.last().map(|template| template.uri_template.as_str().to_owned()),
            Self::Prompts(page) => page.last().map(|prompt| prompt.name.as_str().to_owned()),
        }
    }
}

/// A page of definitions.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The definitions, in their order.
    pub items: Vec<T>,
    /// Whether there are more after the last.
    pub more: bool,
}

impl<T> Page<T> {
    /// The last definition, if more follow.
    pub fn last(&self) -> Option<&T> {
        self.items.last().filter(|_| self.more)
    }
}

/// The contents of one resource.
#[derive(Debug, Clone)]
pub struct Contents {
    /// Its URI.
    pub uri: ResourceUri,
    /// The MIME type of the parts that have none of their own.
    pub mime_type: Option<String>,
    /// Its parts, in their order.
    pub parts: Vec<Content>,
    /// The revision that last changed the definition: the resource or the template.
    pub revision: Revision,
    /// For how long they may be answered from now on, if they come from a source.
    pub fresh_for: Option<Duration>,
}

impl Contents {
    /// The URI with which a part is sent.
    pub fn uri_of<'a>(&'a self, part: &'a Content) -> &'a ResourceUri {
        part.uri.as_ref().unwrap_or(&self.uri)
    }

    /// The MIME type with which a part is sent.
    pub fn mime_type_of<'a>(&'a self, part: &'a Content) -> Option<&'a str> {
        part.mime_type.as_deref().or(self.mime_type.as_deref())
    }
}

/// One of a resource's contents, stored or rendered.
#[derive(Debug, Clone)]
pub struct Content {
    /// Its own URI, if it differs from the resource's.
    pub uri: Option<ResourceUri>,
    /// Its own MIME type, if it has one.
    pub mime_type: Option<String>,
    /// How it is encoded when it is sent.
    pub kind: PartKind,
    /// Decoded.
    pub bytes: Bytes,
    /// `_meta` as registered.
    pub meta: Option<Box<RawValue>>,
}

impl Content {
    /// A stored part with its bytes.
    pub fn stored(part: &Part, bytes: Bytes) -> Self {
        let (uri, mime_type, meta) = (part.uri.clone(), part.mime_type.clone(), part.meta.clone());
        Self { uri, mime_type, kind: part.kind, bytes, meta }
    }

    /// A text of the resource's own URI and MIME type.
    pub fn text(bytes: Bytes) -> Self {
        Self { uri: None, mime_type: None, kind: PartKind::Text, bytes, meta: None }
    }
}

/// The messages of one prompt, rendered.
#[derive(Debug, Clone)]
pub struct Messages {
    /// The purpose of the prompt.
    pub description: Option<String>,
    /// The messages, in their order.
    pub messages: Vec<PromptMessage>,
    /// Whether the same arguments give the same messages until the prompt changes: not if they embed registered
    /// resources.
    pub settled: bool,
    /// The revision that last changed the prompt.
    pub revision: Revision,
}

/// Completion values for an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The best of them.
    pub values: Vec<String>,
    /// The number of all values.
    pub total: usize,
}
