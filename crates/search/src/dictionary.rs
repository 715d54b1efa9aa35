//! The terms of an index, numbered from 0.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use memchr::memmem;

/// The fewest terms that are put in order together.
const FEWEST_UNORDERED: usize = 1_024;

/// The number of a term.
pub(crate) type TermId = u32;

/// All terms, one behind the other in one allocation.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    /// The terms by number, each ended by a line break, which no term contains.
    text: String,
    /// Where each begins.
    starts: Vec<u32>,
    table: HashTable<TermId>,
    hasher: RandomState,
    /// The numbers of the first terms in the order of their texts; the others are looked through one by one.
    ordered: Vec<TermId>,
}

impl Dictionary {
    /// The number of terms.
    pub(crate) fn len(&self) -> usize {
        self.starts.len()
    }

    /// The text of a term.
    pub(crate) fn text(&self, term: TermId) -> &str {
        let start = self.starts[term as usize] as usize;
        let end = self.starts.get(term as usize + 1).map_or(self.text.len(), |next| *next as usize);
        &self.text[start..end - 1]
    }

    /// The number of a term, if it occurs.
    pub(crate) fn get(&self, text: &str) -> Option<TermId> {
        let hash = self.hasher.hash_one(text);
        self.table.find(hash, |term| self.text(*term) == text).copied()
    }

    /// The number of a term, which is added; `None` if there is no room for more.
    pub(crate) fn add(&mut self, text: &str) -> Option<TermId> {
        if let Some(known) = self.get(text) {
            return Some(known);
        }
        let start = u32::try_from(self.text.len()).ok()?;
        let term = u32::try_from(self.starts.len()).ok()?;
        self.text.push_str(text);
        self.text.push('\n');
        self.starts.push(start);
        let Self { text: all, starts, table, hasher, .. } = self;
        let hash_of = |term: &TermId| {
            let start = starts[*term as usize] as usize;
            let end = starts.get(*term as usize + 1).map_or(all.len(), |next| *next as usize);
            hasher.hash_one(&all[start..end - 1])
        };
        table.insert_unique(hasher.hash_one(text), term, hash_of);
        if self.len() - self.ordered.len() > FEWEST_UNORDERED + self.ordered.len() / 8 {
            self.order();
        }
        Some(term)
    }

    /// Puts all terms in order.
    fn order(&mut self) {
        self.ordered = self.in_order();
    }

    /// All terms in the order of their texts.
    pub(crate) fn in_order(&self) -> Vec<TermId> {
        let unordered = (self.ordered.len()..self.len()).filter_map(|term| u32::try_from(term).ok());
        let mut ordered: Vec<_> = self.ordered.iter().copied().chain(unordered).collect();
        // Merges the two parts: the sort finds the first one in order.
        ordered.sort_by(|one, other| self.text(*one).cmp(self.text(*other)));
        ordered
    }

    /// The terms that begin with a prefix.
    pub(crate) fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = TermId> {
        let first = self.ordered.partition_point(|term| self.text(*term) < prefix);
        let behind = &self.ordered[first..];
        let last = behind.partition_point(|term| self.text(*term).starts_with(prefix));
        // The terms that are not in order are those with the highest numbers.
        let unordered = (self.ordered.len()..self.len()).filter_map(|term| u32::try_from(term).ok());
        behind[..last]
            .iter()
            .copied()
            .chain(unordered.filter(move |term| self.text(*term).starts_with(prefix)))
    }

    /// The terms that contain a text.
    pub(crate) fn containing(&self, part: &str) -> impl Iterator<Item = TermId> {
        let mut last = None;
        memmem::find_iter(self.text.as_bytes(), part).filter_map(move |at| {
            let behind = self.starts.partition_point(|start| *start as usize <= at);
            let term = u32::try_from(behind - 1).ok()?;
            (last.replace(term) != Some(term)).then_some(term)
        })
    }

    /// Releases spare memory.
    pub(crate) fn shrink(&mut self) {
        self.order();
        self.text.shrink_to_fit();
        self.starts.shrink_to_fit();
        self.ordered.shrink_to_fit();
    }

    /// The bytes of heap memory.
    pub(crate) fn memory(&self) -> usize {
        let numbers = self.starts.capacity() + self.ordered.capacity() + self.table.capacity() * 8 / 7;
        self.text.capacity() + numbers * size_of::<TermId>() + self.table.capacity() * 8 / 7
    }
}

#[cfg(test)]
mod tests {
    use super::Dictionary;

    #[test]
    fn terms_are_found_by_text_prefix_and_part() {
        let mut dictionary = Dictionary::default();
        // Some terms are in order, the last ones are not.
        let terms: Vec<_> = (0..4_000).map(|number| format!("t{}x", number * 7_919 % 4_000)).collect();
        let numbers: Vec<_> = terms.iter().map(|term| dictionary.add(term).unwrap()).collect();
        assert!((1_000..4_000).contains(&dictionary.ordered.len()), "{}", dictionary.ordered.len());
        for (term, number) in terms.iter().zip(&numbers) {
            assert_eq!((dictionary.get(term), dictionary.add(term)), (Some(*number), Some(*number)));
            assert_eq!(dictionary.text(*number), term);
        }
        assert_eq!((dictionary.len(), dictionary.get("t")), (4_000, None));
        let texts = |found: Vec<u32>| {
            let mut texts: Vec<_> = found.into_iter().map(|term| dictionary.text(term).to_owned()).collect();
            texts.sort();
            texts
        };
        let expected = |matches: fn(&&String) -> bool| {
            let mut expected: Vec<_> = terms.iter().filter(matches).cloned().collect();
            expected.sort();
            expected
        };
        assert_eq!(texts(dictionary.with_prefix("t39").collect()), expected(|term| term.starts_with("t39")));
        assert_eq!(texts(dictionary.with_prefix("u").collect()), Vec::<String>::new());
        assert_eq!(texts(dictionary.containing("99").collect()), expected(|term| term.contains("99")));
    }
}
