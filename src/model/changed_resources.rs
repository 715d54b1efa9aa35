//! A few changes of an agent, with the resources that they concern.

use time::OffsetDateTime;

use super::audience::Audience;
use super::resource::Resource;
use super::scope::{Change, ChangeKind, Head};

/// The maximum number of these changes.
pub const MAX_CHANGES: usize = 4;

/// A few changes of an agent, all of them of resources.
#[derive(Debug)]
pub struct ChangedResources {
    /// The head of the agent's scope. Its floor is the revision that was asked for: nothing is pruned since.
    pub head: Head,
    /// The changes after the revision that was asked for, in order.
    pub changes: Vec<Change>,
    /// Whom each of them concerns, and when it was made, by the database's clock.
    pub audiences: Vec<(Audience, OffsetDateTime)>,
    /// The resources that still exist, in byte order of their URIs.
    pub resources: Vec<Resource>,
}

impl ChangedResources {
    /// Whether changes are few and concern these resources alone, each registered in one part at most: then nothing else is to be
    /// read.
    pub fn suffice(changes: &[Change], resources: &[Resource]) -> bool {
        let is_of_resource = |kind: ChangeKind| kind.is_of_resource() && kind != ChangeKind::ResourceTouched;
        changes.len() <= MAX_CHANGES
            && changes.iter().all(|change| is_of_resource(change.kind))
            && resources.iter().all(|resource| resource.source.is_none() && resource.parts.len() <= 1)
    }
}

#[cfg(test)]
mod tests {
    use super::{ChangedResources, MAX_CHANGES};
    use crate::model::scope::{Change, ChangeKind, Revision};

    fn changes(kind: ChangeKind, count: usize) -> Vec<Change> {
        let change = |at: usize| Change {
            revision: Revision(at.try_into().unwrap()),
            kind,
            subject: "file:///a".to_owned(),
        };
        (0..count).map(change).collect()
    }

    #[test]
    fn few_changes_of_resources_alone_suffice() {
        let sufficing: Vec<_> = ChangeKind::ALL
            .iter()
            .filter(|kind| ChangedResources::suffice(&changes(**kind, MAX_CHANGES), &[]))
            .map(|kind| kind.as_str())
            .collect();
        let of_resources = ["resource_added", "resource_removed", "resource_defined", "resource_contents"];
        assert_eq!(sufficing, of_resources);
        assert!(!ChangedResources::suffice(&changes(ChangeKind::ResourceAdded, MAX_CHANGES + 1), &[]));
        assert!(!ChangedResources::suffice(&changes(ChangeKind::Unknown, 1), &[]));
        assert!(ChangedResources::suffice(&[], &[]));
    }
}
