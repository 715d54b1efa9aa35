//! The settings as a configuration file: the effective ones with their source, secrets masked, and the reference.

use std::fmt;
use std::fmt::Write;

use toml::Value;

use super::kind::DisplayValue;
use super::reader::{Entry, Reference};

const MASK: &str = "********";

/// The head of `config/waggle.toml`.
const REFERENCE_HEAD: &str = "\
# Every setting of Waggle with its default. Generated: `waggle config reference` prints this file.
#
# Name this file with --config or WAGGLE_CONFIG. An environment variable named after section and key overrides a
# setting, such as WAGGLE_SERVER__LISTEN for listen in [server]; items of a list are separated by commas, and an empty
# variable counts as not set. Flags override both. `waggle config check` reports all errors; `waggle config show` prints
# the effective settings and their source.
#
# A line that begins with \"# \" and a name is a setting without a default, or with one that follows from others.
# Sizes are in bytes, or text such as \"4 MiB\".
";

/// The settings, displayed as TOML: a table per section, in the order of `config/waggle.toml`.
pub struct Listing(pub(super) Vec<Entry>);

impl Listing {
    /// The settings whose values differ, from any source.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let pairs = self.0.iter().zip(&other.0);
        let differing = pairs
            .filter(|(one, other)| (&one.value, one.secret_digest) != (&other.value, other.secret_digest));
        differing.map(|(one, _)| one.name).collect()
    }

    /// The settings with their documentation; those without a constant default as comments.
    pub(super) fn reference(&self) -> String {
        let mut text = REFERENCE_HEAD.to_owned();
        let mut open = "";
        for entry in &self.0 {
            let (section, key) = entry.name.split_once('.').unwrap_or(("", entry.name));
            if section != open {
                // Writing to a string does not fail.
                let _ = writeln!(text, "\n[{section}]");
                open = section;
            }
            document(&mut text, entry.documentation);
            let value = entry.value.as_ref().map(|value| toml(value).to_string()).unwrap_or_default();
            let _ = match entry.reference {
                Reference::Default => writeln!(text, "{key} = {value}"),
                Reference::Derived => writeln!(text, "# {key} = {value}"),
                Reference::Example(example) => writeln!(text, "# {key} = {example}"),
            };
        }
        text
    }
}

/// Appends documentation as comments. Code is indented, so that its lines are not taken for settings.
fn document(text: &mut String, lines: &[&str]) {
    let mut in_code = false;
    for line in lines {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        } else {
            let indent = if in_code { "  " } else { "" };
            text.push_str(format!("#{indent}{line}").trim_end());
            text.push('\n');
        }
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut open = "";
        for entry in &self.0 {
            let (section, key) = entry.name.split_once('.').unwrap_or(("", entry.name));
            if section != open {
                let gap = if open.is_empty() { "" } else { "\n" };
                writeln!(f, "{gap}[{section}]")?;
                open = section;
            }
            match &entry.value {
                Some(value) => write!(f, "{key} = {}", toml(value))?,
                None => write!(f, "# {key} is not set")?,
            }
            match &entry.source {
                Some(source) => writeln!(f, " # {source}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

fn toml(value: &DisplayValue) -> Value {
    match value {
        DisplayValue::Integer(number) => {
            i64::try_from(*number).map_or_else(|_| number.to_string().into(), Value::from)
        }
        DisplayValue::Text(text) => text.as_str().into(),
        DisplayValue::List(items) => items.clone().into(),
        DisplayValue::Tables(tables) => {
            tables.iter().map(|members| table(members)).collect::<Vec<_>>().into()
        }
        DisplayValue::Secret => MASK.into(),
    }
}

fn table(members: &[(&'static str, DisplayValue)]) -> Value {
    Value::Table(members.iter().map(|(name, value)| ((*name).to_owned(), toml(value))).collect())
}
