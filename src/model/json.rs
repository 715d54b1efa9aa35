//! JSON as the contract takes it: bounded in depth, without NUL or lone surrogates, kept as it was sent.

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
    /// It is not of the asked-for type.
    #[error("must be {0}")]
    Type(&'static str),
    /// It is longer than may be kept.
    #[error("is longer than {0} bytes")]
    TooLong(usize),
}

/// Whether the text nests deeper than [`MAX_DEPTH`] levels. One pass, no allocation; it need not be valid JSON.
pub fn is_too_deep(text: &[u8]) -> bool {
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

/// Parses what was kept as text, so that everything in it is known to be representable and free of NUL.
pub fn check(raw: &RawValue, max_bytes: usize) -> Result<Value, JsonError> {
    if raw.get().len() > max_bytes {
        return Err(JsonError::TooLong(max_bytes));
    }
    let value = serde_json::from_str(raw.get()).map_err(|_| JsonError::Unrepresentable)?;
    if has_nul(&value) { Err(JsonError::Nul) } else { Ok(value) }
}

fn has_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => items.iter().any(has_nul),
        Value::Object(members) => members.iter().any(|(k, v)| k.contains('\0') || has_nul(v)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{JsonError, check, is_too_deep};
    use serde_json::value::RawValue;

    #[test]
    fn depth_is_counted_outside_of_strings() {
        let nested = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
        assert!(!is_too_deep(nested(64).as_bytes()));
        assert!(is_too_deep(nested(65).as_bytes()));
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
        assert_eq!(check(&format!("\"{}\"", "a".repeat(99))), Err(JsonError::TooLong(100)));
    }
}
