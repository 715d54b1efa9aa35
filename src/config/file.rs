//! The layer of the file: TOML, one table a section, every value with its line.

use std::{fs::File, io::Read, path::Path};

use serde_json::{Map, Value as Json};
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use super::{
    layers::{Layers, Raw},
    problem::{Place, Problem},
};

/// Larger than any real configuration, small enough to hold whatever was named by mistake.
const MAX_BYTES: u64 = 1 << 20;

/// A configuration file that was read.
pub(super) struct ConfigFile {
    pub(super) path: String,
    pub(super) text: String,
}

impl ConfigFile {
    /// Reads the file whole.
    ///
    /// # Errors
    /// Says why it cannot be read, with its name.
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

    /// Adds what the file gives to the layers; or nothing, and tells where the file is not TOML.
    pub(super) fn add_to(&self, layers: &mut Layers) -> Vec<Problem> {
        let (document, errors) = DeTable::parse_recoverable(&self.text);
        if errors.is_empty() {
            self.add_table("", document.get_ref(), layers);
            return Vec::new();
        }
        // The parser's message names no value; its `Display` quotes the line, which may hold a secret.
        let mut problems: Vec<Problem> = errors
            .iter()
            .map(|error| Problem {
                place: Some(self.place(error.span().map_or(0, |span| span.start))),
                setting: None,
                message: format!("not TOML: {}", explained(error.message())),
            })
            .collect();
        problems.dedup_by(|next, first| next.place == first.place);
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
                other => layers.push(&name, self.place(key.span().start), raw(other)),
            }
        }
    }

    fn place(&self, offset: usize) -> Place {
        let before = self.text.as_bytes().iter().take(offset);
        Place::File { path: self.path.clone(), line: 1 + before.filter(|&&byte| byte == b'\n').count() }
    }
}

/// The parser's message, in one line, with the commonest cause where it took text for something else.
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
        DeValue::Integer(integer) => number(integer).map_or(Raw::Unfit("too large a number"), Raw::Integer),
        DeValue::Array(array) => match (list(array), tables(array)) {
            (Some(texts), _) => Raw::List(texts),
            (None, Some(tables)) => Raw::Tables(tables),
            (None, None) => Raw::Unfit("a list of something other than text"),
        },
        DeValue::Float(_) => Raw::Unfit("a number with a fraction"),
        DeValue::Boolean(_) => Raw::Unfit("true or false"),
        DeValue::Datetime(_) => Raw::Unfit("a date or time"),
        DeValue::Table(_) => Raw::EmptyTable,
    }
}

fn number(integer: &DeInteger<'_>) -> Option<i64> {
    i64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// The tables of a list of nothing else.
fn tables(array: &DeArray<'_>) -> Option<Vec<Map<String, Json>>> {
    let table = |item: &DeValue<'_>| if let Json::Object(table) = json(item) { Some(table) } else { None };
    array.iter().map(|item| table(item.get_ref())).collect()
}

/// A value within a table. What JSON has no value for, and no member of a table takes, becomes text.
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
