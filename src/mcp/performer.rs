//! A call that both eras have, from the encoded results or by way of the registry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::call::{Call, List};
use super::legacy;
use super::modern::encode::{self as modern, Surroundings};
use super::results::{self, ResultKey, ResultStats, Results, Shown};
use super::subject::last_of;
use super::version::{ContentTypes, ProtocolVersion};
use crate::http::cursor::CursorSeal;
use crate::model::agent::Access;
use crate::model::fault::Fault;
use crate::model::operation::{Operation, Outcome};
use crate::model::prompt::PromptName;
use crate::model::scope::Revision;
use crate::model::uri::ResourceUri;
use crate::registry::Registry;
use crate::registry::access::Caller;
use crate::registry::read::Answering;
use crate::registry::snapshot::AgentSnapshot;
use crate::registry::template_set::Match;

/// Most bytes of arguments with which the messages of a prompt are kept: what is longer is hardly asked for twice.
const MOST_KEPT_ARGUMENTS: usize = 1_024;

/// What a result is to be encoded in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dialect {
    /// 2026-07-28, with the time for which a client may take it for fresh.
    Modern { ttl: Duration },
    /// A revision before.
    Legacy(ProtocolVersion),
}

impl Dialect {
    fn content_types(self) -> ContentTypes {
        match self {
            Self::Modern { .. } => ProtocolVersion::V2026_07_28.content_types(),
            Self::Legacy(version) => version.content_types(),
        }
    }
}

/// Performs calls.
#[derive(Debug)]
pub(super) struct Performer {
    registry: Arc<Registry>,
    seal: CursorSeal,
    results: Results,
}

/// Who asks, of what, and in which words.
struct Asked<'a> {
    caller: &'a Caller,
    snapshot: Arc<AgentSnapshot>,
    dialect: Dialect,
}

impl Performer {
    pub(super) fn new(registry: Arc<Registry>, seal: CursorSeal, result_bytes: u64) -> Self {
        Self { registry, seal, results: Results::new(result_bytes) }
    }

    /// What is known of the results.
    pub(super) fn results(&self) -> ResultStats {
        self.results.stats()
    }

    pub(super) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The encoded result of a call, without the id it answers.
    pub(super) async fn perform(
        &self,
        caller: &Caller,
        call: &Call<'_>,
        dialect: Dialect,
    ) -> Result<Bytes, Fault> {
        let snapshot = self.registry.snapshot(caller).await?;
        let asked = Asked { caller, snapshot, dialect };
        match call {
            Call::ReadResource { uri } => self.read(&asked, uri).await,
            Call::List { list, cursor } => {
                let open = |cursor: &str| self.seal.open(list.as_str(), caller.agent.0, cursor);
                let after = cursor.as_deref().map(open).transpose()?;
                self.list(&asked, *list, after).await
            }
            Call::GetPrompt { name, arguments } => self.get_prompt(&asked, name, arguments).await,
            Call::Complete { reference, argument, value } => {
                let (argument, value) = (argument.clone(), value.clone());
                let operation = Operation::Complete { reference: reference.clone(), argument, value };
                let outcome = self.outcome(&asked, &operation).await?;
                asked.encode(&outcome, None)
            }
            Call::ListTools => asked.encode_tools(),
        }
    }

    async fn read(&self, asked: &Asked<'_>, uri: &ResourceUri) -> Result<Bytes, Fault> {
        let answering = asked.snapshot.definitions.answering(uri)?;
        let key = match &answering {
            Answering::Registered(resource) => asked.key(Shown::Resource(uri.clone()), resource.revision),
            Answering::Rendered(Match { template, .. }) => {
                let shown = Shown::Rendered(uri.clone(), template.uri_template.clone());
                asked.key(shown, template.revision)
            }
        };
        if let Some(kept) = self.results.get(&key) {
            return Ok(kept);
        }
        let contents = self.registry.read_resource(asked.caller, uri, answering).await?;
        let revision = contents.revision;
        let result = asked.encode(&Outcome::Contents(contents), None)?;
        // Another one, where what was looked at changed meanwhile and its contents are purged.
        if revision == key.revision {
            self.results.keep(key, &result);
        }
        Ok(result)
    }

    async fn list(&self, asked: &Asked<'_>, list: List, after: Option<String>) -> Result<Bytes, Fault> {
        let changed = &asked.snapshot.changed;
        let revision = match list {
            List::Resources => changed.resources,
            List::Templates => changed.templates,
            List::Prompts => changed.prompts,
        };
        let key = asked.key(Shown::Page(list, after.clone()), revision);
        if let Some(kept) = self.results.get(&key) {
            return Ok(kept);
        }
        let operation = match list {
            List::Resources => Operation::ListResources { after },
            List::Templates => Operation::ListTemplates { after },
            List::Prompts => Operation::ListPrompts { after },
        };
        let outcome = self.outcome(asked, &operation).await?;
        let seal = |last: &str| self.seal.seal(list.as_str(), asked.caller.agent.0, last);
        let next = last_of(&outcome).map(seal);
        let result = asked.encode(&outcome, next.as_deref())?;
        self.results.keep(key, &result);
        Ok(result)
    }

    async fn get_prompt(
        &self,
        asked: &Asked<'_>,
        name: &PromptName,
        arguments: &Arc<BTreeMap<String, String>>,
    ) -> Result<Bytes, Fault> {
        let Some(prompt) = asked.snapshot.definitions.prompts.get(name) else {
            return Err(Fault::unknown_prompt(name.as_str()));
        };
        let shown = Shown::Prompt(name.clone(), Arc::clone(arguments), asked.dialect.content_types());
        let key = asked.key(shown, prompt.revision);
        if let Some(kept) = self.results.get(&key) {
            return Ok(kept);
        }
        let operation = Operation::GetPrompt { name: name.clone(), arguments: Arc::clone(arguments) };
        let outcome = self.outcome(asked, &operation).await?;
        let result = asked.encode(&outcome, None)?;
        let length: usize = arguments.iter().map(|(name, value)| name.len() + value.len()).sum();
        if let Outcome::Prompt(messages) = &outcome
            && messages.settled
            && messages.revision == key.revision
            && length <= MOST_KEPT_ARGUMENTS
        {
            self.results.keep(key, &result);
        }
        Ok(result)
    }

    async fn outcome(&self, asked: &Asked<'_>, operation: &Operation) -> Result<Outcome, Fault> {
        self.registry.perform(asked.caller, Arc::clone(&asked.snapshot), operation).await
    }
}

impl Asked<'_> {
    fn key(&self, shown: Shown, revision: Revision) -> ResultKey {
        let dialect = match self.dialect {
            Dialect::Modern { .. } => results::Dialect::Modern {
                described: self.snapshot.changed.description,
                public: self.caller.public,
            },
            Dialect::Legacy(_) => results::Dialect::Legacy,
        };
        let (agent, timeline) = (self.caller.agent, self.snapshot.timeline);
        ResultKey { agent, dialect, shown, timeline, revision }
    }

    fn encode(&self, outcome: &Outcome, next: Option<&str>) -> Result<Bytes, Fault> {
        let mut out = Vec::new();
        match self.dialect {
            Dialect::Modern { ttl } => {
                modern::outcome(&mut out, outcome, next, around(self.caller, &self.snapshot, ttl))?;
            }
            Dialect::Legacy(version) => legacy::encode::outcome(&mut out, outcome, next, version)?,
        }
        Ok(out.into())
    }

    fn encode_tools(&self) -> Result<Bytes, Fault> {
        let mut out = Vec::new();
        match self.dialect {
            Dialect::Modern { ttl } => modern::tools(&mut out, around(self.caller, &self.snapshot, ttl))?,
            Dialect::Legacy(_) => legacy::encode::tools(&mut out)?,
        }
        Ok(out.into())
    }
}

impl List {
    /// What its cursors are sealed for.
    fn as_str(self) -> &'static str {
        match self {
            Self::Resources => "mcp resources",
            Self::Templates => "mcp templates",
            Self::Prompts => "mcp prompts",
        }
    }
}

/// What a modern result says besides what was asked for.
pub(super) fn around<'a>(caller: &Caller, snapshot: &'a AgentSnapshot, ttl: Duration) -> Surroundings<'a> {
    Surroundings {
        agent: &snapshot.description,
        access: if caller.public { Access::Public } else { Access::Key },
        ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
    }
}
