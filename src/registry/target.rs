//! The agent whose registry is written.

use crate::model::fault::Fault;
use crate::model::ids::{AgentId, TenantId};
use crate::model::scope::{Revision, Scope};
use crate::store::write::Write;

pub(super) const NO_AGENT: Fault = Fault::NotFound("agent");

/// Whose registry is written, under which revision.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) tenant: TenantId,
    pub(super) agent: AgentId,
    pub(super) scope: Scope,
    /// The revision that the write gives it.
    pub(super) revision: Revision,
}

impl Target {
    /// Locks the scope of an agent's registry; the agent is known to be there.
    pub(super) async fn lock(write: &mut Write, tenant: TenantId, agent: AgentId) -> Result<Self, Fault> {
        let scope = Scope::from(agent);
        let revision = write.lock(scope).await?.ok_or(NO_AGENT)?;
        if write.agent_exists(tenant, agent).await? {
            Ok(Self { tenant, agent, scope, revision })
        } else {
            Err(NO_AGENT)
        }
    }

    /// The newest revision that is committed.
    pub(super) fn present(&self) -> Revision {
        Revision(self.revision.0 - 1)
    }
}
