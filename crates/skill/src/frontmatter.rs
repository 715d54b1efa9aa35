//! The frontmatter of a `SKILL.md`.

use crate::error::FrontmatterError;
use crate::path::is_name;
use crate::value::Value;
use crate::yaml;

/// The maximum length of frontmatter in bytes.
pub const MAX_FRONTMATTER_BYTES: usize = 64 * 1024;

/// The frontmatter of a skill, which follows the Agent Skills specification.
#[derive(Debug, Clone, PartialEq)]
pub struct Frontmatter {
    value: Value,
    name: String,
    description: String,
}

impl Frontmatter {
    /// Reads the frontmatter of the bytes of a `SKILL.md`.
    ///
    /// # Errors
    /// [`FrontmatterError`].
    pub fn of(skill_md: &[u8]) -> Result<Self, FrontmatterError> {
        let text = std::str::from_utf8(skill_md).map_err(|_| FrontmatterError::NotText)?;
        if text.contains('\0') {
            return Err(FrontmatterError::NotText);
        }
        let value = yaml::read(&split(text)?)?;
        check_fields(&value)?;
        let text = |name| value.member(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        Ok(Self { name: text("name"), description: text("description"), value })
    }

    /// The name of the skill.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the skill does and when to use it.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// All of it, as an object.
    pub fn value(&self) -> &Value {
        &self.value
    }
}

/// The lines between the two lines `---`, each of which ends with a line feed.
fn split(text: &str) -> Result<String, FrontmatterError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n').map(|line| {
        let line = line.strip_suffix('\n').unwrap_or(line);
        line.strip_suffix('\r').unwrap_or(line)
    });
    if lines.next() != Some("---") {
        return Err(FrontmatterError::Unopened);
    }
    let mut yaml = String::new();
    for (number, line) in (2..).zip(lines) {
        let is_marker =
            line.strip_prefix("---").is_some_and(|rest| rest.trim_matches([' ', '\t']).is_empty());
        if is_marker {
            return Ok(yaml);
        }
        if line.contains('\r') {
            let what = "carriage returns without a line feed are";
            return Err(FrontmatterError::Unsupported { line: number, what });
        }
        if yaml.len() + line.len() >= MAX_FRONTMATTER_BYTES {
            return Err(FrontmatterError::TooLong);
        }
        yaml.push_str(line);
        yaml.push('\n');
    }
    Err(FrontmatterError::Unclosed)
}

/// Checks the fields of the Agent Skills specification; others are free.
fn check_fields(value: &Value) -> Result<(), FrontmatterError> {
    let wrong = |what| Err(FrontmatterError::Field(what));
    match value.member("name") {
        None => return wrong("name is missing"),
        Some(Value::String(name)) if is_name(name) => {}
        Some(_) => return wrong("name must have 1 to 64 of a-z and 0-9, with single hyphens between them"),
    }
    match value.member("description") {
        None => return wrong("description is missing"),
        Some(Value::String(text)) if is_long(text, 1_024) => {}
        Some(_) => return wrong("description must be a string of 1 to 1024 characters"),
    }
    match value.member("compatibility") {
        None => {}
        Some(Value::String(text)) if is_long(text, 500) => {}
        Some(_) => return wrong("compatibility must be a string of 1 to 500 characters"),
    }
    match value.member("metadata") {
        None => {}
        Some(Value::Object(members)) if members.iter().all(|(_, value)| value.as_str().is_some()) => {}
        Some(_) => return wrong("metadata must map strings to strings"),
    }
    Ok(())
}

/// Whether a text has 1 to `most` characters.
fn is_long(text: &str, most: usize) -> bool {
    !text.is_empty() && text.chars().count() <= most
}
