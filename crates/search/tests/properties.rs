//! Properties that hold for all documents and queries.

use std::collections::BTreeMap;

use proptest::prelude::*;
use search::{Field, Hit, Index, Query, excerpt};

/// A document: its group, and its texts.
type Document = (u8, Vec<(usize, String)>);

const FIELDS: [Field; 5] = [Field::Name, Field::Title, Field::Description, Field::Uri, Field::Text];

fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::collection::vec("[ab]{1,4}", 0..6).prop_map(|words| words.join(" ")),
        2 => "[北京天気 a]{0,8}",
        1 => "\\PC{0,12}",
        1 => any::<String>(),
    ]
}

fn document() -> impl Strategy<Value = Document> {
    (0_u8..3, prop::collection::vec((0..FIELDS.len(), text()), 0..4))
}

fn insert(index: &mut Index<u8, u8>, key: u8, (group, texts): &Document) {
    index.insert(key, *group, texts.iter().map(|(field, text)| (FIELDS[*field], text.as_str())));
}

/// An index of documents, in ascending order of their keys or in descending order.
fn index(documents: &BTreeMap<u8, Document>, is_reversed: bool) -> Index<u8, u8> {
    let mut index = Index::new();
    let mut keys: Vec<_> = documents.keys().collect();
    if is_reversed {
        keys.reverse();
    }
    for key in keys {
        insert(&mut index, *key, &documents[key]);
    }
    index
}

fn all(index: &Index<u8, u8>, query: &Query) -> Vec<Hit<u8>> {
    index.search(query, usize::MAX, |_| true)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn changed_index_answers_as_one_built_anew(
        writes in prop::collection::vec((0_u8..12, prop::option::weighted(0.8, document())), 0..40),
        queries in prop::collection::vec(text(), 1..8),
        limit in 0_usize..6,
    ) {
        let (mut changed, mut model) = (Index::new(), BTreeMap::new());
        for (key, written) in writes {
            if let Some(document) = written {
                insert(&mut changed, key, &document);
                model.insert(key, document);
            } else {
                prop_assert_eq!(changed.remove(&key), model.remove(&key).is_some());
            }
        }
        let (anew, reversed, compacted) = (index(&model, false), index(&model, true), changed.compacted());
        prop_assert_eq!([changed.len(), compacted.len()], [model.len(); 2]);
        for query in queries.iter().map(|query| Query::parse(query)) {
            let expected = all(&anew, &query);
            prop_assert_eq!(&all(&changed, &query), &expected);
            prop_assert_eq!(&all(&reversed, &query), &expected);
            prop_assert_eq!(&all(&compacted, &query), &expected);
            let first = changed.search(&query, limit, |_| true);
            prop_assert_eq!(&first[..], &expected[..limit.min(expected.len())]);
        }
    }

    #[test]
    fn hidden_documents_change_neither_results_nor_scores(
        documents in prop::collection::btree_map(any::<u8>(), document(), 0..20),
        queries in prop::collection::vec(text(), 1..8),
        visible in prop::collection::btree_set(0_u8..3, 0..3),
    ) {
        let everything = index(&documents, false);
        let seen = documents.into_iter().filter(|(_, (group, _))| visible.contains(group)).collect();
        let seen = index(&seen, false);
        for query in queries.iter().map(|query| Query::parse(query)) {
            let found = everything.search(&query, 20, |group| visible.contains(group));
            prop_assert_eq!(found, seen.search(&query, 20, |_| true));
        }
    }

    #[test]
    fn every_word_of_a_document_finds_it(words in prop::collection::vec("[\\p{L}\\p{N}]{1,80}", 1..6)) {
        let text = words.join(" ");
        let mut index = Index::new();
        insert(&mut index, 1, &(0, vec![(4, text.clone())]));
        for word in &words {
            prop_assert_eq!(all(&index, &Query::parse(word)).len(), 1, "{}", word);
            let first: String = word.chars().take(1).collect();
            // The first character alone may have a folded form of its own, as a final sigma or a Hangul jamo has.
            if first.is_ascii() {
                prop_assert_eq!(all(&index, &Query::parse(&first)).len(), 1, "{}", first);
            }
        }
        prop_assert_eq!(all(&index, &Query::parse(&text)).len(), 1);
    }

    #[test]
    fn excerpts_are_short_and_show_a_match(text in text(), query in text(), most in 1_usize..40) {
        let query = Query::parse(&query);
        let excerpt = excerpt(&text, &query, most);
        prop_assert!(excerpt.text.chars().count() <= most + 2);
        let mut index = Index::new();
        insert(&mut index, 1, &(0, vec![(4, text)]));
        prop_assert!(all(&index, &query).is_empty() || excerpt.words > 0 );
    }
}

#[test]
fn memory_is_counted_and_given_back() {
    let mut index = Index::new();
    let text = (0..200).map(|word| format!("word{word}")).collect::<Vec<_>>().join(" ");
    for key in 0..=255 {
        insert(&mut index, key, &(0, vec![(4, format!("{text} own{key}"))]));
    }
    let full = index.memory();
    assert!((120_000..600_000).contains(&full), "{full}");
    for round in 0_u32..8 {
        for key in 0..=255 {
            insert(&mut index, key, &(0, vec![(4, format!("{text} own{key} round{round}"))]));
        }
    }
    assert!(index.is_sparse());
    let compacted = index.compacted();
    assert!(!compacted.is_sparse());
    assert!(compacted.memory() < full * 5 / 4, "{} {full}", compacted.memory());
}
