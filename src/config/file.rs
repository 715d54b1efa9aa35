//! The layer of the configuration file: TOML, one table per section, every value with its line.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use serde_json::{Map, Value as Json};
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use super::layers::{Layers, Raw};
use super::problem::{Problem, Source};

/// More than any configuration needs, and little enough to read any file that is named by mistake.
const MAX_BYTES: u64 = 1 << 20;

/// The text of a configuration file.
pub(super) struct ConfigFile {
    pub(super) path: String,
    pub(super) text: String,
}

impl ConfigFile {
    /// Reads the file.
    ///
    /// # Errors
    /// Why it cannot be read, with its name.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let name = path.display().to_string();
        let mut text = String::new();
        let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_string(&mut text));
        match read {
            Err(error) => Err(format!("cannot read {name}: {error}")),
            Ok(_) if text.len() as u64 > MAX_BYTES => {
                Err(format!("cannot read {name}: it is larger than {MAX_BYTES} bytes"))
            }
            Ok(_) => Ok(Self { path: name, text }),
        }
    }

    /// Adds the values of the file to the layers; or none, and returns where the file is not TOML.
    pub(super) fn add_to(&self, layers: &mut Layers) -> Vec<Problem> {
        let (document, errors) = DeTable::parse_recoverable(&self.text);
        if errors.is_empty() {
            self.add_table("", document.get_ref(), layers);
            return Vec::new();
        }
        // The parser's message has no values; its `Display` quotes the line, which may contain a secret.
        let mut problems: Vec<Problem> = errors
            .iter()
            .map(|error| Problem {
                source: Some(self.source(error.span().map_or(0, |span| span.start))),
                setting: None,
                message: format!("not TOML: {}", explained(error.message())),
            })
            .collect();
        problems.dedup_by(|next, first| next.source == first.source);
        problems
    }

    fn add_table(&self, above: &str, table: &DeTable<'_>, layers: &mut Layers) {
        for (key, value) in table {
            let name = if above.is_empty() {
                key.get_ref().to_string()
            } else {
                format!("{above}.{}", key.get_ref())
            };
            match value.get_ref() {
                DeValue::Table(table) if !table.is_empty() => self.add_table(&name, table, layers),
                other => layers.push(&name, self.source(key.span().start), raw(other)),
            }
        }
    }

    fn source(&self, offset: usize) -> Source {
        let before = self.text.as_bytes().iter().take(offset);
        Source::File { path: self.path.clone(), line: 1 + before.filter(|&&byte| byte == b'\n').count() }
    }
}

/// The parser's message, in one line, with a hint where text without quotes is the likely cause.
fn explained(message: &str) -> String {
    let message = message.replace('\n', ", ");
    let mistaken = ["invalid float", "invalid mantissa", "invalid integer number", "invalid date-time"];
    match message.strip_suffix(", expected nothing").unwrap_or(&message) {
        what if mistaken.iter().any(|start| what.starts_with(start)) => {
            format!("{what}; text needs quotes around it")
        }
        what => what.to_owned(),
    }
}

fn raw(value: &DeValue<'_>) -> Raw {
    match value {
        DeValue::String(text) => Raw::Text(text.to_string()),
        DeValue::Integer(integer) => {
            number(integer).map_or(Raw::Unsupported("a number that is too large"), Raw::Integer)
        }
        DeValue::Array(array) => match (list(array), tables(array)) {
            (Some(texts), _) => Raw::List(texts),
            (None, Some(tables)) => Raw::Tables(tables),
            (None, None) => Raw::Unsupported("a list with other items than text"),
        },
        DeValue::Float(_) => Raw::Unsupported("a fractional number"),
        DeValue::Boolean(_) => Raw::Unsupported("a boolean"),
        DeValue::Datetime(_) => Raw::Unsupported("a date or time"),
        DeValue::Table(_) => Raw::EmptyTable,
    }
}

fn number(integer: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// The items of a list of tables.
fn tables(array: &DeArray<'_>) -> Option<Vec<Map<String, Json>>> {
    let table = |item: &DeValue<'_>| if let Json::Object(table) = json(item) { Some(table) } else { None };
    array.iter().map(|item| table(item.get_ref())).collect()
}

/// A value within a table. Types that JSON lacks become text; no member of a table accepts them.
fn json(value: &DeValue<'_>) -> Json {
    match value {
        DeValue::String(text) => Json::from(&**text),
        DeValue::Integer(integer) => number(integer).map_or_else(|| Json::from(integer.as_str()), Json::from),
        DeValue::Float(float) => Json::from(float.as_str()),
        DeValue::Boolean(boolean) => Json::from(*boolean),
        DeValue::Datetime(time) => Json::from(time.to_string()),
        DeValue::Array(items) => items.iter().map(|item| json(item.get_ref())).collect(),
        DeValue::Table(table) => {
            table.iter().map(|(key, value)| (key.get_ref().to_string(), json(value.get_ref()))).collect()
        }
    }
}

fn list(array: &DeArray<'_>) -> Option<Vec<String>> {
    array.iter().map(|item| item.get_ref().as_str().map(ToOwned::to_owned)).collect()
}
