//! Kinds of values: how a value is parsed, and how it is displayed.

use super::layers::Raw;

/// A kind of value, such as a size within a range.
pub(super) trait Kind {
    type Value;

    /// Parses a value.
    ///
    /// # Errors
    /// What is wrong with it, in one line.
    fn parse(&self, raw: &Raw) -> Result<Self::Value, String>;

    /// The value as written in a configuration file.
    fn display(&self, value: &Self::Value) -> DisplayValue;
}

/// A value as it is displayed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DisplayValue {
    Integer(u64),
    Text(String),
    List(Vec<String>),
    Tables(Vec<Vec<(&'static str, DisplayValue)>>),
    /// Set, and never displayed.
    Secret,
}

/// The text of a single value.
pub(super) fn text_of(raw: &Raw) -> Result<String, String> {
    match raw {
        Raw::Text(text) => Ok(text.clone()),
        Raw::Integer(number) => Ok(number.to_string()),
        Raw::List(_) => Err("expected a single value, found a list".to_owned()),
        Raw::Tables(_) => Err("expected a single value, found a list of tables".to_owned()),
        Raw::EmptyTable => Err("expected a single value, found a table".to_owned()),
        Raw::Unsupported(what) => {
            Err(format!("expected text, a whole number or a list of text, found {what}"))
        }
    }
}

/// A value in a message: quoted, or omitted if it is long or looks like a secret.
pub(super) fn quote(value: &str) -> String {
    let secret = ["bak_", "oag_", "wag_", "eyJ"].iter().any(|prefix| value.starts_with(prefix));
    if secret || value.contains('@') || value.len() > 80 {
        "the value".to_owned()
    } else {
        format!("{value:?}")
    }
}
