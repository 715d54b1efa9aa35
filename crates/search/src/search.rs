//! Finding the documents that match a query, best first.

use std::cmp::Reverse;
use std::hash::Hash;

use crate::dictionary::TermId;
use crate::index::{Document, Index};
use crate::postings::{DocumentId, Impact};
use crate::query::{Query, Word};
use crate::rank::{Match, rarity};

/// A document that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit<K> {
    /// Its key.
    pub key: K,
    /// How well it matches. Scores of different queries have nothing to do with each other.
    pub score: u64,
}

/// The visible documents that match a word, in ascending order, each with what the word contributes.
type Matches = Vec<(DocumentId, Impact)>;

impl<K: Clone + Eq + Hash + Ord, G: Clone + Eq + Hash> Index<K, G> {
    /// The `limit` best documents that match a query, of those in groups that are `visible`; the best first, and of equally
    /// good ones those with smaller keys. Documents in other groups change nothing.
    pub fn search(&self, query: &Query, limit: usize, visible: impl Fn(&G) -> bool) -> Vec<Hit<K>> {
        let groups: Vec<_> =
            self.groups.all.iter().map(|(group, size)| *size > 0 && visible(group)).collect();
        let seen = Seen { index: self, groups: &groups };
        let sizes = self.groups.all.iter().zip(&groups).filter(|(_, is_visible)| **is_visible);
        let visible: usize = sizes.map(|((_, size), _)| size).sum();
        let mut found: Option<Vec<(DocumentId, u64)>> = None;
        for word in &query.words {
            let matches = seen.matches(word);
            let rarity = rarity(visible, matches.len());
            let scored = matches.into_iter().map(|(document, impact)| (document, rarity * u64::from(impact)));
            let all = match found {
                None => scored.collect(),
                Some(found) => both(found, scored),
            };
            if all.is_empty() {
                return Vec::new();
            }
            found = Some(all);
        }
        self.best(found.unwrap_or_default(), limit)
    }

    fn best(&self, scores: Vec<(DocumentId, u64)>, limit: usize) -> Vec<Hit<K>> {
        let keyed = |(document, score): (DocumentId, u64)| {
            let document = self.documents[document as usize].as_ref()?;
            Some((Reverse(score), &document.key))
        };
        let mut all: Vec<_> = scores.into_iter().filter_map(keyed).collect();
        if limit < all.len() {
            all.select_nth_unstable(limit);
            all.truncate(limit);
        }
        all.sort_unstable();
        all.into_iter().map(|(Reverse(score), key)| Hit { key: key.clone(), score }).collect()
    }
}

/// The documents that are in both lists, with the sum of their scores.
fn both(
    one: Vec<(DocumentId, u64)>,
    mut other: impl Iterator<Item = (DocumentId, u64)>,
) -> Vec<(DocumentId, u64)> {
    let mut next = other.next();
    let shared = one.into_iter().filter_map(|(document, score)| {
        while next.is_some_and(|(candidate, _)| candidate < document) {
            next = other.next();
        }
        next.filter(|(candidate, _)| *candidate == document).map(|(_, added)| (document, score + added))
    });
    shared.collect()
}

/// The visible part of an index.
struct Seen<'i, K, G> {
    index: &'i Index<K, G>,
    /// Whether each group is visible.
    groups: &'i [bool],
}

impl<K, G> Seen<'_, K, G> {
    fn is_visible(&self, document: DocumentId) -> bool {
        let document = self.index.documents[document as usize].as_ref();
        document.is_some_and(|Document { group, .. }| self.groups[*group as usize])
    }

    /// The documents that match a word; inside words only if it occurs nowhere else.
    fn matches(&self, word: &Word) -> Matches {
        let dictionary = &self.index.dictionary;
        let whole = dictionary.get(&word.text);
        let matches = if word.is_prefix {
            let kind = |term| if whole == Some(term) { Match::Whole } else { Match::Prefix };
            self.united(dictionary.with_prefix(&word.text).map(|term| (term, kind(term))))
        } else {
            let postings = whole.map(|term| self.index.postings[term as usize].iter());
            postings.into_iter().flatten().filter(|(document, _)| self.is_visible(*document)).collect()
        };
        if matches.is_empty() && word.is_part {
            return self.united(dictionary.containing(&word.text).map(|term| (term, Match::Part)));
        }
        matches
    }

    /// The documents that contain one of several terms, with the most that one of these contributes.
    fn united(&self, terms: impl Iterator<Item = (TermId, Match)>) -> Matches {
        let mut best = vec![0; self.index.documents.len()];
        for (term, kind) in terms {
            for (document, impact) in self.index.postings[term as usize].iter() {
                let best = &mut best[document as usize];
                *best = kind.of(impact).max(*best);
            }
        }
        let matched = (0..).zip(best).filter(|(_, impact)| *impact > 0);
        matched.filter(|(document, _)| self.is_visible(*document)).collect()
    }
}
