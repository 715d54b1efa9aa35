//! Finds the subscribed URIs whose content is affected by changes of resource templates.

use std::collections::BTreeMap;

use uri_template::UriTemplate;

use super::Catalog;
use super::prefix_index::PrefixIndex;
use super::read::{LIGHT_COMPARISONS, MOST_COMPARISONS};
use super::snapshot::view::View;
use crate::model::caller::Payer;
use crate::model::ids::{ResourceUri, TenantId};
use crate::model::resource::Resource;
use crate::model::scope::{Change, ChangeKind, Revision};

/// The maximum number of changed templates; above it all URIs count as changed.
const MOST_TEMPLATES: usize = 1_000;

/// A template that changed, and how.
struct Changed {
    template: UriTemplate,
    changes: Vec<(Revision, ChangeKind)>,
}

impl Catalog {
    /// The URIs that are served differently, each with the revision of the change; `None` if determining it costs too
    /// much or is refused. Beyond a small cost it runs off the async threads, with a render permit of the tenant.
    pub(super) async fn answered_anew(
        &self,
        tenant: TenantId,
        view: View,
        changes: &[Change],
        uris: &[ResourceUri],
    ) -> Option<Vec<(Revision, ResourceUri)>> {
        let templates = changes.len().saturating_add(view.template_count());
        if uris.len().saturating_mul(templates) <= LIGHT_COMPARISONS {
            return answered_anew(&view, changes, uris);
        }
        let (changes, uris) = (changes.to_vec(), uris.to_vec());
        let job = move || Ok(answered_anew(&view, &changes, &uris));
        self.renderer.run(Payer::Tenant(tenant), job).await.ok().flatten()
    }
}

fn answered_anew(
    view: &View,
    changes: &[Change],
    uris: &[ResourceUri],
) -> Option<Vec<(Revision, ResourceUri)>> {
    let templates = by_template(changes)?;
    let index = PrefixIndex::new(templates.iter().map(|changed| changed.template.literal_prefix()));
    let mut left = MOST_COMPARISONS;
    let mut found = Vec::new();
    for uri in uris.iter().filter(|uri| view.get::<Resource>(uri.as_str()).is_none()) {
        left = left.checked_sub(1 + index.count(uri.as_str()))?;
        let mut matching = index
            .candidates(uri.as_str())
            .map(|at| &templates[at])
            .filter(|changed| changed.matches(uri))
            .peekable();
        if matching.peek().is_none() {
            continue;
        }
        left = left.checked_sub(view.comparisons(uri))?;
        let present = view.template(uri).map(|found| found.template.uri_template.clone());
        for changed in matching {
            left = left.checked_sub(changed.changes.len())?;
            let serving = changed.changes.iter().filter(|(_, kind)| changed.serves(*kind, present.as_ref()));
            found.extend(serving.map(|(revision, _)| (*revision, uri.clone())));
        }
    }
    Some(found)
}

/// The changes of each template, by its text; `None` if there are too many.
fn by_template(changes: &[Change]) -> Option<Vec<Changed>> {
    let mut by_text: BTreeMap<&str, Vec<(Revision, ChangeKind)>> = BTreeMap::new();
    for change in changes {
        by_text.entry(&change.subject).or_default().push((change.revision, change.kind));
        if by_text.len() > MOST_TEMPLATES {
            return None;
        }
    }
    let parsed = by_text.into_iter();
    Some(
        parsed
            .filter_map(|(text, changes)| Some(Changed { template: UriTemplate::parse(text).ok()?, changes }))
            .collect(),
    )
}

impl Changed {
    fn matches(&self, uri: &ResourceUri) -> bool {
        self.template.matches(uri.as_str()).is_some()
    }

    /// Whether the template serves a URI that it matches, or did until it was removed; `present` is the one that serves
    /// it now.
    fn serves(&self, kind: ChangeKind, present: Option<&UriTemplate>) -> bool {
        match present {
            Some(present) if *present == self.template => true,
            Some(present) => {
                kind == ChangeKind::TemplateRemoved && self.template.specificity() > present.specificity()
            }
            None => kind == ChangeKind::TemplateRemoved,
        }
    }
}
