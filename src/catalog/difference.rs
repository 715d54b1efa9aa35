//! The difference between a stored definition and the one that replaces it.

use crate::model::prompt::{NewPrompt, Prompt};
use crate::model::resource::{ContentHash, NewResource, Resource};
use crate::model::scope::ChangeKind;
use crate::model::template::{NewTemplate, ResourceTemplate};
use crate::store::write::{Put, Removal};

/// How a definition differs from its replacement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Difference {
    /// The kind of the change.
    kind: ChangeKind,
    /// Whether its contents differ.
    contents: bool,
}

/// A kind of definition, identified by a key.
pub(super) trait Registered {
    /// A definition to be written.
    type New;
    const ADDED: ChangeKind;
    const REMOVED: ChangeKind;

    fn key(&self) -> &str;

    fn key_of(new: &Self::New) -> &str;

    /// How it differs from its replacement, if it does.
    fn difference(&self, new: &Self::New) -> Option<Difference>;

    /// The hashes of its contents.
    fn names(&self) -> Vec<ContentHash>;
}

/// The write that replaces a stored definition, if any, by a new one; `None` where both are the same.
pub(super) fn step<'n, R: Registered>(
    old: Option<&R>,
    new: &'n R::New,
) -> Option<(ChangeKind, Put<'n, R::New>)> {
    let Some(old) = old else { return Some((R::ADDED, Put { new, freed: Some(Vec::new()) })) };
    let Difference { kind, contents } = old.difference(new)?;
    Some((kind, Put { new, freed: contents.then(|| old.names()) }))
}

/// The write that removes a stored definition.
pub(super) fn removal<R: Registered>(old: &R) -> Removal<'_> {
    Removal { key: old.key(), freed: old.names() }
}

impl Registered for Resource {
    type New = NewResource;
    const ADDED: ChangeKind = ChangeKind::ResourceAdded;
    const REMOVED: ChangeKind = ChangeKind::ResourceRemoved;

    fn key(&self) -> &str {
        self.uri.as_str()
    }

    fn key_of(new: &NewResource) -> &str {
        new.uri.as_str()
    }

    fn names(&self) -> Vec<ContentHash> {
        self.parts.iter().map(|part| part.hash).collect()
    }

    fn difference(&self, new: &NewResource) -> Option<Difference> {
        let contents = !self.parts.iter().eq(new.parts.iter().map(|new| &new.part));
        let kind = if self.definition == new.definition {
            contents.then_some(ChangeKind::ResourceContents)
        } else {
            Some(ChangeKind::ResourceDefined)
        };
        kind.map(|kind| Difference { kind, contents })
    }
}

impl Registered for ResourceTemplate {
    type New = NewTemplate;
    const ADDED: ChangeKind = ChangeKind::TemplateAdded;
    const REMOVED: ChangeKind = ChangeKind::TemplateRemoved;

    fn key(&self) -> &str {
        self.uri_template.as_str()
    }

    fn key_of(new: &NewTemplate) -> &str {
        new.uri_template.as_str()
    }

    fn names(&self) -> Vec<ContentHash> {
        vec![self.body]
    }

    fn difference(&self, new: &NewTemplate) -> Option<Difference> {
        let contents = self.body != new.body.hash;
        let kind = if self.definition != new.definition {
            Some(ChangeKind::TemplateDefined)
        } else if contents {
            Some(ChangeKind::TemplateBody)
        } else {
            (self.completions != new.completions).then_some(ChangeKind::TemplateCompletions)
        };
        kind.map(|kind| Difference { kind, contents })
    }
}

impl Registered for Prompt {
    type New = NewPrompt;
    const ADDED: ChangeKind = ChangeKind::PromptAdded;
    const REMOVED: ChangeKind = ChangeKind::PromptRemoved;

    fn key(&self) -> &str {
        self.name.as_str()
    }

    fn key_of(new: &NewPrompt) -> &str {
        new.name.as_str()
    }

    fn names(&self) -> Vec<ContentHash> {
        vec![self.messages]
    }

    fn difference(&self, new: &NewPrompt) -> Option<Difference> {
        let contents = self.messages != new.messages.hash;
        let (old, asked) = (&self.arguments, &new.arguments);
        let same_length = old.len() == asked.len();
        let listed_alike = same_length && old.iter().zip(asked).all(|(old, asked)| old.is_listed_as(asked));
        let kind = if listed_alike && self.definition == new.definition {
            (contents || old != asked).then_some(ChangeKind::PromptMessages)
        } else {
            Some(ChangeKind::PromptDefined)
        };
        kind.map(|kind| Difference { kind, contents })
    }
}
