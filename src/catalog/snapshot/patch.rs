//! Patches a snapshot with the changes since its revision.

use super::AgentSnapshot;
use super::definitions::Definitions;
use super::labelled_map::LabelledMap;
use crate::model::audience::Audience;
use crate::model::definition::DefinitionKind;
use crate::model::kinds::{Member, each_kind};
use crate::model::scope::{Change, ChangeKind};
use crate::store::agent_rows::AgentState;

/// The maximum number of changes to patch; a snapshot further behind is loaded again.
pub(super) const MAX_CHANGES: usize = 10_000;

impl AgentSnapshot {
    /// Whether the changes that were read are all that happened since this snapshot, and are all of known kinds.
    pub(super) fn is_patched_by(&self, state: &AgentState) -> bool {
        let unknown = |change: &Change| change.kind == ChangeKind::Unknown;
        state.head.revision >= self.revision
            && state.head.floor <= self.revision
            && state.changes.len() <= MAX_CHANGES
            && !state.changes.iter().any(unknown)
    }

    /// The snapshot with the changes since.
    pub(super) fn patched(&self, state: &mut AgentState) -> Self {
        let AgentState { head, description, changes, audiences, definitions, entries, .. } = state;
        let mut all = self.definitions.all.clone();
        each_kind!(K => {
            let now = std::mem::take(K::of_mut(definitions));
            replace::<K>(K::of_mut(&mut all), changes, now);
        });
        let matched = changes.iter().any(|change| change.kind.is_of_template());
        let trees = self.definitions.trees.after(&all.mounts, changes, std::mem::take(entries));
        let templates = (!matched).then(|| self.definitions.templates.clone());
        let definitions = Definitions::indexed(all, templates, trees);
        let resource = |change: &Change| definitions.all.resources.get(&change.subject);
        // Of a resource alone if no others are concerned than those who see it: a mount or a template may answer these.
        let is_of_resource = |change: &Change, audience: &Audience| {
            resource(change).is_some_and(|resource| Audience::of(&resource.labels) == *audience)
        };
        let audiences = audiences.iter().map(|(audience, _)| audience);
        let others = changes.iter().zip(audiences).filter(|(change, of)| !is_of_resource(change, of));
        let touched = self.touched.after(others.map(|(change, _)| change));
        let of_resources = changes.iter().filter(|change| resource(change).is_some());
        let touched_resources = self.touched_resources.after(of_resources);
        Self {
            changed: self.changed.after(changes),
            touched,
            touched_resources,
            ..Self::new(self.timeline, head.revision, description.clone(), definitions)
        }
    }
}

/// Replaces the definitions of one kind that changed by those that exist now.
fn replace<K: DefinitionKind>(all: &mut LabelledMap<K>, changes: &[Change], now: Vec<K>) {
    for change in changes.iter().filter(|change| (K::IS_CHANGED_BY)(change.kind)) {
        all.remove(&change.subject);
    }
    for definition in now {
        all.insert(definition);
    }
}
