//! An agent's resource templates in memory: by their text, and the most specific first.

use std::cmp::Reverse;
use std::sync::Arc;

use imbl::OrdMap;

use crate::model::template::ResourceTemplate;
use crate::model::uri::ResourceUri;
use crate::model::uri_template::UriTemplate;

/// A set of resource templates.
#[derive(Debug, Clone, Default)]
pub struct Templates {
    by_text: OrdMap<UriTemplate, Arc<ResourceTemplate>>,
    ranked: Arc<[Arc<ResourceTemplate>]>,
}

/// The template that answers to a URI.
#[derive(Debug, Clone)]
pub struct Match {
    /// The template.
    pub template: Arc<ResourceTemplate>,
    /// The values of its variables, those that the URI leaves out left out.
    pub values: Vec<(String, String)>,
}

impl Templates {
    pub(super) fn new(by_text: OrdMap<UriTemplate, Arc<ResourceTemplate>>) -> Self {
        let mut ranked: Vec<_> = by_text.values().cloned().collect();
        // Stable, so that templates that are as specific as each other keep the order of their texts.
        ranked.sort_by_key(|template| Reverse(template.uri_template.specificity()));
        Self { by_text, ranked: ranked.into() }
    }

    /// The templates in byte order of their texts.
    pub fn by_text(&self) -> &OrdMap<UriTemplate, Arc<ResourceTemplate>> {
        &self.by_text
    }

    /// The most specific template that matches a URI.
    pub fn find(&self, uri: &ResourceUri) -> Option<Match> {
        self.ranked.iter().find_map(|template| {
            let values = template.uri_template.matches(uri.as_str())?;
            let values = values.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            Some(Match { template: Arc::clone(template), values })
        })
    }
}
