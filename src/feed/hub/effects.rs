//! What changes of an agent affect: subjects that streams are interested in, and for whom.

use std::collections::HashSet;

use crate::model::audience::Audience;
use crate::model::feed::ServedAnew;
use crate::model::ids::ResourceUri;
use crate::model::label::CallerLabels;
use crate::model::scope::{Change, ChangeKind, Revision};

/// What changes affect.
#[derive(Debug, Default)]
pub(super) struct Effects {
    /// Subjects without regard to templates, each with the revision and the audience of the change.
    pub(super) direct: Vec<(Revision, Affected, Audience)>,
    /// If resource templates changed: the URIs that they serve.
    pub(super) templates: Option<TemplateEffects>,
}

/// The URIs that changes of resource templates affect. Which these are depends on what a caller sees.
#[derive(Debug)]
pub(super) struct TemplateEffects {
    /// The last of the changes.
    pub(super) last: Revision,
    /// The audience of all of the changes.
    pub(super) audience: Audience,
    /// The URIs and callers in question.
    pub(super) subscribed: SubscribedUris,
    /// The affected URIs by caller.
    pub(super) served: Vec<ServedAnew>,
}

/// Subscribed URIs, and the labels of the callers of streams.
#[derive(Debug)]
pub(super) struct SubscribedUris {
    pub(super) uris: Vec<ResourceUri>,
    pub(super) callers: HashSet<CallerLabels>,
    /// Number of URIs that had been added to the topic.
    pub(super) additions: u64,
}

/// A subject that a change affects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Affected {
    /// The list of resources or of resource templates.
    ResourceList,
    /// The list of prompts.
    PromptList,
    /// The list of tools.
    ToolList,
    /// The content of a URI.
    Resource(ResourceUri),
}

/// Whether the change may affect URIs that are served by a resource template or a mount. For whom depends on what a caller
/// sees.
pub(super) fn affects_templated_uris(change: &Change) -> bool {
    let of_definitions = matches!(change.kind, ChangeKind::TemplateBody | ChangeKind::MountServed);
    change.kind.relists_templates() || of_definitions || change.is_of_variant()
}

/// The subjects that a change affects without regard to templates, each with its revision.
pub(super) fn directly_affected(change: &Change) -> impl Iterator<Item = (Revision, Affected)> {
    // Each kind by its name, so that the compiler asks about a new one.
    let (list, has_uri) = match change.kind {
        ChangeKind::ResourceAdded | ChangeKind::ResourceRemoved | ChangeKind::ResourceDefined => {
            (Some(Affected::ResourceList), true)
        }
        ChangeKind::ResourceContents | ChangeKind::SkillFile => (None, true),
        ChangeKind::ResourceTouched => (None, !change.is_of_variant()),
        ChangeKind::TemplateAdded
        | ChangeKind::TemplateRemoved
        | ChangeKind::TemplateDefined
        | ChangeKind::SkillAdded
        | ChangeKind::SkillRemoved
        | ChangeKind::SkillChanged
        | ChangeKind::MountAdded
        | ChangeKind::MountRemoved
        | ChangeKind::MountDefined
        | ChangeKind::MountListed => (Some(Affected::ResourceList), false),
        ChangeKind::EntryAdded | ChangeKind::EntryRemoved => (Some(Affected::ResourceList), true),
        ChangeKind::PromptAdded | ChangeKind::PromptRemoved | ChangeKind::PromptDefined => {
            (Some(Affected::PromptList), false)
        }
        ChangeKind::AgentTools => (Some(Affected::ToolList), false),
        // Which URIs these affect depends on the templates and mounts that a caller sees.
        ChangeKind::TemplateBody
        | ChangeKind::EntryChanged
        | ChangeKind::MountServed
        | ChangeKind::MountRequested
        | ChangeKind::TemplateCompletions
        | ChangeKind::PromptMessages
        | ChangeKind::Slug
        | ChangeKind::Tenant
        | ChangeKind::Agent
        | ChangeKind::Key
        | ChangeKind::Hook
        | ChangeKind::Connection
        | ChangeKind::ConnectionKey
        | ChangeKind::SessionSubscription
        | ChangeKind::SessionLevel
        | ChangeKind::SessionStream
        | ChangeKind::SessionEnded
        | ChangeKind::Unknown => (None, false),
    };
    // After the name of a mount.
    let uri = change.subject.rsplit(' ').next().filter(|_| has_uri);
    let uri = uri.and_then(|uri| ResourceUri::parse(uri).ok());
    let revision = change.revision;
    list.into_iter().chain(uri.map(Affected::Resource)).map(move |affected| (revision, affected))
}
