//! Documents to be searched, in four languages: English from the project's own documentation, and words that are made of
//! the parts of words of the others. The same in every run.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;

/// Where the documentation is.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// The words of a sentence.
const SENTENCE: usize = 12;

/// The parts of words of a language, and what stands between its words.
struct Language {
    parts: &'static [&'static str],
    space: &'static str,
}

const GERMAN: Language = Language {
    parts: &[
        "ver", "sich", "er", "ung", "straßen", "bahn", "hof", "kranken", "haus", "ge", "wetter", "bericht",
        "über", "trag", "größe", "schön", "heit", "lich", "keit", "arbeit", "geber", "zeit", "plan", "an",
        "auf", "be",
    ],
    space: " ",
};

const CHINESE: Language = Language {
    parts: &[
        "北", "京", "上", "海", "天", "气", "数", "据", "库", "网", "络", "服", "务", "器", "用", "户", "名",
        "文", "件", "系", "统", "错", "误", "退", "款", "部", "署", "版", "本", "发", "布", "安", "全", "备",
        "份", "时", "间", "地", "图", "学",
    ],
    space: "",
};

const JAPANESE: Language = Language {
    parts: &[
        "デ", "ー", "タ", "ベ", "ス", "サ", "バ", "の", "は", "を", "東", "京", "天", "気", "予", "報", "返",
        "金", "日", "本", "語", "で", "す", "ま", "した", "から", "こと", "もの", "時", "間",
    ],
    space: "",
};

/// A document.
pub(crate) struct Document {
    pub(crate) title: String,
    pub(crate) description: String,
    pub(crate) text: String,
}

/// The documents and the queries for them.
pub(crate) struct Library {
    /// The words of the documentation in their order.
    english: Vec<String>,
    numbers: Numbers,
}

impl Library {
    /// Reads the documentation.
    pub(crate) fn open() -> Result<Self, Error> {
        let mut files = Vec::new();
        for directory in ["", "docs", "docs/adr"] {
            let path = Path::new(ROOT).join(directory);
            let reading = || Error::io(format!("read the documentation in {}", path.display()));
            for entry in fs::read_dir(&path).map_err(reading())? {
                files.push(entry.map_err(reading())?.path());
            }
        }
        files.retain(|file| file.extension().is_some_and(|extension| extension == "md"));
        files.sort();
        let read =
            |file: &PathBuf| fs::read_to_string(file).map_err(Error::io(format!("read {}", file.display())));
        let texts = files.iter().map(read).collect::<Result<Vec<_>, _>>()?;
        let english = texts.iter().flat_map(|text| text.split_whitespace()).map(str::to_owned).collect();
        Ok(Self { english, numbers: Numbers(1) })
    }

    /// A document, in each language in turn.
    pub(crate) fn document(&mut self, nth: usize) -> Document {
        let words = 20 + self.numbers.skewed(400);
        let [title, description, text] = [5, 12, words].map(|words| self.text(nth, words));
        Document { title, description, text }
    }

    /// One to three words of a language, of which the last may be the beginning of one.
    pub(crate) fn query(&mut self, nth: usize) -> String {
        let words = 1 + self.numbers.below(3);
        let mut query = self.text(nth, words);
        if self.numbers.below(4) == 0 && query.chars().count() > 3 {
            query.pop();
        }
        query
    }

    fn text(&mut self, nth: usize, words: usize) -> String {
        let language = match nth % 4 {
            0 => {
                let start = self.numbers.below(self.english.len() - words);
                return self.english[start..start + words].join(" ");
            }
            1 => GERMAN,
            2 => CHINESE,
            _ => JAPANESE,
        };
        let words: Vec<_> = (0..words).map(|_| self.numbers.word(&language)).collect();
        let sentences: Vec<_> =
            words.chunks(SENTENCE).map(|sentence| sentence.join(language.space)).collect();
        sentences.join(if language.space.is_empty() { "。" } else { ". " })
    }
}

/// A generator of numbers.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, most: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % most as u64).unwrap_or_default()
    }

    /// Small numbers more often, as the ranks of words in a language.
    fn skewed(&mut self, most: usize) -> usize {
        let first = self.below(most) + 1;
        self.below(first)
    }

    fn word(&mut self, language: &Language) -> String {
        let length = 2 + self.below(3);
        (0..length).map(|_| language.parts[self.skewed(language.parts.len())]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Library;

    #[test]
    fn documents_and_queries_are_the_same_in_every_run() {
        let made = || {
            let mut library = Library::open().unwrap();
            let documents: Vec<_> = (0..8).map(|nth| library.document(nth)).collect();
            let texts = documents.into_iter().map(|document| [document.title, document.text].concat());
            texts.chain((0..8).map(|nth| library.query(nth))).collect::<Vec<_>>()
        };
        assert_eq!(made(), made());
        assert!(made()[2].chars().all(|character| !character.is_ascii()), "{}", made()[2]);
    }
}
