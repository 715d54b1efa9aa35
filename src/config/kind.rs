//! What a setting's value may be: how it is read, and how it is shown again.

use super::layers::Raw;

/// A kind of value.
pub(super) trait Kind {
    type Value;

    /// Reads a value, or says what is wrong with it in one line.
    fn parse(&self, raw: &Raw) -> Result<Self::Value, String>;

    /// The value as a configuration file would hold it.
    fn show(&self, value: &Self::Value) -> Shown;
}

/// A value as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    Integer(u64),
    Text(String),
    List(Vec<String>),
    Tables(Vec<Vec<(&'static str, Shown)>>),
    /// Set, and not to be seen.
    Secret,
}

/// The text of a value that is one value.
pub(super) fn text_of(raw: &Raw) -> Result<String, String> {
    match raw {
        Raw::Text(text) => Ok(text.clone()),
        Raw::Integer(number) => Ok(number.to_string()),
        Raw::List(_) => Err("a list stands here, where one value belongs".to_owned()),
        Raw::Tables(_) => Err("expected a single value, found a list of tables".to_owned()),
        Raw::EmptyTable => Err("a table stands here, where one value belongs".to_owned()),
        Raw::Unfit(what) => Err(format!("{what} stands here, which no setting takes")),
    }
}

/// A value in a message: quoted, or left out where it is long or may be a secret in the wrong place.
pub(super) fn quote(value: &str) -> String {
    let secret = ["bak_", "oag_", "wag_", "eyJ"].iter().any(|prefix| value.starts_with(prefix));
    if secret || value.contains('@') || value.len() > 80 {
        "the value".to_owned()
    } else {
        format!("{value:?}")
    }
}
