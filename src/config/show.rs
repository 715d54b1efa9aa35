//! The settings as a configuration file, secrets masked, each with who set it.

use std::fmt;

use toml::Value;

use super::{kind::Shown, reader::Entry};

const MASK: &str = "********";

/// Shows as TOML: a table a section, in the order of `config/waggle.toml`.
pub struct Listing(pub(super) Vec<Entry>);

impl Listing {
    /// The settings whose values differ, whoever set them.
    pub fn differences(&self, other: &Self) -> Vec<&'static str> {
        let pairs = self.0.iter().zip(&other.0);
        let differing = pairs.filter(|(one, other)| (&one.value, one.secret) != (&other.value, other.secret));
        differing.map(|(one, _)| one.name).collect()
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
            match &entry.place {
                Some(place) => writeln!(f, " # {place}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

fn toml(value: &Shown) -> Value {
    match value {
        Shown::Integer(number) => {
            i64::try_from(*number).map_or_else(|_| number.to_string().into(), Value::from)
        }
        Shown::Text(text) => text.as_str().into(),
        Shown::List(items) => items.clone().into(),
        Shown::Tables(tables) => tables.iter().map(|members| table(members)).collect::<Vec<_>>().into(),
        Shown::Secret => MASK.into(),
    }
}

fn table(members: &[(&'static str, Shown)]) -> Value {
    Value::Table(members.iter().map(|(name, value)| ((*name).to_owned(), toml(value))).collect())
}
