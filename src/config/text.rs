//! Settings that are text: one value, a list of them, or a secret.

use super::{
    kind::{Kind, Shown, quote, text_of},
    layers::Raw,
};

/// Reads one text, or says what it is not: a predicate such as `is not an address`.
pub(super) type Parse<T> = fn(&str) -> Result<T, String>;

/// One text of a certain form.
pub(super) struct Text<T> {
    pub(super) parse: Parse<T>,
    pub(super) show: fn(&T) -> String,
}

impl<T> Kind for Text<T> {
    type Value = T;

    fn parse(&self, raw: &Raw) -> Result<T, String> {
        let text = text_of(raw)?;
        (self.parse)(&text).map_err(|why| format!("{} {why}", quote(&text)))
    }

    fn show(&self, value: &T) -> Shown {
        Shown::Text((self.show)(value))
    }
}

/// Some texts of a form: a TOML array, or separated by commas.
pub(super) struct List<T> {
    pub(super) item: Text<T>,
    /// What an empty list would do, where that is nothing anybody wants.
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
        self.each(text_of(raw)?.split(',').map(str::trim).filter(|item| !item.is_empty()))
    }

    fn show(&self, value: &Vec<T>) -> Shown {
        Shown::List(value.iter().map(self.item.show).collect())
    }
}

/// One text that no message and no listing repeats.
pub(super) struct Secret<T>(pub(super) Parse<T>);

impl<T> Kind for Secret<T> {
    type Value = T;

    fn parse(&self, raw: &Raw) -> Result<T, String> {
        (self.0)(&text_of(raw)?).map_err(|why| format!("the value {why}"))
    }

    fn show(&self, _: &T) -> Shown {
        Shown::Secret
    }
}

/// One or several texts, separated by commas, that no message and no listing repeats.
pub(super) struct SecretList<T>(pub(super) Parse<T>);

impl<T> Kind for SecretList<T> {
    type Value = Vec<T>;

    fn parse(&self, raw: &Raw) -> Result<Vec<T>, String> {
        let read = |item: &str| (self.0)(item).map_err(|why| format!("the value {why}"));
        let values: Vec<T> = match raw {
            Raw::List(items) => items.iter().map(|item| read(item)).collect::<Result<_, _>>()?,
            raw => {
                let text = text_of(raw)?;
                let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
                items.map(read).collect::<Result<_, _>>()?
            }
        };
        if values.is_empty() {
            Err("the list is empty; leave the setting out instead".to_owned())
        } else {
            Ok(values)
        }
    }

    fn show(&self, _: &Vec<T>) -> Shown {
        Shown::Secret
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn short(text: &str) -> Result<String, String> {
        if text.len() < 4 { Ok(text.to_owned()) } else { Err("is too long".to_owned()) }
    }

    fn list(never_empty: Option<&'static str>) -> List<String> {
        List { item: Text { parse: short, show: Clone::clone }, never_empty }
    }

    #[test]
    fn a_list_is_an_array_or_separated_by_commas() {
        let array = Raw::List(vec!["a".to_owned(), "b,c".to_owned()]);
        assert_eq!(list(None).parse(&array), Ok(vec!["a".to_owned(), "b,c".to_owned()]));
        let text = Raw::Text(" a, b ,,c".to_owned());
        assert_eq!(list(None).parse(&text), Ok(["a", "b", "c"].map(str::to_owned).to_vec()));
    }

    #[test]
    fn every_wrong_item_of_a_list_is_told() {
        let text = Raw::Text("long,b,longer".to_owned());
        let expected = r#""long" is too long; "longer" is too long"#;
        assert_eq!(list(None).parse(&text), Err(expected.to_owned()));
    }

    #[test]
    fn an_empty_list_is_refused_only_where_it_makes_no_sense() {
        let empty = Raw::List(vec![]);
        assert_eq!(list(None).parse(&empty), Ok(vec![]));
        let expected = "the list is empty, which stops everything".to_owned();
        assert_eq!(list(Some("stops everything")).parse(&empty), Err(expected));
    }

    #[test]
    fn a_secret_is_neither_repeated_nor_shown() {
        let kind = Secret(short);
        let refused = kind.parse(&Raw::Text("hunter2".to_owned()));
        assert_eq!(refused, Err("the value is too long".to_owned()));
        assert_eq!(kind.show(&"abc".to_owned()), Shown::Secret);
    }

    #[test]
    fn what_looks_like_a_secret_is_not_repeated_wherever_it_stands() {
        let kind = Text { parse: short, show: Clone::clone };
        let suspects = ["postgres://me:hunter2@host/db", "wag_0123", "eyJhbGciOiJIUzI1NiJ9"];
        for suspect in suspects {
            let refused = kind.parse(&Raw::Text(suspect.to_owned()));
            assert_eq!(refused, Err("the value is too long".to_owned()));
        }
    }
}
