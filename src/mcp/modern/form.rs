//! The form that asks for the missing arguments of a prompt (2026-07-28, `ElicitRequestFormParams`).

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde::ser::Serializer;

use crate::model::prompt::{Argument, Prompt};

/// The members of `InputRequiredResult` that ask for arguments.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct InputRequests<'a> {
    input_requests: Requests<'a>,
}

#[derive(Serialize)]
struct Requests<'a> {
    arguments: ElicitRequest<'a>,
}

#[derive(Serialize)]
struct ElicitRequest<'a> {
    method: &'static str,
    params: Form<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Form<'a> {
    mode: &'static str,
    message: String,
    requested_schema: FormSchema<'a>,
}

#[derive(Serialize)]
struct FormSchema<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    properties: Properties<'a>,
    required: Vec<&'a str>,
}

/// The fields, in the order of the arguments.
struct Properties<'a>(Vec<&'a Argument>);

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

impl<'a> InputRequests<'a> {
    /// Asks for the required arguments that are not given. A client keeps no values of an earlier form: it returns those of
    /// the last one alone.
    pub fn missing(prompt: &'a Prompt, given: &BTreeMap<String, String>) -> Self {
        let missing: Vec<_> = prompt.missing(given).collect();
        let called = prompt.definition.title.as_deref().unwrap_or_else(|| prompt.name.as_str());
        let form = Form {
            mode: "form",
            message: format!("The prompt {called} needs more arguments."),
            requested_schema: FormSchema {
                kind: "object",
                required: missing.iter().map(|argument| &*argument.name).collect(),
                properties: Properties(missing),
            },
        };
        let arguments = ElicitRequest { method: "elicitation/create", params: form };
        Self { input_requests: Requests { arguments } }
    }
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

impl Serialize for Properties<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|argument| (&argument.name, Property::of(argument))))
    }
}
