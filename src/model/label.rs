//! Labels: a definition with labels is visible only to callers who have one of them.

use std::fmt;
use std::sync::Arc;

use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use super::allocated::behind_arc;
use super::fault::shortened;

/// The maximum number of labels of a definition or a key.
pub const MAX_LABELS: usize = 16;

/// A label: `^[a-z0-9][a-z0-9_.:-]{0,62}$`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String")]
#[schema(value_type = String, pattern = "^[a-z0-9][a-z0-9_.:-]{0,62}$")]
pub struct Label(Arc<str>);

/// Why a list of texts is not a list of labels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// A text does not match the pattern; it is shortened.
    #[error("a label must match ^[a-z0-9][a-z0-9_.:-]{{0,62}}$, found `{0}`")]
    Form(String),
    /// There are more than [`MAX_LABELS`] different labels.
    #[error("expected at most {MAX_LABELS} labels")]
    TooMany,
}

impl Label {
    /// Parses a label.
    ///
    /// # Errors
    /// [`LabelError::Form`] if the text does not match the pattern.
    pub fn parse(text: &str) -> Result<Self, LabelError> {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
        let is_label = matches!(text.len(), 1..=63)
            && text.bytes().next().is_some_and(plain)
            && text.bytes().all(|b| plain(b) || matches!(b, b'_' | b'.' | b':' | b'-'));
        if is_label { Ok(Self(text.into())) } else { Err(LabelError::Form(shortened(text))) }
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Label {
    type Error = LabelError;

    fn try_from(text: String) -> Result<Self, LabelError> {
        Self::parse(&text)
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// The labels of a definition or a credential: sorted, without duplicates. Takes no memory if there are none.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Labels(Option<Arc<[Label]>>);

impl Labels {
    /// Parses at most [`MAX_LABELS`] labels; duplicates count once.
    ///
    /// # Errors
    /// [`LabelError`].
    pub fn parse<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<Self, LabelError> {
        let mut labels = Vec::new();
        texts.into_iter().try_for_each(|text| add(&mut labels, Label::parse(text)?))?;
        Ok(Self::of_sorted(labels))
    }

    fn of_sorted(labels: Vec<Label>) -> Self {
        Self((!labels.is_empty()).then(|| labels.into()))
    }

    fn as_slice(&self) -> &[Label] {
        self.0.as_deref().unwrap_or_default()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The labels in byte order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Label> {
        self.as_slice().iter()
    }

    /// Whether both have a label in common.
    pub fn intersects(&self, other: &Self) -> bool {
        let (one, other) = (self.as_slice(), other.as_slice());
        let (few, many) = if one.len() <= other.len() { (one, other) } else { (other, one) };
        few.iter().any(|label| many.binary_search(label).is_ok())
    }

    /// Whether `other` has all of them.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.iter().all(|label| other.as_slice().binary_search(label).is_ok())
    }

    /// The bytes of the heap memory.
    pub fn heap(&self) -> usize {
        let texts = |labels: &[Label]| labels.iter().map(|label| behind_arc(label.0.len())).sum::<usize>();
        self.0.as_deref().map_or(0, |labels| behind_arc(size_of_val(labels)) + texts(labels))
    }
}

/// Adds a label to sorted labels.
fn add(labels: &mut Vec<Label>, label: Label) -> Result<(), LabelError> {
    let Err(at) = labels.binary_search(&label) else { return Ok(()) };
    if labels.len() == MAX_LABELS {
        return Err(LabelError::TooMany);
    }
    labels.insert(at, label);
    Ok(())
}

/// Any number of labels, in any order.
impl FromIterator<Label> for Labels {
    fn from_iter<I: IntoIterator<Item = Label>>(labels: I) -> Self {
        let mut labels: Vec<_> = labels.into_iter().collect();
        labels.sort_unstable();
        labels.dedup();
        Self::of_sorted(labels)
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_slice(), f)
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(LabelsVisitor)
    }
}

/// Stops at the first label too many, however long the list is.
struct LabelsVisitor;

impl<'de> Visitor<'de> for LabelsVisitor {
    type Value = Labels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of labels")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Labels, A::Error> {
        let mut labels = Vec::new();
        while let Some(label) = items.next_element()? {
            add(&mut labels, label).map_err(A::Error::custom)?;
        }
        Ok(Labels::of_sorted(labels))
    }
}

/// The labels by which a caller sees definitions.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CallerLabels {
    /// It sees every definition: an owner key at an agent of its tenant.
    Everything,
    /// It sees the definitions without labels, and those with one of these.
    These(Labels),
}

/// A digest of [`CallerLabels`], by which a change of them is recognized.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LabelsDigest(pub [u8; 8]);

impl CallerLabels {
    /// No labels.
    pub const NONE: Self = Self::These(Labels(None));

    /// Whether the caller sees only definitions without labels.
    pub fn is_empty(&self) -> bool {
        *self == Self::NONE
    }

    /// Whether a definition with these labels is visible to the caller.
    pub fn sees(&self, labels: &Labels) -> bool {
        match self {
            Self::Everything => true,
            Self::These(own) => labels.is_empty() || labels.intersects(own),
        }
    }

    /// The digest; that of no labels is not computed.
    pub fn digest(&self) -> LabelsDigest {
        let mut digest = [0; 8];
        match self {
            Self::Everything => digest = [0xff; 8],
            Self::These(labels) if labels.is_empty() => {}
            Self::These(labels) => {
                let mut hasher = Sha256::new();
                for label in labels.iter() {
                    hasher.update(label.as_str());
                    hasher.update([0]);
                }
                digest.copy_from_slice(&hasher.finalize()[..8]);
            }
        }
        LabelsDigest(digest)
    }

    /// The bytes of the heap memory.
    pub fn heap(&self) -> usize {
        match self {
            Self::Everything => 0,
            Self::These(own) => own.heap(),
        }
    }
}

impl Default for CallerLabels {
    fn default() -> Self {
        Self::NONE
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{CallerLabels, Label, LabelError, Labels, MAX_LABELS};

    fn labels(texts: &[&str]) -> Labels {
        Labels::parse(texts.iter().copied()).unwrap()
    }

    fn numbered(count: usize) -> Vec<String> {
        (0..count).map(|number| format!("l{number}")).collect()
    }

    #[test]
    fn label_has_the_documented_form() {
        let longest = "a".repeat(63);
        for good in ["a", "7", "support", "team:eu.west-1_b", "null", "a-", &longest] {
            assert_eq!(Label::parse(good).unwrap().as_str(), good);
        }
        let long = "a".repeat(64);
        for bad in ["", "A", "Support", "-a", "_a", ".a", ":a", "a b", "a,b", "a/b", "ä", "a\0", "a\n", &long]
        {
            assert!(matches!(Label::parse(bad), Err(LabelError::Form(_))), "{bad:?}");
        }
    }

    #[test]
    fn labels_are_sorted_and_counted_once() {
        assert_eq!(serde_json::to_string(&labels(&["b", "a", "b", "a"])).unwrap(), r#"["a","b"]"#);
        let mut most = numbered(MAX_LABELS);
        most.extend(numbered(MAX_LABELS));
        let parse = |texts: &[String]| Labels::parse(texts.iter().map(String::as_str));
        assert_eq!(parse(&most).unwrap().iter().len(), MAX_LABELS);
        assert_eq!(parse(&numbered(MAX_LABELS + 1)), Err(LabelError::TooMany));
    }

    #[test]
    fn claims_may_have_any_number_of_labels() {
        let many = numbered(1_000).iter().rev().map(|text| Label::parse(text).unwrap()).collect::<Labels>();
        assert_eq!(many.iter().len(), 1_000);
        assert!(many.intersects(&labels(&["l999"])) && !many.intersects(&labels(&["l1000"])));
    }

    #[test]
    fn no_labels_take_no_memory() {
        let none = labels(&[]);
        assert_eq!((none.heap(), none.is_empty(), &none), (0, true, &Labels::default()));
        assert_eq!(std::iter::empty().collect::<Labels>(), none);
        assert_eq!(labels(&["a", "bc"]).heap(), 54 + 36 + 36);
    }

    #[test]
    fn caller_sees_definitions_without_labels_or_with_one_of_its_own() {
        let these = |texts: &[&str]| CallerLabels::These(labels(texts));
        let (none, one, both) = (labels(&[]), labels(&["a"]), labels(&["a", "b"]));
        for (caller, sees) in [
            (CallerLabels::Everything, [true, true, true]),
            (these(&[]), [true, false, false]),
            (these(&["b"]), [true, false, true]),
            (these(&["a"]), [true, true, true]),
            (these(&["c"]), [true, false, false]),
        ] {
            assert_eq!([&none, &one, &both].map(|labels| caller.sees(labels)), sees, "{caller:?}");
            assert_eq!(caller.is_empty(), caller == these(&[]), "{caller:?}");
        }
    }

    #[test]
    fn different_labels_have_different_digests() {
        let these = |texts: &[&str]| CallerLabels::These(labels(texts));
        let all = [
            CallerLabels::Everything,
            these(&[]),
            these(&["a"]),
            these(&["b"]),
            these(&["a", "b"]),
            these(&["ab"]),
        ];
        for (at, one) in all.iter().enumerate() {
            for (other_at, other) in all.iter().enumerate() {
                assert_eq!(one.digest() == other.digest(), at == other_at, "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn json_with_too_many_labels_is_refused() {
        let json = serde_json::to_string(&numbered(MAX_LABELS + 1)).unwrap();
        let refused = serde_json::from_str::<Labels>(&json).unwrap_err().to_string();
        assert!(refused.starts_with("expected at most 16 labels"), "{refused}");
        assert_eq!(serde_json::from_str::<Labels>(r#"["b","a","a"]"#).unwrap(), labels(&["a", "b"]));
    }

    proptest! {
        #[test]
        fn labels_intersect_if_a_label_is_in_both(
            one in proptest::collection::vec("[a-f]", 0..6), other in proptest::collection::vec("[a-f]", 0..6),
        ) {
            let parse = |texts: &[String]| Labels::parse(texts.iter().map(String::as_str)).unwrap();
            let common = one.iter().any(|text| other.contains(text));
            prop_assert_eq!(parse(&one).intersects(&parse(&other)), common);
        }
    }
}
