//! The tool `fetch`: the whole text of one result of `search`.

use std::sync::Arc;

use bytes::Bytes;
use uri_template::iri::encode_literals;

use super::fetched::Fetched;
use crate::mcp::call_handler::{CallContext, CallHandler};
use crate::mcp::refusal::Refusal;
use crate::mcp::results::ResultForm;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::prompt::{Prompt, PromptName};
use crate::model::template::ResourceTemplate;
use crate::model::tool::FoundId;

impl CallHandler {
    /// The text of what `search` found under an id.
    pub(super) async fn fetch(&self, context: &CallContext<'_>, id: &str) -> Result<Bytes, Refusal> {
        let view = &context.view;
        let form = ResultForm::Fetch { members: context.dialect.tool_members() };
        let parse = |uri: &str| {
            ResourceUri::parse(uri).map_err(|error| Fault::invalid_params(format!("arguments.id {error}")))
        };
        match FoundId::parse(id) {
            FoundId::Prompt(name) => {
                let got = match PromptName::parse(name) {
                    Ok(parsed) if view.get::<Prompt>(name).is_some() => {
                        self.get_prompt(context, &parsed, &Arc::default(), form).await
                    }
                    _ => Err(parse(id).map_or_else(|fault| fault, Fault::ResourceNotFound)),
                };
                got.map_err(|fault| Refusal::of_prompt(view, name, fault))
            }
            FoundId::Uri(text) => {
                let template = encode_literals(text);
                if let Some(template) = view.get::<ResourceTemplate>(&template) {
                    let usage = Fetched::of_template(template, self.tool_result_bytes);
                    return Ok(context.encode_object(&usage.into_json()?)?);
                }
                let uri = parse(text).map_err(|fault| Refusal::of_template(view, &template, fault))?;
                let read = self.read(context, &uri, form).await;
                read.map_err(|fault| Refusal::of_read(view, fault))
            }
        }
    }
}
