//! The changed lines of an object, for people.

use serde_json::Value;
use serde_json::value::RawValue;
use similar::TextDiff;

use super::format::yaml;
use super::output::Failure;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// The changed lines of an object as YAML, members in alphabetical order: their order has no meaning.
pub(super) fn unified(old: Option<&RawValue>, new: Option<&RawValue>) -> Result<String, Failure> {
    let sorted = |object: Option<&RawValue>| {
        let Some(object) = object else { return Ok(String::new()) };
        let value: Value = serde_json::from_str(object.get())?;
        yaml(&value.to_string())
    };
    Ok(lines(&sorted(old)?, &sorted(new)?))
}

/// As [`unified`], of values.
pub(super) fn unified_values(old: &Value, new: &Value) -> Result<String, Failure> {
    Ok(lines(&yaml(&old.to_string())?, &yaml(&new.to_string())?))
}

fn lines(old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let hunks = diff.unified_diff().context_radius(CONTEXT).to_string();
    hunks.lines().flat_map(|line| ["    ", line, "\n"]).collect()
}
