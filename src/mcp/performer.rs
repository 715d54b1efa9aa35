//! A call that both eras have, from the encoded results or by way of the registry.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::call::Call;
use super::legacy;
use super::modern::encode::{self as modern, Surroundings};
use super::results::{self, ResultKey, Results, Shown};
use crate::http::cursor::CursorSeal;
use crate::model::agent::Access;
use crate::model::fault::Fault;
use crate::model::operation::{Operation, Outcome};
use crate::model::scope::Revision;
use crate::model::uri::ResourceUri;
use crate::registry::Registry;
use crate::registry::access::Caller;
use crate::registry::snapshot::AgentSnapshot;

/// The list that cursors of `resources/list` belong to.
const RESOURCES: &str = "mcp resources";

/// What a result is to be encoded in.
#[derive(Debug, Clone, Copy)]
pub(super) enum Dialect {
    /// 2026-07-28, with the time for which a client may take it for fresh.
    Modern { ttl: Duration },
    /// Any revision before.
    Legacy,
}

/// Performs calls.
#[derive(Debug)]
pub(super) struct Performer {
    registry: Arc<Registry>,
    seal: CursorSeal,
    results: Results,
}

impl Performer {
    pub(super) fn new(registry: Arc<Registry>, seal: CursorSeal, result_bytes: u64) -> Self {
        Self { registry, seal, results: Results::new(result_bytes) }
    }

    pub(super) fn registry(&self) -> &Registry {
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
        match call {
            Call::ReadResource { uri } => self.read(caller, snapshot, uri, dialect).await,
            Call::ListResources { cursor } => {
                let open = |cursor: &str| self.seal.open(RESOURCES, caller.agent.0, cursor);
                let after = cursor.as_deref().map(open).transpose()?;
                self.list(caller, snapshot, after, dialect).await
            }
            Call::ListTools => {
                let mut out = Vec::new();
                match dialect {
                    Dialect::Modern { ttl } => modern::tools(&mut out, around(caller, &snapshot, ttl))?,
                    Dialect::Legacy => legacy::encode::tools(&mut out)?,
                }
                Ok(out.into())
            }
        }
    }

    async fn read(
        &self,
        caller: &Caller,
        snapshot: Arc<AgentSnapshot>,
        uri: &ResourceUri,
        dialect: Dialect,
    ) -> Result<Bytes, Fault> {
        let Some(resource) = snapshot.resources.get(uri.as_str()) else {
            return Err(Fault::ResourceNotFound(uri.clone()));
        };
        let mut key = key(caller, &snapshot, dialect, Shown::Resource(uri.clone()), resource.revision);
        if let Some(kept) = self.results.get(&key) {
            return Ok(kept);
        }
        let operation = Operation::ReadResource { uri: uri.clone() };
        let outcome = Box::pin(self.registry.perform(caller, Arc::clone(&snapshot), &operation)).await?;
        if let Outcome::Contents { resource, .. } = &outcome {
            // A newer one, where the contents of the one that was looked at are purged.
            key.revision = resource.revision;
        }
        self.encode(caller, &snapshot, &outcome, None, dialect, key)
    }

    async fn list(
        &self,
        caller: &Caller,
        snapshot: Arc<AgentSnapshot>,
        after: Option<String>,
        dialect: Dialect,
    ) -> Result<Bytes, Fault> {
        let key = key(caller, &snapshot, dialect, Shown::Resources(after.clone()), snapshot.listed);
        if let Some(kept) = self.results.get(&key) {
            return Ok(kept);
        }
        let operation = Operation::ListResources { after };
        let outcome = Box::pin(self.registry.perform(caller, Arc::clone(&snapshot), &operation)).await?;
        let next = match &outcome {
            Outcome::Resources { page, more: true } => {
                page.last().map(|last| self.seal.seal(RESOURCES, caller.agent.0, last.uri.as_str()))
            }
            _ => None,
        };
        self.encode(caller, &snapshot, &outcome, next.as_deref(), dialect, key)
    }

    fn encode(
        &self,
        caller: &Caller,
        snapshot: &AgentSnapshot,
        outcome: &Outcome,
        next: Option<&str>,
        dialect: Dialect,
        key: ResultKey,
    ) -> Result<Bytes, Fault> {
        let mut out = Vec::new();
        match dialect {
            Dialect::Modern { ttl } => {
                modern::outcome(&mut out, outcome, next, around(caller, snapshot, ttl))?;
            }
            Dialect::Legacy => legacy::encode::outcome(&mut out, outcome, next)?,
        }
        let result = Bytes::from(out);
        self.results.keep(key, &result);
        Ok(result)
    }
}

fn key(
    caller: &Caller,
    snapshot: &AgentSnapshot,
    dialect: Dialect,
    shown: Shown,
    revision: Revision,
) -> ResultKey {
    let dialect = match dialect {
        Dialect::Modern { .. } => {
            results::Dialect::Modern { described: snapshot.described, public: caller.public }
        }
        Dialect::Legacy => results::Dialect::Legacy,
    };
    ResultKey { agent: caller.agent, dialect, shown, revision }
}

/// What a modern result says besides what was asked for.
pub(super) fn around<'a>(caller: &Caller, snapshot: &'a AgentSnapshot, ttl: Duration) -> Surroundings<'a> {
    Surroundings {
        agent: &snapshot.description,
        access: if caller.public { Access::Public } else { Access::Key },
        ttl_ms: u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX),
    }
}
