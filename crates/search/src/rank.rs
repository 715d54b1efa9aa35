//! Scores, in integers so that they are the same on every machine.

use crate::postings::Impact;

/// A part of a document. Where a word stands decides most of what it contributes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The name.
    Name,
    /// The title.
    Title,
    /// The description.
    Description,
    /// The address, decoded.
    Uri,
    /// The text.
    Text,
}

/// The number of fields.
pub(crate) const FIELDS: usize = 5;

/// The most that a word contributes in each field. Impacts below 128 take one byte: those of words in texts, which are most.
const WEIGHTS: [u32; FIELDS] = [1_920, 1_200, 720, 300, 120];
/// The usual number of words in each field: a constant, since an average would tell of documents that are hidden.
const USUAL_LENGTHS: [u32; FIELDS] = [3, 4, 16, 6, 200];

/// Sixteenths, the unit of fractions.
const ONE: u32 = 16;

/// How a word of a query stands in a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// As it is.
    Whole,
    /// As the beginning of a word.
    Prefix,
    /// Inside a word.
    Part,
}

impl Match {
    /// The part of an impact that counts, at least 1.
    pub(crate) fn of(self, impact: Impact) -> Impact {
        let sixteenths = match self {
            Self::Whole => ONE,
            Self::Prefix => 10,
            Self::Part => 5,
        };
        (impact * sixteenths / ONE).max(1)
    }
}

impl Field {
    pub(crate) fn number(self) -> usize {
        self as usize
    }
}

/// What a word contributes to a document: for each field its weight, times a saturated frequency, `n / (n + h)`, where `h`
/// is between 1/4 and 3/4, and 1/2 in a field of usual length.
pub(crate) fn impact(frequencies: &[u32; FIELDS], lengths: &[u32; FIELDS]) -> Impact {
    (0..FIELDS)
        .map(|field| {
            let frequency = frequencies[field].min(1_000) * ONE;
            let half = 4 + (4 * lengths[field].min(100_000) / USUAL_LENGTHS[field]).min(8);
            WEIGHTS[field] * frequency / (frequency + half)
        })
        .sum()
}

/// How much a word counts that `matched` of `visible` documents contain, in sixteenths: one plus the binary logarithm of
/// the proportion.
pub(crate) fn rarity(visible: usize, matched: usize) -> u64 {
    let matched = matched.max(1);
    let proportion = ((visible.max(matched) as u64) << 8) / matched as u64;
    u64::from(ONE) + logarithm(proportion) - logarithm(1 << 8)
}

/// The binary logarithm in sixteenths, interpolated between powers of two.
fn logarithm(number: u64) -> u64 {
    let number = number.max(1);
    let whole = number.ilog2();
    let fraction = ((number << 4) >> whole) - u64::from(ONE);
    u64::from(whole) * u64::from(ONE) + fraction
}

#[cfg(test)]
mod tests {
    use super::{FIELDS, Field, impact, logarithm, rarity};

    fn single(field: Field, frequency: u32, length: u32) -> u32 {
        let (mut frequencies, mut lengths) = ([0; FIELDS], [0; FIELDS]);
        frequencies[field.number()] = frequency;
        lengths[field.number()] = length;
        impact(&frequencies, &lengths)
    }

    #[test]
    fn names_are_above_descriptions_above_addresses_above_text() {
        let fields = [Field::Name, Field::Title, Field::Description, Field::Uri, Field::Text];
        for [above, below] in [[0, 2], [1, 3], [2, 3], [3, 4]] {
            let (worst, best) = (single(fields[above], 1, 1_000), single(fields[below], 1_000, 1));
            assert!(worst > best, "{above} {worst}, {below} {best}");
        }
        assert!(single(Field::Text, 1_000_000, u32::MAX) < 128);
        assert!(single(Field::Text, 3, 100) > single(Field::Text, 1, 100));
        assert!(single(Field::Text, 1, 10) > single(Field::Text, 1, 400));
    }

    #[test]
    fn rarer_words_count_more() {
        assert_eq!([1, 2, 3, 4, 1 << 40].map(logarithm), [0, 16, 24, 32, 640]);
        assert_eq!(
            [(8, 8), (8, 4), (8, 1), (0, 0)].map(|(all, matched)| rarity(all, matched)),
            [16, 32, 64, 16]
        );
        assert!(rarity(100_000, 10) > rarity(100_000, 11));
    }
}
