//! The arguments of a prompt as properties of a JSON Schema, for forms and for tools.

use std::collections::BTreeSet;

use serde::Serialize;
use serde::ser::Serializer;

use crate::model::prompt::Argument;

/// A property for each argument, in their order.
pub(super) struct ArgumentProperties<'a>(pub(super) Vec<&'a Argument>);

#[derive(Serialize)]
struct Property<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(rename = "enum", skip_serializing_if = "Option::is_none")]
    choices: Option<Vec<&'a str>>,
}

impl<'a> Property<'a> {
    fn of(argument: &'a Argument) -> Self {
        // The values of `enum` are unique.
        let mut seen = BTreeSet::new();
        let choices = argument.choices().map(|choices| {
            choices.iter().map(String::as_str).filter(|choice| seen.insert(*choice)).collect()
        });
        let (title, description) = (argument.title.as_deref(), argument.description.as_deref());
        Self { kind: "string", title, description, choices }
    }
}

impl Serialize for ArgumentProperties<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|argument| (&argument.name, Property::of(argument))))
    }
}
