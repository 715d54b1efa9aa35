//! From a change to what clients are told of.

use super::topic::Topic;
use crate::feed::Feed;
use crate::model::scope::{Change, ChangeKind, Revision};
use crate::model::uri::ResourceUri;

/// What a change touches of what clients may want to hear of.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Touched {
    /// A list of resources or of resource templates shows something else.
    ResourceList,
    /// The list of prompts shows something else.
    PromptList,
    /// A URI is answered otherwise.
    Resource(ResourceUri),
}

impl Feed {
    /// What changes touch, of these URIs and the lists. The URIs are asked for where resource templates changed.
    pub(super) async fn touched(
        &self,
        topic: &Topic,
        changes: &[Change],
        uris: impl FnOnce() -> Vec<ResourceUri>,
    ) -> Vec<(Revision, Touched)> {
        let mut touched: Vec<_> = changes.iter().flat_map(direct).collect();
        let of_templates: Vec<_> =
            changes.iter().filter(|change| reaches_by_template(change.kind)).cloned().collect();
        let Some(last) = of_templates.last().map(|change| change.revision) else { return touched };
        let uris = uris();
        if uris.is_empty() {
            return touched;
        }
        let served = match self.follower() {
            Some(follower) => follower.served(topic.tenant, topic.agent, &of_templates, &uris).await.ok(),
            None => None,
        };
        match served {
            Some(served) => {
                touched.extend(served.into_iter().map(|(revision, uri)| (revision, Touched::Resource(uri))));
            }
            // What is not known to be the same may have changed.
            None => touched.extend(uris.into_iter().map(|uri| (last, Touched::Resource(uri)))),
        }
        touched
    }
}

/// Whether it may change what URIs without a resource of their own are answered with.
fn reaches_by_template(kind: ChangeKind) -> bool {
    kind.relists_templates() || kind == ChangeKind::TemplateBody
}

fn direct(change: &Change) -> impl Iterator<Item = (Revision, Touched)> {
    let kind = change.kind;
    let relists =
        matches!(kind, ChangeKind::ResourceAdded | ChangeKind::ResourceRemoved | ChangeKind::ResourceDefined);
    let list = if relists || kind.relists_templates() {
        Some(Touched::ResourceList)
    } else {
        kind.relists_prompts().then_some(Touched::PromptList)
    };
    let uri = if kind.is_of_resource() { ResourceUri::parse(&change.subject).ok() } else { None };
    let revision = change.revision;
    list.into_iter().chain(uri.map(Touched::Resource)).map(move |touched| (revision, touched))
}
