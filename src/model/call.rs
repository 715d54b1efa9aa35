//! The parameters and results of calls that both eras have, independent of their encoding.

use std::sync::Arc;

use bytes::Bytes;

use super::message::PromptMessage;
use super::prompt::Prompt;
use super::resource::{Part, PartKind, Resource};
use super::scope::Revision;
use super::template::ResourceTemplate;
use super::uri::ResourceUri;

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

/// The result of a call that both eras have.
#[derive(Debug, Clone)]
pub enum CallResult {
    /// A page of resources, in byte order of their URIs.
    Resources(Page<Resource>),
    /// A page of resource templates, in byte order.
    Templates(Page<ResourceTemplate>),
    /// A page of prompts, in byte order of their names.
    Prompts(Page<Prompt>),
    /// The contents of a resource.
    Contents(Contents),
    /// The messages of a prompt.
    Prompt(Messages),
    /// The values offered for an argument.
    Completion(Completion),
    /// The tools, of which there are none.
    Tools,
}

/// A page of definitions.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The definitions, in their order.
    pub items: Vec<Arc<T>>,
    /// Whether there are more after the last.
    pub more: bool,
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
    /// The revision that last changed what answered: the resource or the template.
    pub revision: Revision,
}

impl Contents {
    /// The URI that a part is answered with.
    pub fn uri_of<'a>(&'a self, part: &'a Content) -> &'a ResourceUri {
        part.uri.as_ref().unwrap_or(&self.uri)
    }

    /// The MIME type that a part is answered with.
    pub fn mime_type_of<'a>(&'a self, part: &'a Content) -> Option<&'a str> {
        part.mime_type.as_deref().or(self.mime_type.as_deref())
    }
}

/// One of a resource's contents, stored or rendered.
#[derive(Debug, Clone)]
pub struct Content {
    /// Its own URI, where it differs from the resource's.
    pub uri: Option<ResourceUri>,
    /// Its own MIME type, where it was given one.
    pub mime_type: Option<String>,
    /// How it travels.
    pub kind: PartKind,
    /// Decoded.
    pub bytes: Bytes,
}

impl Content {
    /// A stored part with its bytes.
    pub fn stored(part: &Part, bytes: Bytes) -> Self {
        Self { uri: part.uri.clone(), mime_type: part.mime_type.clone(), kind: part.kind, bytes }
    }

    /// A text of the resource's own URI and MIME type.
    pub fn text(bytes: Bytes) -> Self {
        Self { uri: None, mime_type: None, kind: PartKind::Text, bytes }
    }
}

/// The messages of one prompt, rendered.
#[derive(Debug, Clone)]
pub struct Messages {
    /// What the prompt is for.
    pub description: Option<String>,
    /// The messages, in their order.
    pub messages: Vec<PromptMessage>,
    /// Whether the same arguments give the same messages until the prompt changes: not where they embed registered
    /// resources.
    pub settled: bool,
    /// The revision that last changed the prompt.
    pub revision: Revision,
}

/// Values that are offered for an argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// The best of them.
    pub values: Vec<String>,
    /// How many there are.
    pub total: usize,
}
