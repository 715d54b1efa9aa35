//! Finds the subscribed URIs whose content is affected by changes of resource templates and mounts.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use uri_template::UriTemplate;

use super::Catalog;
use super::prefix_index::PrefixIndex;
use super::read::{LIGHT_COMPARISONS, MAX_COMPARISONS};
use super::snapshot::AgentSnapshot;
use super::snapshot::view::View;
use crate::model::audience::Audience;
use crate::model::caller::Payer;
use crate::model::feed::ServedAnew;
use crate::model::ids::{ResourceUri, TenantId};
use crate::model::label::CallerLabels;
use crate::model::resource::Resource;
use crate::model::scope::{Change, ChangeKind, Revision};
use crate::model::template::ResourceTemplate;
use crate::model::variant::Variant;

/// The maximum number of changed templates; above it all URIs count as changed.
const MAX_TEMPLATES: usize = 1_000;
/// The maximum number of groups of callers for each of which answers are compared. Callers beyond are notified of each change of
/// content that concerns them, without a comparison.
const MAX_GROUPS: usize = 16;

/// A template that changed, and how.
struct ChangedTemplate {
    template: UriTemplate,
    changes: Vec<(Revision, ChangeKind)>,
}

/// Callers who see the same definitions, and whom the same changes concern.
struct Group {
    view: View,
    /// The labels that decide what they see.
    labels: CallerLabels,
    concerning: Vec<bool>,
    callers: HashSet<CallerLabels>,
}

impl Catalog {
    /// The URIs that are served differently to each of the callers.
    pub(super) async fn served_anew(
        &self,
        tenant: TenantId,
        snapshot: &Arc<AgentSnapshot>,
        changes: &[(Change, Audience)],
        uris: &[ResourceUri],
        callers: &HashSet<CallerLabels>,
    ) -> Vec<ServedAnew> {
        // Of the files of mounts, most are ones that no stream is subscribed to.
        let subscribed: HashSet<_> = uris.iter().collect();
        let is_subscribed = |change: &Change| {
            !change.is_of_variant() || variant(change).is_some_and(|found| subscribed.contains(&found.uri))
        };
        let changes: Vec<_> = changes.iter().filter(|(change, _)| is_subscribed(change)).cloned().collect();
        let (groups, others) = grouped(snapshot, &changes, callers);
        let mut served = Vec::with_capacity(groups.len() + 1);
        for Group { view, concerning, callers, .. } in groups {
            let concerning = changes.iter().zip(concerning).filter(|(_, concerning)| *concerning);
            let changes: Vec<_> = concerning.map(|((change, _), _)| change.clone()).collect();
            let uris = self.answered_anew(tenant, view, &changes, uris).await;
            served.push(ServedAnew { callers, uris });
        }
        served.extend(changed_content(&changes, others));
        served
    }

    /// The URIs that are served differently, each with the revision of the change; `None` if determining it costs too
    /// much or is refused. Beyond a small cost it runs off the async threads, with a render permit of the tenant.
    async fn answered_anew(
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

/// The callers whom one of the changes concerns in at most [`MAX_GROUPS`] groups, and those beyond.
fn grouped(
    snapshot: &Arc<AgentSnapshot>,
    changes: &[(Change, Audience)],
    callers: &HashSet<CallerLabels>,
) -> (Vec<Group>, HashSet<CallerLabels>) {
    let mut groups: Vec<Group> = Vec::new();
    let mut others = HashSet::new();
    for caller in callers {
        let concerning: Vec<_> = changes.iter().map(|(_, audience)| audience.includes(caller)).collect();
        if !concerning.contains(&true) {
            continue;
        }
        let view = View::new(Arc::clone(snapshot), || caller.clone());
        let labels = view.labels();
        let same = |group: &&mut Group| group.concerning == concerning && group.labels == labels;
        let full = groups.len() == MAX_GROUPS;
        match groups.iter_mut().find(same) {
            Some(group) => {
                group.callers.insert(caller.clone());
            }
            None if full => {
                others.insert(caller.clone());
            }
            None => {
                groups.push(Group { view, labels, concerning, callers: HashSet::from([caller.clone()]) });
            }
        }
    }
    (groups, others)
}

/// The URIs whose content changed for callers beyond the groups, whichever definition answers them: those of the changes
/// that concern a caller. All URIs if definitions changed that concern it, or if telling callers apart costs too much.
fn changed_content(changes: &[(Change, Audience)], callers: HashSet<CallerLabels>) -> Vec<ServedAnew> {
    if changes.len().saturating_mul(callers.len()) > MAX_COMPARISONS {
        return vec![ServedAnew::unknown(changes, &callers)];
    }
    let mut by_changes: HashMap<Vec<bool>, HashSet<CallerLabels>> = HashMap::new();
    for caller in callers {
        let concerning = changes.iter().map(|(_, audience)| audience.includes(&caller)).collect();
        by_changes.entry(concerning).or_default().insert(caller);
    }
    let served = by_changes.into_iter().map(|(concerning, callers)| {
        let concerning = changes.iter().zip(concerning).filter(|(_, concerning)| *concerning);
        let of_content = concerning.map(|((change, _), _)| Some((change.revision, variant(change)?.uri)));
        ServedAnew { callers, uris: of_content.collect() }
    });
    served.collect()
}

fn answered_anew(
    view: &View,
    changes: &[Change],
    uris: &[ResourceUri],
) -> Option<Vec<(Revision, ResourceUri)>> {
    let (of_content, changes): (Vec<_>, Vec<_>) = changes.iter().cloned().partition(Change::is_of_variant);
    let (of_mounts, changes): (Vec<_>, Vec<_>) =
        changes.into_iter().partition(|change| change.kind == ChangeKind::MountServed);
    let templates = by_template(&changes)?;
    let index = PrefixIndex::new(templates.iter().map(|changed| changed.template.literal_prefix()));
    let mut left = MAX_COMPARISONS;
    let mut found = Vec::new();
    for change in &of_content {
        let Some(variant) = variant(change) else { continue };
        left = left.checked_sub(view.comparisons(&variant.uri))?;
        let answering = view.answering(&variant.uri);
        if answering.is_ok_and(|answering| answering.variant(&variant.uri) == variant) {
            found.push((change.revision, variant.uri));
        }
    }
    if of_mounts.is_empty() && templates.is_empty() {
        return Some(found);
    }
    for uri in uris.iter().filter(|uri| view.get::<Resource>(uri.as_str()).is_none()) {
        left = left.checked_sub(1 + of_mounts.len())?;
        let mounts = of_mounts.iter().filter(|change| uri.as_str().starts_with(&change.subject));
        found.extend(mounts.map(|change| (change.revision, uri.clone())));
        // A file of a mount goes before templates.
        if !templates.is_empty() && view.mounted(uri.as_str()).is_some() {
            continue;
        }
        left = left.checked_sub(1 + index.count(uri.as_str(), None))?;
        let mut matching = index
            .candidates(uri.as_str(), None)
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
            let visible = view.get::<ResourceTemplate>(changed.template.as_str()).is_some();
            let serves = |kind| changed.serves(kind, visible, present.as_ref());
            let serving = changed.changes.iter().filter(|(_, kind)| serves(*kind));
            found.extend(serving.map(|(revision, _)| (*revision, uri.clone())));
        }
    }
    Some(found)
}

/// The content that changed, if the change is one of what a definition answers a URI with.
fn variant(change: &Change) -> Option<Variant> {
    change.is_of_variant().then(|| Variant::parse(&change.subject)).flatten()
}

/// The changes of each template, by its text; `None` if there are too many.
fn by_template(changes: &[Change]) -> Option<Vec<ChangedTemplate>> {
    let mut by_text: BTreeMap<&str, Vec<(Revision, ChangeKind)>> = BTreeMap::new();
    for change in changes {
        by_text.entry(&change.subject).or_default().push((change.revision, change.kind));
        if by_text.len() > MAX_TEMPLATES {
            return None;
        }
    }
    let parsed = by_text.into_iter();
    Some(
        parsed
            .filter_map(|(text, changes)| {
                Some(ChangedTemplate { template: UriTemplate::parse(text).ok()?, changes })
            })
            .collect(),
    )
}

impl ChangedTemplate {
    fn matches(&self, uri: &ResourceUri) -> bool {
        // Whether it had a source is not known of one that is gone.
        self.template.matches_any_text(uri.as_str()).is_some()
    }

    /// Whether the template serves a URI that it matches, or did until it was removed or hidden; `present` is the one that
    /// serves it now.
    fn serves(&self, kind: ChangeKind, visible: bool, present: Option<&UriTemplate>) -> bool {
        let ended = kind == ChangeKind::TemplateRemoved || kind == ChangeKind::TemplateDefined && !visible;
        match present {
            Some(present) if *present == self.template => true,
            Some(present) => ended && self.template.specificity() > present.specificity(),
            None => ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::changed_content;
    use crate::model::audience::Audience;
    use crate::model::label::{CallerLabels, Labels};
    use crate::model::scope::{Change, ChangeKind, Revision};

    fn labels(texts: &[&str]) -> Labels {
        Labels::parse(texts.iter().copied()).unwrap()
    }

    fn change(revision: i64, kind: ChangeKind, subject: &str, seen_by: &[&str]) -> (Change, Audience) {
        let change = Change { revision: Revision(revision), kind, subject: subject.to_owned() };
        (change, Audience::of(&labels(seen_by)))
    }

    /// What is served anew to callers with each of these labels: the URIs, or that this is not known.
    fn served(changes: &[(Change, Audience)], callers: &[&str]) -> Vec<Option<Option<Vec<String>>>> {
        let caller = |label: &&str| CallerLabels::These(labels(&[label]));
        let served = changed_content(changes, callers.iter().map(caller).collect::<HashSet<_>>());
        let of_caller = |label| {
            let served = served.iter().find(|served| served.callers.contains(&caller(label)))?;
            let uris = served.uris.as_ref();
            Some(uris.map(|uris| uris.iter().map(|(revision, uri)| format!("{revision} {uri}")).collect()))
        };
        callers.iter().map(of_caller).collect()
    }

    #[test]
    fn hidden_content_is_not_served_anew_to_callers_beyond_the_groups() {
        let changes = [
            change(3, ChangeKind::EntryChanged, "m x:a", &["a"]),
            change(4, ChangeKind::EntryChanged, "m x:b", &["b"]),
            change(5, ChangeKind::EntryChanged, "m x:c", &[]),
        ];
        let uris = |texts: &[&str]| Some(Some(texts.iter().map(ToString::to_string).collect()));
        assert_eq!(
            served(&changes, &["a", "b", "c"]),
            [uris(&["3 x:a", "5 x:c"]), uris(&["4 x:b", "5 x:c"]), uris(&["5 x:c"])]
        );
        // Which URIs a template serves is not determined.
        let changes = [change(3, ChangeKind::TemplateBody, "x:{v}", &["a"]), changes[2].clone()];
        assert_eq!(served(&changes, &["a", "b"]), [Some(None), uris(&["5 x:c"])]);
    }
}
