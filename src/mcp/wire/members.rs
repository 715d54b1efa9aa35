//! The members of a JSON object, each name once, borrowed from the text in a single pass.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;

/// Members kept without an allocation; messages of well-behaved clients have fewer on each level.
const INLINE: usize = 8;

/// The maximum number of stored members of one object, so that a body of many names does not take a multiple of its
/// size.
pub const MAX_MEMBERS: usize = 1_024;

/// The kind of JSON value found in the place of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shape {
    /// No value.
    #[default]
    Absent,
    /// An object.
    Object,
    /// An array.
    Array,
    /// Anything else, `null` included.
    Scalar,
}

/// An error in the names of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MembersError {
    /// A duplicate name.
    #[error("has a member twice")]
    Duplicate,
    /// More than [`MAX_MEMBERS`] members.
    #[error("has more than {MAX_MEMBERS} members")]
    TooMany,
}

/// The members of one object.
#[derive(Debug, Default)]
pub struct Members<'a> {
    shape: Shape,
    error: Option<MembersError>,
    inline: [Option<(&'a str, Value<'a>)>; INLINE],
    /// Names with escapes, and members beyond the inline ones. A tree, so that no choice of names makes it slow.
    spilled: BTreeMap<Cow<'a, str>, Value<'a>>,
}

/// The text of a member. `None` if it was parsed in place, or its name is duplicate.
type Value<'a> = Option<&'a RawValue>;

impl<'a> Members<'a> {
    /// Parses one JSON text. A text that is not an object is no error: see [`shape`](Self::shape).
    ///
    /// # Errors
    /// If the text is not JSON, or a scalar that cannot be represented.
    pub fn read(text: &'a str) -> Result<Self, serde_json::Error> {
        let mut members = Self::default();
        walk(text, &mut members, &mut [])?;
        Ok(members)
    }

    /// The kind of value found.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The error in the names, if there is one.
    pub fn error(&self) -> Option<MembersError> {
        self.error
    }

    /// Whether there is a member of this name.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Whether the object is empty.
    pub fn is_empty(&self) -> bool {
        self.inline[0].is_none() && self.spilled.is_empty()
    }

    /// The value of a member, as it was sent.
    pub fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.find(name).flatten()
    }

    /// The names of the members, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let inline = self.inline.iter().map_while(|slot| slot.map(|(name, _)| name));
        inline.chain(self.spilled.keys().map(Cow::as_ref))
    }

    fn find(&self, name: &str) -> Option<Value<'a>> {
        let inline = self.inline.iter().map_while(|slot| *slot).find(|(known, _)| *known == name);
        inline.map(|(_, value)| value).or_else(|| self.spilled.get(name).copied())
    }

    /// Inserts a member. A duplicate name keeps no value, since it is ambiguous.
    fn insert(&mut self, name: Cow<'a, str>, value: Value<'a>) {
        let inline = self.inline.iter_mut().map_while(Option::as_mut).find(|(known, _)| *known == name);
        if let Some(kept) = inline.map(|(_, kept)| kept).or_else(|| self.spilled.get_mut(&*name)) {
            *kept = None;
            self.error = Some(MembersError::Duplicate);
            return;
        }
        let free = self.inline.iter_mut().find(|slot| slot.is_none());
        match (name, free) {
            (Cow::Borrowed(name), Some(slot)) => *slot = Some((name, value)),
            (name, _) if self.spilled.len() < MAX_MEMBERS - INLINE => _ = self.spilled.insert(name, value),
            _ => self.error = Some(MembersError::TooMany),
        }
    }
}

/// Parses a JSON text into `own`, except the member named by the first of `nested`: it is parsed in the same pass into
/// the members beside its name, and so on inwards.
///
/// # Errors
/// If the text is not JSON, or a scalar in the place of an object cannot be represented.
pub(super) fn walk<'a>(
    text: &'a str,
    own: &mut Members<'a>,
    nested: &mut [(&'static str, &mut Members<'a>)],
) -> Result<(), serde_json::Error> {
    if pass(text, NameComparison::Read, own, nested).is_ok() {
        return Ok(());
    }
    *own = Members::default();
    for (_, members) in nested.iter_mut() {
        **members = Members::default();
    }
    pass(text, NameComparison::Sent, own, nested)
}

fn pass<'a>(
    text: &'a str,
    names: NameComparison,
    own: &mut Members<'a>,
    nested: &mut [(&'static str, &mut Members<'a>)],
) -> Result<(), serde_json::Error> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Walk { names, own, nested }.deserialize(&mut deserializer)?;
    deserializer.end()
}

/// The text of a JSON string, borrowed if it has no escapes; `None` if it is another kind of value, or contains a lone
/// surrogate.
pub fn text_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    let inner = raw.get().strip_prefix('"')?.strip_suffix('"')?;
    if inner.contains('\\') {
        serde_json::from_str(raw.get()).ok().map(Cow::Owned)
    } else {
        Some(Cow::Borrowed(inner))
    }
}

/// How names are compared.
#[derive(Clone, Copy)]
enum NameComparison {
    /// By their unescaped text. Parsing fails at a lone surrogate.
    Read,
    /// By their text as sent, which distinguishes lone surrogates too; slower.
    Sent,
}

impl NameComparison {
    fn next<'a, A: MapAccess<'a>>(self, map: &mut A) -> Result<Option<Cow<'a, str>>, A::Error> {
        match self {
            Self::Read => Ok(map.next_key::<Name<'a>>()?.map(|Name(name)| name)),
            Self::Sent => {
                let key = map.next_key::<&'a RawValue>()?;
                Ok(key.map(|key| text_of(key).unwrap_or(Cow::Borrowed(key.get()))))
            }
        }
    }
}

/// A name, borrowed if it has no escapes.
struct Name<'a>(Cow<'a, str>);

impl<'a> Deserialize<'a> for Name<'a> {
    fn deserialize<D: Deserializer<'a>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'a> Visitor<'a> for NameVisitor {
    type Value = Name<'a>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a name")
    }

    fn visit_borrowed_str<E: Error>(self, name: &'a str) -> Result<Name<'a>, E> {
        Ok(Name(Cow::Borrowed(name)))
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Name<'a>, E> {
        Ok(Name(Cow::Owned(name.to_owned())))
    }
}

struct Walk<'w, 'n, 'a> {
    names: NameComparison,
    own: &'w mut Members<'a>,
    nested: &'w mut [(&'static str, &'n mut Members<'a>)],
}

macro_rules! scalars {
    ($($visit:ident($type:ty))*) => {
        $(fn $visit<E: Error>(self, _: $type) -> Result<(), E> {
            self.own.shape = Shape::Scalar;
            Ok(())
        })*
    };
}

impl<'a> DeserializeSeed<'a> for Walk<'_, '_, 'a> {
    type Value = ();

    fn deserialize<D: Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'a> Visitor<'a> for Walk<'_, '_, 'a> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a JSON value")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let Self { names, own, nested } = self;
        own.shape = Shape::Object;
        while let Some(name) = names.next(&mut map)? {
            let value = match nested.split_first_mut() {
                Some(((inner, members), deeper)) if *inner == name && !own.has(&name) => {
                    map.next_value_seed(Walk { names, own: members, nested: deeper })?;
                    None
                }
                _ => Some(map.next_value()?),
            };
            own.insert(name, value);
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut seq: A) -> Result<(), A::Error> {
        self.own.shape = Shape::Array;
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }

    scalars! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.own.shape = Shape::Scalar;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;
    use serde_json::Value;
    use serde_json::value::RawValue;

    use super::{MAX_MEMBERS, Members, MembersError, Shape, text_of, walk};

    fn read(text: &str) -> Members<'_> {
        Members::read(text).unwrap()
    }

    #[test]
    fn a_name_is_found_however_it_was_escaped() {
        let members = read(r#"{"a\u0062c":1,"d":"\ud83d\ude00"}"#);
        assert_eq!(members.get("abc").map(RawValue::get), Some("1"));
        assert_eq!(members.get("d").and_then(text_of).as_deref(), Some("😀"));
        assert!(!members.has("a"));
    }

    #[test]
    fn a_duplicate_name_is_an_error_and_has_no_value() {
        for text in [
            r#"{"a":1,"a":1}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"\u0061":1,"a":2}"#,
            r#"{"1":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"a":1,"a":1}"#,
            r#"{"a":1,"2":1,"3":1,"4":1,"5":1,"6":1,"7":1,"8":1,"9":1,"a":1}"#,
        ] {
            let members = read(text);
            assert_eq!(members.error(), Some(MembersError::Duplicate), "{text}");
            assert!(members.has("a") && members.get("a").is_none(), "{text}");
        }
        assert_eq!(read(r#"{"\ud800":1,"\ud800":1}"#).error(), Some(MembersError::Duplicate));
        assert_eq!(read(r#"{"\ud800":1,"\ud801":1}"#).error(), None);
    }

    #[test]
    fn the_number_of_members_is_limited() {
        let of = |count: usize| {
            let members: Vec<_> = (0..count).map(|n| format!("\"{n}\":0")).collect();
            format!("{{{}}}", members.join(","))
        };
        assert_eq!(read(&of(MAX_MEMBERS)).error(), None);
        assert_eq!(read(&of(MAX_MEMBERS + 1)).error(), Some(MembersError::TooMany));
    }

    #[test]
    fn a_value_that_is_not_an_object_has_no_members() {
        for (text, shape) in [
            ("[1,{\"a\":2}]", Shape::Array),
            ("null", Shape::Scalar),
            ("true", Shape::Scalar),
            ("-1", Shape::Scalar),
            ("1", Shape::Scalar),
            ("1.5", Shape::Scalar),
            ("\"a\"", Shape::Scalar),
            ("{}", Shape::Object),
        ] {
            let members = read(text);
            assert_eq!((members.shape(), members.is_empty()), (shape, true), "{text}");
        }
        assert_eq!(Members::default().shape(), Shape::Absent);
    }

    #[test]
    fn nested_objects_are_taken_apart_in_the_same_pass() {
        let text = r#"{"b":{"c":{"d":1},"b":2},"e":{"c":3}}"#;
        let (mut own, mut b, mut c) = Default::default();
        walk(text, &mut own, &mut [("b", &mut b), ("c", &mut c)]).unwrap();
        assert_eq!(own.get("e").map(RawValue::get), Some(r#"{"c":3}"#));
        assert!(own.has("b") && own.get("b").is_none());
        assert_eq!(b.get("b").map(RawValue::get), Some("2"));
        assert_eq!(c.get("d").map(RawValue::get), Some("1"));
    }

    #[test]
    fn a_name_without_a_text_changes_nothing_about_the_others() {
        let text = r#"{"b":{"d":1,"\ud800":2},"e":3}"#;
        let (mut own, mut b) = Default::default();
        walk(text, &mut own, &mut [("b", &mut b)]).unwrap();
        assert_eq!((own.error(), b.error()), (None, None));
        assert_eq!((own.get("e").map(RawValue::get), b.get("d").map(RawValue::get)), (Some("3"), Some("1")));
    }

    proptest! {
        #[test]
        fn the_members_are_those_of_the_object(object in prop::collection::btree_map(".{0,6}", 0..1000_i32, 0..20)) {
            let text = serde_json::to_string(&object).unwrap();
            let members = read(&text);
            let found: BTreeMap<_, _> = object
                .keys()
                .filter_map(|name| Some((name.clone(), members.get(name)?.get().parse().ok()?)))
                .collect();
            prop_assert_eq!(found, object);
            prop_assert_eq!(members.error(), None);
        }

        #[test]
        fn the_text_of_a_string_is_what_json_says(text: String) {
            let json = Value::from(text.clone()).to_string();
            let raw: &RawValue = serde_json::from_str(&json).unwrap();
            prop_assert_eq!(text_of(raw), Some(text.into()));
        }
    }
}
