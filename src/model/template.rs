//! Resource templates: a body that is rendered for every URI that matches a URI template.

use std::sync::Arc;

use bytes::Bytes;
use uri_template::UriTemplate;

use super::allocated::{behind_arc, texts};
use super::audit::digest::Digest;
use super::audit::fingerprint::{Fingerprint, Parts};
use super::completion::{CompletionValues, Completions};
use super::content::{ContentHash, NewContent};
use super::definition::{DefinitionKind, Difference};
use super::fault::Fault;
use super::label::Labels;
use super::place::SourcePlace;
use super::resource::Definition;
use super::scope::{ChangeKind, Revision};

/// The body of templates whose content is elsewhere. A gateway of an earlier release renders it, and one that it replaces
/// is not taken for one that has a source.
pub const PLACEHOLDER: &str =
    "This content comes from a connection, which this release of the gateway cannot read.";

/// The stored body of a template whose content is elsewhere.
pub fn placeholder() -> NewContent {
    NewContent::new(Bytes::from_static(PLACEHOLDER.as_bytes()))
}

/// A registered resource template.
#[derive(Debug, Clone)]
pub struct ResourceTemplate {
    /// Pattern of the URIs.
    pub uri_template: UriTemplate,
    /// Definition.
    pub definition: Definition,
    /// Labels of which a caller must have one to see it.
    pub labels: Labels,
    /// Completion values of its variables.
    pub completions: Completions,
    /// Hash of the body that is rendered; of [`PLACEHOLDER`] if the content is elsewhere.
    pub body: ContentHash,
    /// Where the content is, unless a body is rendered.
    pub source: Option<Arc<SourcePlace>>,
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
    /// Labels of which a caller must have one to see it.
    pub labels: Labels,
    /// Completion values of its variables.
    pub completions: Completions,
    /// The body, rendered with the values of the variables, in UTF-8; [`placeholder`] if the content is elsewhere.
    pub body: NewContent,
    /// Where the content is, unless a body is rendered.
    pub source: Option<Arc<SourcePlace>>,
}

/// About the memory of a parsed URI template: its text, the literals in it, and what it says of each variable.
fn memory_of(template: &UriTemplate) -> usize {
    const PARSED: usize = 256;
    const VARIABLE: usize = 160;
    behind_arc(PARSED) + 2 * texts([template.as_str()]) + VARIABLE * template.variables().len()
}

impl ResourceTemplate {
    /// The values of the variables with which it answers a URI, with their names; `None` if it does not. A body is rendered
    /// with values that expand, as a URI of its own; which values a source has is known to its place.
    pub fn values(&self, uri: &str) -> Option<Vec<(&str, String)>> {
        match &self.source {
            None => self.uri_template.matches(uri),
            Some(source) => self.uri_template.matches_any_text(uri).filter(|values| source.admits(values)),
        }
    }
}

impl DefinitionKind for ResourceTemplate {
    type Key = UriTemplate;
    type New = NewTemplate;

    const NAME: &'static str = "resource template";
    const LIST: &'static str = "templates";
    const KEY: &'static str = "uriTemplate";
    const ADDED: ChangeKind = ChangeKind::TemplateAdded;
    const REMOVED: ChangeKind = ChangeKind::TemplateRemoved;
    const IS_CHANGED_BY: fn(ChangeKind) -> bool = ChangeKind::is_of_template;
    const IS_RELISTED_BY: fn(ChangeKind) -> bool = ChangeKind::relists_templates;

    fn parse_key(text: &str) -> Result<UriTemplate, Fault> {
        UriTemplate::parse(text).map_err(|error| Fault::invalid_params(format!("uriTemplate {error}")))
    }

    fn key(&self) -> &UriTemplate {
        &self.uri_template
    }

    fn key_of(new: &NewTemplate) -> &UriTemplate {
        &new.uri_template
    }

    fn labels(&self) -> &Labels {
        &self.labels
    }

    fn labels_of(new: &NewTemplate) -> &Labels {
        &new.labels
    }

    fn memory(&self) -> usize {
        // A node of a map has eleven places and is two thirds full.
        let completions = self.completions.iter().map(|(name, values)| {
            size_of::<(String, CompletionValues)>() * 3 / 2 + texts([name.as_str()]) + values.heap()
        });
        behind_arc(size_of::<Self>())
            + memory_of(&self.uri_template)
            + self.definition.heap()
            + self.labels.heap()
            + completions.sum::<usize>()
            + self.source.as_ref().map_or(0, |source| source.memory())
    }

    fn revision(&self) -> Revision {
        self.revision
    }

    fn contents(&self) -> Vec<(ContentHash, Option<usize>)> {
        vec![(self.body, None)]
    }

    fn contents_of(new: &NewTemplate) -> impl Iterator<Item = (ContentHash, &Bytes)> {
        std::iter::once((new.body.hash, &new.body.bytes))
    }

    fn difference(&self, new: &NewTemplate) -> Option<Difference> {
        let contents = self.body != new.body.hash;
        let change = if self.definition != new.definition || self.labels != new.labels {
            Some(ChangeKind::TemplateDefined)
        } else if contents || self.source != new.source {
            Some(ChangeKind::TemplateBody)
        } else {
            (self.completions != new.completions).then_some(ChangeKind::TemplateCompletions)
        };
        change.map(|change| Difference { change, contents })
    }
}

impl Fingerprint for ResourceTemplate {
    fn fingerprint(&self) -> Digest {
        let more = (&self.labels, self.source.as_deref());
        fingerprint(&self.uri_template, &self.definition, &self.completions, self.body, more)
    }
}

impl Fingerprint for NewTemplate {
    fn fingerprint(&self) -> Digest {
        let more = (&self.labels, self.source.as_deref());
        fingerprint(&self.uri_template, &self.definition, &self.completions, self.body.hash, more)
    }
}

fn fingerprint(
    uri_template: &UriTemplate,
    definition: &Definition,
    completions: &Completions,
    body: ContentHash,
    (labels, source): (&Labels, Option<&SourcePlace>),
) -> Digest {
    let known = Parts::default().part(uri_template.as_str()).json(definition).json(completions).part(body.0);
    known.unless_default(labels).unless_default(&source.map(SourcePlace::text)).digest()
}
