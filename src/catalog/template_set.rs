//! Template matching: an agent's resource templates in memory, the most specific first.

use std::cmp::Reverse;
use std::sync::Arc;

use imbl::OrdMap;
use uri_template::UriTemplate;

use super::prefix_index::PrefixIndex;
use crate::model::allocated::behind_arc;
use crate::model::ids::ResourceUri;
use crate::model::template::ResourceTemplate;

/// A set of resource templates.
#[derive(Debug, Clone, Default)]
pub struct Templates {
    ranked: Arc<[Arc<ResourceTemplate>]>,
    /// Of `ranked`.
    index: Arc<PrefixIndex>,
}

/// The template that serves a URI.
#[derive(Debug, Clone)]
pub struct Match {
    /// The template.
    pub template: Arc<ResourceTemplate>,
    /// The values of its variables, except for those that the URI omits.
    pub values: Vec<(String, String)>,
}

impl Templates {
    pub(super) fn new(by_text: &OrdMap<UriTemplate, Arc<ResourceTemplate>>) -> Self {
        let mut ranked: Vec<_> = by_text.values().cloned().collect();
        // Stable, so that templates that are as specific as each other keep the order of their texts.
        ranked.sort_by_key(|template| Reverse(template.uri_template.specificity()));
        let prefixes = ranked.iter().map(|template| template.uri_template.literal_prefix());
        Self { index: Arc::new(PrefixIndex::new(prefixes)), ranked: ranked.into() }
    }

    /// The memory of the index.
    pub(super) fn memory(&self) -> usize {
        behind_arc(size_of_val(&*self.ranked)) + self.index.memory()
    }

    /// The maximum number of templates that a URI is compared with.
    pub(super) fn candidates(&self, uri: &ResourceUri) -> usize {
        self.index.count(uri.as_str())
    }

    /// The most specific template that matches a URI.
    pub fn find(&self, uri: &ResourceUri) -> Option<Match> {
        self.index.candidates(uri.as_str()).map(|at| &self.ranked[at]).find_map(|template| {
            let values = template.uri_template.matches(uri.as_str())?;
            let values = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            Some(Match { template: Arc::clone(template), values })
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use uri_template::UriTemplate;

    use super::Templates;
    use crate::model::content::ContentHash;
    use crate::model::ids::ResourceUri;
    use crate::model::label::Labels;
    use crate::model::resource::Definition;
    use crate::model::scope::Revision;
    use crate::model::template::ResourceTemplate;

    fn templates(texts: &[String]) -> Templates {
        let parsed = texts.iter().filter_map(|text| UriTemplate::parse(text).ok());
        let template = |uri_template: UriTemplate| ResourceTemplate {
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
            labels: Labels::default(),
            completions: std::collections::BTreeMap::default(),
            body: ContentHash::of(b""),
            revision: Revision(1),
        };
        let by_text = parsed.map(|parsed| (parsed.clone(), Arc::new(template(parsed))));
        Templates::new(&by_text.collect())
    }

    proptest! {
        #[test]
        fn indexed_search_answers_what_a_linear_scan_answers(
            texts in proptest::collection::vec("(x|xy|y):(a|b|a/|ab/)?(\\{v\\}|\\{\\+v\\}|a)(/|-b|/\\{w\\}|\\{\\?q\\})?", 0..80),
            uris in proptest::collection::vec("(x|xy|y|z):[ab/-]{1,6}(\\?q=1)?", 1..20),
        ) {
            let templates = templates(&texts);
            for uri in uris.iter().filter_map(|uri| ResourceUri::parse(uri).ok()) {
                let scanned = templates.ranked.iter().find(|one| one.uri_template.matches(uri.as_str()).is_some());
                let found = templates.find(&uri);
                prop_assert_eq!(
                    found.as_ref().map(|found| &found.template.uri_template),
                    scanned.map(|scanned| &scanned.uri_template)
                );
                prop_assert!(found.is_none() || templates.candidates(&uri) > 0);
            }
        }
    }
}
