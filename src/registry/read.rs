//! Reads: an operation comes to an outcome, from memory where it can.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::Registry;
use super::access::Caller;
use super::snapshot::{AgentCell, AgentSnapshot};
use crate::model::fault::Fault;
use crate::model::ids::{AgentId, TenantId};
use crate::model::operation::{Operation, Outcome};
use crate::model::resource::{ContentHash, Part, Resource};
use crate::model::uri::ResourceUri;
use crate::store::StoreError;

/// Contents may be purged between the look at a definition and the look at its bytes; a newer look finds others.
const MOST_LOOKS: usize = 3;

impl Registry {
    /// What the caller's agent has registered, as new as anything this replica has heard of.
    ///
    /// # Errors
    /// [`Fault::Forbidden`] where the agent has just been deleted; [`Fault::StorageUnavailable`] where it is not in
    /// memory and the database is away.
    pub async fn snapshot(&self, caller: &Caller) -> Result<Arc<AgentSnapshot>, Fault> {
        let cell = self.agent_cell(caller.tenant, caller.agent);
        if let Some(fresh) = cell.fresh() {
            return Ok(fresh);
        }
        // Boxed, as every cold path below a hot one: the future of a read in memory is small to move.
        match Box::pin(self.load_snapshot(&cell)).await {
            Ok(found) => found.ok_or(Fault::Forbidden),
            Err(error) => match cell.stale().filter(|_| self.trusts_memory()) {
                Some(stale) => Ok(stale),
                None => Err(error.into()),
            },
        }
    }

    async fn load_snapshot(&self, cell: &AgentCell) -> Result<Option<Arc<AgentSnapshot>>, StoreError> {
        self.fills.run(cell.snapshot(&self.store, &self.sources)).await
    }

    fn agent_cell(&self, tenant: TenantId, agent: AgentId) -> Arc<AgentCell> {
        self.agents
            .get(&agent)
            .unwrap_or_else(|| self.agents.get_with(agent, || Arc::new(AgentCell::new(tenant, agent))))
    }

    /// Does what an operation asks of a snapshot.
    ///
    /// # Errors
    /// [`Fault::ResourceNotFound`]; as [`snapshot`](Self::snapshot) where contents are not in memory.
    pub async fn perform(
        &self,
        caller: &Caller,
        snapshot: Arc<AgentSnapshot>,
        operation: &Operation,
    ) -> Result<Outcome, Fault> {
        match operation {
            Operation::ListResources { after } => {
                let (page, more) = snapshot.page(after.as_deref(), self.limits.page_size);
                Ok(Outcome::Resources { page, more })
            }
            Operation::ReadResource { uri } => self.read_resource(caller, snapshot, uri).await,
        }
    }

    async fn read_resource(
        &self,
        caller: &Caller,
        mut snapshot: Arc<AgentSnapshot>,
        uri: &ResourceUri,
    ) -> Result<Outcome, Fault> {
        for _ in 0..MOST_LOOKS {
            let Some(resource) = snapshot.resources.get(uri.as_str()) else {
                return Err(Fault::ResourceNotFound(uri.clone()));
            };
            if let Some(bytes) = self.contents_of(caller, resource).await? {
                return Ok(Outcome::Contents { resource: Arc::clone(resource), bytes });
            }
            // The purge waits for long enough that only a replica that heard nothing meanwhile comes here.
            self.feed.confirm().await.map_err(|_| Fault::StorageUnavailable)?;
            snapshot = self.snapshot(caller).await?;
        }
        Err(Fault::StorageUnavailable)
    }

    /// The bytes of each part; `None` where some are purged already.
    async fn contents_of(
        &self,
        caller: &Caller,
        resource: &Resource,
    ) -> Result<Option<Vec<(Part, Bytes)>>, Fault> {
        let cached = |hash| self.contents.get(&(caller.agent, hash));
        let missing: Vec<_> =
            resource.parts.iter().map(|part| part.hash).filter(|hash| cached(*hash).is_none()).collect();
        let loaded = if missing.is_empty() {
            BTreeMap::new()
        } else {
            Box::pin(self.load_contents(caller.tenant, caller.agent, &missing)).await?
        };
        let bytes = |part: &Part| loaded.get(&part.hash).cloned().or_else(|| cached(part.hash));
        Ok(resource.parts.iter().map(|part| Some((part.clone(), bytes(part)?))).collect())
    }

    pub(super) async fn load_contents(
        &self,
        tenant: TenantId,
        agent: AgentId,
        hashes: &[ContentHash],
    ) -> Result<BTreeMap<ContentHash, Bytes>, StoreError> {
        let loaded = self.fills.run(self.store.contents(tenant, agent, hashes)).await?;
        for (hash, bytes) in &loaded {
            self.contents.insert((agent, *hash), bytes.clone());
        }
        Ok(loaded)
    }
}
