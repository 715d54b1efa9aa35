//! The tool `fetch`: the whole text of one result of `search`.

use std::sync::Arc;

use bytes::Bytes;

use super::fetched::Fetched;
use crate::mcp::call_handler::{CallContext, CallHandler};
use crate::mcp::refusal::Refusal;
use crate::mcp::results::ResultForm;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::prompt::{Prompt, PromptName};
use crate::model::template::ResourceTemplate;
use crate::model::tool::PROMPT_ID;

impl CallHandler {
    /// The text of what `search` found under an id.
    pub(super) async fn fetch(&self, context: &CallContext<'_>, id: &str) -> Result<Bytes, Refusal> {
        let view = &context.view;
        let form = ResultForm::Fetch { members: context.dialect.tool_members() };
        let prompt = id.strip_prefix(PROMPT_ID).unwrap_or_default();
        if view.get::<Prompt>(prompt).is_some()
            && let Ok(name) = PromptName::parse(prompt)
        {
            let got = self.get_prompt(context, &name, &Arc::default(), form).await;
            return got.map_err(|fault| Refusal::of_prompt(view, prompt, fault));
        }
        if let Some(template) = view.get::<ResourceTemplate>(id) {
            let usage = Fetched::of_template(template, self.tool_result_bytes);
            return Ok(context.encode_object(&usage.into_json()?)?);
        }
        let uri = ResourceUri::parse(id).map_err(|error| {
            Refusal::of_template(view, id, Fault::invalid_params(format!("arguments.id {error}")))
        })?;
        let read = self.read(context, &uri, form).await;
        read.map_err(|fault| Refusal::of_prompt(view, prompt, fault))
    }
}
