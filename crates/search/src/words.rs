//! Splits text into runs of letters and digits, and runs into the terms under which they are indexed.

use std::ops::Range;

use unicode_normalization::char::is_combining_mark;

use crate::fold::{cut, fold, is_unspaced};

/// A maximal run of letters, digits and their marks, all of scripts with spaces or all of scripts without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// Where it stands in the text.
    pub(crate) at: Range<usize>,
    /// Whether its script separates words by spaces.
    pub(crate) is_spaced: bool,
}

/// The runs of a text in order.
pub(crate) fn runs(text: &str) -> impl Iterator<Item = Run> {
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (start, first) = rest.find(|(_, character)| character.is_alphanumeric())?;
        let is_spaced = !is_unspaced(first);
        let continues = |next: &(usize, char)| {
            is_combining_mark(next.1) || (next.1.is_alphanumeric() && is_unspaced(next.1) != is_spaced)
        };
        while rest.next_if(continues).is_some() {}
        let end = rest.peek().map_or(text.len(), |(end, _)| *end);
        Some(Run { at: start..end, is_spaced })
    })
}

/// Pairs of neighboring characters of a run, each with the number of its first character; the last character alone ends
/// them, so that every character begins a term.
pub(crate) fn pairs(folded: &str) -> impl Iterator<Item = (usize, &str)> {
    let starts = folded.char_indices().map(|(start, _)| start);
    let ends = folded.char_indices().map(|(start, _)| start).skip(2).chain(std::iter::repeat(folded.len()));
    starts.zip(ends).enumerate().map(|(number, (start, end))| (number, &folded[start..end]))
}

/// The parts of a word in camel case, each with where it begins; none of other words.
pub(crate) fn parts(word: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut start = 0;
    let mut was_lower = false;
    let mut ends: Vec<usize> = Vec::new();
    for (at, character) in word.char_indices() {
        if was_lower && character.is_uppercase() {
            ends.push(at);
        }
        was_lower = character.is_lowercase();
    }
    if !ends.is_empty() {
        ends.push(word.len());
    }
    ends.into_iter().map(move |end| {
        let start = std::mem::replace(&mut start, end);
        (start, &word[start..end])
    })
}

/// Splits texts into the terms under which they are indexed. Keeps its memory from text to text.
#[derive(Debug, Default)]
pub(crate) struct Tokenizer {
    folded: String,
}

impl Tokenizer {
    /// Passes each term of a text to `found`, in order.
    pub(crate) fn split(&mut self, text: &str, mut found: impl FnMut(&str)) {
        for run in runs(text) {
            let word = &text[run.at];
            fold(word, &mut self.folded);
            if !run.is_spaced {
                pairs(&self.folded).for_each(|(_, pair)| found(pair));
                continue;
            }
            found(cut(&self.folded));
            for (_, part) in parts(word) {
                fold(part, &mut self.folded);
                found(cut(&self.folded));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Tokenizer;

    #[test]
    fn text_is_split_into_terms() {
        let terms = |text| {
            let mut terms = Vec::new();
            Tokenizer::default().split(text, |term| terms.push(term.to_owned()));
            terms
        };
        let texts: [(&str, &[&str]); 8] = [
            ("Grüße, Welt!", &["grusse", "welt"]),
            ("snake_case v2.1", &["snake", "case", "v2", "1"]),
            ("maxConnections", &["maxconnections", "max", "connections"]),
            ("北京天气", &["北京", "京天", "天气", "气"]),
            ("第3章", &["第", "3", "章"]),
            ("データ、東京", &["デー", "ータ", "タ", "東京", "京"]),
            ("ภาษา", &["ภา", "าษ", "ษา", "า"]),
            ("-- ...", &[]),
        ];
        for (text, expected) in texts {
            assert_eq!(terms(text), expected, "{text}");
        }
    }
}
