//! Folding: the form of a word under which it is indexed and looked up.

use unicode_normalization::UnicodeNormalization;

/// The longest indexed word in bytes; longer ones are cut, in documents and queries alike.
const MAX_BYTES: usize = 64;

/// Replaces `folded` by the folded form of a word: without case, accents and compatibility forms.
pub(crate) fn fold(word: &str, folded: &mut String) {
    folded.clear();
    if word.is_ascii() {
        folded.push_str(word);
        folded.make_ascii_lowercase();
    } else if word.chars().all(is_folded) {
        folded.push_str(word);
    } else {
        for character in word.nfkd().filter(|character| !is_accent(*character)).nfc() {
            push_lower_case(character, folded);
        }
    }
    // Separates the words in the dictionary.
    debug_assert!(!folded.contains('\n'), "no word contains a line break");
}

/// Whether a character is its own folded form, of those that texts without spaces mostly consist of.
fn is_folded(character: char) -> bool {
    matches!(character,
        '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fe}' | '\u{4e00}'..='\u{9fff}' | '\u{ac00}'..='\u{d7a3}')
}

/// Cuts a folded word to the length that is indexed.
pub(crate) fn cut(folded: &str) -> &str {
    &folded[..folded.floor_char_boundary(MAX_BYTES)]
}

fn push_lower_case(character: char, folded: &mut String) {
    for lower in character.to_lowercase() {
        match lower {
            'ß' => folded.push_str("ss"),
            'æ' => folded.push_str("ae"),
            'œ' => folded.push_str("oe"),
            'ø' => folded.push('o'),
            'đ' => folded.push('d'),
            'ł' => folded.push('l'),
            'ı' => folded.push('i'),
            'ς' => folded.push('σ'),
            other => folded.push(other),
        }
    }
}

/// Whether a mark only modifies a letter. The vowel signs of Indic and South-East Asian scripts, and the voicing marks of
/// Japanese, make other letters.
fn is_accent(character: char) -> bool {
    matches!(character,
        '\u{300}'..='\u{36f}'
        | '\u{483}'..='\u{487}'
        | '\u{591}'..='\u{5bd}' | '\u{5bf}' | '\u{5c1}' | '\u{5c2}' | '\u{5c4}' | '\u{5c5}' | '\u{5c7}'
        | '\u{610}'..='\u{61a}' | '\u{64b}'..='\u{65f}' | '\u{670}'
        | '\u{6d6}'..='\u{6dc}' | '\u{6df}'..='\u{6e4}' | '\u{6e7}' | '\u{6e8}' | '\u{6ea}'..='\u{6ed}'
        | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}')
}

/// Whether a script writes words without spaces between them, or joins what is searched for to other words.
pub(crate) fn is_unspaced(character: char) -> bool {
    matches!(character,
        '\u{e00}'..='\u{eff}'
        | '\u{1000}'..='\u{109f}'
        | '\u{1100}'..='\u{11ff}'
        | '\u{1780}'..='\u{17ff}'
        | '\u{3005}'..='\u{3007}'
        | '\u{3040}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{a960}'..='\u{a97f}'
        | '\u{ac00}'..='\u{d7ff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff66}'..='\u{ffdc}'
        | '\u{20000}'..='\u{3ffff}')
}

#[cfg(test)]
mod tests {
    use super::{cut, fold, is_folded};

    #[test]
    fn folded_characters_have_no_other_form() {
        use unicode_normalization::UnicodeNormalization;

        for character in (0..=0xffff).filter_map(char::from_u32).filter(|character| is_folded(*character)) {
            assert_eq!(
                std::iter::once(character).nfkd().nfc().flat_map(char::to_lowercase).collect::<String>(),
                character.to_string()
            );
        }
    }

    #[test]
    fn case_accents_and_compatibility_forms_are_folded() {
        let folded = |word| {
            let mut folded = String::new();
            fold(word, &mut folded);
            folded
        };
        let words = [
            ("Straße", "strasse"),
            ("CAFÉ", "cafe"),
            ("Cafe\u{301}", "cafe"),
            ("İstanbul", "istanbul"),
            ("Łódź", "lodz"),
            ("Ｗａｇｇｌｅ", "waggle"),
            ("ﾃﾞｰﾀ", "データ"),
            ("ガ", "ガ"),
            ("ΟΔΟΣ", "οδοσ"),
            ("Ёлка", "елка"),
            ("한국", "한국"),
            ("ﬁle", "file"),
        ];
        for (word, expected) in words {
            assert_eq!(folded(word), expected, "{word}");
        }
        assert_eq!(cut(&folded(&"é".repeat(100))).len(), 64);
        assert_eq!(cut(&"界".repeat(100)), "界".repeat(21));
    }
}
