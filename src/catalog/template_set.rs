//! Template matching: an agent's resource templates in memory, the most specific first.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

use super::prefix_index::{PrefixIndex, TemplateSet};
use crate::model::allocated::{behind_arc, table};
use crate::model::ids::ResourceUri;
use crate::model::label::{Label, Labels};
use crate::model::scope::Revision;
use crate::model::template::ResourceTemplate;

/// A set of resource templates.
#[derive(Debug, Clone, Default)]
pub struct Templates {
    ranked: Arc<[Arc<ResourceTemplate>]>,
    /// Of `ranked`.
    index: Arc<PrefixIndex>,
    /// Of `ranked`; `None` if no template has labels.
    visibility: Option<Arc<Visibility>>,
}

/// The templates by what makes them visible.
#[derive(Debug, Default)]
struct Visibility {
    unlabelled: TemplateSet,
    by_label: HashMap<Label, TemplateSet>,
}

/// The template that serves a URI.
#[derive(Debug, Clone)]
pub struct Match {
    /// The template.
    pub template: Arc<ResourceTemplate>,
    /// The values of its variables, except for those that the URI omits.
    pub values: Vec<(String, String)>,
    /// The revision that last changed what the URI answers.
    pub revision: Revision,
}

impl Match {
    /// The match of a URI with a template.
    pub(super) fn of(template: &Arc<ResourceTemplate>, uri: &ResourceUri) -> Option<Self> {
        let values = template.values(uri.as_str())?;
        let values = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        Some(Self { template: Arc::clone(template), values, revision: template.revision })
    }
}

impl Templates {
    /// A set of these templates, which are in byte order of their texts.
    pub(super) fn new<'t>(by_text: impl Iterator<Item = &'t Arc<ResourceTemplate>>) -> Self {
        let mut ranked: Vec<_> = by_text.cloned().collect();
        // Stable, so that templates that are as specific as each other keep the order of their texts.
        ranked.sort_by_key(|template| Reverse(template.uri_template.specificity()));
        let prefixes = ranked.iter().map(|template| template.uri_template.literal_prefix());
        let index = Arc::new(PrefixIndex::new(prefixes));
        let visibility = Visibility::new(ranked.iter().map(|template| &template.labels)).map(Arc::new);
        Self { index, ranked: ranked.into(), visibility }
    }

    /// The memory of the index.
    pub(super) fn memory(&self) -> usize {
        let visibility = self.visibility.as_ref().map_or(0, |visibility| visibility.memory());
        behind_arc(size_of_val(&*self.ranked)) + self.index.memory() + visibility
    }

    /// The templates that a caller with these labels sees.
    pub(super) fn visible_to(&self, labels: &Labels) -> TemplateSet {
        self.visibility.as_ref().map(|visibility| visibility.of(labels)).unwrap_or_default()
    }

    /// The maximum number of visible templates that a URI is compared with.
    pub(super) fn candidates(&self, uri: &ResourceUri, visible: Option<&TemplateSet>) -> usize {
        self.index.count(uri.as_str(), visible)
    }

    /// The most specific visible template that matches a URI.
    pub(super) fn find(&self, uri: &ResourceUri, visible: Option<&TemplateSet>) -> Option<Match> {
        let mut candidates = self.index.candidates(uri.as_str(), visible);
        candidates.find_map(|at| Match::of(&self.ranked[at], uri))
    }
}

impl Visibility {
    /// By the labels of each template in order; `None` if none has any.
    fn new<'t>(labels: impl Iterator<Item = &'t Labels>) -> Option<Self> {
        let mut visibility = Self::default();
        for (template, labels) in labels.enumerate() {
            if labels.is_empty() {
                visibility.unlabelled.insert(template);
            }
            for label in labels.iter() {
                visibility.by_label.entry(label.clone()).or_default().insert(template);
            }
        }
        (!visibility.by_label.is_empty()).then_some(visibility)
    }

    fn of(&self, labels: &Labels) -> TemplateSet {
        let mut visible = self.unlabelled.clone();
        labels.iter().filter_map(|label| self.by_label.get(label)).for_each(|more| visible.extend(more));
        visible
    }

    fn memory(&self) -> usize {
        behind_arc(size_of::<Self>())
            + table::<(Label, TemplateSet)>(self.by_label.capacity())
            + self.unlabelled.heap()
            + self.by_label.values().map(TemplateSet::heap).sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use proptest::prelude::*;
    use uri_template::UriTemplate;

    use super::Templates;
    use crate::model::content::ContentHash;
    use crate::model::ids::ResourceUri;
    use crate::model::label::{CallerLabels, Labels};
    use crate::model::resource::Definition;
    use crate::model::scope::Revision;
    use crate::model::template::ResourceTemplate;

    fn labels(texts: &[String]) -> Labels {
        Labels::parse(texts.iter().map(String::as_str)).unwrap()
    }

    fn templates(texts: &[(String, Vec<String>)]) -> Templates {
        let parsed = texts.iter().filter_map(|(text, of)| Some((UriTemplate::parse(text).ok()?, labels(of))));
        let template = |(uri_template, labels): (UriTemplate, Labels)| ResourceTemplate {
            labels,
            uri_template,
            definition: Definition {
                name: String::new(),
                title: None,
                description: None,
                mime_type: None,
                annotations: None,
                icons: None,
                meta: None,
            },
            completions: std::collections::BTreeMap::default(),
            body: ContentHash::of(b""),
            source: None,
            revision: Revision(1),
        };
        let by_text: BTreeMap<_, _> =
            parsed.map(|parsed| (parsed.0.clone(), Arc::new(template(parsed)))).collect();
        Templates::new(by_text.values())
    }

    const TEMPLATE: &str = "(x|xy|y):(a|b|a/|ab/)?(\\{v\\}|\\{\\+v\\}|a)(/|-b|/\\{w\\}|\\{\\?q\\})?";

    proptest! {
        #[test]
        fn indexed_search_answers_what_a_linear_scan_answers(
            texts in proptest::collection::vec((TEMPLATE, proptest::collection::vec("[a-c]", 0..3)), 0..80),
            own in proptest::collection::vec("[a-d]", 0..3),
            uris in proptest::collection::vec("(x|xy|y|z):[ab/-]{1,6}(\\?q=1)?", 1..20),
        ) {
            let templates = templates(&texts);
            let own = labels(&own);
            let visible = templates.visibility.is_some().then(|| templates.visible_to(&own));
            let own = CallerLabels::These(own);
            for uri in uris.iter().filter_map(|uri| ResourceUri::parse(uri).ok()) {
                let scanned = templates.ranked.iter().filter(|one| own.sees(&one.labels));
                let scanned = scanned.into_iter().find(|one| one.uri_template.matches(uri.as_str()).is_some());
                let found = templates.find(&uri, visible.as_ref());
                prop_assert_eq!(
                    found.as_ref().map(|found| &found.template.uri_template),
                    scanned.map(|scanned| &scanned.uri_template)
                );
                prop_assert!(found.is_none() || templates.candidates(&uri, visible.as_ref()) > 0);
            }
        }
    }
}
