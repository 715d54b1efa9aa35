//! Prompts: their JSON, and `/agents/{agent}/prompts`.

use std::collections::{BTreeMap, BTreeSet};

use axum::extract::Request;
use axum::response::IntoResponse;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::definition::checks::{self, Description, MAX_RAW, Name, check_text};
use super::definition::completions::CompletionsInput;
use super::definition::form::{ContentLimits, Form, content};
use super::definition::message;
use super::definitions::CatalogCall;
use super::extract::{Condition, Nothing, Params, SecondSegment};
use super::openapi::{DeleteAnswers, Preconditions, Problems, PutAnswers};
use super::page::{Items, PageParams};
use super::services::Answer;
use crate::catalog::render::is_variable_name;
use crate::model::completion::CompletionValues;
use crate::model::content::{ContentHash, NewContent};
use crate::model::fault::{Fault, shortened};
use crate::model::json::Object;
use crate::model::label::{Label, Labels};
use crate::model::message::PromptMessage;
use crate::model::prompt::{Argument, NewPrompt, Prompt, PromptDefinition, PromptName};

/// The maximum number of arguments of a prompt.
const MAX_ARGUMENTS: usize = 100;
/// The maximum size of the arguments as JSON, together.
const MAX_ARGUMENT_BYTES: usize = 256 * 1024;
/// The maximum number of messages of a prompt.
const MAX_MESSAGES: usize = 100;

/// A prompt as sent.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewPrompt)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PromptInput {
    /// Must equal the name of the path if both are set.
    name: Option<String>,
    title: Option<Name>,
    description: Option<Description>,
    /// A list of `Icon` of the MCP specification.
    #[schema(value_type = Option<Vec<Object>>)]
    icons: Option<Box<RawValue>>,
    #[serde(rename = "_meta")]
    #[schema(value_type = Option<Object>)]
    meta: Option<Box<RawValue>>,
    /// Only callers who have one of them see the prompt; none: every caller does.
    #[schema(value_type = Option<Vec<Label>>, max_items = 16)]
    labels: Option<Labels>,
    #[schema(value_type = Option<Vec<ArgumentInput>>)]
    arguments: Option<Vec<Object<ArgumentInput>>>,
    /// A list of `PromptMessage` of the MCP specification, whose texts are templates.
    #[schema(value_type = Vec<Object>)]
    messages: Vec<Object<PromptMessage>>,
}

/// An argument of a prompt.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = NewArgument)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ArgumentInput {
    name: Name,
    title: Option<Name>,
    description: Option<Description>,
    required: Option<bool>,
    #[schema(value_type = Option<CompletionValues>)]
    completions: Option<CompletionsInput>,
    /// Whether the completions are the only values. Forms offer them as a choice; another value is refused.
    closed: Option<bool>,
}

fn checked_arguments(sent: Vec<Object<ArgumentInput>>) -> Result<Vec<Argument>, Fault> {
    if sent.len() > MAX_ARGUMENTS {
        return Err(Fault::invalid_params(format!("arguments: at most {MAX_ARGUMENTS}")));
    }
    let mut arguments = Vec::with_capacity(sent.len());
    let (mut names, mut completion_bytes) = (BTreeSet::new(), 0);
    for (index, Object(argument)) in sent.into_iter().enumerate() {
        let argument = argument.check(index)?;
        if !names.insert(argument.name.clone()) {
            let name = shortened(&argument.name);
            return Err(Fault::invalid_params(format!("arguments: duplicate name {name}")));
        }
        completion_bytes += json(&argument.completions)?.len();
        arguments.push(argument);
    }
    let known = || arguments.iter().map(|argument| argument.name.as_str());
    for (index, argument) in arguments.iter().enumerate() {
        let checked = argument.completions.check(known(), "an argument of the prompt");
        checked.map_err(|fault| fault.within(format_args!("arguments[{index}].completions")))?;
    }
    if completion_bytes > MAX_RAW {
        let wrong = format!("arguments: all completions together exceed {MAX_RAW} bytes");
        return Err(Fault::invalid_params(wrong));
    }
    if json(&arguments)?.len() > MAX_ARGUMENT_BYTES {
        return Err(Fault::invalid_params(format!("arguments exceed {MAX_ARGUMENT_BYTES} bytes")));
    }
    Ok(arguments)
}

impl ArgumentInput {
    fn check(self, index: usize) -> Result<Argument, Fault> {
        let name = String::from(self.name);
        if !is_variable_name(&name) {
            return Err(Fault::invalid_params(format!(
                "arguments[{index}].name: expected an identifier that messages can print, such as `topic` in \
                 `{{{{ topic }}}}`; found `{}`",
                shortened(&name)
            )));
        }
        let within = |fault: Fault| fault.within(format_args!("arguments[{index}].completions"));
        let completions = self.completions.map(CompletionsInput::check).transpose().map_err(within)?;
        let completions = completions.unwrap_or_default();
        for (at, value) in completions.listed().iter().enumerate() {
            check_text(&format!("arguments[{index}].completions[{at}]"), value)?;
        }
        if self.closed == Some(true) && completions.listed().is_empty() {
            let wrong = format!("arguments[{index}].closed needs completions, the values to choose from");
            return Err(Fault::invalid_params(wrong));
        }
        Ok(Argument {
            name,
            title: self.title.map(Name::into),
            description: self.description.map(Description::into),
            required: self.required,
            completions,
            closed: self.closed,
        })
    }
}

fn json(value: &impl Serialize) -> Result<Vec<u8>, Fault> {
    serde_json::to_vec(value).map_err(|error| Fault::Internal(error.to_string()))
}

/// A prompt as returned: what was sent.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Prompt)]
pub(crate) struct PromptView {
    #[schema(value_type = String)]
    name: PromptName,
    #[serde(flatten)]
    definition: PromptDefinition,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    #[schema(value_type = Vec<Label>, required = false)]
    labels: Labels,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    arguments: Vec<Argument>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<Object>>)]
    messages: Option<Box<RawValue>>,
}

impl Form for Prompt {
    type Input = PromptInput;
    type View = PromptView;
    type Exported = PromptView;

    fn sent_key(input: &PromptInput) -> Option<&str> {
        input.name.as_deref()
    }

    fn validate(input: PromptInput, name: PromptName, limits: ContentLimits) -> Result<NewPrompt, Fault> {
        if input.name.is_some_and(|own| own != name.as_str()) {
            return Err(Fault::invalid_params("name differs from the one in the path"));
        }
        // Clients remove such segments from a URL, percent-encoded too: none could read or delete the prompt.
        if matches!(name.as_str(), "." | "..") {
            return Err(Fault::invalid_params("name: a URL cannot contain `.` or `..`"));
        }
        let definition = PromptDefinition {
            title: input.title.map(Name::into),
            description: input.description.map(Description::into),
            icons: checks::icons("icons", input.icons)?,
            meta: checks::meta("_meta", input.meta)?,
        };
        let arguments = checked_arguments(input.arguments.unwrap_or_default())?;
        if !(1..=MAX_MESSAGES).contains(&input.messages.len()) {
            return Err(Fault::invalid_params(format!("messages: expected 1 to {MAX_MESSAGES}")));
        }
        let messages = input.messages.into_iter().enumerate();
        let messages = messages.map(|(index, Object(message))| message::checked(message, index));
        let messages = json(&messages.collect::<Result<Vec<_>, _>>()?)?;
        if messages.len() > limits.content_bytes {
            return Err(Fault::PayloadTooLarge(limits.content_bytes));
        }
        let labels = input.labels.unwrap_or_default();
        Ok(NewPrompt {
            name,
            definition,
            labels,
            arguments,
            messages: NewContent::new(Bytes::from(messages)),
        })
    }

    fn listed(self) -> PromptView {
        let Self { name, definition, labels, arguments, .. } = self;
        PromptView { name, definition, labels, arguments, messages: None }
    }

    fn whole(self, bytes: &BTreeMap<ContentHash, Bytes>) -> Result<PromptView, Fault> {
        let messages = String::from_utf8_lossy(content(bytes, self.messages)).into_owned();
        let messages = RawValue::from_string(messages).map_err(|error| Fault::Internal(error.to_string()))?;
        Ok(PromptView { messages: Some(messages), ..self.listed() })
    }
}

/// Lists prompts, without their messages.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/prompts",
    operation_id = "listPrompts",
    tag = "Prompts",
    params(("agent" = String, Path, description = "The id of the agent"), PageParams),
    responses((status = 200, description = "A page of definitions", body = Items<PromptView>), Problems)
)]
pub(super) async fn list(call: CatalogCall, Params(params): Params<PageParams>) -> Answer<impl IntoResponse> {
    Ok(call.list::<Prompt>(&params).await?)
}

/// Reads a prompt, in the format of `PUT`.
#[utoipa::path(
    get,
    path = "/admin/v1/agents/{agent}/prompts/{name}",
    operation_id = "readPrompt",
    tag = "Prompts",
    params(("agent" = String, Path, description = "The id of the agent"), ("name" = String, Path, description = "The name of the prompt")),
    responses((status = 200, description = "The prompt", body = PromptView, headers(("ETag" = String, description = "The revision that last changed it"))), Problems)
)]
pub(super) async fn read(
    call: CatalogCall,
    SecondSegment(name): SecondSegment,
    _: Params<Nothing>,
) -> Answer<impl IntoResponse> {
    Ok(call.read::<Prompt>(&name).await?)
}

/// Adds or replaces a prompt.
#[utoipa::path(
    put,
    path = "/admin/v1/agents/{agent}/prompts/{name}",
    operation_id = "putPrompt",
    tag = "Prompts",
    params(("agent" = String, Path, description = "The id of the agent"), ("name" = String, Path, description = "The name of the prompt"), Preconditions),
    request_body = PromptInput,
    responses(PutAnswers)
)]
pub(super) async fn write(
    call: CatalogCall,
    SecondSegment(name): SecondSegment,
    _: Params<Nothing>,
    Condition(condition): Condition,
    request: Request,
) -> Answer<impl IntoResponse> {
    Ok(call.put::<Prompt>(&name, condition, request).await?)
}

/// Removes a prompt.
#[utoipa::path(
    delete,
    path = "/admin/v1/agents/{agent}/prompts/{name}",
    operation_id = "deletePrompt",
    tag = "Prompts",
    params(("agent" = String, Path, description = "The id of the agent"), ("name" = String, Path, description = "The name of the prompt"), Preconditions),
    responses(DeleteAnswers)
)]
pub(super) async fn remove(
    call: CatalogCall,
    SecondSegment(name): SecondSegment,
    _: Params<Nothing>,
    Condition(condition): Condition,
) -> Answer<impl IntoResponse> {
    Ok(call.remove::<Prompt>(&name, condition).await?)
}
