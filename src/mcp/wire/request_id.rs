//! The id of a request, kept as its JSON text.

use serde_json::value::RawValue;

/// The maximum length of an id in bytes, without quotation marks.
pub const MAX_ID_BYTES: usize = 1_024;

/// The id of a request: the JSON text of a string or of an integer of any size, answered byte for byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestId<'a>(&'a str);

/// A [`RequestId`] that outlives its body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestIdOwned(Box<str>);

impl<'a> RequestId<'a> {
    /// Parses an id: a string, or an integer without fraction or exponent, of at most [`MAX_ID_BYTES`]. `None` for
    /// anything else.
    pub fn read(raw: &'a RawValue) -> Option<Self> {
        let text = raw.get();
        let inner = match text.strip_prefix('"') {
            Some(rest) => rest.strip_suffix('"')?,
            None => text.strip_prefix('-').or(Some(text)).filter(is_integer)?,
        };
        (inner.len() <= MAX_ID_BYTES).then_some(Self(text))
    }

    /// The id as JSON.
    pub fn as_json(self) -> &'a str {
        self.0
    }

    /// The id, owned.
    pub fn to_owned(self) -> RequestIdOwned {
        RequestIdOwned(self.0.into())
    }
}

impl RequestIdOwned {
    /// The id, borrowed.
    pub fn as_id(&self) -> RequestId<'_> {
        RequestId(&self.0)
    }
}

/// Among unsigned JSON values, only integers consist of digits alone.
fn is_integer(text: &&str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::{MAX_ID_BYTES, RequestId};

    fn echo(text: &str) -> Option<String> {
        let raw = RawValue::from_string(text.to_owned()).unwrap();
        RequestId::read(&raw).map(|id| id.to_owned().as_id().as_json().to_owned())
    }

    #[test]
    fn strings_and_integers_are_returned_unchanged() {
        let long = format!("\"{}\"", "a".repeat(MAX_ID_BYTES));
        for id in [
            "0",
            "1",
            "-7",
            "-0",
            "9007199254740993",
            "123456789012345678901234567890",
            "\"\"",
            "\"a\"",
            "\"1\"",
            r#""\u00e4\/\n""#,
            r#""\ud800""#,
            "\"ä\"",
            &long,
        ] {
            assert_eq!(echo(id).as_deref(), Some(id));
        }
    }

    #[test]
    fn everything_else_is_no_id() {
        let long = format!("\"{}\"", "a".repeat(MAX_ID_BYTES + 1));
        let big = "1".repeat(MAX_ID_BYTES + 1);
        for bad in
            ["null", "true", "false", "1.0", "1.5", "1e3", "1E3", "-1.0", "[]", "{}", "[1]", &long, &big]
        {
            assert_eq!(echo(bad), None, "{bad}");
        }
    }
}
