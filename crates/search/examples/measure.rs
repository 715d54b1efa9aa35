//! Builds an index of many generated documents in several languages, searches it, and prints time and memory:
//! `cargo run --release --package search --example measure -- [DOCUMENTS]`.

#![expect(clippy::print_stdout, reason = "prints what it measured")]

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use search::{Field, Index, Query, excerpt};

/// Makes a query in a language.
type Make = fn(&mut Numbers, &Language) -> String;

/// The words of one language are made of its syllables.
struct Language {
    syllables: &'static [&'static str],
    /// Between words; empty for scripts without spaces.
    space: &'static str,
}

const LANGUAGES: [Language; 4] = [
    Language {
        syllables: &[
            "re", "ter", "in", "con", "ment", "al", "pro", "tion", "ser", "vice", "da", "ta", "base", "port",
            "net", "work", "lim", "it", "er", "ror", "key", "log", "back", "up", "user", "name", "ex",
            "ample", "sys", "tem",
        ],
        space: " ",
    },
    Language {
        syllables: &[
            "ver", "sich", "er", "ung", "straßen", "bahn", "hof", "kranken", "haus", "ge", "wetter",
            "bericht", "über", "trag", "größe", "schön", "heit", "lich", "keit", "arbeit", "geber", "zeit",
            "plan", "an", "auf", "be",
        ],
        space: " ",
    },
    Language {
        syllables: &[
            "北", "京", "上", "海", "天", "气", "数", "据", "库", "网", "络", "服", "务", "器", "用", "户",
            "名", "文", "件", "系", "统", "错", "误", "退", "款", "部", "署", "版", "本", "发", "布", "安",
            "全", "备", "份", "时", "间", "地", "图", "学",
        ],
        space: "",
    },
    Language {
        syllables: &[
            "デ", "ー", "タ", "ベ", "ス", "サ", "バ", "の", "は", "を", "東", "京", "天", "気", "予", "報",
            "返", "金", "日", "本", "語", "で", "す", "ま", "した", "から", "こと", "もの", "時", "間",
        ],
        space: "",
    },
];

/// A generator of numbers, the same in every run.
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
        let length = 1 + self.below(3);
        (0..=length).map(|_| language.syllables[self.skewed(language.syllables.len())]).collect()
    }

    fn text(&mut self, language: &Language, words: usize) -> String {
        let words: Vec<_> = (0..words).map(|_| self.word(language)).collect();
        let sentences: Vec<_> = words.chunks(12).map(|sentence| sentence.join(language.space)).collect();
        sentences.join(if language.space.is_empty() { "。" } else { ". " })
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let documents: usize = std::env::args().nth(1).map_or(Ok(100_000), |argument| argument.parse())?;
    let mut numbers = Numbers(1);
    let mut index = Index::new();
    let (mut bytes, mut indexing, mut texts) = (0, Duration::ZERO, Vec::new());
    for document in 0..documents {
        let language = &LANGUAGES[document % LANGUAGES.len()];
        let [name, description] = [3, 12].map(|words| numbers.text(language, words));
        let length = 20 + numbers.skewed(400);
        let text = numbers.text(language, length);
        let uri = format!("docs://library/{}/{document}", document % 97);
        bytes += name.len() + description.len() + text.len() + uri.len();
        let began = Instant::now();
        index.insert(
            uri.clone(),
            document % 5,
            [
                (Field::Name, name.as_str()),
                (Field::Description, &description),
                (Field::Uri, &uri),
                (Field::Text, &text),
            ],
        );
        indexing += began.elapsed();
        if document % 50 == 0 {
            texts.push(text);
        }
    }
    println!("{documents} documents of {bytes} bytes: indexed in {indexing:.2?}, {index:?}");
    let began = Instant::now();
    let loose = index.memory();
    index = index.compacted();
    println!("compacted in {:.2?}, from {loose} to {} bytes", began.elapsed(), index.memory());
    let kinds: [(&str, Make); 5] = [
        ("one word", |numbers, language| numbers.word(language)),
        ("two words", |numbers, language| format!("{} {}", numbers.word(language), numbers.word(language))),
        ("three words", |numbers, language| numbers.text(language, 3)),
        ("one letter", |numbers, language| language.syllables[numbers.below(20)].chars().take(1).collect()),
        ("part of a word", |numbers, _| LANGUAGES[1].syllables[numbers.below(20)].repeat(2)),
    ];
    for (kind, query) in kinds {
        let mut times = Vec::new();
        let mut hits = 0;
        for number in 0..2_000 {
            let query = Query::parse(&query(&mut numbers, &LANGUAGES[number % LANGUAGES.len()]));
            let began = Instant::now();
            hits += black_box(index.search(&query, 20, |group| *group != 4)).len();
            for text in texts.iter().take(20) {
                black_box(excerpt(text, &query, 200));
            }
            times.push(began.elapsed());
        }
        times.sort_unstable();
        let at = |percent: usize| times[times.len() * percent / 100];
        println!(
            "{kind}: {} hits a query, median {:.2?}, p99 {:.2?}, longest {:.2?}",
            hits / times.len(),
            at(50),
            at(99),
            times[times.len() - 1]
        );
    }
    let began = Instant::now();
    for (number, text) in texts.iter().take(1_000).enumerate() {
        index.insert(format!("docs://library/{}/{}", number % 97, number), 0, [(Field::Text, text.as_str())]);
    }
    println!("a change: {:.2?} on average", began.elapsed() / 1_000);
    Ok(())
}
