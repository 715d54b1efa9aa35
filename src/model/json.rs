//! JSON as the contract takes it: bounded in depth, without NUL or lone surrogates, kept as it was sent.

use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Most levels of nesting that a message may have.
pub const MAX_DEPTH: usize = 64;

/// Why a JSON text that parses is refused all the same.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// A string in it cannot be represented.
    #[error("holds a lone surrogate or a number out of range")]
    Unrepresentable,
    /// A string in it holds NUL, which the database cannot keep.
    #[error("holds a NUL character")]
    Nul,
    /// An object in it has a member twice, and readers differ in which one they take.
    #[error("holds an object that has a member twice")]
    Duplicate,
    /// It is not of the asked-for type.
    #[error("must be {0}")]
    Type(&'static str),
    /// It is longer than may be kept.
    #[error("is longer than {0} bytes")]
    TooLong(usize),
}

/// Whether the text nests deeper than [`MAX_DEPTH`] levels. One pass, no allocation; it need not be valid JSON.
pub fn is_too_deep(text: &[u8]) -> bool {
    // Hardly any text has as many brackets, and to count them is quicker than to tell which are open.
    opening_brackets(text) > MAX_DEPTH && nests_too_deep(text)
}

/// Counted in bytes, by as many as a byte can count, which is done to many at once.
fn opening_brackets(text: &[u8]) -> usize {
    let count = |bytes: &[u8]| bytes.iter().map(|byte| u8::from(matches!(byte, b'[' | b'{'))).sum::<u8>();
    text.chunks(u8::MAX.into()).map(|bytes| usize::from(count(bytes))).sum()
}

fn nests_too_deep(text: &[u8]) -> bool {
    let mut depth = 0_usize;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return true;
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    false
}

fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

/// Parses what was kept as text, so that everything in it is known to be representable, free of NUL and read alike by
/// everybody.
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

/// Any JSON value in which no object has a member twice.
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

/// A JSON object, read into `T`. What is derived for a struct takes an array as well, its members in their order,
/// which nobody means.
#[derive(Debug)]
pub struct Object<T>(pub T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

/// Reads a member that is an object, as [`Object`] does.
pub(super) fn object<'de, T: Deserialize<'de>, D: Deserializer<'de>>(input: D) -> Result<T, D::Error> {
    Object::deserialize(input).map(|Object(object)| object)
}

/// As [`object`], of a member that may be `null`.
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
    use super::{JsonError, Object, check, is_too_deep};
    use serde::Deserialize;
    use serde_json::value::RawValue;

    #[test]
    fn depth_is_counted_outside_of_strings() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(!is_too_deep(nested(64).as_bytes()));
        assert!(is_too_deep(nested(65).as_bytes()));
        assert!(is_too_deep(nested(1_000).as_bytes()));
        assert!(!is_too_deep(format!("\"{}\"", "[".repeat(100)).as_bytes()));
        assert!(!is_too_deep(format!("\"\\\"{}\"", "{".repeat(100)).as_bytes()));
        assert!(!is_too_deep("[]".repeat(100).as_bytes()));
    }

    #[test]
    fn what_the_database_cannot_keep_is_refused() {
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
    fn an_object_is_read_from_an_object_only() {
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
