//! Answers `prompts/get`: from the cache of encoded results, or with messages of the catalog, which the dialect encodes. A client
//! that shows forms is asked for missing arguments.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::call_handler::{CallContext, CallHandler, envelope};
use super::legacy;
use super::modern::encode as modern;
use super::modern::form::InputRequests;
use super::modern::prompt::PromptRequest;
use super::refusal::Refusal;
use super::result::ResultMembers;
use super::results::{ResultForm, ResultSubject};
use super::tools::blocks;
use super::tools::fetched::Fetched;
use crate::catalog::read::SourceUse;
use crate::identity::grant::Caller;
use crate::model::audit::event::Outcome;
use crate::model::fault::Fault;
use crate::model::prompt::{Prompt, PromptName};

/// The maximum length of the arguments of a cached prompt: longer ones are rarely repeated.
const MAX_KEPT_ARGUMENT_BYTES: usize = 1_024;

impl CallHandler {
    /// The encoded result of a modern `prompts/get`, without the id of the request, and its outcome: a client that shows
    /// forms is asked for missing arguments.
    pub(super) async fn handle_prompt(
        &self,
        caller: &Caller,
        request: &PromptRequest<'_>,
        source_use: &dyn SourceUse,
    ) -> Result<(Bytes, Outcome), Refusal> {
        let view = self.catalog.view(caller).await?;
        let context = CallContext { caller, view, dialect: self.modern(), source_use };
        let answered = match self.get_requested_prompt(&context, request).await {
            Err(Fault::MissingArguments(_)) if request.shows_forms() => {
                let asked = self.ask_for_arguments(&context, request);
                asked.map(|result| (result, Outcome::InputRequired))
            }
            answered => answered.map(|result| (result, Outcome::Ok)),
        };
        answered.map_err(|fault| Refusal::of_prompt(&context.view, request.name.as_str(), fault))
    }

    fn ask_for_arguments(
        &self,
        context: &CallContext<'_>,
        request: &PromptRequest<'_>,
    ) -> Result<Bytes, Fault> {
        let requests = InputRequests::missing(context.prompt(&request.name)?, &request.arguments);
        let envelope = envelope(context.caller, context.view.snapshot(), self.ttl);
        let mut out = Vec::new();
        modern::input_required(&mut out, &requests, envelope)?;
        Ok(out.into())
    }

    async fn get_requested_prompt(
        &self,
        context: &CallContext<'_>,
        request: &PromptRequest<'_>,
    ) -> Result<Bytes, Fault> {
        let (name, arguments) = (&request.name, &request.arguments);
        if request.is_repeated() {
            let arguments = request.completed(context.prompt(name)?)?;
            Box::pin(self.get_prompt(context, name, &arguments, ResultForm::Method)).await
        } else {
            self.get_prompt(context, name, arguments, ResultForm::Method).await
        }
    }

    pub(super) async fn get_prompt(
        &self,
        context: &CallContext<'_>,
        name: &PromptName,
        arguments: &Arc<BTreeMap<String, String>>,
        form: ResultForm,
    ) -> Result<Bytes, Fault> {
        let prompt = context.prompt(name)?;
        let types = context.dialect.content_types();
        let subject = ResultSubject::Prompt(name.clone(), Arc::clone(arguments), types);
        let key = context.key(subject, prompt.revision, form);
        if let Some(kept) = self.results.get(&key) {
            return Ok(kept);
        }
        let view = context.view.clone();
        let messages =
            self.catalog.get_prompt(context.caller, view, name.as_str(), arguments, context.source_use);
        let messages = Arc::new(Box::pin(messages).await?);
        let result = match form {
            ResultForm::Method => {
                let encoding = self.encode_long(context, context.dialect, &messages, |messages| {
                    ResultMembers::messages(messages)
                });
                Box::pin(encoding).await?
            }
            ResultForm::Tool { .. } => {
                let known = legacy::content::known(&messages.messages, types);
                let blocks = blocks::of_messages(&known, self.tool_result_bytes)?;
                context.encode(ResultMembers::blocks(&blocks))?
            }
            ResultForm::Fetch { .. } => {
                let fetched = Fetched::of_messages(prompt, &messages, self.tool_result_bytes);
                context.encode_object(&fetched.into_json()?)?
            }
        };
        let length: usize = arguments.iter().map(|(name, value)| name.len() + value.len()).sum();
        if messages.settled && Some(messages.revision) == key.revision && length <= MAX_KEPT_ARGUMENT_BYTES {
            self.results.keep(key, &result, context.caller.tenant);
        }
        Ok(result)
    }
}

impl CallContext<'_> {
    fn prompt(&self, name: &PromptName) -> Result<&Arc<Prompt>, Fault> {
        let prompt = self.view.get(name.as_str());
        prompt.ok_or_else(|| Fault::unknown_prompt(name.as_str()))
    }
}
