//! The form that asks for the missing arguments of a prompt (2026-07-28, `ElicitRequestFormParams`).

use std::collections::BTreeMap;

use serde::Serialize;

use crate::mcp::argument_schema::ArgumentProperties;
use crate::model::prompt::Prompt;

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
    properties: ArgumentProperties<'a>,
    required: Vec<&'a str>,
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
                properties: ArgumentProperties(missing),
            },
        };
        let arguments = ElicitRequest { method: "elicitation/create", params: form };
        Self { input_requests: Requests { arguments } }
    }
}
