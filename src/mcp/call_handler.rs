//! Answers the calls that both eras share: from the cache of encoded results, or from the catalog, encoded in the dialect of the
//! request. Reads are here; lists are in [`pages`](super::pages), and other calls in `prompts`, `skills` and `tools`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::call::Call;
use super::legacy;
use super::modern::encode::{self as modern, ResultEnvelope};
use super::refusal::Refusal;
use super::result::ResultMembers;
use super::results::{DialectKey, ReadVersion, ResultForm, ResultKey, ResultSubject, Results, Stamp};
use super::tools::fetched::Fetched;
use super::tools::{self, blocks};
use super::version::{ContentTypes, ProtocolVersion, ToolMembers};
use crate::cache::MemoryBudget;
use crate::catalog::Catalog;
use crate::catalog::read::SourceUse;
use crate::catalog::snapshot::view::{Answering, View};
use crate::catalog::snapshot::{AgentPart, AgentSnapshot};
use crate::http::cursor::CursorSigner;
use crate::identity::grant::Caller;
use crate::model::agent::Access;
use crate::model::call::Contents;
use crate::model::fault::Fault;
use crate::model::ids::ResourceUri;
use crate::model::scope::Revision;
use crate::sources::Outside;

/// The maximum length of a result, encoded, that is encoded on the async thread: a fraction of a millisecond.
const LIGHT_BYTES: usize = 256 << 10;

/// The significant bits of the time for which clients may cache content from a source.
const TIME_BITS: u32 = 7;

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

/// Answers the calls of both eras with encoded results.
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

    /// The encoded contents of a URI.
    ///
    /// # Errors
    /// [`Fault::ResourceNotFound`], and those of contents that are not in memory.
    pub(super) async fn read(
        &self,
        context: &CallContext<'_>,
        uri: &ResourceUri,
        form: ResultForm,
    ) -> Result<Bytes, Fault> {
        let agent_revision = context.view.snapshot().revision;
        // Unless a definition of the agent has labels, one answers a URI for all callers: the view need not be asked for it.
        let shared =
            (!context.view.has_labels()).then(|| context.read_key(ResultSubject::Read(uri.clone()), form));
        if let Some(kept) = shared.as_ref().and_then(|key| self.results.read_at(key, agent_revision)) {
            return Ok(kept);
        }
        let answering = context.view.answering(uri)?;
        let fetched = if answering.is_sourced() {
            let fetched = self.catalog.fetch(context.caller, uri, &answering, context.source_use).await?;
            fetched.map(|fetched| Outside { left: rounded(fetched.left), ..fetched })
        } else {
            None
        };
        let stamp = fetched.as_ref().map(|fetched| context.stamp(fetched, form));
        let variant = answering.variant(uri);
        let key = shared
            .unwrap_or_else(|| context.read_key(ResultSubject::Variant(Box::new(variant.clone())), form));
        let is_rendered = matches!(answering, Answering::Rendered(..));
        let version = ReadVersion { variant, is_rendered, revision: answering.revision(), stamp };
        if let Some(kept) = self.results.read(&key, &version, agent_revision) {
            return Ok(kept);
        }
        let title = matches!(form, ResultForm::Fetch { .. }).then(|| answering.title().to_owned());
        let contents = if let Some(fetched) = fetched {
            answering.contents(uri, &fetched)?
        } else {
            // Boxed: the future of a cached result is small to move.
            let contents = self.catalog.read_resource(context.caller, uri, answering, context.source_use);
            Box::pin(contents).await?
        };
        let result = match form {
            ResultForm::Method => Box::pin(self.encode_contents(context, &contents)).await?,
            ResultForm::Tool { offset, .. } => {
                let types = context.dialect.content_types();
                let blocks = blocks::of_contents(&contents, offset, self.tool_result_bytes, types)?;
                context.encode(ResultMembers::blocks(&blocks))?
            }
            ResultForm::Fetch { .. } => {
                let title = title.unwrap_or_default();
                let fetched = Fetched::of_contents(&title, &contents, self.tool_result_bytes)?;
                context.encode_object(&fetched.into_json()?)?
            }
        };
        // The revision differs if the definition changed meanwhile and its contents were purged.
        if contents.revision == version.revision && contents.fresh_for.is_some() == version.stamp.is_some() {
            self.results.keep_read(key, version, agent_revision, (&result, context.caller.tenant));
        }
        Ok(result)
    }

    /// The result of a read: clients may cache content from a source for as long as the gateway does.
    async fn encode_contents(&self, context: &CallContext<'_>, contents: &Contents) -> Result<Bytes, Fault> {
        let dialect = match (context.dialect, contents.fresh_for) {
            (Dialect::Modern { .. }, Some(ttl)) => Dialect::Modern { ttl },
            (dialect, _) => dialect,
        };
        self.encode_long(context, dialect, contents, |contents| ResultMembers::contents(contents)).await
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

    /// What a result with fetched content depends on beside its key.
    fn stamp(&self, fetched: &Outside, form: ResultForm) -> Stamp {
        let ttl = match (self.dialect, form) {
            (Dialect::Modern { .. }, ResultForm::Method) => Some(fetched.left),
            _ => None,
        };
        Stamp { fetched: fetched.id, ttl }
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

/// The part of the agent that suffices for a call; `None` if it needs all of it, or the call alone does not tell.
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

/// A time of at most `left`, less by at most a 64th: few times differ, so that an encoded result answers several
/// requests.
fn rounded(left: Duration) -> Duration {
    let millis = u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    let dropped = (u64::BITS - millis.leading_zeros()).saturating_sub(TIME_BITS);
    Duration::from_millis(millis >> dropped << dropped)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::time::Duration;

    use super::rounded;

    #[test]
    fn rounded_times_are_few_and_never_longer() {
        let millis = |left| u64::try_from(rounded(Duration::from_millis(left)).as_millis()).unwrap();
        for left in (0..100_000).chain([86_400_000, u64::from(u32::MAX)]) {
            let rounded = millis(left);
            assert!(rounded <= left && left - rounded <= left / 64, "{left}: {rounded}");
        }
        assert_eq!((0..=5_000).map(millis).collect::<BTreeSet<_>>().len(), 463);
        assert_eq!(rounded(Duration::from_micros(7_999)), Duration::from_millis(7));
    }
}
