//! JSON validation: no NUL, no lone surrogates, no duplicate members; stored as it was sent.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Why valid JSON is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// A string or number cannot be represented.
    #[error("contains a lone surrogate or a number out of range")]
    Unrepresentable,
    /// A string contains NUL, which the database cannot store.
    #[error("contains a NUL character")]
    Nul,
    /// An object has a duplicate member, which parsers interpret differently.
    #[error("contains an object with a duplicate member")]
    Duplicate,
    /// The value has another type than expected.
    #[error("must be {0}")]
    Type(&'static str),
    /// The text is too long to be stored.
    #[error("is longer than {0} bytes")]
    TooLong(usize),
}

/// The text of JSON that is stored as it was sent.
pub fn raw_text(raw: Option<&RawValue>) -> Option<&str> {
    raw.map(RawValue::get)
}

/// Parses stored JSON and checks that its strings are representable and free of NUL, and that no object has a
/// duplicate member.
///
/// # Errors
/// [`JsonError`] if it is too long or one of these checks fails.
pub fn check(raw: &RawValue, max_bytes: usize) -> Result<Value, JsonError> {
    if raw.get().len() > max_bytes {
        return Err(JsonError::TooLong(max_bytes));
    }
    let value = serde_json::from_str(raw.get()).map_err(|_| JsonError::Unrepresentable)?;
    if has_nul(&value) {
        return Err(JsonError::Nul);
    }
    serde_json::from_str::<Unambiguous>(raw.get()).map_err(|_| JsonError::Duplicate)?;
    Ok(value)
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(k, v)| k.contains('\0') || has_nul(v)),
        _ => false,
    }
}

/// Any JSON value without duplicate members.
struct Unambiguous;

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UnambiguousVisitor)
    }
}

struct UnambiguousVisitor;

macro_rules! scalars {
    ($($visit:ident($type:ty))*) => {
        $(fn $visit<E: Error>(self, _: $type) -> Result<Unambiguous, E> {
            Ok(Unambiguous)
        })*
    };
}

impl<'de> Visitor<'de> for UnambiguousVisitor {
    type Value = Unambiguous;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Unambiguous, A::Error> {
        while seq.next_element::<Unambiguous>()?.is_some() {}
        Ok(Unambiguous)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unambiguous, A::Error> {
        let mut names = HashSet::new();
        while let Some((name, _)) = map.next_entry::<String, Unambiguous>()? {
            if !names.insert(name) {
                return Err(A::Error::custom(JsonError::Duplicate));
            }
        }
        Ok(Unambiguous)
    }

    fn visit_unit<E: Error>(self) -> Result<Unambiguous, E> {
        Ok(Unambiguous)
    }

    scalars! { visit_bool(bool) visit_i64(i64) visit_u64(u64) visit_f64(f64) visit_str(&str) }
}

/// A JSON object deserialized into `T`. A derived `Deserialize` would accept an array of the members as well.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Deserializes a member that must be an object, see [`Object`].
pub(super) fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(input: D) -> Result<T, D::Error> {
    Object::deserialize(input).map(|Object(object)| object)
}

/// Like [`object`], for a member that may be `null`.
pub(super) fn optional_object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    input: D,
) -> Result<Option<T>, D::Error> {
    Option::<Object<T>>::deserialize(input).map(|read| read.map(|Object(object)| object))
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

#[cfg(test)]
mod tests {
    use super::{JsonError, Object, check};
    use serde::Deserialize;
    use serde_json::value::RawValue;

    #[test]
    fn json_that_cannot_be_stored_is_rejected() {
        let check =
            |text: &str| check(&RawValue::from_string(text.to_owned()).unwrap(), 100).map(|v| v.to_string());
        assert_eq!(check(r#"{"a":"\u00e4"}"#), Ok(r#"{"a":"ä"}"#.to_owned()));
        assert_eq!(check(r#"{"a":["\u0000"]}"#), Err(JsonError::Nul));
        assert_eq!(check(r#"{"\u0000":1}"#), Err(JsonError::Nul));
        assert_eq!(check(r#"["\ud800"]"#), Err(JsonError::Unrepresentable));
        assert_eq!(check("1e999"), Err(JsonError::Unrepresentable));
        assert_eq!(check(r#"[{"a":1,"b":{"c":1,"\u0063":2}}]"#), Err(JsonError::Duplicate));
        assert_eq!(check(r#"[{"a":1},{"a":{"a":null}}]"#), Ok(r#"[{"a":1},{"a":{"a":null}}]"#.to_owned()));
        assert_eq!(check(&format!("\"{}\"", "a".repeat(99))), Err(JsonError::TooLong(100)));
    }

    #[test]
    fn array_is_not_accepted_as_an_object() {
        #[derive(Debug, Deserialize)]
        struct Pair {
            a: Box<RawValue>,
            b: Option<u8>,
        }
        let read =
            |text| serde_json::from_str::<Object<Pair>>(text).map(|Object(Pair { a, b })| (a.to_string(), b));
        assert_eq!(read(r#"{"b":1,"a":[ 2 ]}"#).unwrap(), ("[ 2 ]".to_owned(), Some(1)));
        for other in ["[1,2]", "null", "1", "\"\"", r#"{"a":1,"a":1}"#] {
            assert!(read(other).is_err(), "{other}");
        }
    }
}
