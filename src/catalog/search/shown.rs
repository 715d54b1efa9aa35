//! Results of a search as they are shown: titles, and excerpts of texts.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use search::{Query, excerpt};

use super::DEFAULT_RESULTS;
use super::document::{Searched, SearchedKind, SearchedSubject, Texts, beginning};
use crate::catalog::Catalog;
use crate::catalog::snapshot::view::View;
use crate::model::allocated::shared_bytes;
use crate::model::caller::Payer;
use crate::model::content::ContentHash;
use crate::model::fault::Fault;
use crate::model::ids::AgentRef;
use crate::model::prompt::Prompt;
use crate::model::resource::Resource;
use crate::model::skill::Skill;
use crate::model::template::ResourceTemplate;

/// How many bytes of the text of a result are looked through for an excerpt first.
const EXCERPT_BYTES: usize = 64 << 10;
/// How many bytes of texts are looked through further for the results of one answer, whose beginnings have no word of the
/// query; the other results show their beginnings.
const FURTHER_BYTES: usize = 4 << 20;
/// The length of an excerpt in characters.
const EXCERPT_CHARS: usize = 240;

/// A definition that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its kind.
    pub kind: SearchedKind,
    /// The URI of a resource or of the `SKILL.md` of a skill, the text of a template, or `prompt:` and the name of a
    /// prompt.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its title, or its name.
    pub title: String,
    /// An excerpt of its text or its description.
    pub text: String,
}

/// A definition that was found, while its excerpt is looked for.
#[derive(Debug)]
pub(super) struct Draft {
    found: Found,
    description: String,
    /// What is looked through next: contents, and how many bytes of each.
    next: Vec<(ContentHash, usize)>,
    /// All of its text that is indexed.
    indexed: Vec<(ContentHash, usize)>,
    /// How many words of the query the excerpt shows.
    words: usize,
}

impl Draft {
    fn of<K: Searched>(definition: &K, document_bytes: usize) -> Self {
        let texts = definition.texts();
        let Texts { name, description, .. } = texts;
        let title = texts.shown_title().to_owned();
        Self {
            found: Found {
                kind: K::SEARCHED,
                id: definition.id(),
                name: name.to_owned(),
                title,
                text: String::new(),
            },
            description: description.unwrap_or_default().to_owned(),
            next: definition.contents_within(EXCERPT_BYTES),
            indexed: definition.contents_within(document_bytes),
            words: 0,
        }
    }

    /// Of a definition; `None` if the caller does not see it, or something else answers the URI of a file.
    pub(super) fn of_subject(view: &View, subject: &SearchedSubject, document_bytes: usize) -> Option<Self> {
        match subject {
            SearchedSubject::Resource(uri) => {
                view.get::<Resource>(uri.as_str()).map(|found| Self::of(&**found, document_bytes))
            }
            SearchedSubject::File(tree, suffix) => {
                view.listed_file(*tree, suffix).map(|found| Self::of(&found, document_bytes))
            }
            SearchedSubject::Template(text) => {
                view.get::<ResourceTemplate>(text).map(|found| Self::of(&**found, document_bytes))
            }
            SearchedSubject::Prompt(name) => {
                view.get::<Prompt>(name.as_str()).map(|found| Self::of(&**found, document_bytes))
            }
            SearchedSubject::Skill(root) => {
                view.get::<Skill>(root.as_str()).map(|found| Self::of(&**found, document_bytes))
            }
        }
    }

    /// Shows an excerpt of the text or of the description, whichever shows more of the query.
    fn show(&mut self, query: &Query, loaded: &BTreeMap<ContentHash, Bytes>) {
        let texts = self.next.iter().filter_map(|(hash, bytes)| Some((loaded.get(hash)?, *bytes)));
        let texts = texts.map(|(text, bytes)| beginning(text, bytes));
        let mut best = excerpt(&self.description, query, EXCERPT_CHARS);
        for text in texts {
            let other = excerpt(text, query, EXCERPT_CHARS);
            if other.words > best.words || best.text.is_empty() {
                best = other;
            }
        }
        (self.found.text, self.words) = (best.text, best.words);
    }

    /// Whether all of the text that is indexed is looked through next, or as much as `left` bytes: if the excerpt shows no word
    /// of the query. Takes these bytes from `left`.
    fn looks_further(&mut self, left: &mut usize) -> bool {
        let bytes: usize = self.indexed.iter().map(|(_, bytes)| bytes).sum();
        if self.words > 0 || bytes.min(*left) <= EXCERPT_BYTES {
            return false;
        }
        let within = self.indexed.drain(..).map(|(hash, bytes)| {
            let bytes = bytes.min(*left);
            *left -= bytes;
            (hash, bytes)
        });
        self.next = within.filter(|(_, bytes)| *bytes > 0).collect();
        true
    }
}

impl Catalog {
    /// The results for these definitions, in their order.
    pub(super) async fn show(
        &self,
        payer: Payer,
        agent: AgentRef,
        drafts: Vec<Draft>,
        query: &Arc<Query>,
    ) -> Result<Vec<Found>, Fault> {
        let (mut drafts, mut all) = (drafts.into_iter(), Vec::new());
        let mut left = FURTHER_BYTES;
        loop {
            let some: Vec<_> = drafts.by_ref().take(DEFAULT_RESULTS).collect();
            if some.is_empty() {
                return Ok(all);
            }
            for mut draft in self.with_excerpts(payer, agent, some, query).await? {
                if draft.looks_further(&mut left) {
                    // One by one, so that long texts are not in memory together.
                    let shown = self.with_excerpts(payer, agent, vec![draft], query).await?;
                    all.extend(shown.into_iter().map(|draft| draft.found));
                } else {
                    all.push(draft.found);
                }
            }
        }
    }

    /// Loads what is looked through next of each draft, and shows the best excerpt of it.
    async fn with_excerpts(
        &self,
        payer: Payer,
        agent: AgentRef,
        mut drafts: Vec<Draft>,
        query: &Arc<Query>,
    ) -> Result<Vec<Draft>, Fault> {
        let mut wanted = BTreeMap::new();
        for (hash, bytes) in drafts.iter().flat_map(|draft| &draft.next) {
            let most = wanted.entry(*hash).or_insert(0);
            *most = (*bytes).max(*most);
        }
        let loaded = self.beginnings(payer, agent, wanted).await?;
        let query = Arc::clone(query);
        let show = move || {
            for draft in &mut drafts {
                draft.show(&query, &loaded);
            }
            Ok(drafts)
        };
        Ok(self.renderer.run(payer, show).await?)
    }

    /// The beginnings of contents, with at least these bytes; without those that are purged already.
    async fn beginnings(
        &self,
        payer: Payer,
        agent: AgentRef,
        wanted: BTreeMap<ContentHash, usize>,
    ) -> Result<BTreeMap<ContentHash, Bytes>, Fault> {
        let AgentRef { tenant, uid } = agent;
        let (mut found, mut missing, mut most) = (BTreeMap::new(), Vec::new(), EXCERPT_BYTES);
        let beginnings = &self.searches.beginnings;
        for (hash, bytes) in wanted {
            let key = (uid, hash);
            let known = self.contents.get(&key).or_else(|| beginnings.get(&key));
            if let Some(known) = known.filter(|known| known.len() >= bytes) {
                found.insert(hash, known);
            } else {
                missing.push(hash);
                most = most.max(bytes);
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let load = async || self.store.content_prefixes(tenant, uid, &missing, most).await;
        for (hash, bytes) in self.loader.load(payer, load).await? {
            beginnings.insert((uid, hash), bytes.clone(), Some(tenant), shared_bytes(&bytes));
            found.insert(hash, bytes);
        }
        Ok(found)
    }
}
