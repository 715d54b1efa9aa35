//! Resource templates: a body that is rendered for every URI that matches a URI template.

use std::collections::BTreeMap;

use uri_template::UriTemplate;

use super::resource::{ContentHash, Definition, NewContent};
use super::scope::Revision;

/// Completion values of variables or arguments, by name.
pub type Completions = BTreeMap<String, Vec<String>>;

/// A registered resource template.
#[derive(Debug, Clone)]
pub struct ResourceTemplate {
    /// Pattern of the URIs.
    pub uri_template: UriTemplate,
    /// Definition.
    pub definition: Definition,
    /// Completion values of its variables.
    pub completions: Completions,
    /// Hash of the body that is rendered.
    pub body: ContentHash,
    /// The revision of the agent's scope that last changed it.
    pub revision: Revision,
}

/// A resource template to be registered.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTemplate {
    /// Pattern of the URIs.
    pub uri_template: UriTemplate,
    /// Definition.
    pub definition: Definition,
    /// Completion values of its variables.
    pub completions: Completions,
    /// The body, rendered with the values of the variables, in UTF-8.
    pub body: NewContent,
}
