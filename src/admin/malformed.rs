//! The message about a member of a body, or a parameter of a query, that cannot be parsed: its path and what was expected, in
//! terms of JSON instead of those of Rust.

use std::borrow::Cow;

use crate::model::fault::Fault;

/// The fault of a value within the member `parent`.
pub(super) fn within(parent: &str, error: serde_path_to_error::Error<serde_json::Error>) -> Fault {
    let path = match error.path().to_string() {
        path if path == "." => parent.to_owned(),
        path => format!("{parent}.{path}"),
    };
    Fault::invalid_params(message(&path, &error.into_inner().to_string()))
}

/// The message of an error of serde at a path.
pub(super) fn message(path: &str, error: &str) -> String {
    // The message about an unknown member has its name, with which the path ends.
    let path = if error.starts_with("unknown field") {
        path.rsplit_once('.').map_or("", |(parent, _)| parent)
    } else {
        path.trim_start_matches('.')
    };
    if path.is_empty() {
        return error.to_owned();
    }
    match expected(error) {
        // The path says where, so the position in the body is not needed.
        Some(expected) => format!("{path}: must be {expected}"),
        None => format!("{path}: {error}"),
    }
}

/// What an error of serde expects, if its message would have terms of Rust.
fn expected(error: &str) -> Option<Cow<'static, str>> {
    if error.starts_with("UUID parsing failed") {
        return Some("a UUID".into());
    }
    let of_a_number = ["invalid digit found in ", "number too ", "cannot parse integer from "];
    if of_a_number.iter().any(|start| error.starts_with(start)) {
        return Some("a whole number".into());
    }
    if !(error.starts_with("invalid type: ") || error.starts_with("invalid value: ")) {
        return None;
    }
    let (_, expected) = error.rsplit_once(", expected ")?;
    let expected = expected.split_once(" at line ").map_or(expected, |(expected, _)| expected);
    let most = |max: u32| Some(format!("a whole number from 0 to {max}").into());
    match expected {
        "u8" => most(u8::MAX.into()),
        "u16" => most(u16::MAX.into()),
        "u32" => most(u32::MAX),
        "u64" | "usize" | "i64" | "i32" => Some("a whole number".into()),
        "a sequence" => Some("a list".into()),
        "a map" => Some("an object".into()),
        structure if structure.starts_with("struct ") => Some("an object".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::message;

    #[test]
    fn messages_have_no_terms_of_rust() {
        let at = " at line 1 column 7";
        for (path, error, expected) in [
            (
                "a",
                "invalid value: integer `1000001`, expected u16",
                "a: must be a whole number from 0 to 65535",
            ),
            (
                "a.b",
                "invalid value: integer `-1`, expected u32",
                "a.b: must be a whole number from 0 to 4294967295",
            ),
            ("a", "invalid type: floating point `1.5`, expected u64", "a: must be a whole number"),
            ("limit", "invalid digit found in string", "limit: must be a whole number"),
            ("limit", "number too large to fit in target type", "limit: must be a whole number"),
            ("key", "UUID parsing failed: invalid character: found `o` at 2", "key: must be a UUID"),
            ("a[0]", "invalid type: map, expected a sequence", "a[0]: must be a list"),
            ("a", "invalid type: string \", expected u8\", expected a map", "a: must be an object"),
            ("a", "invalid type: sequence, expected struct UseLimits", "a: must be an object"),
        ] {
            assert_eq!(message(path, error), expected);
            assert_eq!(message(path, &format!("{error}{at}")), expected);
        }
        for (path, error, expected) in [
            (
                "a",
                "invalid type: integer `7`, expected a string",
                "a: invalid type: integer `7`, expected a string",
            ),
            ("a.nam", "unknown field `nam`, expected `name`", "a: unknown field `nam`, expected `name`"),
            (".", "missing field `id`", "missing field `id`"),
            ("", "missing field `id`", "missing field `id`"),
        ] {
            assert_eq!(message(path, &format!("{error}{at}")), format!("{expected}{at}"));
        }
    }
}
