//! Maps changes to the subjects that clients can subscribe to.

use crate::model::ids::ResourceUri;
use crate::model::scope::{Change, ChangeKind, Revision};

/// A subject that a change affects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Affected {
    /// The list of resources or of resource templates.
    ResourceList,
    /// The list of prompts.
    PromptList,
    /// The content of a URI.
    Resource(ResourceUri),
}

/// Whether the change may affect URIs that are served by a resource template.
pub(super) fn affects_templated_uris(kind: ChangeKind) -> bool {
    kind.relists_templates() || kind == ChangeKind::TemplateBody
}

/// The subjects that a change affects without regard to templates, each with its revision.
pub(super) fn directly_affected(change: &Change) -> impl Iterator<Item = (Revision, Affected)> {
    let kind = change.kind;
    let relists =
        matches!(kind, ChangeKind::ResourceAdded | ChangeKind::ResourceRemoved | ChangeKind::ResourceDefined);
    let list = if relists || kind.relists_templates() {
        Some(Affected::ResourceList)
    } else {
        kind.relists_prompts().then_some(Affected::PromptList)
    };
    let uri = if kind.is_of_resource() { ResourceUri::parse(&change.subject).ok() } else { None };
    let revision = change.revision;
    list.into_iter().chain(uri.map(Affected::Resource)).map(move |affected| (revision, affected))
}
