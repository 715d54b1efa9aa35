//! The index: documents, their terms, and changes of them.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use crate::dictionary::{Dictionary, TermId};
use crate::postings::{DocumentId, Postings};
use crate::rank::{FIELDS, Field, impact};
use crate::words::Tokenizer;

/// The fewest replaced documents for which the index is written anew.
const FEWEST_DEAD: usize = 1_024;

/// An inverted index of documents with keys `K` in groups `G`.
pub struct Index<K, G> {
    pub(crate) dictionary: Dictionary,
    /// By the numbers of terms.
    pub(crate) postings: Vec<Postings>,
    /// The heap memory of all of these.
    postings_memory: usize,
    /// By the numbers of documents; `None` for those that were replaced or removed.
    pub(crate) documents: Vec<Option<Document<K>>>,
    by_key: HashMap<K, DocumentId>,
    pub(crate) groups: Groups<G>,
    tokenizer: Tokenizer,
    /// Of the document that is being inserted: each of its words with the field it stands in.
    occurrences: Vec<(TermId, u8)>,
}

/// A document of the index.
#[derive(Debug)]
pub(crate) struct Document<K> {
    pub(crate) key: K,
    /// The number of its group.
    pub(crate) group: u32,
}

/// The groups of an index.
pub(crate) struct Groups<G> {
    numbers: HashMap<G, u32>,
    /// By their numbers, with the number of their documents.
    pub(crate) all: Vec<(G, usize)>,
}

impl<G: Clone + Eq + Hash> Groups<G> {
    fn number(&mut self, group: G) -> u32 {
        let next = u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let number = *self.numbers.entry(group.clone()).or_insert(next);
        if number == next {
            self.all.push((group, 0));
        }
        number
    }
}

impl<K: Clone + Eq + Hash + Ord, G: Clone + Eq + Hash> Index<K, G> {
    /// An empty index.
    pub fn new() -> Self {
        Self {
            dictionary: Dictionary::default(),
            postings: Vec::new(),
            postings_memory: 0,
            documents: Vec::new(),
            by_key: HashMap::new(),
            groups: Groups { numbers: HashMap::new(), all: Vec::new() },
            tokenizer: Tokenizer::default(),
            occurrences: Vec::new(),
        }
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Whether there is no document.
    pub fn is_empty(&self) -> bool {
        self.by_key.is_empty()
    }

    /// Adds a document, in the place of the one with its key. A field may occur several times.
    pub fn insert<'t>(&mut self, key: K, group: G, fields: impl IntoIterator<Item = (Field, &'t str)>) {
        self.remove(&key);
        // More documents than there are numbers do not fit in memory.
        let Ok(document) = u32::try_from(self.documents.len()) else { return };
        let mut lengths = [0_u32; FIELDS];
        let mut occurrences = std::mem::take(&mut self.occurrences);
        for (field, text) in fields {
            let (length, number) = (&mut lengths[field.number()], field as u8);
            self.tokenizer.split(text, |term| {
                *length = length.saturating_add(1);
                occurrences.extend(self.dictionary.add(term).map(|term| (term, number)));
            });
        }
        occurrences.sort_unstable();
        self.postings.resize_with(self.dictionary.len(), Postings::default);
        for same in occurrences.chunk_by(|one, other| one.0 == other.0) {
            let mut frequencies = [0; FIELDS];
            for (_, field) in same {
                frequencies[usize::from(*field)] += 1;
            }
            let postings = &mut self.postings[same[0].0 as usize];
            self.postings_memory += postings.push(document, impact(&frequencies, &lengths));
        }
        occurrences.clear();
        self.occurrences = occurrences;
        self.by_key.insert(key.clone(), document);
        self.place(key, group);
    }

    /// Places the next document in its group.
    fn place(&mut self, key: K, group: G) {
        let group = self.groups.number(group);
        self.groups.all[group as usize].1 += 1;
        self.documents.push(Some(Document { key, group }));
    }

    /// Removes a document; returns whether it was there.
    pub fn remove(&mut self, key: &K) -> bool {
        let Some(document) = self.by_key.remove(key) else { return false };
        if let Some(removed) = self.documents[document as usize].take() {
            self.groups.all[removed.group as usize].1 -= 1;
        }
        true
    }

    /// Whether replaced and removed documents take enough memory and time that [`compacted`](Self::compacted) pays.
    pub fn is_sparse(&self) -> bool {
        self.documents.len() - self.len() > FEWEST_DEAD.max(self.len() / 2)
    }

    /// The same documents without any trace of those that were replaced or removed, in less memory and faster to search:
    /// terms that begin alike are next to each other. Takes time in proportion to the index.
    #[must_use]
    pub fn compacted(&self) -> Self {
        let mut compacted = Self::new();
        let mut numbers = vec![None; self.documents.len()];
        for (number, document) in numbers.iter_mut().zip(&self.documents) {
            let Some(Document { key, group }) = document else { continue };
            let Ok(next) = u32::try_from(compacted.documents.len()) else { continue };
            *number = Some(next);
            compacted.by_key.insert(key.clone(), next);
            compacted.place(key.clone(), self.groups.all[*group as usize].0.clone());
        }
        for term in self.dictionary.in_order() {
            let mut kept = Postings::default();
            for (document, impact) in self.postings[term as usize].iter() {
                if let Some(document) = numbers[document as usize] {
                    kept.push(document, impact);
                }
            }
            kept.shrink();
            if kept.memory() > 0 && compacted.dictionary.add(self.dictionary.text(term)).is_some() {
                compacted.postings_memory += kept.memory();
                compacted.postings.push(kept);
            }
        }
        compacted.dictionary.shrink();
        compacted.postings.shrink_to_fit();
        compacted.documents.shrink_to_fit();
        compacted
    }

    /// The bytes of heap memory, without those of keys and groups.
    pub fn memory(&self) -> usize {
        self.dictionary.memory()
            + self.postings.capacity() * size_of::<Postings>()
            + self.postings_memory
            + self.documents.capacity() * size_of::<Option<Document<K>>>()
            + self.by_key.capacity() * 8 / 7 * (size_of::<(K, DocumentId)>() + 1)
            + self.groups.all.capacity() * (2 * size_of::<(G, usize)>() + 1)
            + self.occurrences.capacity() * size_of::<(TermId, u8)>()
    }
}

impl<K: Clone + Eq + Hash + Ord, G: Clone + Eq + Hash> Default for Index<K, G> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K, G> fmt::Debug for Index<K, G> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Index")
            .field("documents", &self.by_key.len())
            .field("terms", &self.postings.len())
            .finish_non_exhaustive()
    }
}
