//! `prompts/get` of the modern era: a client that shows forms is asked for missing arguments, and repeats the request with
//! what it was given (2026-07-28, `InputRequiredResult`). Nothing is remembered in between.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::mcp::call::members;
use crate::mcp::wire::Params;
use crate::mcp::wire::members::{META_CLIENT_CAPABILITIES, Members, Shape, text_of};
use crate::model::fault::Fault;
use crate::model::prompt::{Prompt, PromptName};

/// A request for a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptRequest<'a> {
    /// Which.
    pub name: PromptName,
    /// The values of its arguments, by name, without those of a form.
    pub arguments: Arc<BTreeMap<String, String>>,
    /// The JSON text of the client's capabilities.
    capabilities: &'a str,
    /// Whether there is a `requestState`.
    has_state: bool,
    /// The JSON text of `inputResponses`.
    responses: Raw<'a>,
}

/// A member that is not validated before the prompt is found.
#[derive(Debug, Clone, Copy)]
struct Raw<'a>(Option<&'a RawValue>);

impl PartialEq for Raw<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.0.map(RawValue::get) == other.0.map(RawValue::get)
    }
}

impl Eq for Raw<'_> {}

impl<'a> PromptRequest<'a> {
    /// Reads what the modern era adds to the parameters.
    pub(super) fn read(
        name: PromptName,
        arguments: Arc<BTreeMap<String, String>>,
        params: &Params<'a>,
    ) -> Self {
        let capabilities = params.meta().get(META_CLIENT_CAPABILITIES).map_or("{}", RawValue::get);
        let has_state = params.raw("requestState").is_some();
        Self { name, arguments, capabilities, has_state, responses: Raw(params.raw("inputResponses")) }
    }

    /// Whether the client repeats a request with input.
    pub fn is_repeated(&self) -> bool {
        self.has_state || self.responses.0.is_some()
    }

    /// Whether the client shows forms: its capability `elicitation` is empty or has `form`.
    pub fn shows_forms(&self) -> bool {
        let elicitation = Members::read(self.capabilities).ok().and_then(|all| all.get("elicitation"));
        elicitation.and_then(|raw| Members::read(raw.get()).ok()).is_some_and(|modes| {
            let has_form = || modes.get("form").is_some_and(|form| form.get().starts_with('{'));
            modes.shape() == Shape::Object && (modes.is_empty() || has_form())
        })
    }

    /// The arguments with the missing ones from the returned form. Values that are no strings, or that the argument does not
    /// admit, are left out.
    ///
    /// # Errors
    /// [`Fault::InvalidParams`] if an argument does not exist, the form was not accepted, or the response is malformed.
    pub fn completed(&self, prompt: &Prompt) -> Result<Arc<BTreeMap<String, String>>, Fault> {
        prompt.check_arguments(&self.arguments)?;
        let content = self.content()?;
        let mut arguments = BTreeMap::clone(&self.arguments);
        for argument in prompt.missing(&self.arguments) {
            let value = content.get(&argument.name).and_then(text_of);
            if let Some(value) = value.filter(|value| argument.admits(value)) {
                arguments.insert(argument.name.clone(), value.into_owned());
            }
        }
        Ok(arguments.into())
    }

    /// The members of the returned form; none if it was not returned.
    fn content(&self) -> Result<Members<'a>, Fault> {
        if self.has_state {
            return Err(Fault::invalid_params(
                "params.requestState is not one that the server sent: it sends none",
            ));
        }
        let responses =
            self.responses.0.map(|raw| members("params.inputResponses", raw.get())).transpose()?;
        let Some(response) = responses.and_then(|responses| responses.get("arguments")) else {
            return Ok(Members::default());
        };
        let called = "params.inputResponses.arguments";
        let response = members(called, response.get())?;
        match response.get("action").and_then(text_of).as_deref() {
            Some("accept") => {}
            Some("decline") => {
                return Err(Fault::invalid_params("the form for the missing arguments was declined"));
            }
            Some("cancel") => {
                return Err(Fault::invalid_params("the form for the missing arguments was cancelled"));
            }
            _ => {
                let wrong = format!("{called}.action must be accept, decline or cancel");
                return Err(Fault::invalid_params(wrong));
            }
        }
        let content = response.get("content").map(|raw| members(&format!("{called}.content"), raw.get()));
        Ok(content.transpose()?.unwrap_or_default())
    }
}
