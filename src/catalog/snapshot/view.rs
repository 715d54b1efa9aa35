//! Views: the definitions of a snapshot that one caller sees. An answer to a caller is made from a view, never from the
//! definitions themselves, which only this module reads.

use std::sync::Arc;

use super::{AgentSnapshot, Definitions};
use crate::catalog::template_set::Match;
use crate::model::call::{List, ListPage, Page};
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::kinds::Member;
use crate::model::prompt::Prompt;
use crate::model::resource::Resource;
use crate::model::template::ResourceTemplate;

/// The definitions of an agent that a caller sees.
#[derive(Debug, Clone)]
pub struct View {
    snapshot: Arc<AgentSnapshot>,
}

/// The definition that a URI is read from.
#[derive(Debug)]
pub enum Answering {
    /// The resource of this URI.
    Registered(Arc<Resource>),
    /// A template that it matches.
    Rendered(Match),
}

impl View {
    /// All definitions, for what answers no caller.
    pub(in crate::catalog) fn unfiltered(snapshot: Arc<AgentSnapshot>) -> Self {
        Self { snapshot }
    }

    /// The snapshot that it is a view of.
    pub fn snapshot(&self) -> &AgentSnapshot {
        &self.snapshot
    }

    fn definitions(&self) -> &Definitions {
        &self.snapshot.definitions
    }

    /// The definition of a key.
    pub fn get<K: Member>(&self, key: &str) -> Option<&Arc<K>> {
        K::of(&self.definitions().all).get(key)
    }

    /// At most `size` definitions of a list, those after a key.
    pub(in crate::catalog) fn list(&self, list: List, after: Option<&str>, size: usize) -> ListPage {
        match list {
            List::Resources => ListPage::Resources(self.page::<Resource>(after, size)),
            List::Templates => ListPage::Templates(self.page::<ResourceTemplate>(after, size)),
            List::Prompts => ListPage::Prompts(self.page::<Prompt>(after, size)),
        }
    }

    fn page<K: Member>(&self, after: Option<&str>, size: usize) -> Page<K> {
        use std::ops::Bound::{Excluded, Unbounded};
        let start = after.map_or(Unbounded, Excluded);
        let all = K::of(&self.definitions().all);
        let mut rest = all.range::<_, str>((start, Unbounded)).map(|(_, item)| item);
        let items = rest.by_ref().take(size).cloned().collect();
        Page { items, more: rest.next().is_some() }
    }

    /// The most specific template that a URI matches.
    pub(in crate::catalog) fn template(&self, uri: &ResourceUri) -> Option<Match> {
        self.definitions().templates.find(uri)
    }

    /// The number of templates of the agent.
    pub(in crate::catalog) fn template_count(&self) -> usize {
        self.definitions().all.templates.len()
    }

    /// The definition of a URI: its resource, otherwise the most specific template that it matches.
    ///
    /// # Errors
    /// [`Fault::ResourceNotFound`].
    pub fn answering(&self, uri: &ResourceUri) -> Result<Answering, Fault> {
        if let Some(resource) = self.get::<Resource>(uri.as_str()) {
            return Ok(Answering::Registered(Arc::clone(resource)));
        }
        let found = self.template(uri).map(Answering::Rendered);
        found.ok_or_else(|| Fault::ResourceNotFound(uri.clone()))
    }

    /// Checks that a URI can be read.
    ///
    /// # Errors
    /// [`Fault::ResourceNotFound`].
    pub fn check_readable(&self, uri: &ResourceUri) -> Result<(), Fault> {
        self.answering(uri).map(drop)
    }

    /// The number of comparisons that finding the definition of a URI takes.
    pub(in crate::catalog) fn comparisons(&self, uri: &ResourceUri) -> usize {
        match self.get::<Resource>(uri.as_str()) {
            Some(_) => 1,
            None => 1 + self.definitions().templates.candidates(uri),
        }
    }
}
