//! What a client asks for and what it is told, in no revision's words.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::message::Message;
use super::prompt::{Prompt, PromptName};
use super::resource::{Part, PartKind, Resource};
use super::scope::Revision;
use super::template::ResourceTemplate;
use super::uri::ResourceUri;

/// A request that reads the registry, whichever revision of the protocol it came in.
///
/// The contents of a resource are read past it: what answers to a URI is looked up once, to know the result by and to
/// make it from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// The definitions of resources after a position, in byte order of their URIs.
    ListResources {
        /// The last URI of the page before; `None` for the first page.
        after: Option<String>,
    },
    /// The definitions of resource templates after a position, in byte order.
    ListTemplates {
        /// The last template of the page before; `None` for the first page.
        after: Option<String>,
    },
    /// The definitions of prompts after a position, in byte order of their names.
    ListPrompts {
        /// The last name of the page before; `None` for the first page.
        after: Option<String>,
    },
    /// The messages of a prompt.
    GetPrompt {
        /// Which.
        name: PromptName,
        /// The values of its arguments, by name.
        arguments: Arc<BTreeMap<String, String>>,
    },
    /// Values for an argument of a prompt or a variable of a template.
    Complete {
        /// Of what.
        reference: Reference,
        /// Which argument or variable.
        argument: String,
        /// What of it is written so far.
        value: String,
    },
}

/// What a completion is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// An argument of the prompt of this name.
    Prompt(String),
    /// A variable of this resource template.
    Template(String),
}

/// What an [`Operation`] comes to.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// A page of resources, in byte order of their URIs.
    Resources(Page<Resource>),
    /// A page of resource templates, in byte order.
    Templates(Page<ResourceTemplate>),
    /// A page of prompts, in byte order of their names.
    Prompts(Page<Prompt>),
    /// What a resource holds.
    Contents(Contents),
    /// What a prompt says.
    Prompt(Messages),
    /// Values that are offered.
    Completion(Completion),
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
    pub messages: Vec<Message>,
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
