//! What changes of an agent affect: subjects that streams are interested in, and for whom.

use std::collections::HashSet;

use super::topic::Topic;
use crate::feed::service::Feed;
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
    pub(super) watched: Watched,
    /// The affected URIs by caller.
    pub(super) served: Vec<ServedAnew>,
}

/// Subscribed URIs, and the labels of the callers of streams.
#[derive(Debug)]
pub(super) struct Watched {
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
    /// The content of a URI.
    Resource(ResourceUri),
}

/// Whether the change may affect URIs that are served by a resource template.
fn affects_templated_uris(kind: ChangeKind) -> bool {
    kind.relists_templates() || kind == ChangeKind::TemplateBody
}

/// The subjects that a change affects without regard to templates, each with its revision.
fn directly_affected(change: &Change) -> impl Iterator<Item = (Revision, Affected)> {
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

impl Feed {
    /// What changes affect. `watched` is called if resource templates changed, to find out which URIs are served
    /// differently.
    pub(super) async fn effects_of(
        &self,
        topic: &Topic,
        changes: &[(Change, Audience)],
        watched: impl FnOnce() -> Watched,
    ) -> Effects {
        let direct = changes.iter().flat_map(|(change, audience)| {
            directly_affected(change).map(|(revision, affected)| (revision, affected, audience.clone()))
        });
        Effects { direct: direct.collect(), templates: self.template_effects(topic, changes, watched).await }
    }

    async fn template_effects(
        &self,
        topic: &Topic,
        changes: &[(Change, Audience)],
        watched: impl FnOnce() -> Watched,
    ) -> Option<TemplateEffects> {
        let changes: Vec<_> =
            changes.iter().filter(|(change, _)| affects_templated_uris(change.kind)).cloned().collect();
        let last = changes.last()?.0.revision;
        let audience = changes.iter().map(|(_, audience)| audience.clone()).reduce(Audience::or)?;
        let watched = watched();
        let Watched { uris, callers, .. } = &watched;
        let served = match self.follower.get() {
            _ if uris.is_empty() => Vec::new(),
            Some(follower) => follower.served(topic.tenant, topic.agent, &changes, uris, callers).await,
            None => vec![ServedAnew::unknown(&changes, callers)],
        };
        Some(TemplateEffects { last, audience, watched, served })
    }
}
