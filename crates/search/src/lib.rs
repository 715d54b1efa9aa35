//! A small inverted index in memory for short documents in any script.
//!
//! An [`Index`] holds documents under keys, each in a group that decides who may see it. A [`Query`] finds the documents
//! that contain all its words, the last one also as a prefix, in the groups that the caller names; best first.
//!
//! - **Words.** Case, accents and compatibility forms are folded. Scripts without spaces (Chinese, Japanese, Thai, …) and
//!   Hangul are indexed by overlapping pairs of characters. A word that occurs nowhere is also looked for inside words:
//!   `versicherung` finds `Krankenversicherung`.
//! - **Ranking.** What a word contributes to a document is computed from that document alone when it is indexed, by the
//!   [`Field`] it stands in, its number and the length of the field, as BM25F does with fixed average lengths. How rare a
//!   word is counts the visible documents only, so what is hidden changes no score. All arithmetic is on integers: the
//!   same documents are ranked the same on every machine, in any order of insertion.
//! - **Changes.** A replaced document is appended under a new number, and its former number is skipped until
//!   [`Index::compacted`] drops it.
//!
//! ```
//! use search::{Field, Index, Query};
//!
//! let mut index = Index::new();
//! index.insert("a", "public", [(Field::Name, "Wetterbericht"), (Field::Text, "Schöne Aussichten für 北京")]);
//! index.insert("b", "secret", [(Field::Name, "Wetterkarte")]);
//! let find = |text| index.search(&Query::parse(text), 20, |group| *group == "public");
//! assert_eq!(find("wetter").iter().map(|hit| hit.key).collect::<Vec<_>>(), ["a"]);
//! assert_eq!(find("schone 京").len(), 1);
//! assert!(find("karte").is_empty());
//! ```

mod dictionary;
mod excerpt;
mod fold;
mod index;
mod postings;
mod query;
mod rank;
mod search;
mod words;

pub use self::excerpt::{Excerpt, excerpt};
pub use self::index::Index;
pub use self::query::Query;
pub use self::rank::Field;
pub use self::search::Hit;
