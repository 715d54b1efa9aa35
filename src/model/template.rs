//! A resource template: a body that answers to every URI that its URI template matches.

use std::collections::BTreeMap;

use uri_template::UriTemplate;

use super::resource::{ContentHash, Definition, NewContent};
use super::scope::Revision;

/// Values that are offered for variables or arguments, by their names.
pub type Completions = BTreeMap<String, Vec<String>>;

/// A registered resource template.
#[derive(Debug, Clone)]
pub struct ResourceTemplate {
    /// What the URIs look like.
    pub uri_template: UriTemplate,
    /// What its owner says of it.
    pub definition: Definition,
    /// Values that are offered for its variables.
    pub completions: Completions,
    /// Where the body is that is rendered.
    pub body: ContentHash,
    /// The revision of the agent's scope that last changed it.
    pub revision: Revision,
}

/// A resource template as its owner wants it.
#[derive(Debug, Clone, PartialEq)]
pub struct NewTemplate {
    /// What the URIs look like.
    pub uri_template: UriTemplate,
    /// What its owner says of it.
    pub definition: Definition,
    /// Values that are offered for its variables.
    pub completions: Completions,
    /// What is rendered with the values of the variables, in UTF-8.
    pub body: NewContent,
}
