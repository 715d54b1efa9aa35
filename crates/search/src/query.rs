//! Queries.

use std::collections::BTreeSet;

use crate::fold::{cut, fold};
use crate::words::{pairs, runs};

/// The fewest characters of a word that is looked for inside other words.
const FEWEST_OF_PART: usize = 4;

/// What is searched for: words that must all occur.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    pub(crate) words: Vec<Word>,
}

/// A word of a query.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Word {
    /// Folded.
    pub(crate) text: String,
    /// Whether words that begin with it match.
    pub(crate) is_prefix: bool,
    /// Whether words that contain it match if no other does.
    pub(crate) is_part: bool,
}

impl Query {
    /// Splits a query into words. The last one also matches as a prefix.
    pub fn parse(text: &str) -> Self {
        let mut words = BTreeSet::new();
        let mut folded = String::new();
        let mut rest = runs(text).peekable();
        while let Some(run) = rest.next() {
            fold(&text[run.at], &mut folded);
            if run.is_spaced {
                let text = cut(&folded).to_owned();
                let is_part = text.chars().count() >= FEWEST_OF_PART;
                words.insert(Word { text, is_prefix: rest.peek().is_none(), is_part });
            } else {
                // Every character begins a term, so a single one is a prefix. The last one of several is part of a pair.
                let is_single = folded.chars().count() == 1;
                let length = pairs(&folded).count();
                let wanted = pairs(&folded).take(if is_single { 1 } else { length - 1 });
                words.extend(wanted.map(|(_, pair)| Word {
                    text: pair.to_owned(),
                    is_prefix: is_single,
                    is_part: false,
                }));
            }
        }
        Self { words: words.into_iter().filter(|word| !word.text.is_empty()).collect() }
    }

    /// Whether it contains no word: it finds nothing.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }
}

impl Word {
    /// Whether it matches a term.
    pub(crate) fn matches(&self, term: &str) -> bool {
        term == self.text
            || (self.is_prefix && term.starts_with(&self.text))
            || (self.is_part && term.contains(&self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::Query;

    #[test]
    fn query_is_split_into_words() {
        let words = |text| {
            let mark = |is: bool, mark: &'static str| if is { mark } else { "" };
            let words = Query::parse(text).words.into_iter();
            words
                .map(|word| word.text + mark(word.is_prefix, "*") + mark(word.is_part, "~"))
                .collect::<Vec<_>>()
        };
        let queries: [(&str, &[&str]); 8] = [
            ("Über Prag", &["prag*~", "uber~"]),
            ("a b a", &["a", "a*", "b"]),
            ("北京天气", &["京天", "北京", "天气"]),
            ("京", &["京*"]),
            ("京 wea", &["wea*", "京*"]),
            ("東京 1", &["1*", "東京"]),
            ("", &[]),
            ("?!", &[]),
        ];
        for (text, expected) in queries {
            assert_eq!(words(text), expected, "{text}");
        }
    }
}
