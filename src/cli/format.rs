//! The formats of answers: tables for people, JSON, YAML and names for programs.

use clap::{Args, ValueEnum};
use comfy_table::{Table, presets};
use serde_json::Value;
use serde_json::value::RawValue;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::indent::indent;
use super::output::{Failure, print};
use super::progress::Verbosity;

/// Spaces between the columns of a table.
const GAP: u16 = 3;
/// The maximum number of characters of a cell.
const MAX_CHARACTERS: usize = 60;

/// How an answer is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// Columns for people.
    Table,
    /// The JSON of the administration API.
    Json,
    /// The same as YAML.
    Yaml,
    /// The ids alone, a line each.
    Name,
}

/// The output of a command.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct OutputArgs {
    /// The format of the output.
    #[arg(short, long, global = true, value_enum, value_name = "FORMAT", default_value_t = Format::Table)]
    output: Format,
    /// Print nothing on success.
    #[arg(short, long, global = true)]
    quiet: bool,
}

/// How a cell is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cell {
    /// As the value is.
    Text,
    /// Of a point in time: how long ago it was, or how far ahead it is.
    Age,
}

/// A column of a table: its heading, the member that it shows, by its name or as a JSON pointer, and how.
pub(super) type Column = (&'static str, &'static str, Cell);

/// A kind of object of the administration API.
#[derive(Debug)]
pub(super) struct Kind {
    /// Its name, singular.
    pub(super) name: &'static str,
    /// The member that identifies an object.
    pub(super) key: &'static str,
    /// The columns of its table.
    pub(super) columns: &'static [Column],
}

impl OutputArgs {
    /// Prints objects of a kind, as a list.
    pub(super) fn list(self, kind: &Kind, items: &[Box<RawValue>]) -> Result<(), Failure> {
        let joined = || items.iter().map(|item| item.get()).collect::<Vec<_>>().join(",");
        match self.output {
            _ if self.quiet => Ok(()),
            Format::Json => print(&indent(&format!("{{\"items\":[{}]}}", joined()))),
            Format::Yaml => print(&yaml(&format!("{{\"items\":[{}]}}", joined()))?),
            Format::Name => names(kind, items),
            Format::Table => print(&table(kind, items)?),
        }
    }

    /// Prints an object of a kind.
    pub(super) fn object(self, kind: &Kind, item: &RawValue) -> Result<(), Failure> {
        match self.output {
            _ if self.quiet => Ok(()),
            Format::Json => print(&indent(item.get())),
            Format::Yaml => print(&yaml(item.get())?),
            Format::Name => names(kind, &[item.to_owned()]),
            Format::Table => print(&table(kind, &[item.to_owned()])?),
        }
    }

    /// Prints what was done to an object, or the object itself for programs.
    pub(super) fn done(
        self,
        kind: &Kind,
        id: &str,
        verb: &str,
        item: Option<&RawValue>,
    ) -> Result<(), Failure> {
        match (self.output, item) {
            _ if self.quiet => Ok(()),
            (Format::Table, _) => print(&format!("{verb} {} {id}\n", kind.name)),
            (Format::Name, _) | (_, None) => print(&format!("{id}\n")),
            (Format::Json | Format::Yaml, Some(item)) => self.object(kind, item),
        }
    }

    /// Whether progress is shown.
    pub(super) fn verbosity(self) -> Verbosity {
        Verbosity::new(self.quiet)
    }

    /// Whether a person reads the output.
    pub(super) fn is_for_people(self) -> bool {
        self.output == Format::Table && !self.quiet
    }
}

/// Prints the keys of objects, a line each.
fn names(kind: &Kind, items: &[Box<RawValue>]) -> Result<(), Failure> {
    for item in items {
        let item: Value = serde_json::from_str(item.get())?;
        print(&format!("{}\n", cell(&item[kind.key])))?;
    }
    Ok(())
}

/// JSON as YAML, with its members in their order.
pub(super) fn yaml(json: &str) -> Result<String, Failure> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let transcoder = serde_transcode::Transcoder::new(&mut deserializer);
    serde_saphyr::to_string(&transcoder)
        .map_err(|error| Failure::Gateway(format!("cannot write YAML: {error}")))
}

fn table(kind: &Kind, items: &[Box<RawValue>]) -> Result<String, Failure> {
    let now = OffsetDateTime::now_utc();
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(kind.columns.iter().map(|(heading, ..)| *heading));
    for item in items {
        let item: Value = serde_json::from_str(item.get())?;
        let member = |name: &str| {
            let found = if name.starts_with('/') { item.pointer(name) } else { item.get(name) };
            found.unwrap_or(&Value::Null)
        };
        table.add_row(kind.columns.iter().map(|(_, name, show)| match show {
            Cell::Text => shortened(&cell(member(name))),
            Cell::Age => age(member(name), now),
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, GAP));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// A value as text: lists with commas between.
pub(super) fn cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(cell).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    }
}

/// The first line of a text, without control characters.
pub(super) fn shortened(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut printable = line.chars().filter(|character| !character.is_control());
    let mut short: String = printable.by_ref().take(MAX_CHARACTERS).collect();
    if printable.next().is_some() || line.len() < text.trim_end().len() {
        short.push('…');
    }
    short
}

/// A point in time relative to now: `3 h ago`, `in 2 d`.
fn age(value: &Value, now: OffsetDateTime) -> String {
    const UNITS: [(i64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    let Some(at) = value.as_str().and_then(|text| OffsetDateTime::parse(text, &Rfc3339).ok()) else {
        return cell(value);
    };
    let seconds = (now - at).whole_seconds();
    let unit = UNITS.iter().find(|(length, _)| seconds.abs() >= *length);
    let Some((length, name)) = unit else { return "now".to_owned() };
    let count = seconds.abs() / length;
    if seconds > 0 { format!("{count} {name} ago") } else { format!("in {count} {name}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    const KIND: Kind = Kind {
        name: "thing",
        key: "id",
        columns: &[("ID", "id", Cell::Text), ("NAME", "name", Cell::Text), ("LABELS", "labels", Cell::Text)],
    };

    fn raw(text: &str) -> Box<RawValue> {
        RawValue::from_string(text.to_owned()).unwrap()
    }

    #[test]
    fn columns_are_aligned_and_cells_are_one_printable_line() {
        let items = [
            raw(r#"{"id":"a","name":"量子\nsecond line","labels":["x","y"]}"#),
            raw(r#"{"id":"long-id","name":"\u001b[31mred"}"#),
        ];
        let expected = "ID        NAME      LABELS\na         量子…     x,y\nlong-id   [31mred\n";
        assert_eq!(table(&KIND, &items).unwrap(), expected);
    }

    #[test]
    fn yaml_keeps_the_order_of_members() {
        assert_eq!(
            yaml(r#"{"z":1,"a":{"y":[true,null],"b":"on"}}"#).unwrap(),
            "z: 1\na:\n  \"y\":\n  - true\n  - null\n  b: \"on\"\n"
        );
    }

    #[test]
    fn times_are_relative_to_now() {
        let now = datetime!(2026-01-10 12:00 UTC);
        let at = |text: &str| age(&json!(text), now);
        assert_eq!(at("2026-01-10T12:00:00Z"), "now");
        assert_eq!(at("2026-01-10T11:59:01Z"), "59 s ago");
        assert_eq!(at("2026-01-10T10:00:00Z"), "2 h ago");
        assert_eq!(at("2026-01-20T12:00:00Z"), "in 10 d");
        assert_eq!(age(&json!(null), now), "");
    }
}
