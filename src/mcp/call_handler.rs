//! Answers the calls that both eras share: from the cache of encoded results, or from the catalog by way of an encoder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::call::Call;
use super::legacy;
use super::modern::encode::{self as modern, ResultEnvelope};
use super::modern::form::InputRequests;
use super::modern::prompt::PromptRequest;
use super::refusal::Refusal;
use super::result::ResultMembers;
use super::results::{DialectKey, ResultForm, ResultKey, ResultSubject, Results};
use super::tools::fetched::Fetched;
use super::tools::{self, blocks};
use super::version::{ContentTypes, ProtocolVersion, ToolMembers};
use crate::cache::MemoryBudget;
use crate::catalog::Catalog;
use crate::catalog::read::SourceUse;
use crate::catalog::snapshot::view::View;
use crate::catalog::snapshot::{AgentPart, AgentSnapshot};
use crate::http::cursor::CursorSigner;
use crate::identity::grant::Caller;
use crate::model::agent::Access;
use crate::model::fault::{Fault, Outcome};
use crate::model::prompt::{Prompt, PromptName};
use crate::model::scope::Revision;

/// The maximum length of a result, encoded, that is encoded on the async thread: a fraction of a millisecond.
const LIGHT_BYTES: usize = 256 << 10;

/// The maximum length of the arguments of a cached prompt: longer ones are rarely repeated.
const MAX_KEPT_ARGUMENT_BYTES: usize = 1_024;

/// The dialect that a result is encoded in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dialect {
    /// 2026-07-28, with the time for which a client may cache the result.
    Modern { ttl: Duration },
    /// An earlier revision.
    Legacy(ProtocolVersion),
}

impl Dialect {
    fn version(self) -> ProtocolVersion {
        match self {
            Self::Modern { .. } => ProtocolVersion::V2026_07_28,
            Self::Legacy(version) => version,
        }
    }

    pub(super) fn content_types(self) -> ContentTypes {
        self.version().content_types()
    }

    pub(super) fn tool_members(self) -> ToolMembers {
        self.version().tool_members()
    }
}

/// Handles calls.
#[derive(Debug)]
pub(super) struct CallHandler {
    pub(super) catalog: Arc<Catalog>,
    pub(super) cursor_signer: CursorSigner,
    pub(super) results: Results,
    /// The maximum length of the text, or of the data, of one result of a tool.
    pub(super) tool_result_bytes: usize,
    /// For how long a client may cache a result.
    pub(super) ttl: Duration,
}

/// The caller of a call, its view that answers it, and the dialect of the answer.
pub(super) struct CallContext<'a> {
    pub(super) caller: &'a Caller,
    pub(super) view: View,
    pub(super) dialect: Dialect,
    /// The request, as far as content from a connection concerns it.
    pub(super) source_use: &'a dyn SourceUse,
}

impl CallHandler {
    pub(super) fn new(
        catalog: Arc<Catalog>,
        cursor_signer: CursorSigner,
        budget: &Arc<MemoryBudget>,
        tool_result_bytes: usize,
        ttl: Duration,
    ) -> Self {
        Self { catalog, cursor_signer, results: Results::new(budget), tool_result_bytes, ttl }
    }

    /// The dialect of 2026-07-28.
    pub(super) fn modern(&self) -> Dialect {
        Dialect::Modern { ttl: self.ttl }
    }

    /// The encoded result of a call, without the id of the request.
    pub(super) async fn handle(
        &self,
        caller: &Caller,
        call: &Call<'_>,
        dialect: Dialect,
        source_use: &dyn SourceUse,
    ) -> Result<Bytes, Refusal> {
        let view = self.catalog.view_of_part(caller, || part_of(call)).await?;
        let context = CallContext { caller, view, dialect, source_use };
        let answered = match call {
            Call::ReadResource { uri } => self.read(&context, uri, ResultForm::Method).await,
            Call::List { list, cursor } => self.list(&context, *list, cursor.as_deref()),
            Call::GetPrompt { name, arguments } => {
                self.get_prompt(&context, name, arguments, ResultForm::Method).await
            }
            Call::Complete(request) => {
                let values = self.catalog.complete(caller, &context.view, request, source_use).await;
                values.and_then(|values| context.encode(ResultMembers::completion(&values)))
            }
            Call::ListTools { cursor } => self.list_tools(&context, cursor.as_deref()),
            // A tool decides itself what its refusal concerns.
            Call::CallTool { name, arguments } => {
                return Box::pin(self.call_tool(&context, name, arguments)).await;
            }
            Call::Skills(call) => self.answer_skills(&context, call),
        };
        answered.map_err(|fault| Refusal::of_call(&context.view, call, fault))
    }

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

    /// The result with the members of `value`. A long one is encoded off the async threads with a render permit of the payer,
    /// since one that is too long for the cache is encoded at each request.
    pub(super) async fn encode_long<T: Clone + Send + 'static>(
        &self,
        context: &CallContext<'_>,
        dialect: Dialect,
        value: &T,
        members: fn(&T) -> ResultMembers<'_>,
    ) -> Result<Bytes, Fault> {
        let light = members(value);
        if light.encoded_len() <= LIGHT_BYTES {
            return context.encode_in(dialect, light);
        }
        let (caller, view, value) = (context.caller.clone(), context.view.clone(), value.clone());
        let payer = caller.payer();
        let job = move || encode(&caller, view.snapshot(), dialect, members(&value));
        self.catalog.renderer().run_to_end(payer, job).await?
    }
}

impl CallContext<'_> {
    fn prompt(&self, name: &PromptName) -> Result<&Arc<Prompt>, Fault> {
        let prompt = self.view.get(name.as_str());
        prompt.ok_or_else(|| Fault::unknown_prompt(name.as_str()))
    }

    /// The key of a result whose subject was changed last at a revision.
    pub(super) fn key(&self, subject: ResultSubject, revision: Revision, form: ResultForm) -> ResultKey {
        ResultKey { revision: Some(revision), ..self.read_key(subject, form) }
    }

    /// The key of the result of a read.
    pub(super) fn read_key(&self, subject: ResultSubject, form: ResultForm) -> ResultKey {
        let dialect = match self.dialect {
            Dialect::Modern { .. } => DialectKey::Modern {
                described: self.view.snapshot().changed.description,
                public: self.caller.is_answered_as_anonymous(),
            },
            Dialect::Legacy(_) => DialectKey::Legacy,
        };
        let (agent, timeline) = (self.caller.agent, self.view.snapshot().timeline);
        ResultKey { agent, dialect, subject, form, timeline, revision: None, cursor: None }
    }

    /// The form of a tool's result, from an offset in the text on.
    pub(super) fn tool_form(&self, offset: usize) -> ResultForm {
        ResultForm::Tool { members: self.dialect.tool_members(), offset }
    }

    pub(super) fn encode(&self, members: ResultMembers<'_>) -> Result<Bytes, Fault> {
        self.encode_in(self.dialect, members)
    }

    pub(super) fn encode_in(&self, dialect: Dialect, members: ResultMembers<'_>) -> Result<Bytes, Fault> {
        encode(self.caller, self.view.snapshot(), dialect, members)
    }
}

/// The result of a call, in a dialect.
fn encode(
    caller: &Caller,
    snapshot: &AgentSnapshot,
    dialect: Dialect,
    members: ResultMembers<'_>,
) -> Result<Bytes, Fault> {
    let mut out = Vec::new();
    match dialect {
        Dialect::Modern { ttl } => modern::result(&mut out, members, envelope(caller, snapshot, ttl))?,
        Dialect::Legacy(version) => legacy::encode::result(&mut out, members, version)?,
    }
    Ok(out.into())
}

/// What of its agent a call needs, if that is known without the agent and is not all of it.
fn part_of(call: &Call<'_>) -> Option<AgentPart> {
    match call {
        Call::ReadResource { uri } => Some(AgentPart::Uri(uri.clone())),
        Call::CallTool { name, arguments } => tools::resource_of(name, arguments).map(AgentPart::Uri),
        Call::List { .. }
        | Call::GetPrompt { .. }
        | Call::Complete(_)
        | Call::Skills(_)
        | Call::ListTools { .. } => None,
    }
}

/// The envelope of a modern result.
pub(super) fn envelope<'a>(
    caller: &Caller,
    snapshot: &'a AgentSnapshot,
    ttl: Duration,
) -> ResultEnvelope<'a> {
    ResultEnvelope {
        agent: &snapshot.description,
        access: if caller.is_answered_as_anonymous() { Access::Public } else { Access::Key },
        ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
    }
}
