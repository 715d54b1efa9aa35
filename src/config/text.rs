//! Settings that are text: one value, a list of them, or a secret.

use super::kind::{DisplayValue, Kind, quote, text_of};
use super::layers::Raw;

/// Parses one text. The error is a predicate such as `is not an address`.
pub(super) type Parse<T> = fn(&str) -> Result<T, String>;

/// A text in a given format.
pub(super) struct Text<T> {
    pub(super) parse: Parse<T>,
    pub(super) display: fn(&T) -> String,
}

/// `on` or `off`.
pub(super) const ON_OFF: Text<bool> =
    Text { parse: on_off, display: |on| if *on { "on".to_owned() } else { "off".to_owned() } };

fn on_off(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("is neither on nor off".to_owned()),
    }
}

impl<T> Kind for Text<T> {
    type Value = T;

    fn parse(&self, raw: &Raw) -> Result<T, String> {
        let text = text_of(raw)?;
        (self.parse)(&text).map_err(|why| format!("{} {why}", quote(&text)))
    }

    fn display(&self, value: &T) -> DisplayValue {
        DisplayValue::Text((self.display)(value))
    }
}

/// A list of texts: a TOML array, or separated by commas.
pub(super) struct List<T> {
    pub(super) item: Text<T>,
    /// The effect of an empty list, if an empty list is refused.
    pub(super) never_empty: Option<&'static str>,
}

impl<T> List<T> {
    fn each<'a>(&self, items: impl Iterator<Item = &'a str>) -> Result<Vec<T>, String> {
        let mut values = Vec::new();
        let mut wrong = Vec::new();
        for item in items {
            match (self.item.parse)(item) {
                Ok(value) => values.push(value),
                Err(why) => wrong.push(format!("{} {why}", quote(item))),
            }
        }
        match self.never_empty {
            _ if !wrong.is_empty() => Err(wrong.join("; ")),
            Some(effect) if values.is_empty() => Err(format!("the list is empty, which {effect}")),
            _ => Ok(values),
        }
    }
}

impl<T> Kind for List<T> {
    type Value = Vec<T>;

    fn parse(&self, raw: &Raw) -> Result<Vec<T>, String> {
        if let Raw::List(items) = raw {
            return self.each(items.iter().map(String::as_str));
        }
        self.each(separated(&text_of(raw)?)?)
    }

    fn display(&self, value: &Vec<T>) -> DisplayValue {
        DisplayValue::List(value.iter().map(self.item.display).collect())
    }
}

/// The items of a list in one text, as of an environment variable.
fn separated(text: &str) -> Result<impl Iterator<Item = &str>, String> {
    // An address in brackets, such as [::1], has no quotes.
    if text.starts_with('[') && text.contains(['"', '\'']) {
        return Err(
            "expected items separated by commas, without brackets and quotes, found an array".to_owned()
        );
    }
    Ok(text.split(',').map(str::trim).filter(|item| !item.is_empty()))
}

/// A text that is never displayed, not even in errors.
pub(super) struct Secret<T>(pub(super) Parse<T>);

impl<T> Kind for Secret<T> {
    type Value = T;

    fn parse(&self, raw: &Raw) -> Result<T, String> {
        (self.0)(&text_of(raw)?).map_err(|why| format!("the value {why}"))
    }

    fn display(&self, _: &T) -> DisplayValue {
        DisplayValue::Secret
    }
}

/// A list of texts that are never displayed, not even in errors.
pub(super) struct SecretList<T>(pub(super) Parse<T>);

impl<T> Kind for SecretList<T> {
    type Value = Vec<T>;

    fn parse(&self, raw: &Raw) -> Result<Vec<T>, String> {
        let read = |item: &str| (self.0)(item).map_err(|why| format!("the value {why}"));
        let values: Vec<T> = match raw {
            Raw::List(items) => items.iter().map(|item| read(item)).collect::<Result<_, _>>()?,
            raw => separated(&text_of(raw)?)?.map(read).collect::<Result<_, _>>()?,
        };
        if values.is_empty() {
            Err("the list is empty; omit the setting instead".to_owned())
        } else {
            Ok(values)
        }
    }

    fn display(&self, _: &Vec<T>) -> DisplayValue {
        DisplayValue::Secret
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(text: &str) -> Result<String, String> {
        if text.len() < 4 { Ok(text.to_owned()) } else { Err("is too long".to_owned()) }
    }

    fn list(never_empty: Option<&'static str>) -> List<String> {
        List { item: Text { parse: short, display: Clone::clone }, never_empty }
    }

    #[test]
    fn list_is_an_array_or_separated_by_commas() {
        let array = Raw::List(vec!["a".to_owned(), "b,c".to_owned()]);
        assert_eq!(list(None).parse(&array), Ok(vec!["a".to_owned(), "b,c".to_owned()]));
        let text = Raw::Text(" a, b ,,c".to_owned());
        assert_eq!(list(None).parse(&text), Ok(["a", "b", "c"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn array_in_a_text_is_refused() {
        let expected = "expected items separated by commas, without brackets and quotes, found an array";
        for text in [r#"["a","b"]"#, r#"[ "a" ]"#, "['a']"] {
            let text = Raw::Text(text.to_owned());
            assert_eq!(list(None).parse(&text), Err(expected.to_owned()));
            assert_eq!(SecretList(short).parse(&text), Err(expected.to_owned()));
        }
        assert_eq!(list(None).parse(&Raw::Text("[a]".to_owned())), Ok(vec!["[a]".to_owned()]));
    }

    #[test]
    fn every_invalid_item_of_a_list_is_reported() {
        let text = Raw::Text("long,b,longer".to_owned());
        let expected = r#""long" is too long; "longer" is too long"#;
        assert_eq!(list(None).parse(&text), Err(expected.to_owned()));
    }

    #[test]
    fn empty_list_is_refused_only_where_declared() {
        let empty = Raw::List(vec![]);
        assert_eq!(list(None).parse(&empty), Ok(vec![]));
        let expected = "the list is empty, which stops everything".to_owned();
        assert_eq!(list(Some("stops everything")).parse(&empty), Err(expected));
    }

    #[test]
    fn secret_is_never_displayed() {
        let kind = Secret(short);
        let refused = kind.parse(&Raw::Text("hunter2".to_owned()));
        assert_eq!(refused, Err("the value is too long".to_owned()));
        assert_eq!(kind.display(&"abc".to_owned()), DisplayValue::Secret);
    }

    #[test]
    fn values_that_look_like_secrets_are_omitted_from_errors() {
        let kind = Text { parse: short, display: Clone::clone };
        let suspects = ["postgres://me:hunter2@host/db", "wag_0123", "eyJhbGciOiJIUzI1NiJ9"];
        for suspect in suspects {
            let refused = kind.parse(&Raw::Text(suspect.to_owned()));
            assert_eq!(refused, Err("the value is too long".to_owned()));
        }
    }
}
