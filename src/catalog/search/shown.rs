//! Results of a search as they are shown: titles, and excerpts of texts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use search::{Query, excerpt};

use super::document::{Searched, SearchedKind, SearchedSubject, Texts, beginning};
use super::{DEFAULT_RESULTS, SearchRequest};
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

/// How many bytes of the text of a result are looked through for an excerpt.
const EXCERPT_BYTES: usize = 64 << 10;
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

/// A definition that was found, before texts are loaded.
struct Draft {
    found: Found,
    description: String,
    contents: Vec<(ContentHash, usize)>,
}

impl Draft {
    fn of<K: Searched>(definition: &K) -> Self {
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
            contents: definition.contents_within(EXCERPT_BYTES),
        }
    }

    fn of_subject(view: &View, subject: &SearchedSubject) -> Option<Self> {
        match subject {
            SearchedSubject::Resource(uri) => {
                view.get::<Resource>(uri.as_str()).map(|found| Self::of(&**found))
            }
            SearchedSubject::File(tree, suffix) => {
                view.listed_file(*tree, suffix).map(|found| Self::of(&found))
            }
            SearchedSubject::Template(text) => {
                view.get::<ResourceTemplate>(text).map(|found| Self::of(&**found))
            }
            SearchedSubject::Prompt(name) => {
                view.get::<Prompt>(name.as_str()).map(|found| Self::of(&**found))
            }
            SearchedSubject::Skill(root) => view.get::<Skill>(root.as_str()).map(|found| Self::of(&**found)),
        }
    }

    /// With an excerpt of the text or of the description, whichever shows more of the query.
    fn finished(self, query: &Query, loaded: &BTreeMap<ContentHash, Bytes>) -> Found {
        let texts = self.contents.iter().filter_map(|(hash, bytes)| Some((loaded.get(hash)?, *bytes)));
        let texts = texts.map(|(text, bytes)| beginning(text, bytes));
        let mut best = excerpt(&self.description, query, EXCERPT_CHARS);
        for text in texts {
            let other = excerpt(text, query, EXCERPT_CHARS);
            if other.words > best.words || best.text.is_empty() {
                best = other;
            }
        }
        Found { text: best.text, ..self.found }
    }
}

impl Catalog {
    /// The results for these definitions, in their order, up to the limit of the request; without those that the caller does
    /// not see.
    pub(super) async fn show(
        &self,
        payer: Payer,
        agent: AgentRef,
        view: View,
        subjects: Vec<SearchedSubject>,
        SearchRequest { query, limit, .. }: SearchRequest,
    ) -> Result<Vec<Found>, Fault> {
        let mut drafts = subjects.iter().filter_map(|subject| Draft::of_subject(&view, subject)).take(limit);
        let mut all = Vec::new();
        loop {
            let some: Vec<_> = drafts.by_ref().take(DEFAULT_RESULTS).collect();
            if some.is_empty() {
                return Ok(all);
            }
            let contents = some.iter().flat_map(|draft| draft.contents.iter());
            let hashes: BTreeSet<_> = contents.map(|(hash, _)| *hash).collect();
            let loaded = self.beginnings(payer, agent, hashes).await?;
            let query = Arc::clone(&query);
            let finish = move || Ok(some.into_iter().map(|draft| draft.finished(&query, &loaded)).collect());
            let mut finished: Vec<_> = self.renderer.run(payer, finish).await?;
            all.append(&mut finished);
        }
    }

    /// The beginnings of contents; without those that are purged already.
    async fn beginnings(
        &self,
        payer: Payer,
        agent: AgentRef,
        hashes: BTreeSet<ContentHash>,
    ) -> Result<BTreeMap<ContentHash, Bytes>, Fault> {
        let AgentRef { tenant, uid } = agent;
        let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
        let beginnings = &self.searches.beginnings;
        for hash in hashes {
            let key = (uid, hash);
            match self.contents.get(&key).or_else(|| beginnings.get(&key)) {
                Some(bytes) => _ = found.insert(hash, bytes),
                None => missing.push(hash),
            }
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let load = async || self.store.content_prefixes(tenant, uid, &missing, EXCERPT_BYTES).await;
        for (hash, bytes) in self.loader.load(payer, load).await? {
            beginnings.insert((uid, hash), bytes.clone(), Some(tenant), shared_bytes(&bytes));
            found.insert(hash, bytes);
        }
        Ok(found)
    }
}
