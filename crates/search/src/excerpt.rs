//! Excerpts: a short part of a text around the words that were searched for.

use std::collections::VecDeque;

use crate::fold::{cut, fold};
use crate::query::Query;
use crate::words::{pairs, parts, runs};

/// The most occurrences in a text that are looked at.
const MAX_OCCURRENCES: usize = 4_096;
/// How far a cut is moved to a space, in characters.
const TO_SPACE: usize = 16;

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Excerpt {
    /// The part, with white space as single spaces, and `…` where text is left out.
    pub text: String,
    /// How many words of the query stand close together in the text; 0 for its beginning.
    pub words: usize,
}

/// The part of a text in which the most words of a query stand close together, the first one of several; its beginning if
/// none occurs. At most `most` characters of the text.
pub fn excerpt(text: &str, query: &Query, most: usize) -> Excerpt {
    let (at, words) = closest(&occurrences(text, query), most / 2);
    // A quarter of the excerpt stands before the first occurrence.
    let before = text[..at].char_indices().rev().take(most / 4).last().map_or(at, |(start, _)| start);
    let start = if before == 0 { 0 } else { after_space(text, before, at) };
    let end = text[start..].char_indices().nth(most).map_or(text.len(), |(end, _)| start + end);
    let end = if end == text.len() { end } else { before_space(text, start, end) };
    let mut excerpt = String::with_capacity(end - start + 8);
    if !text[..start].trim().is_empty() {
        excerpt.push('…');
    }
    let words_of =
        text[start..end].split(|character: char| character.is_whitespace() || character.is_control());
    for (number, word) in words_of.filter(|word| !word.is_empty()).enumerate() {
        if number > 0 {
            excerpt.push(' ');
        }
        excerpt.push_str(word);
    }
    if !text[end..].trim().is_empty() {
        excerpt.push('…');
    }
    Excerpt { text: excerpt, words }
}

/// Behind a space close after `start`, if there is one before `most`.
fn after_space(text: &str, start: usize, most: usize) -> usize {
    let mut near = text[start..most].char_indices().take(TO_SPACE);
    let space = near.find(|(_, character)| character.is_whitespace());
    space.map_or(start, |(at, space)| start + at + space.len_utf8())
}

/// Before a space close before `end`, if there is one.
fn before_space(text: &str, start: usize, end: usize) -> usize {
    let mut near = text[start..end].char_indices().rev().take(TO_SPACE);
    near.find(|(_, character)| character.is_whitespace()).map_or(end, |(at, _)| start + at)
}

/// Where words of a query occur in a text, each with the number of the word.
fn occurrences(text: &str, query: &Query) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut folded = String::new();
    for run in runs(text) {
        if found.len() >= MAX_OCCURRENCES {
            break;
        }
        let word = &text[run.at.clone()];
        fold(word, &mut folded);
        let mut look = |at: usize, term: &str| {
            let words = query.words.iter().enumerate().filter(|(_, word)| word.matches(term));
            found.extend(words.map(|(number, _)| (at, number)));
        };
        if run.is_spaced {
            look(run.at.start, cut(&folded));
            for (start, part) in parts(word) {
                fold(part, &mut folded);
                look(run.at.start + start, cut(&folded));
            }
        } else {
            // Nearly always a folded character stands for one of the text.
            let starts = word.char_indices().map(|(start, _)| start);
            for ((_, pair), start) in pairs(&folded).zip(starts) {
                look(run.at.start + start, pair);
            }
        }
    }
    found
}

/// The first occurrence of those that stand within `most` bytes and are of the most words, and the number of these.
fn closest(occurrences: &[(usize, usize)], most: usize) -> (usize, usize) {
    let mut window: VecDeque<(usize, usize)> = VecDeque::new();
    let mut best = (0, 0);
    let mut counts = std::collections::HashMap::new();
    for &(at, word) in occurrences {
        window.push_back((at, word));
        *counts.entry(word).or_insert(0_usize) += 1;
        // An occurrence leaves the window when it is too far, or as soon as its word occurs again.
        while let Some(&(first, word)) = window.front() {
            let is_repeated = counts.get(&word).is_some_and(|count| *count > 1);
            if !is_repeated && at - first <= most {
                break;
            }
            window.pop_front();
            if let Some(count) = counts.get_mut(&word) {
                *count -= 1;
                if *count == 0 {
                    counts.remove(&word);
                }
            }
        }
        if counts.len() > best.1 {
            best = (window.front().map_or(at, |(first, _)| *first), counts.len());
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::excerpt;
    use crate::query::Query;

    #[test]
    fn excerpts_show_the_words_that_were_searched_for() {
        let filler = "one two three four five six seven eight nine ten ";
        let long = format!("{0}alpha {0}\n\n alpha  beta\tgamma {0}", filler.repeat(4));
        let of = |text: &str, query: &str, most| {
            let excerpt = excerpt(text, &Query::parse(query), most);
            (excerpt.text, excerpt.words)
        };
        let cases = [
            (of("short  text\n", "nothing", 40), ("short text".to_owned(), 0)),
            (of("", "a", 40), (String::new(), 0)),
            (of(&long, "beta alpha", 40), ("…ten alpha beta gamma one two three…".to_owned(), 2)),
            (of(&long, "nothing", 20), ("one two three four…".to_owned(), 0)),
            (
                of(&format!("{filler}maxConnections"), "connections", 20),
                ("…ten maxConnections".to_owned(), 1),
            ),
            (of(&"界".repeat(50), "界", 8), ("界界界界界界界界…".to_owned(), 1)),
            (of(&format!("{}北京天气", "界".repeat(50)), "天气", 8), ("…北京天气".to_owned(), 1)),
        ];
        for (number, (found, expected)) in cases.into_iter().enumerate() {
            assert_eq!(found, expected, "{number}");
        }
    }
}
