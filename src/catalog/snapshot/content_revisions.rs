//! When content from connections changed: for each URI, the newest revision at which it did.

use std::collections::HashMap;
use std::sync::Arc;

use crate::model::allocated::{allocated, behind_arc, table};
use crate::model::scope::{Change, ChangeKind, Revision};

/// The maximum number of URIs; above it all count as changed.
const MAX_URIS: usize = 4_096;

/// The newest revisions at which the content of URIs changed.
#[derive(Debug, Clone)]
pub(super) struct ContentRevisions {
    /// The revision of all URIs that are not in `by_uri`.
    floor: Revision,
    by_uri: Arc<HashMap<Box<str>, Revision>>,
}

impl ContentRevisions {
    /// Everything may have changed up to a revision.
    pub(super) fn all_at(floor: Revision) -> Self {
        Self { floor, by_uri: Arc::default() }
    }

    /// The revision at which the content of a URI, or of a variant of it, last changed, or a later one.
    pub(super) fn of(&self, subject: &str) -> Revision {
        self.by_uri.get(subject).copied().unwrap_or(self.floor)
    }

    /// Whether the content of a URI, or of a variant of it, is known to have last changed at a revision.
    pub(super) fn is_at(&self, subject: &str, revision: Revision) -> bool {
        self.by_uri.get(subject) == Some(&revision)
    }

    /// These revisions, with those of later changes of content.
    pub(super) fn after<'c>(&self, changes: impl IntoIterator<Item = &'c Change>) -> Self {
        let is_of_content = |change: &&Change| change.kind == ChangeKind::ResourceTouched;
        let mut touched = self.clone();
        for change in changes.into_iter().filter(is_of_content) {
            if touched.by_uri.len() >= MAX_URIS {
                touched = Self::all_at(change.revision);
            } else {
                Arc::make_mut(&mut touched.by_uri).insert(change.subject.as_str().into(), change.revision);
            }
        }
        touched
    }

    pub(super) fn memory(&self) -> usize {
        let uris = self.by_uri.keys().map(|uri| allocated(uri.len())).sum::<usize>();
        behind_arc(table::<(Box<str>, Revision)>(self.by_uri.capacity())) + uris
    }
}

#[cfg(test)]
mod tests {
    use super::{ContentRevisions, MAX_URIS};
    use crate::model::scope::{Change, ChangeKind, Revision};

    fn change(revision: i64, subject: &str) -> Change {
        Change {
            revision: Revision(revision),
            kind: ChangeKind::ResourceTouched,
            subject: subject.to_owned(),
        }
    }

    #[test]
    fn changed_uris_have_the_revision_of_their_change() {
        let touched = ContentRevisions::all_at(Revision(5));
        let defined = Change { kind: ChangeKind::ResourceDefined, ..change(7, "a:defined") };
        let touched = touched.after(&[change(6, "a:b"), defined]);
        let of = |touched: &ContentRevisions, uri: &str| touched.of(uri).0;
        assert_eq!((of(&touched, "a:b"), of(&touched, "a:c"), of(&touched, "a:defined")), (6, 5, 5));
        let many: Vec<_> = (0..MAX_URIS).map(|number| change(10, &format!("a:{number}"))).collect();
        let touched = touched.after(&many);
        assert_eq!((of(&touched, "a:b"), touched.by_uri.len() <= MAX_URIS), (10, true));
    }
}
