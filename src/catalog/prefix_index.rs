//! An index of URI templates by literal prefix, which finds the candidates that may match a URI.

use std::collections::BTreeMap;

use crate::model::allocated::{allocated, texts};

const BITS: usize = u64::BITS as usize;

/// Finds the templates whose literal prefix a URI begins with, in the order in which they were given.
///
/// Takes time in the logarithm of the number of distinct prefixes and in the length of the longest chain of prefixes of
/// each other, and at most a bit for each pair of a distinct prefix and a template.
#[derive(Debug, Default)]
pub(super) struct PrefixIndex {
    /// In byte order.
    prefixes: Vec<Prefix>,
}

#[derive(Debug)]
struct Prefix {
    text: Box<str>,
    /// The longest other prefix that this one begins with.
    parent: Option<usize>,
    /// The templates that begin with this text, or with a prefix of it: a bit each.
    templates: Box<[u64]>,
}

/// A set of templates: a bit each, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TemplateSet(Vec<u64>);

impl TemplateSet {
    /// Adds a template.
    pub(super) fn insert(&mut self, template: usize) {
        let word = template / BITS;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (template % BITS);
    }

    /// Adds the templates of another set.
    pub(super) fn extend(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(word, more)| *word |= more);
    }

    /// The memory that it takes, without itself.
    pub(super) fn heap(&self) -> usize {
        allocated(self.0.capacity() * size_of::<u64>())
    }
}

impl PrefixIndex {
    /// Indexes templates by their literal prefixes.
    pub(super) fn new<'t>(literals: impl ExactSizeIterator<Item = &'t str>) -> Self {
        let words = literals.len().div_ceil(BITS);
        let mut by_text: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (template, literal) in literals.enumerate() {
            by_text.entry(literal).or_default().push(template);
        }
        let mut prefixes: Vec<Prefix> = Vec::with_capacity(by_text.len());
        // Those that the text before began with, and that text itself.
        let mut open: Vec<usize> = Vec::new();
        for (text, own) in by_text {
            while let Some(last) = open.last()
                && !text.starts_with(&*prefixes[*last].text)
            {
                open.pop();
            }
            let parent = open.last().copied();
            let mut templates =
                parent.map_or_else(|| vec![0; words].into(), |at| prefixes[at].templates.clone());
            for template in own {
                templates[template / BITS] |= 1 << (template % BITS);
            }
            open.push(prefixes.len());
            prefixes.push(Prefix { text: text.into(), parent, templates });
        }
        Self { prefixes }
    }

    /// The memory that it takes.
    pub(super) fn memory(&self) -> usize {
        let prefix = |prefix: &Prefix| texts([&*prefix.text]) + allocated(size_of_val(&*prefix.templates));
        allocated(self.prefixes.capacity() * size_of::<Prefix>())
            + self.prefixes.iter().map(prefix).sum::<usize>()
    }

    /// How many of these templates may match a URI.
    pub(super) fn count(&self, uri: &str, of: Option<&TemplateSet>) -> usize {
        self.words(uri, of).map(|word| word.count_ones() as usize).sum()
    }

    /// The ones of these templates that may match a URI, in their order.
    pub(super) fn candidates(&self, uri: &str, of: Option<&TemplateSet>) -> impl Iterator<Item = usize> {
        self.words(uri, of).enumerate().flat_map(|(word, bits)| {
            let rest = std::iter::successors(Some(bits), |bits| Some(bits & bits.checked_sub(1)?));
            rest.take_while(|bits| *bits != 0).map(move |bits| word * BITS + bits.trailing_zeros() as usize)
        })
    }

    /// The bits of the templates that may match a URI and are in the set; without a set, of all of them.
    fn words(&self, uri: &str, of: Option<&TemplateSet>) -> impl Iterator<Item = u64> {
        let word_of = move |at| of.map_or(u64::MAX, |set| set.0.get(at).copied().unwrap_or_default());
        self.bits(uri).iter().enumerate().map(move |(at, word)| word & word_of(at))
    }

    fn bits(&self, uri: &str) -> &[u64] {
        // A text that begins a URI, and is not above it in byte order, also begins every text between the two.
        let mut at = self.prefixes.partition_point(|prefix| &*prefix.text <= uri).checked_sub(1);
        while let Some(prefix) = at.and_then(|at| self.prefixes.get(at)) {
            if uri.starts_with(&*prefix.text) {
                return &prefix.templates;
            }
            at = prefix.parent;
        }
        &[]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{PrefixIndex, TemplateSet};

    #[test]
    fn chains_of_prefixes_are_followed() {
        let index = PrefixIndex::new(["x:a/", "x:", "y:", "x:a/", "x:ab"].into_iter());
        let of = |uri: &str| (index.candidates(uri, None).collect::<Vec<_>>(), index.count(uri, None));
        assert_eq!(of("x:a/1"), (vec![0, 1, 3], 3));
        assert_eq!(of("x:ac"), (vec![1], 1));
        assert_eq!(of("x:abc"), (vec![1, 4], 2));
        assert_eq!(of("x"), (vec![], 0));
        assert_eq!(of("z:"), (vec![], 0));
        assert_eq!(PrefixIndex::default().candidates("x:", None).count(), 0);
    }

    proptest! {
        #[test]
        fn index_finds_what_a_linear_scan_finds(
            literals in proptest::collection::vec("[ab/]{0,4}", 0..200),
            uris in proptest::collection::vec("[ab/c]{0,6}", 1..20),
            visible in proptest::collection::vec(0_usize..200, 0..100),
        ) {
            let mut set = TemplateSet::default();
            for template in &visible {
                set.insert(*template);
            }
            let index = PrefixIndex::new(literals.iter().map(String::as_str));
            for uri in uris {
                let scanned: Vec<_> =
                    (0..literals.len()).filter(|at| uri.starts_with(&literals[*at])).collect();
                prop_assert_eq!(index.count(&uri, None), scanned.len());
                prop_assert_eq!(&index.candidates(&uri, None).collect::<Vec<_>>(), &scanned);
                let scanned: Vec<_> = scanned.into_iter().filter(|at| visible.contains(at)).collect();
                prop_assert_eq!(index.count(&uri, Some(&set)), scanned.len());
                prop_assert_eq!(index.candidates(&uri, Some(&set)).collect::<Vec<_>>(), scanned);
            }
        }
    }
}
